"""Ranking by the joint model: groups of k, both engines, precisions, and behind another ranker."""

import json

import mxnet as mx
import numpy as np
import pytest
from conftest import dev_run, needs_onednn, needs_precision
from hypothesis import given
from hypothesis import strategies as st

from wqa.config import EngineConfig
from wqa.data import Candidate, Question, builtin_path, read_questions
from wqa.engines.choice import packing_obstacle
from wqa.errors import ScoreError
from wqa.pretrained import read_backbone_config
from wqa.systems.export import export_mxnet
from wqa.systems.load import build_ranker, load_ranker
from wqa.systems.quantize import quantize, quantize_network
from wqa.systems.registry import build_network
from wqa.text import load_tokenizer

pytestmark = pytest.mark.onednn

#: Sizes of inputs that fit the encoders of the tests.
SIZES = {"k": 5, "segment_length": 26}
ENGINES = ["mxnet", pytest.param("onednn", marks=needs_onednn)]


def make(folder, engine="mxnet", precision="float32", long_questions="truncate", **options):
    mx.random.seed(4)
    network = build_network("mspp", read_backbone_config(folder), **{**SIZES, **options})
    network.initialize(mx.init.Normal(0.3))
    inputs = network.text_inputs(load_tokenizer(folder), 128, long_questions)
    return build_ranker(
        "mspp", network, inputs, engine=EngineConfig(engine=engine, precision=precision)
    )


def corpus(count=6):
    return list(read_questions(builtin_path("dev")))[:count]


def scores_by_network(ranker, question, group):
    """Scores of one group, by the network alone."""
    [joint] = ranker.inputs.encode(question, group)
    inputs = [mx.nd.array(array, dtype=array.dtype) for array in ranker.inputs.pad([joint])]
    return ranker.network(*inputs).asnumpy()[0, : len(group)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("count", [1, 4, 5, 7, 10, 16])
def test_every_candidate_has_the_score_of_its_one_group(tiny_encoder, engine, count):
    ranker = make(tiny_encoder, engine)
    texts = [text for question in corpus(9) for text in question.texts][:count]
    ranking = ranker.rank("how are glacier caves formed ?", texts)
    # The decision of the ranker: k by k after a shuffle with seed 0.
    order = np.random.default_rng(0).permutation(count)
    for start in range(0, count, 5):
        group = order[start : start + 5]
        chosen = [texts[index] for index in group]
        expected = scores_by_network(ranker, "how are glacier caves formed ?", chosen)
        np.testing.assert_allclose(ranking.scores[group], expected, atol=1e-4)
    assert sorted(ranking.order) == list(range(count))
    assert (np.diff(ranking.scores[ranking.order]) <= 0).all()
    assert ranking.exits.tolist() == [3] * count
    np.testing.assert_array_equal(ranking.exit_scores, [ranking.scores])


@given(st.data())
def test_blank_candidates_are_in_no_group(ranker_of_ids, data):
    ranker = ranker_of_ids
    texts = data.draw(st.lists(st.sampled_from(["", " ", "cave", "a river", "ice ?"]), min_size=1))
    ranking = ranker.rank("what ?", texts)
    blank = np.array([not text.strip() for text in texts])
    assert ranking.blank.tolist() == blank.tolist()
    assert np.isfinite(ranking.scores).tolist() == (~blank).tolist()
    assert sorted(ranking.order) == list(range(len(texts)))
    assert (ranking.exits > 0).tolist() == (~blank).tolist()
    filled = [text for text in texts if text.strip()]
    if filled:
        np.testing.assert_allclose(
            ranking.scores[~blank], ranker.rank("what ?", filled).scores, atol=1e-5
        )
        inputs = -(-len(filled) // 5)
        work = 3 * 16 * (4 * 16 + 2 * 32)
        tokens = sum(len(ids) + 2 for ids in ranker.inputs.tokenizer.encode(filled))
        tokens += inputs * (len(ranker.inputs.tokenizer.encode(["what ?"])[0]) + 2)
        assert ranking.cost.multiply_adds == work * tokens
        assert ranking.cost.candidate_work == work * len(filled)
    else:
        assert ranking.cost.multiply_adds == 0


@pytest.fixture(scope="module")
def ranker_of_ids(tiny_encoder):
    return make(tiny_encoder)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_score_that_is_not_finite_names_its_candidate(tiny_encoder, engine):
    ranker = make(tiny_encoder, engine)
    ranker.network.head.out.bias.set_data(mx.nd.array([0, np.nan]))
    candidates = (Candidate("cave", id="D7"), Candidate("ice", id="D8"))
    with pytest.raises(ScoreError, match="question 'Q1'.*'D[78]'"):
        next(ranker.rank_all([Question("Q1", "what ?", candidates)]))


def test_an_exported_network_has_the_same_scores(tmp_path, joint_run):
    export_mxnet(joint_run, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "export.json").read_text(encoding="utf-8"))
    names = manifest["networks"]["model"]["inputs"]
    assert names == ["token_ids", "token_types", "marks", "valid_length"]
    prefix = str(tmp_path / "out" / "model")
    block = mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", names, f"{prefix}-0000.params")
    ranker = load_ranker(joint_run, engine="mxnet")
    [question] = corpus(1)
    pairs = ranker.inputs.split(question.question, question.texts)[:4]
    arrays = ranker.inputs.pad([ranker.inputs.join(pairs)])
    inputs = [mx.nd.array(array, dtype=array.dtype) for array in arrays]
    expected = ranker.network(*inputs).asnumpy()
    np.testing.assert_allclose(block(*inputs).asnumpy(), expected, atol=1e-5)
    assert expected[0, 4] == 0


# Engines


@needs_onednn
@pytest.mark.parametrize(
    "options", [{}, {"head": "AE_k", "positions": "slots"}, {"k": 2, "missing": "visible"}]
)
def test_onednn_scores_as_mxnet(family_encoder, options):
    slow, fast = (make(family_encoder, engine, **options) for engine in ("mxnet", "onednn"))
    assert packing_obstacle(fast.network) == ""
    for one, other in zip(slow.rank_all(corpus()), fast.rank_all(corpus())):
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-4)
        assert one.cost == other.cost


@pytest.fixture(scope="module")
def joint_run(tmp_path_factory, tiny_encoder):
    out = tmp_path_factory.mktemp("runs") / "joint"
    settings = {"max_updates": 12, "learning_rate": 1e-2, "warmup_updates": 2, **SIZES}
    return dev_run("mspp", out, tiny_encoder, tokens_per_batch=800, order="original", **settings)


@pytest.mark.parametrize(
    "precision, tolerance",
    [
        pytest.param("bfloat16", 0.1, marks=needs_precision("bfloat16")),
        pytest.param("int8", 0.2, marks=needs_precision("int8")),
    ],
)
def test_lower_precisions_are_close(tiny_encoder, joint_run, precision, tolerance):
    """By large random weights, whose scores differ; the scores of the run hardly do."""
    exact = make(tiny_encoder)
    config, options = EngineConfig(engine="onednn", precision=precision), {}
    if precision == "int8":
        pairs = []
        for question in corpus():
            pairs += exact.inputs.encode(question.question, question.texts)
        options["quantized"] = quantize_network("mspp", exact.network, pairs)
        assert quantize(joint_run, corpus()) == 12
        assert len(list(load_ranker(joint_run, precision="int8").rank_all(corpus()))) == 6
    ranker = build_ranker("mspp", exact.network, exact.inputs, engine=config, **options)
    for one, other in zip(exact.rank_all(corpus()), ranker.rank_all(corpus())):
        spread = np.ptp(one.scores)
        assert spread > 0.1
        assert 0 < np.abs(one.scores - other.scores).max() < tolerance * spread


# Behind another ranker
