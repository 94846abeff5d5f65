"""Files of published word vectors: their formats, what a vocabulary keeps, and bad files."""

import gzip
import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wqa.data.vector_files import read_vector_file, tell_format
from wqa.errors import DataError

ROWS = [("the", [0.5, -1.0, 2.0]), ("glacier", [1.0, 0.25, -3.5]), ("####", [4.0, 5.0, 6.0])]
VOCABULARY = ["glacier", "the", "1995", "7"]


def text_of(rows, header=False, end="\n"):
    lines = [f"{len(rows)} {len(rows[0][1])}"] if header else []
    lines += [" ".join([word, *map(repr, numbers)]) for word, numbers in rows]
    return "".join(line + end for line in lines).encode()


def english(rows):
    return [(f"/c/en/{word}", numbers) for word, numbers in rows]


#: Content of a file, a name of the file, and the format that is told from them.
FILES = {
    "glove": (text_of(ROWS), "glove.txt", "glove"),
    "glove with line ends of Windows": (text_of(ROWS, end="\r\n"), "glove.txt", "glove"),
    "word2vec": (text_of(ROWS, header=True), "vectors.vec", "word2vec"),
    "word2vec with its spaces": (text_of(ROWS, True, " \n"), "vectors.txt", "word2vec"),
    "Numberbatch": (text_of(english(ROWS), True), "vectors.txt", "numberbatch"),
    "Numberbatch without a header": (text_of(english(ROWS)), "vectors.txt", "numberbatch"),
    "Numberbatch's English file": (text_of(ROWS, True), "numberbatch-en.txt", "numberbatch"),
}


@pytest.fixture
def vectors(tmp_path):
    def write(content, name="vectors.txt"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_each_format(vectors, name, packed):
    content, file, kind = FILES[name]
    path = vectors(content, file + ".gz" * packed)
    assert tell_format(path) == kind
    table = read_vector_file(path, VOCABULARY)
    masked = kind != "glove"
    expected = ROWS if masked else ROWS[:2]
    assert table.words == [word for word, _ in expected]
    assert table.vectors.tolist() == [numbers for _, numbers in expected]
    assert table.meta == {
        "kind": kind,
        "source": path.name,
        "source_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "rows": 3,
        "masks_digits": masked,
    }


def test_other_languages_are_no_words(vectors):
    rows = [("/c/de/the", [9.0]), ("/c/en/the", [1.0]), ("/c/en/new_york", [2.0]), ("/c/x", [3.0])]
    table = read_vector_file(vectors(text_of(rows, header=True)), ["the", "york", "x"])
    assert (table.words, table.vectors.tolist()) == (["the"], [[1.0]])
    assert table.meta["rows"] == 4


def test_the_first_of_several_rows_stays(vectors):
    rows = [("b", [1.0]), ("a", [2.0]), ("b", [3.0]), ("z", [4.0]), ("z", [5.0]), ("b", [6.0])]
    table = read_vector_file(vectors(text_of(rows)), ["a", "b", "c"])
    assert (table.words, table.vectors.tolist()) == (["b", "a"], [[1.0], [2.0]])
    assert table.meta["rows"] == 6


def test_a_cased_word_stands_for_the_lower_cased_one_that_is_absent(vectors):
    rows = [("Paris", [1.0]), ("The", [2.0]), ("PARIS", [3.0]), ("the", [4.0]), ("Paris", [5.0])]
    table = read_vector_file(vectors(text_of(rows)), ["the", "paris"])
    assert (table.words, table.vectors.tolist()) == (["paris", "the"], [[1.0], [4.0]])


def test_words_with_spaces_are_passed_over(vectors):
    content = b"the 1 2\n. . . 3 4\nat name@domain.com 5 6\nice 7 8\n"
    table = read_vector_file(vectors(content), ["the", ".", "at", "ice"])
    assert (table.words, table.vectors.tolist()) == (["the", "ice"], [[1, 2], [7, 8]])
    assert table.meta["rows"] == 4
    table = read_vector_file(vectors(b"the 1 2\na 1_0 3 4\n"), ["a 1_0"])
    assert (table.words, table.vectors.tolist()) == (["a 1_0"], [[3, 4]])
    table = read_vector_file(vectors(content), ["the", ". . ."])
    assert table.vectors.tolist() == [[1, 2], [3, 4]]


WORD = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters=" "), min_size=1
)


@settings(max_examples=60)
@given(
    st.dictionaries(
        WORD.map(str.lower).filter(lambda word: word == word.lower() and word.strip(" ")),
        st.lists(
            st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=4, max_size=4
        ),
        min_size=1,
    ),
    st.sampled_from(["glove", "word2vec", "numberbatch"]),
    st.booleans(),
)
def test_any_vectors_are_read_as_they_were_written(tmp_path_factory, entries, kind, packed):
    rows = [(word, numbers) for word, numbers in entries.items() if not word.startswith("/c/")]
    if not rows:
        return
    content = {
        "glove": lambda: text_of(rows),
        "word2vec": lambda: text_of(rows, header=True),
        "numberbatch": lambda: text_of(english(rows), header=True),
    }[kind]()
    path = tmp_path_factory.mktemp("files") / ("glove.gz" if packed else "glove")
    path.write_bytes(gzip.compress(content) if packed else content)
    table = read_vector_file(path, [word for word, _ in rows])
    assert table.words == [word for word, _ in rows]
    assert np.array_equal(table.vectors, np.array([numbers for _, numbers in rows], np.float32))


# Bad files


def read(path):
    with pytest.raises(DataError) as caught:
        read_vector_file(path, ["the", "ice", "1995"])
    return str(caught.value)


@pytest.mark.parametrize(
    "line, columns",
    [(b"ice 3", 2), (b"", 1), (b"ice 3 4 5", 4), (b"moon 3", 2)],
)
def test_a_wrong_number_of_columns(vectors, line, columns):
    text = read(vectors(b"the 1 2\n" + line + b"\nsnow 5 6\n"))
    assert f"vectors.txt, line 2: {columns} columns" in text
    assert "expected 3: a word and 2 numbers, separated by single spaces" in text


def test_columns_that_disagree_with_the_header(vectors):
    text = read(vectors(b"2 3\nthe 1 2\nice 3 4\n"))
    assert "line 2: 3 columns" in text and "expected 4: a word and 3 numbers" in text


@pytest.mark.parametrize("rows, found", [(4, 3), (2, 3)])
def test_rows_that_disagree_with_the_header(vectors, rows, found):
    content = text_of(ROWS, header=True).replace(b"3 3", f"{rows} 3".encode(), 1)
    text = read(vectors(content))
    assert f"{found} rows of words; expected {rows}, as its header says" in text


@pytest.mark.parametrize("units", [0, 1 << 20])
def test_a_header_of_impossible_sizes(vectors, units):
    text = read(vectors(f"3 {units}\nthe 1\n".encode()))
    assert f"line 1: vectors of {units:,} elements; expected vectors of 1 to 16,384" in text


@pytest.mark.parametrize("packed", [False, True])
def test_bytes_that_are_not_utf_8(vectors, packed):
    path = vectors(b"the 1 2\nice\xff 3 4\n", "vectors.txt" + ".gz" * packed)
    text = read(path)
    assert "line 2: byte 3 is not UTF-8" in text and "iconv" in text


@pytest.mark.parametrize("number", [b"nan", b"-inf", b"1e39"])
def test_numbers_that_are_not_finite(vectors, number):
    text = read(vectors(b"the 1 2\nice 3 " + number + b"\n"))
    assert "line 2: number 2 is not finite" in text


def test_what_is_no_number(vectors):
    text = read(vectors(b"the 1 2\nice 3 four\n"))
    assert "line 2: not a number" in text and "four" in text
    for wrong in (b"ice 3 1_0", b"ice  3"):
        assert "line 2: not a number" in read(vectors(b"the 1 2\n" + wrong + b"\n"))
    # Rows of other words are not parsed.
    assert read_vector_file(vectors(b"the 1 2\nmoon 3 four\n"), ["the"]).words == ["the"]


def test_an_empty_overlap(vectors):
    path = vectors(text_of([("moon", [1.0, 2.0]), ("star", [3.0, 4.0])]))
    text = read(path)
    assert "none of its 2 words is among the 3 of the texts, such as '1995', 'ice', 'the'" in text
    assert str(path) in text and "all words would be unknown" in text


def test_a_damaged_gz(vectors, tmp_path):
    rng = np.random.default_rng(0)
    rows = [(f"word{number}", rng.random(8).tolist()) for number in range(99)]
    path = vectors(text_of(rows, header=True), "vectors.txt.gz")
    path.write_bytes(path.read_bytes()[:-500])
    text = read(path)
    assert "cannot be read" in text and "vectors.txt.gz" in text and "fetch it again" in text
    path.write_bytes(b"the 1 2\n")
    assert "cannot be read (Not a gzipped file" in read(path)


def test_a_file_that_is_empty_absent_or_a_folder(vectors, tmp_path):
    assert "the file is empty" in read(vectors(b""))
    assert "cannot be read (No such file" in read(tmp_path / "absent.txt")
    assert "cannot be read (Is a directory" in read(tmp_path)
