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
    "content, message",
    [
        (b"the 1 2\nice 3\n", "vectors.txt, line 2: 2 columns"),
        (b"the 1 2\n\nsnow 5 6\n", "line 2: 1 columns"),
        (b"the 1 2\nice 3 4 5\n", "expected 3: a word and 2 numbers, separated by single spaces"),
        (b"the 1 2\nmoon 3\n", "line 2: 2 columns"),  # also of other words
        (b"2 3\nthe 1 2\nice 3 4\n", "expected 4: a word and 3 numbers"),
        (b"2 2\nthe 1 2\n", "1 rows of words; expected 2, as its header says"),
        (b"1 2\nthe 1 2\nice 3 4\n", "2 rows of words; expected 1, as its header says"),
        (b"3 0\nthe 1\n", "line 1: vectors of 0 elements; expected vectors of 1 to 16,384"),
        (b"3 1048576\nthe 1\n", "line 1: vectors of 1,048,576 elements"),
        (b"the 1 2\nice\xff 3 4\n", "line 2: byte 3 is not UTF-8"),
        (b"the 1 2\nice 3 nan\n", "line 2: number 2 is not finite"),
        (b"the 1 2\nice 3 -inf\n", "line 2: number 2 is not finite"),
        (b"the 1 2\nice 3 1e39\n", "line 2: number 2 is not finite"),
        (b"the 1 2\nice 3 four\n", "line 2: not a number"),
        (b"the 1 2\nice 3 1_0\n", "line 2: not a number"),
        (b"the 1 2\nice  3\n", "line 2: not a number"),
        (b"", "the file is empty"),
    ],
)
def test_content_that_does_not_fit_is_refused(vectors, content, message):
    for name in ("vectors.txt", "vectors.txt.gz"):
        assert message.replace("vectors.txt", name) in read(vectors(content, name))


def test_numbers_of_other_words_are_not_read(vectors):
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


def test_a_file_that_is_absent_or_a_folder(tmp_path):
    assert "cannot be read (No such file" in read(tmp_path / "absent.txt")
    assert "cannot be read (Is a directory" in read(tmp_path)
