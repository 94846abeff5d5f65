"""Documents, indexes, retrieval, distant labels and the metrics of retrieval."""

import gzip

import pytest

from wqa.data import Document, read_documents, write_documents
from wqa.errors import DataError

# Documents


def test_documents_round_trip(tmp_path):
    documents = [
        Document("D1", "A glacier cave is a cave in ice .", "Glacier cave"),
        Document("D2", "Le café\u2028est fermé"),
    ]
    for name in ("documents.jsonl", "documents.jsonl.gz"):
        write_documents(tmp_path / name, documents)
        assert list(read_documents(tmp_path / name)) == documents
    plain = (tmp_path / "documents.jsonl").read_bytes()
    assert gzip.decompress((tmp_path / "documents.jsonl.gz").read_bytes()) == plain
    assert b'"title"' not in plain.splitlines()[1]
    assert documents[0].full_text == "Glacier cave\nA glacier cave is a cave in ice ."
    assert documents[1].full_text == documents[1].text


@pytest.mark.parametrize(
    "line, problem",
    [
        ('{"id": "D2", "text": " \\t"}', "text is blank"),
        ('{"id": "D2", "text": ""}', "text is blank"),
        ('{"id": "D1", "text": "again"}', "document id 'D1' is on line 1 too"),
        ('{"id": "D 2", "text": "t"}', "id is 'D 2'"),
        ('{"id": "", "text": "t"}', "id is ''"),
        ('{"id": 2, "text": "t"}', "id is 2"),
        ('{"id": "D2", "text": null}', "text is None"),
        ('{"id": "D2", "text": "\\ud800"}', "text holds half a surrogate pair"),
        ('{"id": "D2", "text": "t", "title": " "}', "title is blank"),
        ('{"id": "D2", "text": "t", "label": 1}', "unknown key 'label'"),
        ('{"id": "D2"}', "no key 'text'"),
        ('{"id": "D2", "text": "t", "text": "u"}', "key 'text' occurs twice"),
        ("[]", "[]"),
        ("", "an empty line"),
        ("{", "malformed JSON"),
    ],
)
def test_a_wrong_document_is_refused_with_file_and_line(jsonl, line, problem):
    path = jsonl('{"id": "D1", "text": "a cave"}', line, name="documents.jsonl")
    with pytest.raises(DataError) as caught:
        list(read_documents(path))
    assert caught.value.where == f"{path}, line 2"
    assert problem in str(caught.value)


def test_a_file_without_documents_is_refused(jsonl):
    with pytest.raises(DataError, match="holds no document"):
        list(read_documents(jsonl(name="documents.jsonl")))


@pytest.mark.parametrize(
    "documents, problem",
    [
        ([Document("D1", "a"), Document("D1", "b")], "two documents have this id"),
        ([Document("D1", " ")], "text is blank"),
        ([Document("D 1", "a")], "id is 'D 1'"),
        ([Document("D1", "\ud800")], "half a surrogate pair"),
    ],
)
def test_a_wrong_document_is_not_written(tmp_path, documents, problem):
    with pytest.raises(DataError, match=problem):
        write_documents(tmp_path / "documents.jsonl", documents)
    assert not list(tmp_path.iterdir())
