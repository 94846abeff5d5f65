"""Ids and meta of candidates, from files through rankings to runs that official qrels join."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wqa.data import (
    Candidate,
    Question,
    read_candidates,
    read_documents,
    read_questions,
    write_documents,
    write_questions,
)
from wqa.errors import DataError
from wqa.evaluation import by_document_id, read_run, score_run

META = {"url": "https://a.example/?q=\u00e9", "depth": [1, {"x": None}], "ok": True}
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=("Cs",)), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\u00e9", max_size=3), inner)
    ),
    max_leaves=6,
)


def line(**candidate):
    return json.dumps({"id": "Q1", "question": "who ?", "candidates": [candidate, {"text": "b"}]})


def test_meta_is_read_and_absent_where_there_is_none(jsonl):
    [question] = read_questions(jsonl(line(text="a", label=1, id="D7", meta=META)))
    assert question.candidates == (Candidate("a", 1, "D7", meta=META), Candidate("b"))
    assert question.candidates[1].meta is None
    [ordered] = by_document_id([question])
    assert {candidate.text: candidate.meta for candidate in ordered.candidates} == {
        "a": META,
        "b": None,
    }


@given(meta=st.dictionaries(st.text("ab", max_size=3), VALUES, max_size=3))
def test_meta_reads_back(tmp_path_factory, meta):
    path = tmp_path_factory.mktemp("meta") / "q.jsonl"
    question = Question("Q1", "who ?", (Candidate("a", 0, "D7", meta=meta), Candidate("b", 1)))
    write_questions(path, [question])
    assert list(read_questions(path)) == [question]
    assert '"meta"' not in json.dumps(json.loads(path.read_text())["candidates"][1])


@pytest.mark.parametrize("meta", ["text", None, {"x": float("nan")}, {"x": "\ud800"}])
def test_meta_that_is_no_object(jsonl, meta, run_main):
    path = jsonl(line(text="a", meta=meta))
    with pytest.raises(DataError, match="line 1, candidate 1: meta is .*a JSON object"):
        list(read_questions(path))
    code, _, err = run_main("evaluate", "rr", "--data", path)
    assert code == 2 and "candidate 1: meta is" in err


def test_rank_takes_records_and_writes_their_fields(tmp_path, run_main):
    lines = [
        {"text": "ice moves", "id": "D1"},
        {"text": "glacier caves form in ice", "id": "D2", "meta": META},
        {"text": "tea"},
    ]
    path = tmp_path / "candidates.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in lines))
    assert read_candidates(path)[1] == Candidate("glacier caves form in ice", id="D2", meta=META)
    question = ("--question", "how do glacier caves form ?", "--candidates", path)
    code, out, _ = run_main("rank", "wo", *question, "--json", "-")
    rows = json.loads(out)["ranking"]
    assert code == 0
    assert [(row["id"], row["meta"]) for row in rows] == [("D2", META), ("D1", None), (None, None)]
    code, out, _ = run_main("rank", "wo", *question)
    assert code == 0 and "glacier caves" in out


def test_candidate_files_that_are_refused(tmp_path, run_main):
    path = tmp_path / "candidates.jsonl"
    for text, found in (
        ('{"text": "a", "id": "D1"}\n{"text": "b", "id": "D1"}\n', "belongs to candidate 1 too"),
        ('{"text": "a", "meta": 3}\n', "line 1: meta is 3"),
        ("a sentence\n", "line 1: malformed JSON"),
        ("", "holds no candidate"),
    ):
        path.write_text(text)
        code, out, err = run_main("rank", "wo", "--question", "who ?", "--candidates", path)
        assert code == 2 and found in err and str(path) in err and not out


def test_documents_with_meta_become_candidates_with_meta(tmp_path, jsonl, run_main):
    documents = [
        {"id": "D1", "text": "glacier caves form in ice", "title": "Caves", "meta": META},
        {"id": "D2", "text": "glacier tongues"},
        *({"id": f"D{number}", "text": f"tea {number}"} for number in range(3, 9)),
    ]
    path = jsonl(*map(json.dumps, documents), name="documents.jsonl")
    read = list(read_documents(path))
    assert [document.meta for document in read] == [META] + [None] * 7
    write_documents(tmp_path / "again.jsonl", read)
    assert list(read_documents(tmp_path / "again.jsonl")) == read
    code, _, err = run_main("index", path, "--out", tmp_path / "index")
    assert code == 0, err
    data = jsonl('{"id": "Q1", "question": "glacier caves ?"}')
    code, _, err = run_main(
        "retrieve", tmp_path / "index", "--data", data, "--out", tmp_path / "out.jsonl"
    )
    assert code == 0, err
    [question] = read_questions(tmp_path / "out.jsonl")
    assert [(item.id, item.meta) for item in question.candidates] == [("D1", META), ("D2", None)]


def test_official_qrels_join_by_id(tmp_path, jsonl, run_main):
    candidates = [
        {"text": "glaciers", "label": 0, "id": "D1", "meta": META},
        {"text": "glacier caves form", "label": 1, "id": "D2"},
        {"text": "glacier caves", "label": 0, "id": "D3"},
    ]
    value = {"id": "Q1", "question": "how do glacier caves form ?", "candidates": candidates}
    data = jsonl(json.dumps(value))
    code, _, err = run_main(
        "evaluate", "wo", "--ties", "trec", "--data", data, "--trec-run", tmp_path / "run"
    )
    assert code == 0, err
    run = read_run(tmp_path / "run")
    assert list(run) == ["Q1"] and list(run["Q1"]) == ["D2", "D3", "D1"]
    # Another judgement than the labels, with a document that was not retrieved.
    (tmp_path / "qrels").write_text("Q1 0 D3 2\nQ1 0 D2 0\nQ1 0 D9 1\n")
    official = ("--run", tmp_path / "run", "--qrels", tmp_path / "qrels")
    code, out, _ = run_main("evaluate", *official, "--metrics", "map,mrr", "--json", "-")
    figures = json.loads(out)
    assert code == 0 and figures["mrr"] == 0.5 and figures["map"] == pytest.approx(0.25)
    assert score_run(run, {"Q1": {"D3": 2, "D9": 1}})["map"] == pytest.approx(0.25)
