"""Where the sentences of documents begin and end."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wqa.data import sentences
from wqa.data.sentences import SentenceSplitter, pieces


@pytest.fixture(scope="module")
def splitter():
    return SentenceSplitter()


def texts(splitter, text):
    return [text[start:end] for start, end in splitter.spans(text)]


def test_sentences_end_where_a_reader_sees_it(splitter):
    text = "Dr. Smith (b. 1950) saw caves,\ne.g. in Iceland. They melt!  Why ? \n\nNo one knows"
    assert texts(splitter, text) == [
        "Dr. Smith (b. 1950) saw caves,\ne.g. in Iceland.",
        "They melt!",
        "Why ?",
        "No one knows",
    ]


def test_blocks_of_light_markdown(splitter):
    text = """# A heading

Text above
a list:
- one item. And more.
* another
  on two lines
2. numbered

| head | of two |
| --- | :-: |
| cell | a. b |

```sh
wqa rank
```
Behind code.
***
````
```
code
~~~
````
```a``` is code
~~~
not closed
"""
    assert texts(splitter, text) == [
        "Text above\na list:",
        "one item.",
        "And more.",
        "another\n  on two lines",
        "numbered",
        "head | of two",
        "cell | a. b",
        "Behind code.",
        "```a``` is code\n~~~\nnot closed",
    ]


def test_a_sentence_of_any_length_is_cut(splitter, monkeypatch):
    monkeypatch.setattr(sentences, "LONGEST_PIECE", 20)
    words = "word " * 11
    assert texts(splitter, words) == ["word word word word"] * 2 + ["word word word"]
    assert list(pieces("x" * 45)) == ["x" * 20, "x" * 20, "x" * 5]
    assert list(pieces("One two. Three four five.")) == ["One two. ", "Three four five."]


@pytest.mark.parametrize(
    "hostile",
    [
        "The harvest grew.[1990 1991 1992 1993 1994 1995 1996 1997 1998 1999 and later] It fell.",
        "It grew.(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 and so on",
        f"| 1 | a cell that is padded{' ' * 50_000}|",
        *(part * 20_000 for part in ("A. ", "1. ", "e.g. ", '"', "(", r"\(", "[1 ", "?!.", "a")),
    ],
)
def test_no_text_takes_more_than_time_by_its_length(splitter, hostile):
    """Nested repetition: a splitter by backtracking patterns would not end."""
    start = time.process_time()
    spans = splitter.split(hostile)
    assert spans[0][0] == 0 and spans[-1][1] == len(hostile)
    assert len(texts(splitter, hostile)) <= len(hostile)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "parts",
    [
        ["He works for Apple Inc. in California.", "She lives in the U.S. and works there."],
        ["It costs $3.50.", "The No. 5 bus vs. the train: see Fig. 2, p. 17."],
        ["Gen. Lee met Lt. Col. Brown, Rev. Jones and Sgt. Pepper.", "They talked."],
        ["Smith et al. (2010) showed it.", "E. coli grows."],
        ["The harvest grew.[1]", "It fell again."],
        ["Rye keeps.", "Dr. Salo bakes it."],
        ['"Why?" she asked.', "“It works.”", "Then he left."],
        ["The dogs' house.", "The cats' house.", "‘Tis so.", "That’s all."],
        ["東京は都です。", "富士山は山です。"],
        ['The pipe is 5" wide.', 'The other is 7" wide.', "It came."],
    ],
)
def test_abbreviations_and_quotation_marks(splitter, parts):
    joint = "" if "。" in parts[0] else " "
    assert texts(splitter, joint.join(parts)) == parts


@given(st.text(alphabet="ab .!?\n\t|#-`*_1’é\u2028\0\u3000日。🙂", max_size=80))
def test_spans_are_in_order_and_hold_every_word_of_plain_text(text):
    spans = SentenceSplitter().spans(text)
    last = 0
    for start, end in spans:
        assert last <= start < end <= len(text)
        part = text[start:end]
        assert part == part.strip() and any(map(str.isalnum, part.replace("_", "1")))
        last = end
    if not set(text) & set("#|`*-1"):
        kept = "".join(text[start:end] for start, end in spans)
        assert [c for c in kept if c.isalnum()] == [c for c in text if c.isalnum()]
