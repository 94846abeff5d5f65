"""Damaged, hostile and interrupted corpora: readers refuse them by name, and nothing is lost."""

import bz2
import gzip
import importlib
import io
import json
import lzma
import os
import random
import shutil
import sys
import tarfile

import pytest

from wqa.data import read_questions
from wqa.data.archives import checked_members, open_tar, require_space, tar_errors
from wqa.data.lines import text_lines
from wqa.errors import DataError, StorageError
from wqa.evaluation import read_run

asnq, trecqa, squad, retrieval, wikiqa, partition, corpus = map(
    importlib.import_module,
    ("asnq", "trecqa", "squad", "retrieval", "wikiqa", "partition", "corpus"),
)

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


class Killed(BaseException):
    """The process is killed: nothing of it runs any more."""


class Killer:
    """Raises `Killed` before the n-th change of the file system, and before all that follow."""

    CHANGES = ("os.remove", "os.rmdir", "os.mkdir", "os.rename")

    def __init__(self):
        self.left = None  # changes until the kill, None while there is none
        sys.addaudithook(self.hear)

    def hear(self, event, arguments):
        if self.left is None:
            return
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in self.CHANGES or writes:
            self.left -= 1
            if self.left < 0:
                raise Killed

    def run(self, left, work):
        """Whether the work was killed after so many changes."""
        self.left = left
        try:
            work()
            return False
        except Killed:
            return True
        finally:
            self.left = None


@pytest.fixture(scope="module")
def killer():
    return Killer()


def write_asnq(folder):
    folder.mkdir()
    pairs = [f"q {n % 5}\ts {n}\t{n % 4 + 1}\n" for n in range(8)]
    (folder / "train.tsv").write_text("".join(pairs))
    (folder / "dev.tsv").write_text("d one\tx\t4\ne one\ty\t1\nd one\tz\t2\n")
    (folder / "unique.dev").write_text("d one\n")
    (folder / "unique.test").write_text("e one\n")
    return [asnq, "--archive", folder, "--splits", folder]


def write_wikiqa(folder):
    folder.mkdir()
    for split in wikiqa.SPLITS:
        row = "Q1\twho ?\tD1\tTitle\tD1-0\tHe said so .\t1"
        (folder / f"WikiQA-{split}.tsv").write_text("\t".join(wikiqa.HEADER) + f"\n{row}\n")
    return [wikiqa, "--archive", folder]


def write_trecqa(folder, text=None):
    folder.mkdir()
    (folder / "dev.xml").write_text(text or xml_file(random.Random(0), 2))
    return [trecqa, "--archive", folder]


def write_pairs(folder):
    folder.mkdir()
    (folder / "pairs.tsv").write_text("q\ta\t1\nr\tb\t0\n")
    return [retrieval, "--split", "dev", "--table", folder / "pairs.tsv"]


def convert(script, *arguments, out):
    """Run a script in this process and return its exit status."""
    return script.main([*map(str, arguments), "--out", str(out)])


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("write", [write_asnq, write_wikiqa, write_trecqa, write_pairs])
def test_a_conversion_that_is_killed_at_any_moment_ends_with_the_same_bytes(
    tmp_path, monkeypatch, killer, write
):
    monkeypatch.setattr(partition, "QUESTIONS", 4)
    monkeypatch.setattr(trecqa, "Detokenizer", lambda number: str)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    command = write(tmp_path / "in")
    assert convert(*command, out=tmp_path / "whole" / "x") == 0
    left = 0
    out = tmp_path / "out"
    while killer.run(left, lambda: convert(*command, out=out / "x")):
        assert convert(*command, out=out / "x") == 0, f"killed after {left} changes"
        assert contents(out / "x") == contents(tmp_path / "whole" / "x"), left
        assert [path.name for path in out.iterdir()] == ["x"], left
        shutil.rmtree(out)
        left += 1
    assert left > 5


def xml_sentence(rng, tag, positive_rows=False):
    """A sentence with its rows of annotations, as the corpus has them."""
    size = rng.randint(2, 6)
    rows = [
        [f"w{rng.randrange(100)}" for _ in range(size)],
        ["NN"] * size,
        ["NMOD"] * size,
        [str(rng.randrange(size)) for _ in range(size)],
        ["-"] * size,
    ]
    if positive_rows:
        rows += [["w1", ""], ["1", ""]]
    lines = "".join("\t".join(row) + "\n" for row in rows)
    return f"<{tag}>\n{lines}</{tag}>\n"


def xml_file(rng, questions=5):
    text = ""
    for number in range(questions):
        tags = [rng.choice(("positive", "negative")) for _ in range(rng.randint(1, 4))]
        sentences = [xml_sentence(rng, tag, tag == "positive" and number % 2) for tag in tags]
        text += f"<QApairs id='{number}.1'>\n{xml_sentence(rng, 'question')}"
        text += "".join(sentences) + "</QApairs>\n"
    return text


def read_xml(path, raw):
    path.write_bytes(raw)
    return list(trecqa.read(path, "dev", str))


def damage(rng, raw):
    """A damaged copy of a file."""
    lines = raw.splitlines(keepends=True)
    number = rng.randrange(len(lines))
    kind = rng.choice(("flip", "delete", "twice", "cut", "insert"))
    if kind == "flip":
        at = rng.randrange(len(raw))
        return raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :]
    if kind == "cut":
        return raw[: rng.randrange(1, len(raw))]
    if kind == "insert":
        at = rng.randrange(len(raw))
        character = rng.choice("\x85\u2028\u2029\x0b\x0c\x1c\r")
        return raw[:at] + character.encode("utf-8") + raw[at:]
    if kind == "delete":
        del lines[number]
    else:
        lines.insert(number, lines[number])
    return b"".join(lines)


def structure(questions):
    return [(question.id, question.labels) for question in questions]


def test_damaged_pseudo_xml_is_refused_or_holds_every_candidate(tmp_path):
    rng = random.Random(17)
    path = tmp_path / "dev.xml"
    refused = 0
    for _ in range(500):
        raw = xml_file(rng, 3).encode("utf-8")
        whole = read_xml(path, raw)
        damaged = damage(rng, raw)
        try:
            questions = read_xml(path, damaged)
        except DataError as error:
            assert f"{path}, line " in str(error)
            refused += 1
            continue
        if raw.startswith(damaged) and damaged.rstrip().endswith(b"</QApairs>"):
            whole = whole[: damaged.count(b"</QApairs>")]  # cut between two questions
        assert structure(questions) == structure(whole), damaged
        changed = sum(a != b for a, b in zip(all_texts(questions), all_texts(whole)))
        assert changed <= 1  # a flip inside a word
        # A row of annotations is never taken for the sentence.
        assert not any("NN\tNN" in sentence for sentence in all_texts(questions))
    assert refused > 200


def all_texts(questions):
    return [text for question in questions for text in (question.question, *question.texts)]
