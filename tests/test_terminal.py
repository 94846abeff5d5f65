"""The command line at its edges: terminals, streams, signals, the environment, odd arguments."""

import re
import unicodedata

from wqa.errors import DataError, printable, shorten
from wqa.evaluation.comparison import comparison_table
from wqa.evaluation.tables import align, table

#: A text with everything that could act on a terminal: a title, a colour, a bell, an override.
HOSTILE = "a\x1b]0;title\x07\x1b[31m\x9b2J\r\n\u202eb\u2066\u2028c\x7f\u200b\udce9"
#: What no line of a table or a message holds.
RAW = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def test_printable_escapes_what_acts_on_a_terminal():
    assert printable("a\x1b[31m\u202e\udce9\n") == "a\\x1b[31m\\u202e\\udce9\\n"
    kept = "C:\\new \u00e9\u4e2d\u0915\u094d\u200d\u0937 \u0645\u06cc\u200c\u062e\u0648 \U0001f468\u200d\U0001f469"
    assert printable(kept) == kept
    for code in range(0x110000):
        character = chr(code)
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            assert printable(character) != character
        if unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI"):
            assert printable(character) != character
    assert not RAW.search(printable(HOSTILE))


def test_messages_and_tables_are_printable():
    error = DataError(f"{HOSTILE}.jsonl", HOSTILE, HOSTILE, HOSTILE)
    assert not RAW.search(str(error)) and "\\x1b" in str(error)
    assert not RAW.search(shorten(HOSTILE))
    shown = table([{"run": HOSTILE, "map": 0.5}])
    assert not RAW.search(shown.replace("\n", "")) and len(shown.splitlines()) == 2
    assert len(align([["name"], [HOSTILE]], left=1).splitlines()) == 2
    figures = dict.fromkeys(("first", "second", "difference", "low", "high"), 0.5)
    metric = {"metric": "map", "t_test": 1.0, "wilcoxon": 1.0, "changed": 0, "questions": 2}
    comparison = {"first": HOSTILE, "second": HOSTILE, "metrics": [{**metric, **figures}]}
    text = comparison_table({**comparison, "spearman": 1.0, "spearman_deviation": 0.0})
    assert not RAW.search(text.replace("\n", "")) and len(text.splitlines()) == 3
