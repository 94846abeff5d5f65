"""The adapters, with the real libraries, each test skipped where its library is not installed."""

import asyncio
import importlib.util

import numpy as np
import pytest
from conftest import run_python
from rankers import cascade_ranking

from wqa.data import Document, Question, write_documents
from wqa.errors import DataError, InputError, OptionError
from wqa.inference import Capabilities, Ranker
from wqa.inference.dropping import Drop
from wqa.inference.pipeline import Pipeline
from wqa.retrieval import Index, build_index
from wqa.systems.load import load_ranker

ADAPTERS = {"pyterrier": "pyterrier", "langchain": "langchain_core", "llamaindex": "llama_index"}

#: Scores of texts at two exits. The first exit drops the worse half, and what it drops last, "c",
#: has a greater score than every candidate that goes on.
SCORES = {"a": (5.0, -1.0), "b": (4.0, 1.0), "c": (3.0, 9.0), "d": (2.0, 9.0)}
RANKED = ["b", "a", "c", "d", " "]


class TwoExits(Ranker):
    """A cascade whose scores are looked up; it keeps what it was asked to rank."""

    def __init__(self):
        self.questions = []

    @property
    def capabilities(self):
        return Capabilities("two_exits", stages=2, exits=(1, 2), num_layers=2)

    def rank_all(self, questions):
        for question in questions:
            assert isinstance(question, Question)
            self.questions.append(question)
            scores = np.array([SCORES.get(text, (np.nan,) * 2) for text in question.texts]).T
            yield cascade_ranking(scores, (Drop(0.5), Drop()), (1, 2))


def reranker(library, *arguments, **options):
    """The reranker of a library, which is imported where it is installed."""
    return importlib.import_module(f"wqa.adapters.{library}").Reranker(*arguments, **options)


def assert_follows(scores):
    """Scores of `RANKED`: strictly decreasing, in [0, 1], the blank candidate's 0."""
    assert all(first > second for first, second in zip(scores, scores[1:]))
    assert scores[0] <= 1 and scores[-1] == 0


# PyTerrier


@pytest.fixture
def pyterrier():
    return pytest.importorskip("pyterrier", reason="python-terrier is not installed")


def frame(rows, columns=("qid", "query", "docno", "text")):
    import pandas as pd

    return pd.DataFrame(rows, columns=list(columns))


def test_pyterrier_ranks_each_query_by_relevance(pyterrier):
    rows = [["q2", "second", "x1", "d"], *(["q1", "first", f"d{t}", t] for t in "dcba ")]
    rows.insert(3, ["q2", "second", "x2", "b"])  # rows of the queries are mixed
    out = reranker("pyterrier", TwoExits())(frame(rows))
    assert out.columns.tolist() == ["qid", "query", "docno", "text", "score", "rank"]
    assert out["qid"].tolist() == ["q2"] * 2 + ["q1"] * 5
    assert out["text"].tolist() == ["b", "d", *RANKED]
    assert out["rank"].tolist() == [0, 1, 0, 1, 2, 3, 4]
    assert_follows(out["score"][2:].tolist())
    # Sorting by score, which PyTerrier does in many places, keeps the order.
    ranked_again = pyterrier.model.add_ranks(out.drop(columns="rank"))
    assert ranked_again["rank"].tolist() == out["rank"].tolist()
    assert not pyterrier.java.started()


def test_pyterrier_reads_the_order_of_retrieval_and_replaces_its_scores(pyterrier):
    columns = ("qid", "rank", "query", "docno", "passage", "score", "url")
    rows = [["q", 1, "first", 7, "b", 2.0, "u1"], ["q", 0, "first", "D 8", "a", 3.0, "u2"]]
    ranker = TwoExits()
    out = reranker("pyterrier", ranker, text_field="passage").transform(frame(rows, columns))
    [question] = ranker.questions
    assert question.id == "q" and question.question == "first"
    assert [(c.id, c.text) for c in question.candidates] == [("D 8", "a"), ("7", "b")]
    assert out.columns.tolist() == list(columns)
    assert out["url"].tolist() == ["u2", "u1"] and out["rank"].tolist() == [0, 1]
    assert_follows([*out["score"], 0])


def test_pyterrier_stands_in_a_pipeline_and_an_experiment(pyterrier):
    retrieved = frame([["1", f"d{t}", t, 1.0] for t in "dcba"], ("qid", "docno", "text", "score"))
    pipeline = pyterrier.Transformer.from_df(retrieved) >> reranker("pyterrier", TwoExits()) % 3
    out = pipeline.search("first")
    assert out["docno"].tolist() == ["db", "da", "dc"]
    topics = frame([["1", "first"]], ("qid", "query"))
    qrels = frame([["1", "da", 1]], ("qid", "docno", "label"))
    result = pyterrier.Experiment([pipeline], topics, qrels, ["recip_rank"], names=["two exits"])
    assert result["recip_rank"].tolist() == [0.5]


def test_pyterrier_describes_the_columns_without_ranking(pyterrier):
    rerank = reranker("pyterrier", TwoExits())
    columns = ["qid", "query", "docno", "text"]
    assert pyterrier.inspect.transformer_outputs(rerank, columns) == [*columns, "score", "rank"]
    empty = rerank(frame([]))
    assert len(empty) == 0 and empty["rank"].dtype.kind == "i" and empty["score"].dtype.kind == "f"
    with pytest.raises(pyterrier.validate.InputValidationError):
        rerank(frame([["q", "first", "d1"]], ("qid", "query", "docno")))


def test_pyterrier_refuses_a_document_without_a_text(pyterrier):
    rows = [["q", "first", "d1", "a"], ["q", "first", "d2", None]]
    with pytest.raises(DataError, match="query 'q', document 'd2': text is None; .*get_text"):
        reranker("pyterrier", TwoExits())(frame(rows))


def test_pyterrier_refuses_a_query_without_a_text(pyterrier):
    with pytest.raises(DataError, match="query 'q': query is None; expected its text"):
        reranker("pyterrier", TwoExits())(frame([["q", None, "d1", "a"]]))


# LangChain


@pytest.fixture
def documents():
    library = pytest.importorskip(
        "langchain_core.documents", reason="langchain-core is not installed"
    )
    return [library.Document(text, id=f"d{text}", metadata={"n": text}) for text in "dcba "]


def test_langchain_ranks_copies_of_documents(documents):
    rerank = reranker("langchain", ranker=TwoExits())
    ranked = rerank.compress_documents(documents, "first")
    assert [document.page_content for document in ranked] == RANKED
    assert [document.id for document in ranked] == [f"d{text}" for text in RANKED]
    assert [document.metadata["n"] for document in ranked] == RANKED
    assert_follows([document.metadata["relevance_score"] for document in ranked])
    assert all(set(document.metadata) == {"n"} for document in documents)
    assert rerank.compress_documents([], "first") == []


def test_langchain_returns_the_first_documents_also_asynchronously(documents):
    rerank = reranker("langchain", ranker=TwoExits(), top_n=2)
    ranked = asyncio.run(rerank.acompress_documents(documents, "first"))
    assert [document.page_content for document in ranked] == RANKED[:2]
    whole = reranker("langchain", ranker=TwoExits()).compress_documents(documents, "first")
    assert ranked == whole[:2]


def test_langchain_refuses_what_cannot_rank(documents):
    with pytest.raises(ValueError, match="top_n"):
        reranker("langchain", ranker=TwoExits(), top_n=0)
    with pytest.raises(ValueError, match="ranker"):
        reranker("langchain", ranker="runs/cascade")
    with pytest.raises(InputError, match="the question is empty"):
        reranker("langchain", ranker=load_ranker("wo")).compress_documents(documents, " ")


# LlamaIndex


@pytest.fixture
def nodes():
    schema = pytest.importorskip("llama_index.core.schema", reason="llama-index is not installed")
    return [
        schema.NodeWithScore(node=schema.TextNode(text=text, metadata={"file": "b"}), score=0.5)
        for text in "dcba "
    ]


def test_llamaindex_ranks_nodes(nodes):
    rerank = reranker("llamaindex", ranker=TwoExits())
    ranked = rerank.postprocess_nodes(nodes, query_str="first")
    assert [node.text for node in ranked] == RANKED
    assert_follows([node.score for node in ranked])
    assert {node.node_id for node in ranked} == {node.node_id for node in nodes}
    assert [node.score for node in nodes] == [0.5] * 5
    assert rerank.postprocess_nodes([], query_str="first") == []


def test_llamaindex_returns_the_first_nodes_also_asynchronously(nodes):
    rerank = reranker("llamaindex", ranker=TwoExits(), top_n=2)
    ranked = asyncio.run(rerank.apostprocess_nodes(nodes, query_str="first"))
    assert [node.text for node in ranked] == RANKED[:2]
    assert "ranker" not in rerank.to_dict()  # LlamaIndex writes components as JSON


def test_llamaindex_refuses_what_cannot_rank(nodes):
    with pytest.raises(ValueError, match="top_n"):
        reranker("llamaindex", ranker=TwoExits(), top_n=0)
    with pytest.raises(InputError, match="query_bundle: there is none"):
        reranker("llamaindex", ranker=TwoExits()).postprocess_nodes(nodes)


# The package


def test_the_package_imports_no_library():
    code = f"import sys, wqa.adapters; assert not {set(ADAPTERS.values())} & set(sys.modules)"
    assert run_python("-c", code).returncode == 0


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_missing_library_is_named_with_its_extra(name):
    code = f"import sys; sys.modules['{ADAPTERS[name]}'] = None; import wqa.adapters.{name}"
    done = run_python("-c", code)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("wqa.errors.MissingDependency") and "is not installed" in last
    assert f"pip install -e '.[{name}]'" in last


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_gives_the_ranking_of_a_trained_cascade(name, tiny_run):
    if importlib.util.find_spec(ADAPTERS[name]) is None:
        pytest.skip(f"{ADAPTERS[name]} is not installed")
    ranker = load_ranker(tiny_run, drop_ratio=0.5)
    question = "how are glacier caves formed ?"
    texts = ["ice melts .", "water flows .", "caves form in ice .", "rain falls .", "a dog ran ."]
    expected = [texts[index] for index in ranker.rank(question, texts).order]
    assert ADAPTED[name](ranker, question, texts) == expected


def adapted_pyterrier(ranker, question, texts):
    rows = [["q", question, f"d{number}", text] for number, text in enumerate(texts)]
    ranked = reranker("pyterrier", ranker)(frame(rows))
    return ranked.sort_values("score", ascending=False)["text"].tolist()


def adapted_langchain(ranker, question, texts):
    from langchain_core.documents import Document

    documents = [Document(text) for text in texts]
    ranked = reranker("langchain", ranker=ranker).compress_documents(documents, question)
    ranked.sort(key=lambda document: -document.metadata["relevance_score"])
    return [document.page_content for document in ranked]


def adapted_llamaindex(ranker, question, texts):
    from llama_index.core.schema import NodeWithScore, TextNode

    nodes = [NodeWithScore(node=TextNode(text=text)) for text in texts]
    ranked = reranker("llamaindex", ranker=ranker).postprocess_nodes(nodes, query_str=question)
    return [node.text for node in sorted(ranked, key=lambda node: -node.score)]


ADAPTED = {
    "pyterrier": adapted_pyterrier,
    "langchain": adapted_langchain,
    "llamaindex": adapted_llamaindex,
}


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    """A pipeline on a collection of four documents, by overlap of words."""
    folder = tmp_path_factory.mktemp("collection")
    texts = [
        "Steam whistles in a kettle . It is hot .",
        "Tea is a drink .",
        "Ice melts .",
        "Snow .",
    ]
    documents = [Document(f"D{number}", text, "T") for number, text in enumerate(texts)]
    write_documents(folder / "documents.jsonl", documents)
    build_index(folder / "documents.jsonl", folder / "index", sentences=True)
    return Pipeline(Index(folder / "index"), ranker=load_ranker("wo"))


#: What the first sentence of the question below carries.
KETTLE = {"source": "D0", "title": "T", "start": 0, "end": 28, "before": "", "after": "It is hot ."}


def test_langchain_retrieves_the_sentences_of_a_collection(asking):
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from wqa.adapters.langchain import SentenceRetriever

    retriever = SentenceRetriever(pipeline=asking, top_n=1)
    [first] = retriever.invoke("why does a kettle whistle ?")
    expected = asking.ask("why does a kettle whistle ?").sentences
    assert first.page_content == "Steam whistles in a kettle ." == expected[0].text
    assert first.metadata == {**KETTLE, "relevance_score": expected[0].relevance}
    assert len(SentenceRetriever(pipeline=asking).invoke("why does a kettle whistle ?")) == 2
    assert retriever.invoke("zebra ?") == []
    assert asyncio.run(retriever.ainvoke("why does a kettle whistle ?")) == [first]
    with pytest.raises(ValueError, match="top_n"):
        SentenceRetriever(pipeline=asking, top_n=0)


def test_llamaindex_retrieves_the_sentences_of_a_collection(asking):
    pytest.importorskip("llama_index.core", reason="llama-index is not installed")
    from wqa.adapters.llamaindex import SentenceRetriever

    [first] = SentenceRetriever(asking, top_n=1).retrieve("why does a kettle whistle ?")
    expected = asking.ask("why does a kettle whistle ?").sentences[0]
    assert (first.text, first.score) == (expected.text, expected.relevance)
    assert first.node.metadata == KETTLE
    with pytest.raises(OptionError, match="top_n: 0; expected a whole number from 1"):
        SentenceRetriever(asking, top_n=0)
