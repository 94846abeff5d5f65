import gzip
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wqa.data import (
    Candidate,
    Question,
    atomic_writer,
    builtin_path,
    count,
    filter_questions,
    read_questions,
    write_questions,
)
from wqa.errors import DataError, OptionError, StorageError

GOOD = (
    '{"id": "Q1", "question": "who ?", "candidates": [{"text": "he", "label": 1}, {"text": "she"}]}'
)
TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=30)
QUESTIONS = st.lists(
    st.builds(
        Question,
        TEXT.filter(str.strip),
        TEXT.filter(str.strip),
        st.lists(
            st.builds(Candidate, TEXT, st.sampled_from([0, 1, None])), min_size=1, max_size=4
        ).map(tuple),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda question: question.id,
)


def test_reads_a_line(jsonl):
    assert list(read_questions(jsonl(GOOD))) == [
        Question("Q1", "who ?", (Candidate("he", 1), Candidate("she")))
    ]


@pytest.mark.parametrize("name", ["q.jsonl", "q.jsonl.gz"])
@given(questions=QUESTIONS)
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
    "not an object": ("[1]", "[1]"),
    "no question": ('{"id": "a", "candidates": [{"text": "x"}]}', "no key 'question'"),
    "unknown key": (GOOD.replace('"id"', '"x": 1, "id"').replace("Q1", "a"), "unknown key 'x'"),
    "key twice": (GOOD.replace('"id"', '"id": "z", "id"').replace("Q1", "a"), "stands twice"),
    "label 2": (GOOD.replace('"label": 1', '"label": 2').replace("Q1", "a"), "label is 2"),
    "label true": (GOOD.replace('"label": 1', '"label": true').replace("Q1", "a"), "label is True"),
    "label 1.0": (GOOD.replace('"label": 1', '"label": 1.0').replace("Q1", "a"), "label is 1.0"),
    "label null": (GOOD.replace('"label": 1', '"label": null').replace("Q1", "a"), "label is None"),
    "no candidates": ('{"id": "a", "question": "b", "candidates": []}', "candidates is []"),
    "empty question": (
        '{"id": "a", "question": " ", "candidates": [{"text": "x"}]}',
        "question is empty",
    ),
    "id is a number": ('{"id": 7, "question": "b", "candidates": [{"text": "x"}]}', "id is 7"),
    "not utf-8": (b'{"id": "\xff"}', "byte 8 is not UTF-8"),
    "half a surrogate": (
        '{"id": "a", "question": "\\ud83d", "candidates": [{"text": "x"}]}',
        "surrogate",
    ),
    "same id": (GOOD.replace("Q1", "Q3"), "stands on line 3 too"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_line_is_refused_by_number(jsonl, kind):
    line, found = BAD[kind]
    path = jsonl(*(GOOD.replace("Q1", f"Q{number}") for number in range(1, 7)), line)
    read = []
    with pytest.raises(DataError) as caught:
        for question in read_questions(path):
            read.append(question)
    assert (
        f"{path}, line 7" in str(caught.value)
        and found in str(caught.value)
        and "\n" not in str(caught.value)
    )
    assert len(read) == 6  # what came before was read


def test_bad_files(jsonl, tmp_path):
    with pytest.raises(DataError, match="no such file"):
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
    with pytest.raises(DataError, match="candidate 2 has no label"):
        filter_questions([question("x", 0, None)], "all")


def test_an_interrupted_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic_writer(path) as file:
        file.write("new")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


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
    import subprocess

    code = (
        "import sys, wqa.data, wqa.evaluation, wqa.config, wqa.cli\n"
        "sys.exit('mxnet' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_lines_are_as_the_readme_shows_them(tmp_path):
    path = tmp_path / "one.jsonl"
    write_questions(path, [Question("Q1", "wer ist Müller ?", (Candidate("x", 1), Candidate("y")))])
    assert path.read_text(encoding="utf-8") == (
        '{"id": "Q1", "question": "wer ist Müller ?", '
        '"candidates": [{"text": "x", "label": 1}, {"text": "y"}]}\n'
    )
    assert json.loads(path.read_text(encoding="utf-8"))["id"] == "Q1"
