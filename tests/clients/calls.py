"""Calls by real clients, run by `run.py` in their environment. The case comes by standard input."""

import json
import math
import sys
import traceback

CASE = json.load(sys.stdin)
URL, SMALL, KEY = CASE["served"], CASE["small"], CASE["key"]
QUESTION, DOCUMENTS = CASE["question"], CASE["documents"]
ORDER, RELEVANCE = CASE["order"], CASE["relevance"]


def check(indices, scores, top=None):
    """Compare results with the library's ranking."""
    assert list(indices) == ORDER[:top], (list(indices), ORDER)
    for got, expected in zip(scores, RELEVANCE):
        assert math.isclose(got, expected, rel_tol=1e-4, abs_tol=1e-7), (got, expected)


def check_cohere(results, top=None):
    check([row.index for row in results], [row.relevance_score for row in results], top)


def refused(call, *types):
    """The exception that a call raises, of one of the types."""
    try:
        call()
    except types as error:
        return error
    raise AssertionError("it is not refused")


def cohere_1():
    import cohere

    client = cohere.Client(KEY, base_url=URL)
    response = client.rerank(model="any", query=QUESTION, documents=DOCUMENTS)
    check_cohere(response.results)
    assert response.id and response.meta.api_version.version == "1"
    assert response.results[0].document is None
    documents = [{"text": text, "id": str(index)} for index, text in enumerate(DOCUMENTS)]
    response = client.rerank(
        query=QUESTION, documents=documents, top_n=2, return_documents=True, max_chunks_per_doc=1
    )
    check_cohere(response.results, 2)
    assert [row.document.text for row in response.results] == [DOCUMENTS[i] for i in ORDER[:2]]
    documents = [{"title": text} for text in DOCUMENTS]
    response = client.rerank(query=QUESTION, documents=documents, rank_fields=["title"])
    check_cohere(response.results)


def cohere_2():
    import cohere

    client = cohere.ClientV2(KEY, base_url=URL)
    arguments = {"model": "any", "query": QUESTION}
    response = client.rerank(documents=DOCUMENTS, top_n=3, max_tokens_per_doc=9, **arguments)
    check_cohere(response.results, 3)
    assert response.meta.api_version.version == "2"
    error = refused(lambda: client.rerank(documents=[], **arguments), cohere.BadRequestError)
    assert "must not be empty" in error.body["message"]
    stranger = cohere.ClientV2("other", base_url=URL)
    error = refused(
        lambda: stranger.rerank(documents=DOCUMENTS, **arguments), cohere.UnauthorizedError
    )
    assert "invalid api token" in error.body["message"]
    small = cohere.ClientV2("any", base_url=SMALL)
    error = refused(lambda: small.rerank(documents=DOCUMENTS, **arguments), cohere.core.ApiError)
    assert error.status_code == 413
    assert "at most 1" in error.body["message"]


def langchain():
    from langchain_cohere import CohereRerank
    from langchain_core.documents import Document

    reranker = CohereRerank(model="any", cohere_api_key=KEY, base_url=URL, top_n=2)
    documents = [Document(text, metadata={"place": i}) for i, text in enumerate(DOCUMENTS)]
    best = reranker.compress_documents(documents, QUESTION)
    check(
        [document.metadata["place"] for document in best],
        [document.metadata["relevance_score"] for document in best],
        2,
    )


def nodes():
    from llama_index.core.schema import NodeWithScore, TextNode

    return [
        NodeWithScore(node=TextNode(text=text, id_=str(index)), score=0.0)
        for index, text in enumerate(DOCUMENTS)
    ]


def check_nodes(best, top):
    check([int(node.node.node_id) for node in best], [node.score for node in best], top)


def llama_index_cohere():
    from llama_index.postprocessor.cohere_rerank import CohereRerank

    reranker = CohereRerank(api_key=KEY, base_url=URL, model="any", top_n=3)
    check_nodes(reranker.postprocess_nodes(nodes(), query_str=QUESTION), 3)


def llama_index_jina():
    from llama_index.postprocessor.jinaai_rerank import JinaRerank

    reranker = JinaRerank(api_key=KEY, base_url=f"{URL}/v1", model="any", top_n=3)
    check_nodes(reranker.postprocess_nodes(nodes(), query_str=QUESTION), 3)
    small = JinaRerank(api_key="any", base_url=f"{SMALL}/v1", top_n=3)
    error = refused(lambda: small.postprocess_nodes(nodes(), query_str=QUESTION), RuntimeError)
    assert "at most 1" in str(error)


def llama_index_tei():
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

    reranker = TextEmbeddingInference(base_url=URL, top_n=3, auth_token=f"Bearer {KEY}")
    check_nodes(reranker.postprocess_nodes(nodes(), query_str=QUESTION), 3)


def rerankers_of(provider, path):
    def call():
        from rerankers import Document, Reranker

        ranker = Reranker("any", model_type=provider, api_key=KEY, url=URL + path, verbose=0)
        ranked = ranker.rank(query=QUESTION, docs=DOCUMENTS)
        results = ranked.results
        check([row.document.doc_id for row in results], [row.score for row in results])
        # `score` takes a text by its type hints, and a document in fact.
        assert 0 <= ranker.score(QUESTION, Document(DOCUMENTS[0])) <= 1

    return call


CALLS = {
    "cohere.Client": cohere_1,
    "cohere.ClientV2": cohere_2,
    "langchain_cohere.CohereRerank": langchain,
    "llama_index CohereRerank": llama_index_cohere,
    "llama_index JinaRerank": llama_index_jina,
    "llama_index TextEmbeddingInference": llama_index_tei,
    "rerankers, cohere": rerankers_of("cohere", "/v1/rerank"),
    "rerankers, jina": rerankers_of("jina", "/v1/rerank"),
    "rerankers, text-embeddings-inference": rerankers_of("text-embeddings-inference", "/rerank"),
}


def main():
    """Make all calls, and return 1 if one of them fails."""
    failed = 0
    for name, call in CALLS.items():
        try:
            call()
            print(f"ok      {name}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(CALLS) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
