"""``wqa demo``: questions from standard input, the cascade that answers them."""

import io
import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, child_environment

from wqa.cli import main
from wqa.cli.demo import EXAMPLES, builtin_sentences
from wqa.data import builtin_path, read_questions
from wqa.systems.load import load_ranker

TEXTS = [f"glacier caves number {number} form within ice" for number in range(10)]
FIRST, SECOND = "how do glacier caves form ?", "what is ice ?"


@pytest.fixture
def sentences(tmp_path):
    path = tmp_path / "sentences.txt"
    path.write_text("".join(text + "\n" for text in TEXTS))
    return path


@pytest.fixture
def typed(capsys, monkeypatch):
    """Run the command in this process, with bytes as its standard input."""

    def run(raw, *arguments):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"))
        code = main(["demo", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_piped_questions_in_a_process(tiny_run, sentences):
    command = [sys.executable, "-m", "wqa", "demo", str(tiny_run), "--candidates", str(sentences)]
    command += ["--drop-ratio", "0.5", "--engine", "mxnet"]
    done = subprocess.run(
        command,
        input=f"{FIRST}\n{SECOND}\n\nnever read ?\n",
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    head, first, second = done.stdout.split("\nquestion: ")
    assert head.startswith("10 candidates; an empty line ends")
    assert first.startswith(FIRST) and second.startswith(SECOND)
    assert "never" not in done.stdout
    # floor(0.5 k) of k candidates are dropped: 5 of 10, then 2 of 5.
    numbers = re.findall(r"exit (\d): +(\d+) scored, +(\d+) kept", first)
    assert numbers == [("1", "10", "5"), ("2", "5", "3"), ("3", "3", "3")]
    ranking = load_ranker(tiny_run, drop_ratio=0.5, engine="mxnet").rank(FIRST, TEXTS)
    rows = re.findall(r"^ +(\d) +(-?[\d.]+) +(\d) .*number (\d)", first, re.MULTILINE)
    assert [int(row[3]) for row in rows] == list(ranking.order[:5])
    assert [int(row[2]) for row in rows] == list(ranking.exits[ranking.order[:5]])
    assert f"cost {100 * ranking.cost.relative:.0f} % of the full encoder" in first


def test_counts_of_stages(tiny_run):
    ranker = load_ranker(tiny_run, keep=[4, 2], engine="mxnet")
    ranking = ranker.rank(FIRST, [*TEXTS, " "])  # a blank candidate is scored nowhere
    np.testing.assert_array_equal(ranking.scored_by_stage, [10, 4, 2])


def test_builtin_sentences_until_the_input_ends(typed):
    texts = [text for question in read_questions(builtin_path("test")) for text in question.texts]
    assert builtin_sentences() == list(dict.fromkeys(texts))
    code, out, err = typed(b"why is the sky blue ?", "wo", "--top-k", "2")
    assert code == 0, err
    assert f"{len(set(texts)):,} candidates" in out
    assert re.search(r"stage 1: +(\d+) scored, +\1 kept", out)
    assert len(re.findall(r"^ +\d+ ", out, re.MULTILINE)) == 2
    code, out, _ = typed(b"", "wo")
    assert code == 0 and "question:" not in out


def test_the_questions_that_are_shown_are_answered_without_training(minilm, typed):
    shown = typed(b"")[1].split("for example:\n")[1].splitlines()
    assert tuple(line.strip() for line in shown) == EXAMPLES
    answers = {}
    for question in read_questions(builtin_path("test")):
        right = {candidate.text for candidate in question.candidates if candidate.label}
        answers[question.question] = right
    out = typed("".join(f"{question}\n" for question in EXAMPLES).encode(), "--top-k", "2")[1]
    for question, ranked in zip(EXAMPLES, out.split("\nquestion: ")[1:]):
        rows = re.findall(r"^ +\d +(-?[\d.]+) +1  (.*)", ranked, re.MULTILINE)
        (score, text), (second, _) = rows
        assert text in answers[question] and float(score) > float(second) + 2


def test_candidates_of_the_quickstart(typed):
    code, out, err = typed(
        b"how do tides rise ?\n", "wo", "--candidates", ROOT / "recipes/quickstart.txt"
    )
    assert code == 0 and "rank    score  exit  sentence" in out, err


def test_a_prompt_at_a_terminal(tiny_run, sentences, monkeypatch, capsys):
    asked = []

    class Terminal:
        @staticmethod
        def isatty():
            return True

    def answer(prompt):
        asked.append(prompt)
        if len(asked) > 1:
            raise EOFError
        return FIRST

    monkeypatch.setattr(sys, "stdin", Terminal)
    monkeypatch.setattr("builtins.input", answer)
    assert main(["demo", "wo", "--candidates", str(sentences)]) == 0
    assert asked == ["question: "] * 2 and "scored" in capsys.readouterr().out


def test_a_question_that_is_too_long_is_no_end(typed, tiny_run, sentences):
    raw = f"{'what ' * 200}?\n{FIRST}\n".encode()
    code, out, err = typed(raw, tiny_run, "--candidates", sentences, "--engine", "mxnet")
    assert code == 0 and out.count("cost ") == 1
    [error] = [line for line in err.splitlines() if line.startswith("error: ")]
    assert "--long-questions truncate" in error


@pytest.mark.parametrize(
    "raw, arguments, found",
    [
        (b"", ["--candidates", "-"], "--candidates: standard input"),
        (b"", ["--top-k", "0"], "--top-k: 0"),
        (b"", ["--candidates", "absent.txt"], "absent.txt: cannot be read"),
        (b"\xff\n", [], "standard input, line 1: byte 0 is not UTF-8"),
    ],
)
def test_input_that_is_refused(typed, raw, arguments, found):
    code, _, err = typed(raw, "wo", *arguments)
    assert code == 2 and f"error: {found}" in err
