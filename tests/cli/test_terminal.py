"""The command line at its edges: terminals, streams, signals, the environment, odd arguments."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import unicodedata

import pytest
from conftest import needs_full_device, run_python

from wqa.cli import COMMANDS
from wqa.cli.options import show
from wqa.config.environment import openmp_threads
from wqa.errors import DataError, OptionError, StorageError, printable, shorten
from wqa.evaluation.comparison import comparison_table
from wqa.evaluation.report import table

#: A text with everything that could act on a terminal: a title, a colour, a bell, an override.
HOSTILE = "a\x1b]0;title\x07\x1b[31m\x9b2J\r\n\u202eb\u2066\u2028c\x7f\u200b\udce9"
#: What no line of a table or a message holds.
RAW = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def test_printable_escapes_what_acts_on_a_terminal():
    assert printable("a\x1b[31m\u202e\udce9\n") == "a\\x1b[31m\\u202e\\udce9\\n"
    kept = "C:\\new \u00e9\u4e2d\u0915\u094d\u200d\u0937 \u0645\u06cc\u200c\u062e"
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
    figures = dict.fromkeys(("first", "second", "difference", "low", "high"), 0.5)
    metric = {"metric": "map", "t_test": 1.0, "wilcoxon": 1.0, "changed": 0, "questions": 2}
    metric.update({"spearman": 1.0, "spearman_p": 0.5})
    comparison = {"first": HOSTILE, "second": HOSTILE, "metrics": [{**metric, **figures}]}
    text = comparison_table({**comparison, "spearman": 1.0, "spearman_deviation": 0.0})
    assert not RAW.search(text.replace("\n", "")) and len(text.splitlines()) == 3


def child(*arguments, code="", environment=(), **options):
    """Run the command line, or Python code, in a process of its own."""
    command = ["-c", code] if code else ["-m", "wqa"]
    if "stdout" in options:
        options = {"capture_output": False, "stderr": subprocess.PIPE, **options}
    return run_python(*command, *arguments, variables=environment, **options)


def is_one_line(text, found):
    return text.startswith("error: ") and text.count("\n") == 1 and found in text


def test_ranking_of_hostile_candidates(tiny_run, tmp_path, run_main):
    sentences = [HOSTILE.replace("\n", "").replace("\udce9", "\u4e2d"), "ice \U000e0041"]
    (tmp_path / "candidates").write_text("\n".join(sentences), encoding="utf-8", newline="\n")
    rank = ["rank", tiny_run, "--question", "q \x1b[2J", "--candidates", tmp_path / "candidates"]
    code, out, _ = run_main(*rank)
    assert code == 0 and not RAW.search(out.replace("\n", "")) and "\\x1b[31m" in out
    assert len(out.splitlines()) == 4
    code, out, _ = run_main(*rank, "--json", "-")
    assert code == 0 and not RAW.search(out.replace("\n", "")) and "\u4e2d" in out
    result = json.loads(out)
    assert {row["text"] for row in result["ranking"]} == set(sentences)
    assert result["question"] == "q \x1b[2J"
    code, out, err = run_main(*rank[:-1], tmp_path / "\x1b[2J\u202e")
    assert code == 2 and is_one_line(err, "\\x1b[2J\\u202e") and not RAW.search(err[:-1])
    code, _, err = run_main("evaluate", tiny_run, "--\x1b[2J\u202e")
    assert code == 2 and not RAW.search(err[:-1])


def test_a_byte_order_mark_is_not_part_of_the_first_candidate(tiny_run, tmp_path, run_main):
    path = tmp_path / "candidates"
    path.write_bytes(b"\xef\xbb\xbfice melts .\r\nwater runs .\r\n")
    code, out, _ = run_main(
        "rank", tiny_run, "--question", "q", "--candidates", path, "--json", "-"
    )
    assert code == 0
    texts = {row["text"] for row in json.loads(out)["ranking"]}
    assert texts == {"ice melts .", "water runs ."}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_the_encoding_lacks_is_escaped(encoding, tmp_path):
    (tmp_path / "one").write_text("caf\u00e9 \u4e2d\n", encoding="utf-8")
    rank = ("rank", "wo", "--question", "q", "--candidates", "one")
    done = child(*rank, environment={"PYTHONIOENCODING": encoding}, cwd=tmp_path, text=False)
    shown = "caf\u00e9 ".encode(encoding, "backslashreplace") + b"\\u4e2d"
    assert done.returncode == 0 and not done.stderr and shown in done.stdout


def test_a_question_in_any_locale(tiny_run, tmp_path, run_main):
    (tmp_path / "one").write_text("ice\n")
    rank = ["rank", tiny_run, "--candidates", tmp_path / "one", "--json", "-", "--question"]
    raw = "o\u00f9 ?".encode("utf-8").decode("ascii", "surrogateescape")  # as in the C locale
    code, out, _ = run_main(*rank, raw)
    assert code == 0 and json.loads(out)["question"] == "o\u00f9 ?"
    code, _, err = run_main(*rank, "\udcff")
    assert code == 2 and is_one_line(err, "--question: '\\udcff'; expected UTF-8 text")


def closing(*handles):
    """Close streams in the child, as a shell's ``>&-`` does."""

    def close():
        for handle in handles:
            os.close(handle)

    return close


@needs_full_device
def test_standard_output_that_is_full():
    with open("/dev/full", "w") as full:
        done = child("--help", stdout=full)
        assert done.returncode == 2 and is_one_line(done.stderr, "standard output or the system: ")
        assert child("rank", stdout=full, stderr=full).returncode == 2


def test_closed_streams(tmp_path):
    done = child("--help", preexec_fn=closing(1))
    assert done.returncode == 2 and is_one_line(done.stderr, "standard output: it is closed")
    done = child("rank", preexec_fn=closing(2))
    assert done.returncode == 2 and not done.stdout
    done = child("--version", preexec_fn=closing(0, 2))
    assert done.returncode == 0 and done.stdout.startswith("wqa ")
    rank = ["rank", tmp_path, "--question", "q", "--candidates", "-"]
    done = child(*rank, preexec_fn=closing(0))
    assert done.returncode == 2 and is_one_line(done.stderr, "standard input: it is closed")


def test_a_reader_that_closes_the_pipe():
    read, write = os.pipe()
    os.close(read)
    done = child("--help", stdout=write)
    os.close(write)
    assert done.returncode == 128 + signal.SIGPIPE and done.stderr == ""


def test_a_result_is_in_its_file_before_it_is_printed(tmp_path, monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(BrokenPipeError):
        show("a table", {"map": 0.5}, str(tmp_path / "a.json"))
    assert json.loads((tmp_path / "a.json").read_text()) == {"map": 0.5}


#: Runs `wqa doctor` with another function in its place.
REPLACED = """
import os, signal, sys, time
import wqa.__main__
from wqa.cli import doctor

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)

def run(options):
    {body}

doctor.run = run
sys.argv = ["wqa", "doctor"]
sys.exit(wqa.__main__.main())
"""


@pytest.mark.parametrize(
    "body, status, message",
    [
        ("interrupt()", 130, "interrupted\n"),
        ("sys.stdout.write('a'); os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
    ],
)
def test_an_interrupt_at_any_moment(body, status, message):
    done = child(code=REPLACED.format(body=body))
    assert (done.returncode, done.stderr) == (status, message)


def test_a_bug_has_its_traceback():
    done = child(code=REPLACED.format(body="raise TypeError('two')"))
    assert done.returncode == 1 and done.stderr.startswith("Traceback")
    assert done.stderr.endswith("TypeError: two\n")


@pytest.mark.parametrize(
    "error, found",
    [
        (MemoryError(), "memory: there is not enough"),
        (PermissionError(13, "Permission denied", "/x/\x1b"), "/x/\\x1b: Permission denied"),
        (OSError(28, "No space left on device"), "standard output or the system: No space left"),
    ],
)
def test_errors_of_the_system(error, found, monkeypatch, run_main):
    def fail(options):
        raise error

    monkeypatch.setattr(COMMANDS["doctor"], "run", fail)
    code, out, err = run_main("doctor")
    assert code == 2 and not out and is_one_line(err, found)


def test_a_device_or_a_pipe_is_written_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    received = []
    reader = threading.Thread(
        target=lambda: received.append((tmp_path / "pipe").read_text()), daemon=True
    )
    reader.start()
    show("", {"map": 0.5}, str(tmp_path / "pipe"))
    reader.join(10)
    assert json.loads(received[0]) == {"map": 0.5}
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(StorageError, match="is a folder"):
        show("", {}, str(tmp_path))


@needs_full_device
def test_a_full_device_is_named_and_stays(tmp_path):
    os.symlink("/dev/full", tmp_path / "full")
    with pytest.raises(StorageError, match="No space left on device"):
        show("", {}, str(tmp_path / "full"))
    assert (tmp_path / "full").is_symlink()


@pytest.mark.parametrize("value", ["abc", "99999", "x,2", "0", "\u0662"])
def test_a_number_of_threads_that_would_abort_the_process(value):
    with pytest.raises(OptionError, match="OMP_NUM_THREADS: .*unset the environment variable"):
        openmp_threads(value, 7)


def test_mxnet_starts_with_a_list_of_threads_and_not_with_a_word():
    code = "import wqa.models, os, mxnet as mx; mx.nd.ones(4).wait_to_read()"
    code += "; print(os.environ['OMP_NUM_THREADS'])"
    done = child(code=code, environment={"OMP_NUM_THREADS": "1,2"})
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    done = child("train", "cascade", "--help", environment={"OMP_NUM_THREADS": "abc"})
    assert done.returncode == 2 and is_one_line(done.stderr, "OMP_NUM_THREADS: 'abc'")


@pytest.mark.parametrize(
    "arguments, found",
    [
        ("rank x --question q --candidates x --top-k -1", "--top-k: -1; expected a whole number"),
        (f"quantize x --data x --questions {'9' * 20}", "a whole number up to 2147483647"),
        (f"bench x --data x --rounds {'9' * 5000}", "--rounds: invalid int value"),
        ("tune x --data x --max-cost nan", "--max-cost: nan; expected a number"),
    ],
)
def test_numbers_out_of_range(arguments, found, run_main):
    code, out, err = run_main(*arguments.split())
    assert code == 2 and not out and is_one_line(err, found) and len(err) < 500
