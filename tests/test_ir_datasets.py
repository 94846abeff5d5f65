"""Corpora of ir_datasets, of which the tests register one of their own."""

import json
import sys

import pytest

from wqa.cli import main
from wqa.data import Candidate, read_questions
from wqa.data.formats import data_digest
from wqa.errors import DataError, MissingDependency
from wqa.evaluation import read_run
from wqa.inference import rank_all

ir_datasets = pytest.importorskip("ir_datasets", reason="ir_datasets comes with the extra [ir]")

DOCS = "D1\tglaciers are rivers of ice\nD2\tglacier caves form in ice\nD3\ttea is a drink\n"
QUERIES = "q1\thow do glacier caves form ?\nq2\twhat is tea ?\nq3\twho judged it ?\nq4\tno list ?\n"
QRELS = "q1 0 D2 2\nq1 0 D1 0\nq2 0 D3 1\nq2 0 D9 1\n"
SCORED = "q1 D1 0.5\nq1 D2 0.9\nq1 D3 0.9\nq2 D3 3\nq2 D1 7\nq3 D1 1\n"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Name of a reranking set, and of parts of one."""
    folder = tmp_path_factory.mktemp("ir")
    for name, text in (("d", DOCS), ("q", QUERIES), ("r", QRELS), ("s", SCORED)):
        (folder / name).write_text(text)
    formats, local = ir_datasets.formats, ir_datasets.util.LocalDownload
    docs = formats.TsvDocs(local(folder / "d"))
    queries = formats.TsvQueries(local(folder / "q"))
    scored = formats.TrecScoredDocs(local(folder / "s"))
    qrels = formats.TrecQrels(local(folder / "r"), {})
    for name, parts in {
        "wqa-test": (docs, queries, scored, qrels),
        "wqa-test/unjudged": (docs, queries, scored),
        "wqa-test/queries": (docs, queries),
        "wqa-test/docs": (docs,),
    }.items():
        ir_datasets.registry.register(name, ir_datasets.Dataset(*parts))
    lost = formats.TrecScoredDocs(local(folder / "lost"))
    ir_datasets.registry.register("wqa-test/lost", ir_datasets.Dataset(docs, queries, lost))
    (folder / "s2").write_text("q1 D1 1\nq1 D8 1\n")
    other = formats.TrecScoredDocs(local(folder / "s2"))
    ir_datasets.registry.register("wqa-test/gap", ir_datasets.Dataset(docs, queries, other))
    return "ir:wqa-test"


@pytest.fixture
def call(capsys):
    def run(*arguments):
        code = main(list(map(str, arguments)))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_reranking_set(dataset):
    first, second, third = read_questions(dataset)  # q4 has no list
    assert (first.id, first.question) == ("q1", "how do glacier caves form ?")
    assert first.candidates == (  # the best first; ties as they are in the file
        Candidate("glacier caves form in ice", 1, "D2"),
        Candidate("tea is a drink", 0, "D3"),  # nobody judged it
        Candidate("glaciers are rivers of ice", 0, "D1"),
    )
    assert second.document_ids == ("D1", "D3") and second.labels == (0, 1)
    assert third.labels == (None,)  # nobody judged the question
    assert {question.labels for question in read_questions(f"{dataset}/unjudged")} == {
        (None,) * 3,
        (None,) * 2,
        (None,),
    }


def test_questions_alone(dataset):
    questions = list(read_questions(f"{dataset}/queries", with_candidates=False))
    assert [question.id for question in questions] == ["q1", "q2", "q3", "q4"]
    assert not any(question.candidates for question in questions)


def test_wherever_a_file_goes(dataset, tmp_path, call, tiny_run, tiny_encoder):
    digest = data_digest(dataset)
    assert len(digest) == 64 and digest != data_digest(f"{dataset}/unjudged")
    assert len(list(rank_all("wo", dataset))) == 3
    code, _, err = call("score", tiny_run, "--data", dataset, "--out", tmp_path / "scores")
    assert code == 0, err
    assert json.loads((tmp_path / "scores" / "meta.json").read_text())["data_sha256"] == digest
    code, _, err = call("evaluate", "wo", "--data", dataset)
    assert code == 2 and "q3" in err  # it has no labels


def test_training_on_judged_questions(dataset, tmp_path, tiny_encoder, call):
    judged = [question for question in read_questions(dataset) if question.id != "q3"]
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "q").write_text("".join(f"{item.id}\t{item.question}\n" for item in judged))
    source = ir_datasets.load("wqa-test")
    queries = ir_datasets.formats.TsvQueries(ir_datasets.util.LocalDownload(folder / "q"))
    parts = (source.docs_handler(), queries, source.scoreddocs_handler(), source.qrels_handler())
    ir_datasets.registry.register("wqa-test/judged", ir_datasets.Dataset(*parts))
    name = "ir:wqa-test/judged"
    run = tmp_path / "run"
    evaluate = ("evaluate", "wo", "--ties", "trec", "--data", name, "--trec-run", run)
    code, out, err = call(*evaluate, "--json", "-")
    assert code == 0, err
    assert json.loads(out)["questions"] == 2
    assert set(read_run(run)["q1"]) == {"D1", "D2", "D3"}
    code, _, err = call(
        "train", "pairwise", "--encoder", tiny_encoder, "--train", name, "--dev", name,
        "--out", tmp_path / "own", "--max-updates", 2, "--warmup-updates", 1,
    )  # fmt: skip
    assert code == 0, err
    config = json.loads((tmp_path / "own" / "config.json").read_text())
    assert config["train_sha256"] == data_digest(name)
    code, _, err = call(
        "tokenize", "--encoder", tiny_encoder, "--data", name, "--out", tmp_path / "store"
    )
    assert code == 0, err


@pytest.mark.parametrize(
    "name, found",
    [
        (
            "ir:no/such/set",
            "no such dataset; expected .*ir:wikir/en1k/test.*ir_datasets list",
        ),
        ("ir:", "there is no such dataset"),
        ("ir:wqa-test/docs", "a dataset without questions"),
        ("ir:wqa-test/queries", r"without ranked documents \(scoreddocs\)"),
        ("ir:wqa-test/lost", "cannot be fetched or read"),
        ("ir:wqa-test/gap", "document 'D8' of question 'q1' is missing"),
    ],
)
def test_names_that_are_refused(dataset, call, name, found):
    with pytest.raises(DataError, match=found):
        list(read_questions(name))
    code, out, err = call("evaluate", "wo", "--data", name)
    assert code == 2 and not out
    assert err.startswith("error: ") and len(err.splitlines()) == 1


def test_without_a_network(call, tmp_path, monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IR_DATASETS_DL_TRIES", "1")
    code, out, err = call("evaluate", "wo", "--data", "ir:wikir/en1k/test")
    assert code == 2 and not out
    assert "error: ir:wikir/en1k/test: cannot be fetched or read" in err
    assert "IR_DATASETS_HOME" in err and "Traceback" not in err


def test_without_the_library(monkeypatch, call):
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(MissingDependency, match=r"pip install -e '\.\[ir\]'"):
        list(read_questions("ir:wikir/en1k/test"))
    code, _, err = call("evaluate", "wo", "--data", "ir:wikir/en1k/test")
    assert code == 2 and "pip install -e '.[ir]'" in err
