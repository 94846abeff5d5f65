"""Folders of arrays: written block by block, read once they are whole."""

import hashlib
import json

import numpy as np
import pytest
from conftest import contents

from wqa.errors import DataError, OptionError, StorageError
from wqa.io.arrays import ArrayFolder, Output, reusable_folder, write_arrays
from wqa.io.files import replacing

TYPES = {"tokens": np.dtype("<u2"), "logits": np.dtype(("<f4", (3,))), "none": np.dtype("i1")}
MADE_WITH = {"source_sha256": "ab12"}


def open_folder(path, version=1):
    return ArrayFolder(path, version, "test folder", "make it again")


def writer_of(path, version=1, types=TYPES, made_with=MADE_WITH, kind="test folder"):
    return write_arrays(Output(path, version, kind, list(types)), types, made_with)


def write(path, made_with=MADE_WITH, version=1, kind="test folder"):
    with writer_of(path, version, TYPES, made_with, kind) as writer:
        writer.append("tokens", np.array([1, 258, 65535]))
        writer.append("logits", np.array([[1.0, 2.0, 3.0]]))
        writer.finish({"rows": 1})
    return path


def test_a_whole_folder(tmp_path):
    path = write(tmp_path / "a.store")
    assert (path / "tokens.bin").read_bytes() == b"\x01\x00\x02\x01\xff\xff"
    digests = {}
    for name in TYPES:
        digests[name] = hashlib.sha256((path / f"{name}.bin").read_bytes()).hexdigest()
    assert json.loads((path / "meta.json").read_text()) == {
        "wqa": {"kind": "test folder", "version": 1},
        "format": 1,
        "source_sha256": "ab12",
        "rows": 1,
        "files": {"tokens": 6, "logits": 12, "none": 0},
        "sha256": digests,
    }
    assert sorted(file.name for file in path.iterdir()) == [
        "logits.bin",
        "meta.json",
        "none.bin",
        "tokens.bin",
    ]
    assert list(tmp_path.iterdir()) == [path]
    folder = open_folder(path)
    arrays = folder.arrays(TYPES)
    assert arrays["tokens"].tolist() == [1, 258, 65535]
    assert arrays["logits"].tolist() == [[1.0, 2.0, 3.0]]
    assert arrays["none"].shape == (0,) and arrays["none"].dtype == np.int8
    assert not arrays["tokens"].flags.writeable
    assert folder.meta["rows"] == 1 and folder.path == path
    with pytest.raises(DataError, match="has no array labels"):
        folder.arrays({"labels": np.dtype("i1")})


def test_a_folder_that_is_replaced_while_it_is_opened(tmp_path, monkeypatch):
    path, reads = write(tmp_path / "a"), []

    def replaced_after(file):
        content = json.loads(file.read_text())
        reads.append(file)
        if len(reads) == 1:
            with writer_of(path) as writer:
                writer.append("tokens", np.array([7]))
                writer.finish({"rows": 2})
        return content

    monkeypatch.setattr("wqa.io.arrays.read_json", replaced_after)
    folder = open_folder(path)
    assert folder.meta["rows"] == 2 and folder.arrays(TYPES)["tokens"].tolist() == [7]


@pytest.mark.parametrize("harm", ["absent", "meta", "malformed", "facts", "short", "long", "gone"])
def test_a_folder_that_is_not_whole_is_refused(tmp_path, harm):
    path = write(tmp_path / "a")
    facts = ()
    if harm == "absent":
        path = tmp_path / "b"
    elif harm == "meta":
        (path / "meta.json").unlink()
    elif harm == "malformed":
        (path / "meta.json").write_text("[1]")
    elif harm == "facts":
        facts = ("vocab_size",)
    elif harm == "short":
        (path / "tokens.bin").write_bytes(b"\x01\x00")
    elif harm == "long":
        (path / "none.bin").write_bytes(b"\x01")
    else:
        (path / "logits.bin").unlink()
    with pytest.raises(DataError, match="make it again") as caught:
        ArrayFolder(path, 1, "test folder", "make it again", facts)
    expected = {"short": "2 bytes; expected 6 bytes", "gone": "is missing; expected 12 bytes"}
    expected["long"] = "1 bytes; expected 0 bytes"
    expected["absent"] = "there is no such file or folder; expected a whole test folder"
    assert expected.get(harm, "is no test folder, or one that is not whole") in str(caught.value)


def test_another_version_is_refused(tmp_path):
    path = write(tmp_path / "a", version=2)
    with pytest.raises(DataError, match="a test folder of format 2; expected format 1; make it"):
        open_folder(path)


def reusable(path, made_with=MADE_WITH):
    return reusable_folder(Output(path, 1, "test folder", list(TYPES)), made_with)


def test_a_folder_can_be_used_again_if_it_was_made_with_the_same(tmp_path):
    assert reusable(tmp_path / "absent") is None
    path = write(tmp_path / "a")
    assert reusable(path).meta["rows"] == 1
    with pytest.raises(DataError, match="made with source_sha256 'ab12'; expected 'cd34'; delete"):
        reusable(path, {"source_sha256": "cd34"})
    assert open_folder(path).meta["rows"] == 1
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".lock").touch()  # of `lock_output` where it cannot write beside it
    assert reusable(tmp_path / "empty") is None
    (tmp_path / "file").write_text("text")
    with pytest.raises(OptionError, match="out: .*file, a file"):
        reusable(tmp_path / "file")


@pytest.mark.parametrize(
    "files", [["model.bin"], ["meta.json"], ["sub/x.bin"], ["journal.json"], [".hidden"], ["a.npy"]]
)
def test_what_has_no_mark_is_refused_by_name(tmp_path, files):
    for file in files:
        (tmp_path / "a" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a" / file).write_text("{}")
    before = contents(tmp_path)
    for act in (reusable, write):
        with pytest.raises(OptionError, match="a, a folder with other files"):
            act(tmp_path / "a")
    assert contents(tmp_path) == before


def test_other_files_in_a_marked_folder_and_other_kinds_are_refused(tmp_path):
    path = write(tmp_path / "a")
    (path / "letter.txt").write_text("dear")
    write(tmp_path / "b", kind="another")
    before = contents(tmp_path)
    for name in ("a", "b"):
        with pytest.raises(OptionError, match="a folder with other files"):
            write(tmp_path / name)
    assert contents(tmp_path) == before


def test_a_folder_of_another_version_is_replaced_with_the_files_it_lists(tmp_path):
    with writer_of(tmp_path / "a", types={"earlier": np.dtype("<i4")}) as writer:
        writer.finish({})
    assert (tmp_path / "a" / "earlier.bin").exists()
    write(tmp_path / "a", version=2)
    assert not (tmp_path / "a" / "earlier.bin").exists()


def test_a_link_stays_and_its_folder_is_replaced(tmp_path):
    write(tmp_path / "a", {"source_sha256": "old"})
    (tmp_path / "link").symlink_to("a")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert open_folder(tmp_path / "a").meta["source_sha256"] == "ab12"
    (tmp_path / "file").write_text("text")
    with pytest.raises(StorageError, match="could not be written"):
        write(tmp_path / "file" / "a")


def test_rows_of_another_width_are_refused(tmp_path):
    with writer_of(tmp_path / "a", 1, TYPES, MADE_WITH) as writer:
        for values in (np.zeros(3), np.zeros((1, 2)), np.zeros((1, 3, 1))):
            with pytest.raises(ValueError, match=r"logits takes elements of shape \(3,\)"):
                writer.append("logits", values)
        writer.finish({})
    assert len(open_folder(tmp_path / "a").arrays(TYPES)["logits"]) == 0


def test_arrays_that_cannot_be_mapped(tmp_path):
    path = write(tmp_path / "a")
    folder = open_folder(path)
    with pytest.raises(DataError, match="tokens.bin: 6 bytes; expected 4 an element"):
        folder.arrays({"tokens": np.dtype("<f4")})
    (path / "none.bin").unlink()
    (path / "none.bin").mkdir()
    with pytest.raises(DataError, match="none.bin: is missing; expected 0 bytes; delete the"):
        open_folder(path)


def test_digests_are_checked(tmp_path):
    path = write(tmp_path / "a")
    for name in TYPES:
        open_folder(path).check(name)
    (path / "tokens.bin").write_bytes(b"\x01\x00\x02\x01\xff\x7f")
    with pytest.raises(DataError, match="tokens.bin: SHA-256 [0-9a-f]{64}; expected [0-9a-f]{64}"):
        open_folder(path).check("tokens")
    meta = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps({**meta, "sha256": "x"}))
    with pytest.raises(DataError, match="or one that is not whole"):
        open_folder(path)


@pytest.mark.parametrize("error", [OSError(28, "No space left"), KeyboardInterrupt()])
def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch, error):
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "a").write_text("old")

    def fail(*_):
        raise error

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises((StorageError, KeyboardInterrupt)), replacing(folder) as temporary:
        temporary.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert (folder / "a").read_text() == "old"


def test_a_folder_of_a_writer_that_was_killed_between_two_renames_comes_back(tmp_path):
    old = tmp_path / ".store.old"
    old.mkdir()
    (old / "a").write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "store"):
        raise ZeroDivisionError
    assert (tmp_path / "store" / "a").read_text() == "old"
