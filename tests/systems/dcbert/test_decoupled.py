"""Ranking with DC-BERT: engines, the document cache, drops, sequences, int8, costs."""

import mxnet as mx
import numpy as np
import pytest
from conftest import dev_run, needs_onednn, needs_precision

from wqa.config import BackboneConfig, EngineConfig
from wqa.data import Candidate, builtin_path, read_questions
from wqa.data.documents import Document, write_documents
from wqa.engines.onednn.quantize import quantize_network
from wqa.errors import DataError, InputError, OptionError
from wqa.inference.document_cache import DocumentCache, StoredDocument, write_cache
from wqa.inference.document_encoder import encodings_identity
from wqa.systems.dcbert.ranker import DecoupledEngineInputs
from wqa.systems.encode import encode_documents
from wqa.systems.load import build_ranker, load_ranker
from wqa.systems.quantize import quantize
from wqa.systems.registry import build_network
from wqa.text import SplitInputs, SplitPair, TextInput

CONFIG = BackboneConfig(
    vocab_size=200, units=32, hidden_size=64, num_layers=3, num_heads=4, max_positions=96
)
ENGINES = (
    pytest.param("mxnet", "float32", 1e-5),
    pytest.param("onednn", "float32", 1e-4, marks=needs_onednn),
    pytest.param("onednn", "bfloat16", 5e-2, marks=needs_precision("bfloat16")),
)
VARIANTS = {
    "one layer": {},
    "three layers": {"layers": 3, "exits": (1, 2, 3)},
    "linear": {"interaction": "linear"},
    "comparing": {"classifier": "comparison"},
}


class Inputs:
    """Stands for `SplitInputs` where all texts are token ids."""

    max_length = 64

    class tokenizer:
        padding_id, pair_form, fingerprint = 0, "bert", "none"


def network_of(seed=0, **own):
    network = build_network("dcbert", CONFIG, question_length=20, **own)
    mx.random.seed(seed)
    network.initialize(mx.init.Normal(0.2))
    return network


def by(engine, precision="float32", **options):
    return EngineConfig(engine=engine, precision=precision, **options)


def ranker_of(network, engine, **options):
    return build_ranker("dcbert", network, Inputs(), engine=engine, **options)


def text(rng, length):
    ids = rng.integers(1, CONFIG.vocab_size, length).astype(np.int32)
    return TextInput(ids, length, False, length == 2)


def questions_of(seed=0, lengths=((5, (30, 7, 12, 64, 12)), (20, (3, 40)), (9, (11,)))):
    """Questions of token ids, and their documents."""
    rng = np.random.default_rng(seed)
    group = []
    for question_length, document_lengths in lengths:
        question = text(rng, question_length)
        group.append([SplitPair(question, text(rng, length)) for length in document_lengths])
    return group


def scores_one_by_one(network, group):
    """Scores of all exits of the network itself, each pair in a batch of its own."""
    path = network.path()
    rankings = []
    for pairs in group:
        scores = []
        for pair in pairs:
            inputs = []
            for single in pair:
                inputs.append(mx.nd.array(single.token_ids[None], dtype="int32"))
                inputs.append(mx.nd.array([len(single.token_ids)]))
            scores.append(path(*inputs).asnumpy()[0])
        rankings.append(np.stack(scores, axis=1))  # (exits, documents)
    return rankings


@pytest.mark.parametrize("engine, precision, tolerance", ENGINES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_are_those_of_the_network_pair_by_pair(variant, engine, precision, tolerance):
    network, group = network_of(**VARIANTS[variant]), questions_of()
    expected = scores_one_by_one(network, group)
    assert np.concatenate(expected, axis=1).std(axis=1).min() > 0.1
    ranker = ranker_of(network, by(engine, precision))
    for ranking, scores in zip(ranker.rank_pairs(group), expected):
        np.testing.assert_allclose(ranking.exit_scores, scores, atol=tolerance)
        assert ranking.order.tolist() == np.argsort(-ranking.scores, kind="stable").tolist()


@needs_onednn
def test_onednn_refuses_the_lstm():
    with pytest.raises(OptionError, match="onednn"):
        ranker_of(network_of(interaction="lstm"), by("onednn"))


@pytest.mark.parametrize("engine", [pytest.param("onednn", marks=needs_onednn), "mxnet"])
def test_exits_drop_by_the_rule_and_survivors_keep_their_scores(engine):
    network, group = network_of(layers=3, exits=(1, 2, 3)), questions_of()
    ranker = ranker_of(network, by(engine))
    full = ranker.rank_pairs(group)[0].exit_scores
    ranker.set_drops(0.4)
    ranking = ranker.rank_pairs(group)[0]
    # Of 5 documents an exit drops floor(0.4 * 5) = 2, of 3 then 1.
    first = np.sort(np.argsort(-full[0], kind="stable")[:3])
    second = first[np.sort(np.argsort(-full[1, first], kind="stable")[:2])]
    expected = np.ones(5, int)
    expected[first] = 2
    expected[second] = 3
    assert ranking.exits.tolist() == expected.tolist()
    reached = np.arange(1, 4)[:, None] <= expected
    np.testing.assert_allclose(ranking.exit_scores[reached], full[reached], atol=1e-5)
    assert np.isnan(ranking.exit_scores[~reached]).all()
    assert set(ranking.order[:2]) == set(second) and ranking.order[2] in first


def test_cost_by_hand():
    """Two interaction layers, an encoder of three; a layer has w multiply-adds a token."""
    network = network_of(layers=2, exits=(1, 2))
    [w, _] = network.stage_work()
    assert network.full_work() == 3 * w
    rng = np.random.default_rng(0)
    question, documents = text(rng, 5), [text(rng, 10), text(rng, 20), text(rng, 30)]
    pairs = [SplitPair(question, document) for document in documents]
    stored = np.zeros((30, CONFIG.units), np.float32)
    pairs[2] = SplitPair(question, StoredDocument(stored, True))
    ranker = ranker_of(network, by("mxnet"))
    [ranking] = ranker.rank_pairs([pairs])
    cost = ranking.cost
    # Pairs of 15, 25 and 35 tokens run two layers. Encoded: a question of 5 tokens, and documents
    # of 10 and 20.
    assert cost.multiply_adds == 2 * w * (15 + 25 + 35) + 3 * w * (5 + 10 + 20)
    assert cost.full_multiply_adds == 3 * w * (15 + 25 + 35)
    assert cost.candidate_work == 3 * 2 * w + 3 * 3 * w
    assert cost.full_candidate_work == 3 * 3 * w
    assert cost.paper == pytest.approx((6 + 9) / 9)
    assert ranking.truncated.tolist() == [False, False, True]
    known = []
    for document in documents:
        rows = np.zeros((document.length, CONFIG.units), np.float32)
        known.append(SplitPair(question, StoredDocument(rows, False)))
    [with_known] = ranker.rank_pairs([known])
    assert cost.multiply_adds - with_known.cost.multiply_adds == 3 * w * (10 + 20)
    ranker.set_drops(keep=1)
    [ranking] = ranker.rank_pairs([pairs])
    left = 5 + [10, 20, 30][ranking.order[0]]
    assert ranking.cost.multiply_adds == w * (15 + 25 + 35) + w * left + 3 * w * (5 + 10 + 20)


def test_blank_documents_come_last_and_cost_nothing():
    network = network_of()
    ranker = ranker_of(network, by("mxnet"))
    rng = np.random.default_rng(0)
    question = text(rng, 5)
    blank, filled = SplitPair(question, text(rng, 2)), SplitPair(question, text(rng, 9))
    first, second = ranker.rank_pairs([[blank, filled], [blank]])
    assert first.blank.tolist() == [True, False] and first.order.tolist() == [1, 0]
    assert second.scores.tolist() == [-np.inf] and second.cost.multiply_adds == 0


def test_wrong_inputs_name_the_question_and_the_document():
    ranker = ranker_of(network_of(), by("mxnet"))
    rng = np.random.default_rng(0)
    long, unknown = text(rng, 77), text(rng, 9)
    unknown.token_ids[3] = CONFIG.vocab_size
    question = text(rng, 5)
    with pytest.raises(InputError, match="question '1': 77 tokens with candidate 2; .* 76"):
        pairs = [SplitPair(question, text(rng, 9)), SplitPair(question, long)]
        ranker.rank_pairs([pairs])
    with pytest.raises(InputError, match="token id 200 with candidate 1"):
        ranker.rank_pairs([[SplitPair(question, unknown)]])
    with pytest.raises(InputError, match="21 tokens .* at most 20"):
        ranker.rank_pairs([[SplitPair(text(rng, 21), text(rng, 9))]])


@needs_precision("int8")
def test_int8_differs_by_its_rounding_alone():
    network = network_of(layers=2, exits=(1, 2))
    lengths = [(5 + number % 15, range(3 + number % 5, 60, 5)) for number in range(20)]
    pairs = [pair for question in questions_of(5, lengths) for pair in question]
    quantized = quantize_network(DecoupledEngineInputs(network), pairs)
    assert len(quantized) == len(network.quantized_layers()) == 3 + 3 + 2
    group = questions_of()
    exact = np.concatenate(scores_one_by_one(network, group), axis=1)
    ranker = ranker_of(network, by("onednn", "int8"), quantized=quantized)
    rounded = np.concatenate([ranking.exit_scores for ranking in ranker.rank_pairs(group)], axis=1)
    for one, other in zip(exact, rounded):
        assert np.abs(one - other).max() > 0 and np.corrcoef(one, other)[0, 1] > 0.9


# The cache


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_encoder):
    out = tmp_path_factory.mktemp("runs") / "dcbert"
    settings = {"max_updates": 2, "warmup_updates": 0, "learning_rate": 1e-2, "max_length": 24}
    own = {"question_length": 32, "layers": 2, "exits": (1, 2)}
    return dev_run("dcbert", out, tiny_encoder, tokens_per_batch=400, **settings, **own)


@pytest.fixture(scope="module")
def questions():
    """Questions whose candidates have ids, a text twice, a blank one, and one that is cut."""
    result = []
    for question in list(read_questions(builtin_path("dev")))[:4]:
        texts = [*question.texts[:5], question.texts[0], " ", "the moon " * 40]
        candidates = []
        for number, text_of_candidate in enumerate(texts):
            candidates.append(Candidate(text_of_candidate, 0, f"{question.id}-{number}"))
        result.append(question._replace(candidates=tuple(candidates)))
    return result


def documents_of(questions):
    documents = {}
    for question in questions:
        for candidate in question.candidates:
            if candidate.text.strip():
                documents[candidate.id] = Document(candidate.id, candidate.text)
    return list(documents.values())


@pytest.fixture(scope="module")
def caches(tmp_path_factory, run, questions):
    """Caches of all documents, by element type."""
    folder = tmp_path_factory.mktemp("caches")
    write_documents(folder / "documents.jsonl", documents_of(questions))
    paths = {}
    for store in ("float32", "float16"):
        paths[store] = folder / store
        engine = EngineConfig(engine="mxnet")
        encode_documents(run, folder / "documents.jsonl", paths[store], store, engine=engine)
    return paths


def assert_same(first, second, tolerance):
    for one, other in zip(first, second):
        np.testing.assert_allclose(one.exit_scores, other.exit_scores, atol=tolerance)
        assert one.truncated.tolist() == other.truncated.tolist()
        assert one.blank.tolist() == other.blank.tolist()


@pytest.mark.parametrize("engine", [pytest.param("onednn", marks=needs_onednn), "mxnet"])
@pytest.mark.parametrize("store, tolerance", [("float32", 1e-5), ("float16", 2e-3)])
def test_a_cache_changes_scores_by_its_rounding_alone(
    run, questions, caches, store, tolerance, engine
):
    plain = list(load_ranker(run, engine=engine).rank_all(questions))
    cache = DocumentCache(caches[store])
    ranker = load_ranker(run, engine=engine, cache=cache)
    ranker.document_encoder.encode = lambda ids: pytest.fail("encoded") if len(ids) else []
    cached = list(ranker.rank_all(questions))
    assert_same(plain, cached, tolerance)
    assert plain[0].truncated[7] and not plain[0].truncated[0]
    assert (cache.documents, cache.missing) == (32, 4)  # blank ones are not in a cache
    assert cached[0].cost.multiply_adds < plain[0].cost.multiply_adds


def test_a_changed_document_is_encoded_again(run, questions, caches):
    changed = []
    for question in questions:
        first = question.candidates[0]._replace(text="another text of the document")
        second = question.candidates[1]._replace(id=None)
        third = question.candidates[2]._replace(id="unknown")
        changed.append(
            question._replace(candidates=(first, second, third, *question.candidates[3:]))
        )
    cache = DocumentCache(caches["float32"])
    cached = list(load_ranker(run, engine="mxnet", cache=cache).rank_all(changed))
    assert_same(list(load_ranker(run, engine="mxnet").rank_all(changed)), cached, 1e-5)
    assert (cache.documents, cache.missing) == (32, 4 * 4)


@pytest.mark.parametrize("interaction", ["transformer", "linear"])
def test_a_cache_says_which_documents_were_cut(
    interaction, tiny_encoder, questions, tmp_path, monkeypatch
):
    """No text of the cache is tokenized again to tell."""
    run, documents = tmp_path / "run", tmp_path / "documents.jsonl"
    settings = {"max_updates": 1, "warmup_updates": 0, "max_length": 24, "question_length": 32}
    dev_run("dcbert", run, tiny_encoder, interaction=interaction, **settings)
    write_documents(documents, documents_of(questions))
    plain = list(load_ranker(run, engine="mxnet").rank_all(questions))
    tokenized = []
    encode = SplitInputs.encode

    def watched(inputs, question, texts, *names):
        tokenized.extend(texts)
        return encode(inputs, question, texts, *names)

    for first_tokens in (0, 5):
        path = tmp_path / f"cache{first_tokens}"
        options = {"first_tokens": first_tokens, "engine": EngineConfig(engine="mxnet")}
        encode_documents(run, documents, path, **options)
        monkeypatch.setattr(SplitInputs, "encode", watched)
        tokenized.clear()
        cached = list(load_ranker(run, engine="mxnet", cache=path).rank_all(questions))
        assert tokenized == [" "] * len(questions)  # the blank candidates
        for one, other in zip(plain, cached):
            expected = one.truncated
            if first_tokens and interaction == "transformer":
                expected = ~one.blank  # all have more than 5 tokens
            elif first_tokens:
                expected = np.zeros_like(one.truncated)
            assert other.truncated.tolist() == expected.tolist()


class OtherLength(Inputs):
    max_length = 63


class OtherTokenizer(Inputs):
    class tokenizer(Inputs.tokenizer):
        fingerprint = "another"


@pytest.mark.parametrize(
    "name, other", [("tokenizer_sha256", OtherTokenizer), ("max_length", OtherLength)]
)
def test_a_cache_of_another_tokenizer_or_length_is_refused(name, other, tmp_path):
    network = network_of()
    identity = encodings_identity(network.document_encoder, Inputs.tokenizer, Inputs.max_length)
    write_cache(tmp_path / "cache", {**identity, "store": "float32", "tokens": 0}, iter([]))
    options = {"engine": by("mxnet"), "cache": tmp_path / "cache"}
    build_ranker("dcbert", network, Inputs(), **options)
    with pytest.raises(DataError, match=f"made with {name}"):
        build_ranker("dcbert", network, other(), **options)


@needs_precision("int8")
def test_a_run_is_calibrated_for_int8(run, questions, tmp_path):
    assert quantize(run, questions) == 4 * 7
    exact = np.concatenate([ranking.scores for ranking in load_ranker(run).rank_all(questions)])
    ranker = load_ranker(run, precision="int8")
    rounded = np.concatenate([ranking.scores for ranking in ranker.rank_all(questions)])
    filled = np.isfinite(exact)
    assert 0 < np.abs(exact[filled] - rounded[filled]).max() < exact[filled].std()


# The command line
