"""Damaged, hostile and interrupted corpora: readers refuse them by name, and nothing is lost."""

import functools
import gzip
import importlib
import json
import lzma
import os
import shutil
import sys
import zipfile

import pytest
from conftest import contents, limited_file_size
from test_paragraph_corpora import tar_of

from wqa.data import read_questions
from wqa.errors import DataError
from wqa.evaluation import read_run
from wqa.io.files import lock_output

asnq, corpus, trecqa, squad, wikiqa, squad_open = map(
    importlib.import_module, ("asnq", "corpus", "trecqa", "squad", "wikiqa", "squad_open")
)
fever, paragraphs, releases = map(importlib.import_module, ("fever", "paragraphs", "releases"))


def lines(path):
    return list(releases.lines_of(path, "train.tsv"))


@pytest.mark.parametrize("pack", [bytes, lzma.compress])
def test_a_tar_is_read_whatever_packs_it(tmp_path, pack):
    path = tmp_path / "x.tar"
    path.write_bytes(pack(tar_of(dict.fromkeys(("a/dev.tsv", "a/train.tsv"), bytes(5000)))))
    assert lines(path) == [(f"{path}, 'a/train.tsv', line 1", "\0" * 5000)]


WHOLE = tar_of(dict.fromkeys(("dev.tsv", "train.tsv"), bytes(5000)))
HOSTILE_TARS = {
    "cut in a member": WHOLE[:8000],
    "cut xz": lzma.compress(WHOLE)[:100],
    "no tar": b"text",
    "damaged gzip": gzip.compress(WHOLE)[:12] + bytes(100),
}


@pytest.mark.parametrize("kind", HOSTILE_TARS)
def test_a_hostile_tar_is_one_typed_error(tmp_path, kind):
    path = tmp_path / "x.tar"
    path.write_bytes(HOSTILE_TARS[kind])
    with pytest.raises(DataError, match="x.tar"):
        lines(path)


def test_a_tar_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(releases, "LARGEST_TAR", 6000)
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(WHOLE))
    with pytest.raises(DataError, match="unpacks to more than 6,000 bytes"):
        lines(path)


@pytest.mark.parametrize("score", ["nan", "-inf", "1e400", "1_0", "0x1p3"])
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


def write_trecqa(folder):
    folder.mkdir()
    lines = ["<QApairs id='1'>", "<question>", "who\t?", "</question>"]
    lines += ["<positive>", "he", "</positive>", "</QApairs>", ""]
    text = "\n".join(lines)
    (folder / "dev.xml").write_text(text)
    return [trecqa, "--archive", folder]


def write_squad_open(folder):
    folder.mkdir()
    article = {"title": "A", "paragraphs": [{"context": "One. Two.", "qas": [ENTRY]}]}
    squad_file(folder, article)
    return [squad_open, "--archive", folder]


def write_fever(folder):
    folder.mkdir()
    row = {"id": 1, "claim": "a", "evidence": [["T", 0, "b", 0.5]], "label": "REFUTES"}
    for name in fever.NAMES.values():
        (folder / name).write_text(json.dumps(row) + "\n")
    return [fever, "--archive", folder]


def write_texts(folder):
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.txt").write_text(f"It is number {number}. It is short.")
    return [paragraphs, "bookcorpus", "--archive", folder, "--held-out", "1"]


def convert(script, *arguments, out):
    """Run a script in this process and return its exit status."""
    return script.main([*map(str, arguments), "--out", str(out)])


#: One for each way to write the files of a corpus.
WRITERS = (write_asnq, write_wikiqa, write_trecqa, write_squad_open, write_fever, write_texts)


@pytest.mark.parametrize("write", WRITERS)
def test_a_conversion_that_is_killed_at_any_moment_ends_with_the_same_bytes(
    tmp_path, monkeypatch, killer, write
):
    monkeypatch.setattr(asnq, "QUESTIONS", 4)
    monkeypatch.setattr(trecqa, "detokenizer", lambda: str)
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


def zip_of(path, rows=b"", name="WikiQACorpus/WikiQA-train.tsv"):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(name, rows)
    return path


def encrypted(path):
    """Set the mark of encryption in both headers of a zip."""
    raw = bytearray(path.read_bytes())
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(magic) + offset] |= 1
    path.write_bytes(raw)


def test_a_hostile_zip_is_one_line(tmp_path, refusal):
    path = zip_of(tmp_path / "x.zip")
    encrypted(path)
    refused = functools.partial(refusal, wikiqa, "--archive", path, out=tmp_path / "out")
    assert "is encrypted" in refused()
    zip_of(path, name="../\x1b[31m\x00\u202e" * 1000 + "/WikiQA-train.tsv")
    assert "\x1b" not in refused()
    raw = zip_of(path, b"text" * 1000).read_bytes()
    path.write_bytes(raw.replace(b"WikiQA-train.tsv", b"WikiQA-train.tsx", 1))
    assert "cannot be read (File name in directory" in refused()


NO_QUESTION = "it holds no question; expected at least one"


def test_a_split_without_a_question_is_an_error(tmp_path, refusal):
    write_asnq(tmp_path / "asnq")
    (tmp_path / "asnq" / "train.tsv").write_text("")
    options = ["--archive", tmp_path / "asnq", "--splits", tmp_path / "asnq"]
    written = ("dev.jsonl", "test.jsonl")
    assert f"split train: {NO_QUESTION}" in refusal(asnq, *options, out=tmp_path / "b")
    assert sorted(path.name for path in (tmp_path / "b").glob("*.js*")) == list(written)
    squad_file(tmp_path / "squad", {"paragraphs": []})
    assert f"split test: {NO_QUESTION}" in refusal(
        squad, "--archive", tmp_path / "squad", out=tmp_path / "e"
    )


def test_a_clean_split_without_a_question_is_not_written(tmp_path, capsys):
    folder = tmp_path / "in"
    entry = {"question": "q", "candidates": [{"sentence": "s", "label": 1}]}
    folder.mkdir()
    (folder / "dev.jsonl").write_text(json.dumps(entry) + "\n")
    out = tmp_path / "\x1b[31mout"
    out.mkdir()
    (out / "dev-clean.jsonl").write_text("of an earlier conversion")
    (out / "stats.json").write_text('{"dev": {"questions": 1}}')
    assert convert(trecqa, "--archive", folder, out=out) == 0
    assert sorted(contents(out)) == ["dev-40.jsonl", "dev.jsonl", "stats.json"]
    note = capsys.readouterr().err
    assert "dev-clean.jsonl is not written" in note and "\x1b" not in note


def squad_file(folder, *articles):
    folder.mkdir(exist_ok=True)
    (folder / "dev-v2.0.json").write_text(json.dumps({"data": articles}))


ANSWER = {"text": "One.", "answer_start": 0}
ENTRY = {"id": "1", "question": "who ?", "answers": [ANSWER]}
BAD_SQUAD = {
    "start true": {"answers": [{**ANSWER, "answer_start": True}]},
    "start negative": {"answers": [{**ANSWER, "answer_start": -4}]},
    "no answers": {"answers": None},
    "id 7": {"id": 7},
    "twice": ENTRY,
}


@pytest.mark.parametrize("kind", BAD_SQUAD)
def test_values_of_squad_that_do_not_fit_name_the_paragraph(tmp_path, refusal, kind):
    entries = [{**ENTRY, "id": "2"} if kind != "twice" else ENTRY, {**ENTRY, **BAD_SQUAD[kind]}]
    squad_file(tmp_path, {"paragraphs": [{"context": "One. Two.", "qas": entries}]})
    error = refusal(squad, "--archive", tmp_path, out=tmp_path / "out")
    assert "dev-v2.0.json, paragraph 1: " in error


@pytest.mark.parametrize("label", ["true", "1.0", "null", "2"])
def test_a_label_that_is_not_0_or_1_is_refused(tmp_path, refusal, label):
    row = '{"question": "q", "candidates": [{"sentence": "s", "label": LABEL}]}\n'
    (tmp_path / "dev.jsonl").write_text(row.replace("LABEL", label))
    error = refusal(trecqa, "--archive", tmp_path, out=tmp_path / "out")
    assert "dev.jsonl, line 1" in error
    line = f'{{"id": "a", "question": "q", "candidates": [{{"text": "s", "label": {label}}}]}}'
    (tmp_path / "q.jsonl").write_text(line)
    with pytest.raises(DataError, match="q.jsonl, line 1"):
        list(read_questions(tmp_path / "q.jsonl"))


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, refusal):
    command = write_asnq(tmp_path / "in")
    with limited_file_size(50):
        error = refusal(*command, out=tmp_path / "out")
    assert "could not be written (File too large)" in error
    assert not list((tmp_path / "out").glob("*.jsonl"))


def test_an_interrupt_is_one_line(tmp_path, capsys, monkeypatch):
    """And the same command goes through afterwards."""
    command = write_asnq(tmp_path / "in")

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(asnq, "grouped", interrupted)
        assert convert(*command, out=tmp_path / "out") == corpus.INTERRUPTED
    assert capsys.readouterr().err == "interrupted; run the same command again\n"
    assert convert(*command, out=tmp_path / "out") == 0
    names = ["dev.jsonl", "stats.json", "test.jsonl", "train.jsonl"]
    assert sorted(contents(tmp_path / "out")) == names


def test_two_conversions_do_not_write_to_one_folder(tmp_path, refusal):
    with lock_output(tmp_path / "out"):
        error = refusal(*write_wikiqa(tmp_path / "in"), out=tmp_path / "out")
    assert "locked by another process" in error
