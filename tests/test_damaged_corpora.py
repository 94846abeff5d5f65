"""Damaged, hostile and interrupted corpora: readers refuse them by name, and nothing is lost."""

import bz2
import gzip
import io
import json
import lzma
import tarfile

import pytest

from wqa.data import read_questions
from wqa.data.archives import checked_members, open_tar, require_space, tar_errors
from wqa.data.lines import text_lines
from wqa.errors import DataError, StorageError
from wqa.evaluation import read_run

UNPACKED = 1 << 20


def tar_of(*members):
    """A tar of members, each a `tarfile.TarInfo` or a name, with 5,000 bytes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for member in members:
            if isinstance(member, str):
                member = tarfile.TarInfo(member)
                member.size = 5000
            tar.addfile(member, io.BytesIO(bytes(5000)))
    return raw.getvalue()


def sizes(path):
    """Bytes that each member gives, by name."""
    read = {}
    with tar_errors(path), open_tar(path, UNPACKED) as tar:
        for member in checked_members(tar, UNPACKED):
            read[member.name] = len(tar.extractfile(member).read())
    return read


def sparse_member(size):
    """A member that declares a size and holds no byte of it, as GNU tar writes it."""
    member = tarfile.TarInfo("train.tsv")
    member.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.name": "train.tsv",
        "GNU.sparse.size": str(size),
        "GNU.sparse.numblocks": "1",
        "GNU.sparse.map": "0,0",
    }
    return member


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_tar_is_read_whatever_packs_it(tmp_path, pack):
    path = tmp_path / "x.tar"
    path.write_bytes(pack(tar_of("a/x", "a/" + "n" * 200)))
    assert sizes(path) == {"a/x": 5000, "a/" + "n" * 200: 5000}


def negative_size():
    raw = bytearray(tar_of("a"))
    raw[124:136] = b"\xff" * 10 + b"\xfe\x00"
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    return bytes(raw)


def long_name():
    member = tarfile.TarInfo("n" * (1 << 25))
    return lzma.compress(tar_of(member))


HOSTILE_TARS = {
    "sparse": (tar_of(sparse_member(5 << 30)), "'train.tsv' is sparse"),
    "cut in a member": (tar_of("a", "b")[:8000], "unexpected end of data"),
    "cut in a header": (tar_of("a", "b")[:6000], "a damaged header between its members"),
    "cut between members": (tar_of("a", "b")[:5632], "without the mark of its end"),
    "damaged header": (tar_of("a", "b").replace(b"b", b"c", 1), "a damaged header"),
    "cut xz": (lzma.compress(tar_of("a", "b"))[:100], "ended before the end-of-stream"),
    "no tar": (b"text", "truncated header"),
    "damaged gzip": (gzip.compress(tar_of("a"))[:12] + bytes(100), "cannot be read"),
    "bomb": (lzma.compress(tar_of("a") + bytes(1 << 22)), None),
    "negative size": (negative_size(), "where at most 1,048,576 are expected"),
    "name of 32 MB": (long_name(), "a header of more than 16,777,216 bytes"),
}


@pytest.mark.parametrize("kind", HOSTILE_TARS)
def test_a_hostile_tar_is_one_typed_error(tmp_path, kind):
    raw, message = HOSTILE_TARS[kind]
    path = tmp_path / "x.tar"
    path.write_bytes(raw)
    if message is None:  # what follows the end of a tar is never unpacked
        assert sizes(path) == {"a": 5000}
        return
    with pytest.raises(DataError) as caught:
        sizes(path)
    assert str(caught.value).startswith(f"{path}: cannot be read") and message in str(caught.value)


def test_a_member_that_is_too_large_is_refused_before_it_is_unpacked(tmp_path):
    member = tarfile.TarInfo("large")
    member.size = 1 << 24
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        tar.addfile(member, io.BytesIO(bytes(1 << 24)))
    (tmp_path / "x.tar.gz").write_bytes(raw.getvalue())
    with pytest.raises(DataError, match="'large' has 16,777,216 bytes, where at most 1,048,576"):
        sizes(tmp_path / "x.tar.gz")


def test_room_on_the_disk_is_checked_for_a_folder_that_is_not_there_yet(tmp_path):
    require_space(tmp_path / "a" / "b", 1)
    with pytest.raises(StorageError, match="bytes are free on its disk; expected 1,152,921"):
        require_space(tmp_path / "a" / "b", 1 << 60)


def test_only_a_newline_ends_a_line(tmp_path):
    text = "a\x85b\u2028c\u2029d\x0be\x0cf\x1cg\rh"
    (tmp_path / "x").write_text(f"{text}\r\n{text}", encoding="utf-8", newline="")
    assert list(text_lines(tmp_path / "x")) == [(1, text + "\r\n"), (2, text)]


@pytest.mark.parametrize("name", ["x", "x.gz"])
def test_an_endless_line_is_refused_in_bounded_memory(tmp_path, name):
    raw = b"short\n" + b"x" * 5000
    (tmp_path / name).write_bytes(gzip.compress(raw) if name == "x.gz" else raw)
    with pytest.raises(DataError, match=f"{name}, line 2: more than 4,096 bytes"):
        list(text_lines(tmp_path / name, longest=4096))
    with pytest.raises(DataError, match=f"{name}, line 2: the file has more than 100 bytes"):
        list(text_lines(tmp_path / name, largest=100))


def test_a_question_in_a_line_that_is_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("wqa.data.formats.LONGEST_QUESTION", 1000)
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"id": "x" * 1000}))
    with pytest.raises(DataError, match="line 1: more than 1,000 bytes"):
        list(read_questions(path))


@pytest.mark.parametrize(
    "score", ["nan", "inf", "-inf", "Infinity", "1e400", "-1e999", "1_0", "\u0661", "0x1p3", "1e"]
)
def test_a_score_that_is_no_finite_number_is_refused_by_line(tmp_path, score):
    (tmp_path / "run").write_text(f"q Q0 a 1 2.5e-3 t\nq Q0 b 2 {score} t\n", encoding="utf-8")
    with pytest.raises(DataError, match="run, line 2: score .*; expected a finite number"):
        read_run(tmp_path / "run")
