import gzip
import importlib
import json
import zipfile

import pytest

from wqa.data import read_questions
from wqa.data.documents import read_documents

script = importlib.import_module("wikiqa")

HEADER = "\t".join(script.HEADER)
ROW = 'Q1\twho ?\tD1\tTitle\tD1-0\tHe "said" so .\t1'


def write_tables(folder, rows=(HEADER, ROW), packed=False):
    for split in script.SPLITS:
        raw = ("\r\n".join(rows) + "\r\n").encode()
        if packed:
            (folder / f"WikiQA-{split}.tsv.gz").write_bytes(gzip.compress(raw))
        else:
            (folder / f"WikiQA-{split}.tsv").write_bytes(raw)


def test_published_counts(wikiqa_files):
    stats = json.loads((wikiqa_files / "stats.json").read_text())

    def counts(split, name):
        return tuple(stats[split][name][key] for key in ("questions", "candidates", "correct"))

    # Cascade Transformer, Table 1; Multiple-Heads Student, Table 1.
    assert counts("train", "no-all-negative") == (873, 8672, 1040)
    assert counts("dev", "no-all-negative") == (126, 1130, 140)
    assert counts("test", "no-all-negative") == (243, 2351, 293)
    # MSPP, Table 5.
    assert counts("train", "all")[:2] == (2118, 20360)
    assert counts("dev", "clean")[:2] == (122, 1126)
    assert counts("test", "clean")[:2] == (237, 2341)
    questions = list(read_questions(wikiqa_files / "train.jsonl"))
    assert questions[0].id == "Q1" and questions[0].labels == (0, 0, 0, 1, 0)
    assert len(questions) == 2118
    collection = stats["collection"]
    assert collection["documents"]["documents"] == 2811
    assert collection["test"]["questions"] == 633


def test_documents_and_questions_of_the_collection(tmp_path):
    rows = [
        HEADER,
        "Q1\twho ?\tD1\tTitle\tD1-0\tFirst .\t0",
        "Q1\twho ?\tD1\tTitle\tD1-1\tSecond .\t1",
        "Q1\twho ?\tD1\tTitle\tD1-2\t \t0",
        "Q2\twhen ?\tD1\tTitle\tD1-1\tSecond .\t0",
        "Q2\twhen ?\tD1\tTitle\tD1-0\tFirst .\t0",
    ]
    write_tables(tmp_path, rows)
    out = tmp_path / "out"
    assert script.main(["--archive", str(tmp_path), "--out", str(out)]) == 0
    [document] = read_documents(out / "documents.jsonl")
    assert (document.id, document.title, document.text) == ("D1", "Title", "First . Second .")
    questions = list(read_questions(out / "test.questions.jsonl", with_candidates=False))
    assert [question.answers for question in questions] == [("Second .",), ()]


@pytest.mark.parametrize("kind", ["folder", "gz", "zip"])
def test_archives(tmp_path, kind):
    source = tmp_path / "WikiQACorpus"
    source.mkdir()
    write_tables(source, packed=kind == "gz")
    archive = source
    if kind == "zip":
        archive = tmp_path / "corpus.zip"
        with zipfile.ZipFile(archive, "w") as packed:
            for path in source.iterdir():
                packed.write(path, f"WikiQACorpus/{path.name}")
    assert script.main(["--archive", str(archive), "--out", str(tmp_path / "out")]) == 0
    question = next(read_questions(tmp_path / "out" / "dev.jsonl"))
    assert question.texts == ('He "said" so .',) and question.labels == (1,)


@pytest.mark.parametrize(
    "rows, found",
    [
        ((HEADER, ROW, ROW[:-1] + "2"), "line 3"),
        ((HEADER, "Q1\twho ?"), "line 2"),
        ((HEADER, "\twho ?\tD\tT\tS\ttext\t1"), "line 2: no question or no id"),
        ((HEADER, "Q1\t \tD\tT\tS\ttext\t1"), "line 2: no question or no id"),
        ((HEADER,), "split train: it holds no question"),
        (("a\tb", ROW), "line 1"),
        ((HEADER, ROW, ROW.replace("who", "what")), "another text for question 'Q1'"),
    ],
)
def test_bad_tables(tmp_path, capsys, rows, found):
    write_tables(tmp_path, rows)
    assert script.main(["--archive", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert found in error and error.count("\n") == 1
    assert not list((tmp_path / "out").glob("*.js*"))


def test_bad_archives(tmp_path, capsys):
    (tmp_path / "cut.zip").write_bytes(b"PK\x03\x04cut")
    (tmp_path / "empty").mkdir()
    for archive, named in (("cut.zip", "cut.zip"), ("empty", "WikiQA-train.tsv")):
        options = ["--archive", str(tmp_path / archive), "--out", str(tmp_path / "out")]
        assert script.main(options) == 2
        assert named in capsys.readouterr().err
