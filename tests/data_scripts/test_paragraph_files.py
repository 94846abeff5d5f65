"""Documents for pre-training: their files, and what is too short."""

import collections
import gzip
import importlib

import pytest

from wqa.errors import DataError

paragraph_files = importlib.import_module("paragraph_files")
Document = paragraph_files.ParagraphDocument
GOOD = '{"id": "a", "paragraphs": [["One.", "Two."], ["Three."]]}'


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_what_is_written_reads_back(tmp_path, name):
    documents = [Document("a", (("One.", "Zwei \u2028"), ("Three.",))), Document("b", (("x",),))]
    content = "\n".join(map(paragraph_files.to_line, documents)).encode("utf-8")
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert list(paragraph_files.read_paragraphs(tmp_path / name)) == documents
    with pytest.raises(DataError, match="half a surrogate pair"):
        paragraph_files.to_line(Document("a", (("\ud83d",),)))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        '{"id": "b"}',
        '{"id": 1, "paragraphs": [["x"]]}',
        '{"id": "b", "paragraphs": [["x"]], "title": "t"}',
        '{"id": "b", "paragraphs": []}',
        '{"id": "b", "paragraphs": "x"}',
        '{"id": "b", "paragraphs": [[]]}',
        '{"id": "b", "paragraphs": [["x", " "]]}',
        '{"id": "b", "paragraphs": [["x", 1]]}',
    ],
)
def test_a_line_that_is_no_document_is_refused_by_its_number(tmp_path, line):
    path = tmp_path / "x.jsonl"
    path.write_text(f"{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(DataError, match="x.jsonl, line 2"):
        list(paragraph_files.read_paragraphs(path))


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    with pytest.raises(DataError, match="holds no file of documents"):
        paragraph_files.paragraph_files(tmp_path)
    for name in ("b.jsonl", "a.jsonl.gz", "c.jsonl", ".d.jsonl", "stats.json", "x.txt"):
        (tmp_path / name).write_text(GOOD)
    names = [path.name for path in paragraph_files.paragraph_files(tmp_path)]
    assert names == ["a.jsonl.gz", "b.jsonl", "c.jsonl"]
    assert paragraph_files.paragraph_files(tmp_path / "x.txt") == [tmp_path / "x.txt"]


def test_what_is_too_short_is_left_out_and_counted(monkeypatch, capsys):
    for name, least in (("SENTENCE", 5), ("PARAGRAPH", 12), ("DOCUMENT", 23)):
        monkeypatch.setattr(paragraph_files, name, least)
    documents = [
        # 8 + 1 + 3 characters, 5 + 1 + 6, 3, and two line ends: 29 in all.
        Document("a", (("12345678", "123"), ("12345", "123456"), ("123",))),
        Document("b", (("1234567890", "12345678"),)),  # 19 characters
        Document("c", (("123", "123", "12345"), ("1234", "1234567"))),  # 13 and 12
        Document("d", (("1234", "1234", "123"),) * 2),  # no long sentence
        Document("e", (("12345678901", "12345678901"),)),
    ]
    counts = collections.Counter()
    assert list(paragraph_files.keep_long(documents, counts)) == [
        Document("a", (("12345678",), ("12345", "123456"))),
        Document("c", (("12345",), ("1234567",))),
        Document("e", (("12345678901", "12345678901"),)),
    ]
    assert counts == {
        "documents": 3,
        "paragraphs": 5,
        "sentences": 7,
        "characters": 8 + 5 + 6 + 5 + 7 + 22,
        "examples": 2,
        "single_paragraphs": 1,
        "short document": 2,
        "short paragraph": 1,
        "short sentence": 4,
    }
    paragraph_files.note_left_out(counts, "x.jsonl")
    assert "2 documents too short and left out, 1 paragraph too short" in capsys.readouterr().err
