"""Corpora of ir_datasets, of which the tests register one of their own."""

import json
import re
import sys
import typing

import pytest
from conftest import ROOT

from wqa.data import Candidate, read_documents, read_questions
from wqa.data.formats import data_digest
from wqa.errors import DataError, MissingDependency
from wqa.evaluation import read_run
from wqa.systems.load import rank_all

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
    unjudged = {question.labels for question in read_questions(f"{dataset}/unjudged")}
    assert unjudged == {(None,) * 3, (None,) * 2, (None,)}


def test_questions_alone(dataset):
    questions = list(read_questions(f"{dataset}/queries", with_candidates=False))
    assert [question.id for question in questions] == ["q1", "q2", "q3", "q4"]
    assert not any(question.candidates for question in questions)


def test_wherever_a_file_goes(dataset, tmp_path, run_main, tiny_run, tiny_encoder):
    digest = data_digest(dataset)
    assert len(digest) == 64 and digest != data_digest(f"{dataset}/unjudged")
    assert len(list(rank_all("wo", dataset))) == 3
    code, _, err = run_main("score", tiny_run, "--data", dataset, "--out", tmp_path / "scores")
    assert code == 0, err
    assert json.loads((tmp_path / "scores" / "meta.json").read_text())["data_sha256"] == digest
    code, _, err = run_main("evaluate", "wo", "--data", dataset)
    assert code == 2 and "q3" in err  # it has no labels


def test_its_documents_are_indexed_and_retrieved(dataset, tmp_path, run_main):
    """As a dataset without ranked documents needs it; its official qrels score the run."""
    out, found = tmp_path / "index", tmp_path / "found.jsonl"
    for _ in range(2):  # the second finds the index as it is
        code, printed, err = run_main("index", f"{dataset}/docs", "--out", out)
        assert code == 0 and "3 documents" in printed, err
    code, _, err = run_main("retrieve", out, "--data", f"{dataset}/queries", "--out", found)
    assert code == 0, err
    first, second = read_questions(found)
    assert first.document_ids[0] == "D2" and second.document_ids == ("D3",)
    code, _, err = run_main(
        "score", "bm25", "--data", found, "--format", "trec", "--out", tmp_path / "s"
    )
    assert code == 0, err
    (tmp_path / "qrels").write_text(QRELS)
    run = tmp_path / "s" / "run.trec"
    assert set(read_run(run)) == {"q1", "q2"}
    code, _, err = run_main("evaluate", "--run", run, "--qrels", tmp_path / "qrels")
    assert code == 0, err


def test_documents_without_text_are_left_out(dataset, tmp_path, caplog):
    (tmp_path / "d").write_text("D1\tice\nD2\t \n")
    docs = ir_datasets.formats.TsvDocs(ir_datasets.util.LocalDownload(tmp_path / "d"))
    ir_datasets.registry.register("wqa-test/blank", ir_datasets.Dataset(docs))
    assert [document.id for document in read_documents(f"{dataset}/blank")] == ["D1"]
    assert "ir:wqa-test/blank: 1 document without text left out" in caplog.text
    with pytest.raises(DataError, match="a dataset without documents"):
        list(read_documents("ir:beir"))


@pytest.mark.parametrize(
    "name, found",
    [
        ("ir:no/such/set", "no such dataset; expected .*ir:wikir/en1k/test.*ir_datasets list"),
        ("ir:", "there is no such dataset"),
        ("ir:wqa-test/docs", "a dataset without questions"),
        ("ir:wqa-test/queries", r"without scoreddocs"),
        ("ir:wqa-test/lost", "cannot be fetched or read"),
        ("ir:wqa-test/gap", "document 'D8' of question 'q1' is missing"),
    ],
)
def test_names_that_are_refused(dataset, run_main, name, found):
    with pytest.raises(DataError, match=found):
        list(read_questions(name))
    code, out, err = run_main("evaluate", "wo", "--data", name)
    assert code == 2 and not out
    assert err.startswith("error: ") and len(err.splitlines()) == 1


def test_without_the_library(monkeypatch, run_main):
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(MissingDependency, match=r"pip install -e '\.\[ir\]'"):
        list(read_questions("ir:wikir/en1k/test"))
    code, _, err = run_main("evaluate", "wo", "--data", "ir:wikir/en1k/test")
    assert code == 2 and "pip install -e '.[ir]'" in err


# The names that the first page lists

LISTED = sorted(set(re.findall(r"`ir:([\w./-]+)`", (ROOT / "docs" / "index.md").read_text())))


def made(kind, **known):
    """A record of a declared type: its fields by their own types, but for those that are known."""
    values = {}
    for name, hint in typing.get_type_hints(kind).items():
        empty = {str: f"the {name} of it", int: 1, float: 1.0}
        values[name] = known.get(name, empty.get(hint, ()))
    return kind(**values)


class OfItsTypes:
    """A dataset of one record of each type that another one declares; nothing is fetched."""

    def __init__(self, declared):
        self.declared = declared

    def __getattr__(self, name):
        return getattr(self.declared, name)  # has_queries and so on

    def queries_iter(self):
        yield made(self.declared.queries_cls(), query_id="q1")

    def scoreddocs_iter(self):
        yield made(self.declared.scoreddocs_cls(), query_id="q1", doc_id="d1")

    def qrels_iter(self):
        yield made(self.declared.qrels_cls(), query_id="q1", doc_id="d1", relevance=1)

    def docs_iter(self):
        yield made(self.declared.docs_cls(), doc_id="d1")

    def docs_store(self):
        return self

    def get_many(self, ids):
        return {name: made(self.declared.docs_cls(), doc_id=name) for name in ids}


@pytest.mark.parametrize("name", LISTED)
def test_a_listed_name_is_known_and_its_types_are_read(name, monkeypatch):
    source = OfItsTypes(ir_datasets.load(name))
    monkeypatch.setattr(ir_datasets, "load", lambda name: source)
    [question] = read_questions(f"ir:{name}", with_candidates=False)
    assert question.id == "q1" and question.question.strip()
    if not source.has_scoreddocs():
        assert name.startswith("beir/")
        [document] = read_documents(f"ir:{name}")
        assert document.id == "d1" and "of it" in document.text
        with pytest.raises(DataError, match="let `wqa retrieve` find candidates"):
            list(read_questions(f"ir:{name}"))
        return
    [question] = read_questions(f"ir:{name}")
    [candidate] = question.candidates
    assert candidate.id == "d1" and "of it" in candidate.text
    assert candidate.label == (1 if source.has_qrels() else None)
