"""Commands that write into folders leave a user's files as they are, whatever happens."""

import importlib
import json
import shutil
import signal

import pytest
from conftest import contents, run_python

from wqa.cli import main
from wqa.data import builtin_path

DEV = str(builtin_path("dev"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A folder of two texts, a file of documents, and a text that is not UTF-8."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "docs").mkdir()
    (folder / "docs" / "a.txt").write_text("The mill was built in 1702.\n")
    (folder / "docs" / "b.txt").write_text("The ferry sails at noon.\n")
    (folder / "broken").mkdir()
    (folder / "broken" / "a.txt").write_bytes(b"\xff\xfe\xff a text")
    documents = [json.dumps({"id": f"d{number}", "text": "Steam whistles."}) for number in (1, 2)]
    (folder / "documents.jsonl").write_text("\n".join(documents) + "\n")
    (folder / "broken.jsonl").write_text('{"id": "d1"}\n')
    corpus = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n"
    (folder / "wikiqa").mkdir()
    for split in ("train", "dev", "test"):
        row = "Q1\twhy ?\tD1\tTea\tD1-0\tSteam.\t1\nQ1\twhy ?\tD1\tTea\tD1-1\tTea.\t0\n"
        (folder / "wikiqa" / f"WikiQA-{split}.tsv").write_text(corpus + row)
    (folder / "empty").mkdir()
    return folder


@pytest.fixture(scope="module")
def lines_of(texts, tiny_run, tiny_encoder, dcbert_run):
    """The two commands of a kind, for a folder that they write into."""
    return lambda kind, out: commands(texts, tiny_run, tiny_encoder, dcbert_run, out)[kind]


@pytest.fixture(scope="module")
def made(tmp_path_factory, texts, tiny_run, tiny_encoder, dcbert_run):
    """Folders that the commands made, by their kinds."""
    folder = tmp_path_factory.mktemp("made")
    for kind, words in commands(texts, tiny_run, tiny_encoder, dcbert_run, folder).items():
        if kind in ("index", "tokenize", "encode", "export", "score"):
            assert run(words[0]) == 0, kind
    shutil.copytree(tiny_run, folder / "run")
    return folder


def commands(texts, run, encoder, dcbert_run, out):
    """Two commands for each kind of folder: one that succeeds, one that fails on its data."""
    broken = str(texts / "broken.jsonl")
    words = {
        "index": ["index", texts / "docs", "--out"],
        "score": ["score", run, "--data", DEV, "--out"],
        "tokenize": ["tokenize", "--encoder", encoder, "--data", DEV, "--out"],
        "embed-words": ["embed-words", "--encoder", encoder, "--data", DEV, "--units", 8, "--out"],
        "encode": ["encode", dcbert_run, "--documents", texts / "documents.jsonl", "--out"],
        "export": ["export", "--format", "onnx", run],
        "convert": ["convert", encoder],
        "train": ["train", "pairwise", "--encoder", encoder, "--max-updates", 1],
        "wikiqa": ["wikiqa.py", "--archive", texts / "wikiqa", "--out"],
    }
    words["train"] += ["--warmup-updates", 1, "--train", DEV, "--out"]
    bad = dict.fromkeys(map(str, (run, encoder, texts / "wikiqa")), str(texts / "empty"))
    bad.update({str(texts / "documents.jsonl"): broken, DEV: broken})
    bad[str(texts / "docs")] = str(texts / "broken")
    pairs = {}
    for kind, line in words.items():
        line = [*map(str, line), str(out / kind)]
        pairs[kind] = (line, [bad.get(word, word) for word in line])
    return pairs


def run(words):
    if words[0].endswith(".py"):
        return importlib.import_module(words[0][:-3]).main(words[1:])
    return main(words)


KINDS = ["index", "score", "tokenize", "embed-words", "encode", "export", "convert", "train"]
KINDS.append("wikiqa")
FILES = {
    "pytorch_model.bin": b"w",
    "meta.json": b'{"mine": 1}',
    "a.npy": b"\x93NUMPY",
    "sub/x.bin": b"x",
    ".hidden": b"h",
    "train.jsonl": b"{}\n",
    "model.params": b"p",
    "int8.safetensors": b"q",
    "metrics.jsonl": b"not ours\n",
}


def user_folder(folder, made, which):
    """A folder with one of the user's files, or with all of them and other kinds of folders."""
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        if which in (name, "all"):
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
    if which == "all":
        for kind in ("index", "tokenize", "encode", "export", "run"):
            shutil.copytree(made / kind, folder / f"my {kind}")
    return folder


@pytest.mark.parametrize("which", ["meta.json", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_users_folder_stays(kind, which, made, lines_of, tmp_path, capsys):
    out = tmp_path / "work"
    folder = user_folder(out / kind, made, which)
    before = contents(out)
    good, bad = lines_of(kind, out)
    allowed = kind in ("train", "wikiqa") and which != "all"  # names that these do not write
    if not allowed:
        assert run(good) == 2, capsys.readouterr().out
        assert contents(out) == before
    assert run(bad) == 2
    after = contents(out)
    assert {name: after.get(name) for name in before} == before
    if allowed:
        assert run(good) == 0, capsys.readouterr().err
        after = contents(out)
        assert {name: after.get(name) for name in before} == before
    assert folder.is_dir()


@pytest.mark.parametrize("name", ["model.params", "metrics.jsonl"])
def test_a_training_keeps_files_of_the_names_that_it_writes(name, made, lines_of, tmp_path):
    folder = user_folder(tmp_path / "train", made, name)
    good, _ = lines_of("train", tmp_path)
    assert run(good) == 2 and run([*good, "--resume"]) == 2
    assert contents(folder) == {name: FILES[name]}


@pytest.mark.parametrize("files", [{"train.jsonl": b"{}\n"}, {"stats.json": b'{"mine": 1}'}])
def test_a_data_script_keeps_files_of_the_names_that_it_writes(files, lines_of, tmp_path, capsys):
    good, _ = lines_of("wikiqa", tmp_path)
    (tmp_path / "wikiqa").mkdir()
    for name, content in files.items():
        (tmp_path / "wikiqa" / name).write_bytes(content)
    assert run(good) == 2 and "stats.json" in capsys.readouterr().err
    assert contents(tmp_path / "wikiqa") == files
    for name in files:
        (tmp_path / "wikiqa" / name).unlink()
    assert run(good) == 0 and run(good) == 0  # what it has written it replaces


#: Runs a command whose process a signal ends at some call of `os`.
KILLED = """
import os, signal, sys
count = int(sys.argv[1])
for name in sys.argv[2].split():
    def stop(*arguments, act=getattr(os, name), **options):
        global count
        count -= 1
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*arguments, **options)
    setattr(os, name, stop)
from wqa.cli import main
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize("kind", ["index", "train"])
def test_a_killed_command_leaves_what_lies_beside(kind, made, lines_of, tmp_path):
    before = contents(user_folder(tmp_path / "mine", made, "all"))
    good, _ = lines_of(kind, tmp_path)
    done = run_python("-c", KILLED, "1", "rename replace fsync", *good)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert contents(tmp_path / "mine") == before
    # The same command, which may resume, makes the folder that the killed one did not.
    assert run(good + (["--resume"] if kind == "train" else [])) == 0
    assert contents(tmp_path / "mine") == before


@pytest.mark.parametrize("count", [1, 2])
def test_a_killed_replacement_keeps_one_of_the_two(made, texts, tmp_path, count):
    out = tmp_path / "work"
    user_folder(out / "mine", made, "all")
    before = contents(out / "mine")
    shutil.copytree(made / "index", out / "index")
    more = shutil.copytree(texts / "docs", tmp_path / "more")
    (more / "c.txt").write_text("The harbour froze in 1709.\n")
    words = ["index", str(more), "--out", str(out / "index"), "--replace"]
    done = run_python("-c", KILLED, str(count), "rename replace", *words)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert contents(out / "mine") == before
    old = contents(made / "index")
    left = [contents(path) for path in out.iterdir() if "index" in path.name]
    assert old in left
    assert main(words) == 0
    names = sorted(path.name for path in out.iterdir() if not path.name.endswith((".lock",)))
    assert names == ["index", "mine"]
    assert contents(out / "mine") == before
