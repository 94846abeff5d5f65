import gzip
import json
import os
import pathlib
import tempfile

import numpy as np
import pytest
from conftest import run_python
from hypothesis import given, settings
from hypothesis import strategies as st

from wqa.data import (
    FILTERS,
    Candidate,
    Question,
    builtin_path,
    count,
    filter_questions,
    read_json,
    read_questions,
    write_questions,
)
from wqa.data.records import filter_rule
from wqa.errors import DataError, OptionError, StorageError
from wqa.io.files import atomic_writer
from wqa.io.lines import text_lines

GOOD = (
    '{"id": "Q1", "question": "who ?", "candidates": [{"text": "he", "label": 1}, {"text": "she"}]}'
)
TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=30)
METAS = st.none() | st.dictionaries(TEXT, st.none() | TEXT | st.integers(), max_size=2)
IDS = TEXT.map(lambda text: "".join(text.split())).filter(bool)
CANDIDATES = st.builds(
    Candidate, TEXT, st.sampled_from([0, 1, None]), st.none() | IDS, rank=st.none(), meta=METAS
)
QUESTIONS = st.lists(
    st.builds(
        Question,
        TEXT.filter(str.strip),
        TEXT.filter(str.strip),
        st.lists(CANDIDATES, min_size=1, max_size=4).map(tuple),
        st.lists(TEXT.filter(str.strip), max_size=2).map(tuple),
    ).filter(lambda question: len(set(question.document_ids)) == len(question.candidates)),
    min_size=1,
    max_size=5,
    unique_by=lambda question: question.id,
)


def test_reads_a_line(jsonl):
    assert list(read_questions(jsonl(GOOD))) == [
        Question("Q1", "who ?", (Candidate("he", 1), Candidate("she")))
    ]


def test_reads_the_ids_of_candidates(jsonl):
    line = GOOD.replace('"he"', '"he", "id": "D7"')
    [question] = read_questions(jsonl(line))
    assert question.candidates == (Candidate("he", 1, "D7"), Candidate("she", None, None))
    assert question.document_ids == ("D7", "Q1-1")


def test_reads_the_answers_of_a_question_without_candidates(jsonl):
    path = jsonl('{"id": "Q1", "question": "who ?", "answers": ["he", "him"]}')
    questions = list(read_questions(path, with_candidates=False))
    assert questions == [Question("Q1", "who ?", (), ("he", "him"))]
    with pytest.raises(DataError, match="no key 'candidates'"):
        list(read_questions(path))


@settings(max_examples=60)
@given(questions=QUESTIONS, name=st.sampled_from(["q.jsonl", "q.jsonl.gz"]))
def test_what_is_written_reads_back(tmp_path_factory, name, questions):
    path = tmp_path_factory.mktemp("round") / name
    write_questions(path, questions)
    assert list(read_questions(path)) == questions
    first = path.read_bytes()
    write_questions(path, read_questions(path))
    assert path.read_bytes() == first


BAD = {
    "malformed": ('{"id": "Q7", ', "malformed JSON"),
    "empty line": ("", "an empty line"),
    "no question": ('{"id": "a", "candidates": [{"text": "x"}]}', "no key 'question'"),
    "unknown key": (GOOD.replace('"id"', '"x": 1, "id"').replace("Q1", "a"), "unknown key 'x'"),
    "key twice": (GOOD.replace('"id"', '"id": "z", "id"').replace("Q1", "a"), "occurs twice"),
    "label 2": (GOOD.replace('"label": 1', '"label": 2').replace("Q1", "a"), "label is 2"),
    "empty question": (
        '{"id": "a", "question": " ", "candidates": [{"text": "x"}]}',
        "question is empty",
    ),
    "not utf-8": (b'{"id": "\xff"}', "byte 8 is not UTF-8"),
    "id null": (GOOD.replace('"he"', '"he", "id": null'), "candidate 1: id is None"),
    "id with a no-break space": (
        GOOD.replace('"he"', '"he", "id": "D\\u00a07"'),
        "candidate 1: id is 'D\\xa07'",
    ),
    "id that another has by default": (
        GOOD.replace('"he"', '"he", "id": "Q1-1"'),
        "candidate 2: document id 'Q1-1' belongs to candidate 1 too",
    ),
    "same id": (GOOD.replace("Q1", "Q4"), "is on line 3 too"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_line_is_refused_by_number(jsonl, kind):
    line, found = BAD[kind]
    path = jsonl(*(GOOD.replace("Q1", f"Q{number}") for number in range(2, 8)), line)
    read = []
    with pytest.raises(DataError) as caught:
        for question in read_questions(path):
            read.append(question)
    message = str(caught.value)
    assert f"{path}, line 7" in message and found in message and "\n" not in message
    assert len(read) == 6  # what came before was read


@pytest.mark.parametrize(
    "ids, found",
    [
        (("D7", "D7"), "candidate 2: document id 'D7'"),
        ((None, "a b"), "candidate 2: id is 'a b'"),
        ((None, "Q1-0"), "candidate 2: document id 'Q1-0'"),
    ],
)
def test_ids_that_could_not_be_read_are_not_written(tmp_path, ids, found):
    candidates = tuple(Candidate("text", 1, document_id) for document_id in ids)
    with pytest.raises(DataError, match=f"question 'Q1', {found}"):
        write_questions(tmp_path / "q.jsonl", [Question("Q1", "who ?", candidates)])
    question = Question("Q1", "who ?", (Candidate("text", 1),))
    with pytest.raises(DataError, match="two questions have the id 'Q1'"):
        write_questions(tmp_path / "q.jsonl", [question, question])
    with pytest.raises(DataError, match="q.csv: it has the name of a table"):
        write_questions(tmp_path / "q.csv", [question])
    assert not list(tmp_path.iterdir())


def test_bad_files(jsonl, tmp_path):
    with pytest.raises(DataError, match="No such file"):
        list(read_questions(tmp_path / "absent.jsonl"))
    with pytest.raises(DataError, match="no question"):
        list(read_questions(jsonl()))
    whole = gzip.compress((GOOD + "\n").encode() * 1)
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[:-9])
    with pytest.raises(DataError, match="cut.jsonl.gz"):
        list(read_questions(tmp_path / "cut.jsonl.gz"))
    (tmp_path / "plain.jsonl.gz").write_text(GOOD)
    with pytest.raises(DataError, match="cannot be read"):
        list(read_questions(tmp_path / "plain.jsonl.gz"))


def test_a_byte_order_mark_is_no_text(tmp_path):
    mark = b"\xef\xbb\xbf"
    lines = [GOOD, GOOD.replace("Q1", "Q2")]
    path, packed = tmp_path / "marked.jsonl", tmp_path / "marked.jsonl.gz"
    path.write_bytes(mark + "\n".join(lines).encode())
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for name in (path, packed):
        assert [question.id for question in read_questions(name)] == ["Q1", "Q2"]
    path.write_bytes(mark)
    assert list(text_lines(path)) == []
    # Only the first of a file is a mark; later ones are zero-width no-break spaces.
    path.write_bytes(mark + mark + b"a\n" + mark + b"b")
    assert [line for _, line in text_lines(path)] == ["\ufeffa\n", "\ufeffb"]
    path.write_bytes(mark + b'{"a": 1}')
    assert read_json(path) == {"a": 1}


def test_filters_and_counts():
    def question(name, *labels):
        return Question(name, "q", tuple(Candidate("c", label) for label in labels))

    questions = [question("both", 0, 1), question("positive", 1, 1), question("negative", 0, 0, 0)]
    assert [q.id for q in filter_questions(questions, "all")] == ["both", "positive", "negative"]
    assert [q.id for q in filter_questions(questions, "no-all-negative")] == ["both", "positive"]
    assert [q.id for q in filter_questions(questions, "clean")] == ["both"]
    assert count(questions) == {"questions": 3, "candidates": 7, "correct": 3}
    with pytest.raises(OptionError, match="no-all-negative"):
        filter_questions(questions, "some")
    for name, keeps in FILTERS.items():
        assert [q for q in questions if keeps(q)] == filter_questions(questions, name)
        # Arrays of counts follow the same rule.
        kept = filter_rule(name)(np.array([1, 2, 0]), np.array([1, 0, 3]))
        assert kept.tolist() == [bool(keeps(q)) for q in questions]
    with pytest.raises(DataError, match="question 'x': candidate 2 has no label"):
        filter_questions([question("x", 0, None)], "all")


@pytest.mark.parametrize("place", [None, "/dev/shm"])
def test_an_interrupted_write_leaves_the_old_file(place):
    with tempfile.TemporaryDirectory(dir=place) as folder:
        path = pathlib.Path(folder) / "file.txt"
        path.write_text("old")
        with pytest.raises(RuntimeError), atomic_writer(path) as file:
            file.write("new")
            raise RuntimeError
        assert path.read_text() == "old" and os.listdir(folder) == ["file.txt"]


def test_a_write_that_cannot_be_names_the_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file/below"), atomic_writer(
        tmp_path / "file" / "below"
    ):
        pass


def test_builtin_corpus():
    kinds = ("who", "when", "where", "how", "why", "how many", "what")
    sentences = []
    for split, size in (("train", 100), ("dev", 25), ("test", 25)):
        questions = list(read_questions(builtin_path(split)))
        assert len(filter_questions(questions, "clean")) == len(questions) == size
        for question in questions:
            assert 8 <= len(question.candidates) <= 12
        for kind in kinds:
            assert any(question.question.startswith(kind) for question in questions), (split, kind)
        sentences += [text for question in questions for text in question.texts]
    assert len(set(sentences)) == len(sentences) > 1200
    # The place of the answer gives nothing away.
    places = [
        q.labels.index(1) / (len(q.candidates) - 1) for q in read_questions(builtin_path("train"))
    ]
    assert 0.35 < sum(places) / len(places) < 0.65
    with pytest.raises(OptionError, match="train, dev, test"):
        builtin_path("valid")


def test_reading_needs_no_mxnet():
    code = (
        "import sys, wqa.data, wqa.evaluation, wqa.config, wqa.cli\n"
        "sys.exit('mxnet' in sys.modules)"
    )
    assert run_python("-c", code).returncode == 0


def test_lines_are_as_the_readme_shows_them(tmp_path):
    path = tmp_path / "one.jsonl"
    candidates = (Candidate("x", 1, "D7"), Candidate("y", 0), Candidate("z"))
    write_questions(path, [Question("Q1", "wer ist Müller ?", candidates)])
    assert path.read_text(encoding="utf-8") == (
        '{"id": "Q1", "question": "wer ist Müller ?", "candidates": '
        '[{"text": "x", "label": 1, "id": "D7"}, {"text": "y", "label": 0}, {"text": "z"}]}\n'
    )
    assert json.loads(path.read_text(encoding="utf-8"))["id"] == "Q1"
