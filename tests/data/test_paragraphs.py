"""Documents for pre-training: their files, and what is too short."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wqa.data.paragraphs import (
    Minima,
    ParagraphCounts,
    ParagraphDocument,
    keep_long,
    note_left_out,
    paragraph_files,
    read_paragraphs,
    write_paragraphs,
)
from wqa.errors import DataError, OptionError

GOOD = '{"id": "a", "paragraphs": [["One.", "Two."], ["Three."]]}'
NO_MINIMA = Minima(0, 0, 0)
SENTENCES = st.text(st.characters(blacklist_categories=("Cs",)), max_size=12).filter(str.strip)
IDS = SENTENCES.map(lambda text: "".join(text.split())).filter(bool)
PARAGRAPHS = st.lists(SENTENCES, min_size=1, max_size=4).map(tuple)
DOCUMENTS = st.builds(
    ParagraphDocument, IDS, st.lists(PARAGRAPHS, min_size=1, max_size=4).map(tuple)
)


def numbered(name, *sizes):
    """A document of short paragraphs."""
    parts = [tuple(f"{number} of {size}" for number in range(size)) for size in sizes]
    return ParagraphDocument(str(name), tuple(parts))


# Files


def test_reads_a_line(jsonl):
    expected = ParagraphDocument("a", (("One.", "Two."), ("Three.",)))
    assert list(read_paragraphs(jsonl(GOOD))) == [expected]


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
@given(documents=st.lists(DOCUMENTS, min_size=1, max_size=5, unique_by=lambda item: item.id))
def test_what_is_written_reads_back(tmp_path_factory, name, documents):
    path = tmp_path_factory.mktemp("round") / name
    write_paragraphs(path, documents)
    assert list(read_paragraphs(path)) == documents


@pytest.mark.parametrize(
    "line, message",
    [
        ("", "an empty line"),
        ("[]", r"\[\]; expected a JSON object"),
        ('{"id": "b"}', "no key 'paragraphs'"),
        ('{"paragraphs": [["One."]]}', "no key 'id'"),
        ('{"id": "b", "paragraphs": [["x"]], "title": "t"}', "unknown key 'title'"),
        ('{"id": "b c", "paragraphs": [["One."]]}', "id is 'b c'; expected text without white"),
        ('{"id": 3, "paragraphs": [["One."]]}', "id is 3"),
        ('{"id": "b", "paragraphs": []}', "paragraphs is \\[\\]; expected a list that is not"),
        ('{"id": "b", "paragraphs": "One."}', "paragraphs is 'One.'"),
        ('{"id": "b", "paragraphs": [["One."], []]}', "line 2, paragraph 2: sentences is \\[\\]"),
        ('{"id": "b", "paragraphs": ["One."]}', "paragraph 1: sentences is 'One.'"),
        ('{"id": "b", "paragraphs": [["One.", ""]]}', "paragraph 1: sentence 2 is blank"),
        ('{"id": "b", "paragraphs": [[" \\u00a0"]]}', "paragraph 1: sentence 1 is blank"),
        ('{"id": "b", "paragraphs": [["One.", null]]}', "sentence 2 is None; expected a string"),
        ('{"id": "b", "paragraphs": [["\\ud800"]]}', "holds half a surrogate pair"),
        ('{"id": "b", "id": "c", "paragraphs": [["One."]]}', "key 'id' occurs twice"),
    ],
)
def test_a_line_that_is_no_document_is_refused_by_its_number(jsonl, line, message):
    path = jsonl(GOOD, line)
    with pytest.raises(DataError, match=message) as caught:
        list(read_paragraphs(path))
    assert str(caught.value).startswith(f"{path}, line 2")


def test_a_file_without_a_document_is_refused(tmp_path):
    (tmp_path / "x.jsonl").write_text("")
    with pytest.raises(DataError, match="the file holds no document"):
        list(read_paragraphs(tmp_path / "x.jsonl"))


@pytest.mark.parametrize(
    "document",
    [
        ParagraphDocument("a b", (("One.",),)),
        ParagraphDocument("a", ()),
        ParagraphDocument("a", ((),)),
        ParagraphDocument("a", (("One.", " "),)),
        ParagraphDocument("a", (("\ud800",),)),
    ],
)
def test_no_document_is_written_that_would_not_be_read(tmp_path, document):
    with pytest.raises(DataError):
        write_paragraphs(tmp_path / "x.jsonl", [document])
    assert not list(tmp_path.iterdir())


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    for name in ("b.jsonl", "a.jsonl.gz", "c.jsonl", ".d.jsonl", "stats.json", "x.txt"):
        text = GOOD.encode("utf-8")
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    (tmp_path / "folder.jsonl").mkdir()
    names = [path.name for path in paragraph_files(tmp_path)]
    assert names == ["a.jsonl.gz", "b.jsonl", "c.jsonl"]
    assert paragraph_files(tmp_path / "x.txt") == [tmp_path / "x.txt"]


def test_a_folder_without_files_is_refused(tmp_path):
    (tmp_path / "stats.json").write_text("{}")
    with pytest.raises(DataError, match="the folder holds no file of documents; expected files"):
        paragraph_files(tmp_path)
    with pytest.raises(DataError, match="no such file or folder"):
        paragraph_files(tmp_path / "absent")


# Minima


def test_what_is_too_short_is_left_out_and_counted(capsys):
    documents = [
        # 8 + 1 + 3 characters, 5 + 1 + 6, 3, and two line ends: 29 in all.
        ParagraphDocument("a", (("12345678", "123"), ("12345", "123456"), ("123",))),
        ParagraphDocument("b", (("1234567890", "12345678"),)),  # 19 characters
        ParagraphDocument("c", (("123", "123", "12345"), ("1234", "1234567"))),  # 13 and 12
        ParagraphDocument("d", (("1234", "1234", "123"),) * 2),  # no long sentence
        ParagraphDocument("e", (("12345678901", "12345678901"),)),
    ]
    counts = ParagraphCounts()
    kept = list(keep_long(documents, Minima(5, 12, 23), counts))
    assert kept == [
        ParagraphDocument("a", (("12345678",), ("12345", "123456"))),
        ParagraphDocument("c", (("12345",), ("1234567",))),
        ParagraphDocument("e", (("12345678901", "12345678901"),)),
    ]
    assert counts == ParagraphCounts(
        documents=3,
        paragraphs=5,
        sentences=7,
        short_documents=2,
        short_paragraphs=1,
        short_sentences=4,
        single_paragraphs=1,
        examples=2,
        characters=8 + 5 + 6 + 5 + 7 + 22,
    )
    note_left_out(counts, "x.jsonl")
    assert capsys.readouterr().err == (
        "note: x.jsonl: 2 documents too short and left out, 1 paragraph too short and left out, "
        "4 sentences too short and left out, 1 document of one paragraph, which get no hard "
        "negatives\n"
    )
    note_left_out(ParagraphCounts(documents=3))
    assert not capsys.readouterr().err


def test_minima_of_zero_keep_everything_and_negative_ones_are_refused():
    documents = [numbered(1, 1, 2), numbered(2, 1)]
    assert list(keep_long(documents, NO_MINIMA, ParagraphCounts())) == documents
    assert Minima() == Minima(sentence=20, paragraph=60, document=200)
    with pytest.raises(OptionError, match="minimum of a paragraph: -1; expected 0 or more"):
        Minima(paragraph=-1)
