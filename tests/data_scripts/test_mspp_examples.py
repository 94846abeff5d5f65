"""Examples of a premise with labelled candidates, drawn from documents (MSPP, section 3.4)."""

import collections
import importlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wqa.data import read_questions
from wqa.io.lines import write_lines

examples, paragraph_files = map(importlib.import_module, ("mspp_examples", "paragraph_files"))
ParagraphDocument = paragraph_files.ParagraphDocument


def numbered(name, *sizes):
    """A document whose sentences are their places: DOCUMENT/PARAGRAPH/SENTENCE."""
    parts = []
    for paragraph, size in enumerate(sizes):
        parts.append(tuple(f"{name}/{paragraph}/{number}" for number in range(size)))
    return ParagraphDocument(str(name), tuple(parts))


def places(span):
    """Document, paragraph and sentence of each sentence of a span."""
    return [tuple(map(int, place.split("/"))) for place in span.split()]


def kind_of(candidate, own):
    """Whether a candidate is of the premise's document, and its label."""
    return places(candidate.text)[0][0] == own, candidate.label


def check_example(premise, candidates, documents, own, paragraph, hard, easy):
    """Check each rule of an example."""
    [first] = places(premise)
    assert first[:2] == (own, paragraph)
    kinds = collections.Counter(kind_of(candidate, own) for candidate in candidates)
    sizes = list(map(len, documents[own].paragraphs))
    del sizes[paragraph]
    least = min(hard, sum(sorted(sizes)[:4]))
    assert len(candidates) == 1 + hard + easy and kinds[True, 1] == 1
    assert least <= kinds[True, 0] <= hard
    shared = []
    for candidate in candidates:
        span = places(candidate.text)
        assert len({place[:2] for place in span}) == 1 and 1 <= len(span) <= 2
        assert [place[2] for place in span] == list(range(span[0][2], span[-1][2] + 1))
        same = span[0][:2] == (own, paragraph)
        assert same == candidate.label  # a negative never shares the premise's paragraph
        if same:
            assert span[0] > first
        if kind_of(candidate, own) == (True, 0):
            shared += span
    assert len(set(shared)) == len(shared)  # no sentence is part of two hard negatives
    assert len({place[1] for place in shared}) <= 4


SIZES = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=7), min_size=2, max_size=6)


@given(sizes=SIZES, hard=st.integers(0, 4), easy=st.integers(0, 4), seed=st.integers(0, 1000))
def test_every_example_follows_the_rules(sizes, hard, easy, seed):
    documents = [numbered(name, *parts) for name, parts in enumerate(sizes)]
    rng = np.random.default_rng(seed)
    for own, parts in enumerate(sizes):
        for paragraph, size in enumerate(parts):
            if size > 1:
                drawn = examples.draw_example(documents, own, paragraph, hard, easy, rng)
                check_example(*drawn, documents, own, paragraph, hard, easy)


def test_places_and_lengths_are_uniform():
    """Each share lies within four standard deviations of its expectation."""
    documents = [numbered(0, 3), numbered(1, 1), numbered(2, 1)]
    rng = np.random.default_rng(1)
    count = 4000
    drawn = collections.Counter()
    for _ in range(count):
        premise, candidates = examples.draw_example(documents, 0, 0, 0, 1, rng)
        texts = {candidate.label: candidate.text for candidate in candidates}
        drawn[premise, texts[1]] += 1
        drawn[texts[0]] += 1
        drawn[candidates[0].label] += 1
    # One sentence in half of the cases: the premise is the first or the second, and after the
    # first either of the two that follow. Two sentences in the other half, which fit in one way.
    shares = {
        ("0/0/0", "0/0/1"): 1 / 8,
        ("0/0/0", "0/0/2"): 1 / 8,
        ("0/0/1", "0/0/2"): 1 / 4,
        ("0/0/0", "0/0/1 0/0/2"): 1 / 2,
        "1/0/0": 1 / 2,
        "2/0/0": 1 / 2,
        0: 1 / 2,
        1: 1 / 2,
    }
    assert set(drawn) == set(shares)
    for key, share in shares.items():
        deviation = (count * share * (1 - share)) ** 0.5
        assert abs(drawn[key] - count * share) < 4 * deviation, key


def document(name, sentences=3, paragraphs=3):
    texts = []
    for paragraph in range(paragraphs):
        texts.append(
            tuple(f"{name} {paragraph} {n} is a long sentence ." for n in range(sentences))
        )
    return ParagraphDocument(name, tuple(texts))


def draw(path, documents, out, *options):
    write_lines(path, map(paragraph_files.to_line, documents))
    arguments = ["--train", str(path), "--out", str(out), *options]
    return examples.main(arguments)


def test_a_command_writes_canonical_questions(tmp_path, monkeypatch):
    monkeypatch.setattr(examples, "DOCUMENTS", 4)  # the fifth is alone, with those before it
    documents = [document(f"d{number}") for number in range(5)]
    documents.append(ParagraphDocument("short", (("Too short.", "It is."),)))
    source = tmp_path / "documents.jsonl"
    assert draw(source, documents, tmp_path / "a", "--draws", "3", "--dev", str(source)) == 0
    drawn = list(read_questions(tmp_path / "a" / "train.jsonl"))
    assert len(drawn) == 5 * 3 * 3 and len({question.id for question in drawn}) == 45
    assert all(sorted(question.labels) == [0, 0, 0, 0, 1] for question in drawn)
    assert len({question.question for question in drawn}) > 15
    stats = json.loads((tmp_path / "a" / "stats.json").read_text())
    assert stats["dev"]["all"]["questions"] == stats["train"]["clean"]["questions"] == 45
    assert draw(source, documents, tmp_path / "b", "--draws", "3") == 0
    assert draw(source, documents, tmp_path / "c", "--draws", "3", "--seed", "1") == 0
    same, again, other = ((tmp_path / name / "train.jsonl").read_bytes() for name in "abc")
    assert same == again != other


@pytest.mark.parametrize(
    "documents, options, message",
    [
        ([document("one")], [], "document one: no other document"),
        ([document("one", 1, 9), document("two", 1, 9)], [], "it holds no question"),
        (
            [document("one"), document("two")],
            ["--draws", "0"],
            "--draws: 0; expected a whole number from 1",
        ),
        ([document("one"), document("two")], ["--hard", "-1"], "--hard: -1"),
    ],
)
def test_what_gives_no_examples_is_refused(tmp_path, capsys, documents, options, message):
    assert draw(tmp_path / "documents.jsonl", documents, tmp_path / "out", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out" / "train.jsonl").exists()
