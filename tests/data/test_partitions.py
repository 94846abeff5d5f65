"""Partitions of a corpus: every question once, in order, within bounds; read again."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wqa.data import Candidate, Question, read_questions, write_questions
from wqa.data.partitions import Partition, PartitionReader, partitions_of, question_size
from wqa.errors import DataError


def test_tokens_are_estimated_from_characters():
    """Two pairs: 3 special tokens each, and (2 x 5 + 9 + 4) // 4 = 5 of text."""
    question = Question("q", "who ?", (Candidate("the moon."), Candidate("rain")))
    assert question_size(question) == (2, 2 * 3 + 5)


TEXTS = st.text("abc é", max_size=12).map(lambda text: f"a{text}")
QUESTIONS = st.lists(
    st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=4), st.booleans()), min_size=1, max_size=9
)


def questions_of(parts):
    questions = []
    for number, (text, candidates, passes) in enumerate(parts):
        records = tuple(Candidate(candidate, int(passes)) for candidate in candidates)
        questions.append(Question(f"q{number}", text, records))
    return questions


def has_answer(question):
    return question.labels[0] == 1


def tokens_of(group):
    return sum(question_size(question)[1] for question in group)


def answered_size(question):
    return question_size(question) if has_answer(question) else None


@settings(max_examples=80)
@given(QUESTIONS, st.integers(1, 60))
def test_every_question_is_in_one_group_in_order_and_within_bounds(parts, limit):
    questions = questions_of(parts)
    groups = list(partitions_of(questions, answered_size, limit))
    kept = [question for _, group in groups for question in group]
    assert kept == list(filter(has_answer, questions))
    assert sum(part.read for part, _ in groups) == len(questions)
    for part, group in groups:
        assert part.read >= 1 and part.texts == sum(len(question.candidates) for question in group)
        # A question of more tokens is alone, without those that count none.
        assert tokens_of(group) <= limit or part.read == 1
    for (_, group), (_, following) in zip(groups, groups[1:]):
        # No group ends early: the next question would have exceeded the limit.
        assert tokens_of(group) + tokens_of(following[:1]) > limit


@settings(max_examples=40)
@given(QUESTIONS, st.integers(1, 60))
def test_the_groups_after_one_do_not_depend_on_those_before(parts, limit):
    questions = questions_of(parts)
    groups = list(partitions_of(questions, answered_size, limit))
    rest = list(partitions_of(questions[groups[0][0].read :], answered_size, limit))
    assert [group for _, group in rest] == [group for _, group in groups[1:]]


@settings(max_examples=40)
@given(QUESTIONS, st.integers(1, 60), st.sampled_from(["plain", "mark", "gz", "no end"]))
def test_partitions_are_read_again_in_any_order(tmp_path_factory, parts, limit, form):
    questions = questions_of(parts)
    path = tmp_path_factory.mktemp("data") / ("q.jsonl.gz" if form == "gz" else "q.jsonl")
    write_questions(path, questions)
    if form == "mark":
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    if form == "no end":
        path.write_bytes(path.read_bytes()[:-1])
    divided = partitions_of(read_questions(path), question_size, limit)
    partitions = [partition for partition, _ in divided]
    reader, start = PartitionReader(path), 0
    for part in partitions:
        assert part.start == start
        assert reader.read(part) == questions[start : start + part.read]
        start += part.read
    assert start == len(questions)
    assert reader.read(partitions[0]) == questions[: partitions[0].read]
    last = partitions[-1]
    assert reader.read(last) == PartitionReader(path).read(last) == questions[last.start :]


def test_a_corpus_is_not_held_in_memory(tmp_path):
    """The groups that are gone are freed: the generator holds one."""
    path = tmp_path / "many.jsonl"
    write_questions(path, [Question(f"q{n}", "who ?", (Candidate("rain"),)) for n in range(50)])
    read = read_questions(path)
    _, questions = next(partitions_of(read, question_size, 20))
    # Four questions of 5 tokens each; the fifth is read ahead.
    assert len(questions) == 4
    assert next(read).id == "q5"


def test_errors_name_the_line_of_the_file(jsonl):
    line = json.dumps({"id": "q", "question": "who ?", "candidates": [{"text": "rain"}]})
    path = jsonl(line, line.replace('"q"', '"r"'), "{")
    reader = PartitionReader(path)
    assert reader.read(Partition(1, 1, 1))[0].id == "r"
    with pytest.raises(DataError, match="line 3: malformed JSON"):
        reader.read(Partition(1, 2, 2))
    with pytest.raises(DataError, match="no.jsonl: cannot be read"):
        PartitionReader("no.jsonl").read(Partition(0, 1, 1))
    damaged = jsonl(line, name="damaged.jsonl.gz")
    damaged.write_bytes(damaged.read_bytes()[:-12])
    with pytest.raises(DataError, match="damaged.jsonl.gz: cannot be read"):
        PartitionReader(damaged).read(Partition(1, 1, 1))
