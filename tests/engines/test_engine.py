import dataclasses
import importlib.metadata
import os
import shutil

import mxnet as mx
import numpy as np
import pytest
from conftest import SMALL, needs_onednn, needs_precision, run_python
from hypothesis import given
from hypothesis import strategies as st
from random_rankers import random_pairs, random_ranker

from wqa.config import EngineConfig
from wqa.data import Candidate, Question, builtin_path, read_questions
from wqa.data.digests import forget_digests
from wqa.engines.onednn.library import library
from wqa.engines.onednn.packed_rows import GROUP_SCORES, GROUPS, PackedBatch
from wqa.engines.onednn.quantize import channel_factors, quantize_layer
from wqa.errors import MissingDependency, OptionError, PrecisionError, RunDirectoryError
from wqa.inference import CascadeRanker
from wqa.pretrained import initialize_from, read_backbone_config
from wqa.systems.load import load_ranker
from wqa.systems.quantize import quantize
from wqa.systems.registry import build_network
from wqa.text import PairInputs, TextInput, load_tokenizer

pytestmark = pytest.mark.onednn


def by(engine, **options):
    return EngineConfig(engine=engine, **options)


def both(model, inputs, **options):
    """MXNet's engine, and oneDNN's on the same parameters."""
    slow = CascadeRanker(model, inputs, engine=by("mxnet"))
    return slow, CascadeRanker(model, inputs, engine=by("onednn", **options))


def family_model(system, folder, exits):
    model = build_network(system, read_backbone_config(folder), exits=exits)
    mx.random.seed(3)
    initialize_from(model, folder)
    return model, PairInputs(load_tokenizer(folder), 96)


@needs_onednn
@pytest.mark.parametrize(
    "system, exits", [("cascade", (1, 2, 3)), ("pairwise", (3,)), ("pairwise", (2,))]
)
def test_every_family_has_the_scores_of_mxnets_engine(family_encoder, system, exits):
    model, inputs = family_model(system, family_encoder, exits)
    questions = list(read_questions(builtin_path("test")))[:4]
    slow, fast = both(model, inputs)
    for first, second in zip(slow.rank_all(questions), fast.rank_all(questions)):
        np.testing.assert_allclose(second.exit_scores, first.exit_scores, rtol=1e-4, atol=1e-4)
        assert second.cost == first.cost


@needs_precision("bfloat16")
def test_bfloat16_differs_by_its_rounding_alone(family_encoder):
    model, inputs = family_model("cascade", family_encoder, (1, 2, 3))
    questions = list(read_questions(builtin_path("test")))[:4]
    slow, fast = both(model, inputs, precision="bfloat16")
    pairs = list(zip(slow.rank_all(questions), fast.rank_all(questions)))
    exact, rounded = (
        np.concatenate([ranking.exit_scores.ravel() for ranking in side]) for side in zip(*pairs)
    )
    error = np.abs(exact - rounded).max()
    assert 0 < error < 0.15 * exact.std() + 0.02


@needs_onednn
def test_a_padding_token_inside_a_text_takes_no_position():
    config = dataclasses.replace(SMALL, layout="roberta", token_types=1, first_position=2)
    ranker = random_ranker(config, (1, 4))
    pair = TextInput(np.array([0, 7, 1, 8, 2, 2, 9, 1, 1, 4, 2], np.int32), 6, False, False)
    slow, fast = both(ranker.network, ranker.inputs)
    [[first], [second]] = slow.rank_pairs([[pair]]), fast.rank_pairs([[pair]])
    np.testing.assert_allclose(first.exit_scores, second.exit_scores, atol=1e-5)


@needs_onednn
def test_scores_do_not_depend_on_the_company_of_a_pair():
    ranker = random_ranker(SMALL, (1, 2, 4), engine=by("onednn"))
    pairs = random_pairs(np.random.default_rng(1), 40, 4, 60, 200)
    [together] = ranker.rank_pairs([pairs])
    alone = [ranker.rank_pairs([[pair]])[0].exit_scores[:, 0] for pair in pairs]
    np.testing.assert_allclose(together.exit_scores.T, alone, atol=1e-5)


@given(st.lists(st.integers(1, 512), min_size=1, max_size=80).map(sorted))
def test_groups_cover_every_row_once(lengths):
    batch = PackedBatch(np.array(lengths))
    pairs, rows = [], []
    for group in batch.groups:
        assert group.pairs in GROUPS
        assert group.pairs == 1 or group.pairs * group.length**2 <= GROUP_SCORES
        assert lengths[group.pair : group.pair + group.pairs] == [group.length] * group.pairs
        pairs += range(group.pair, group.pair + group.pairs)
        rows += range(group.row, group.row + group.pairs * group.length)
    assert pairs == list(range(len(lengths))) and rows == list(range(sum(lengths)))


def test_factors_and_integers_by_hand():
    # Channel 0 reaches 8 and its weights 2; channel 1 reaches 2 and its weights 0.5: at strength
    # 1/2, both are divided by 2, so their largest input is 4 and 1, and 127 stands for 4.
    factor = channel_factors(np.array([8.0, 2.0]), np.array([2.0, 0.5]), 0.5)
    np.testing.assert_allclose(factor, [127 / 4 / 2] * 2, rtol=1e-6)
    weight = np.array([[2.0, 0.25], [-1.0, 0.5]], np.float32)  # (out, in)
    weights = dict.fromkeys(("query", "key", "value", "output", "inner", "outer"), weight)
    magnitudes = {step: np.array([8.0, 2.0]) for step in ("project", "merge", "widen", "narrow")}
    product = quantize_layer(weights, magnitudes, 0.5)["inner"]
    np.testing.assert_array_equal(
        product.weight, [[127, -127], [16, 64]]
    )  # 0.25 / 2 and 0.5 / 1 of 127, rounded
    inputs = np.array([8.0, -2.0], np.float32)
    integers = np.rint(inputs * product.factor)
    np.testing.assert_array_equal(integers, [127, -32])
    np.testing.assert_allclose(
        integers @ product.weight.astype(float) * product.scale, weight @ inputs, rtol=0.02
    )


@needs_precision("int8")
def test_int8_ranks_nearly_as_float32_does(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    questions = list(read_questions(builtin_path("test")))
    assert quantize(run, read_questions(builtin_path("dev")), most=5) == sum(
        len(question.texts) for question in list(read_questions(builtin_path("dev")))[:5]
    )
    exact, rounded = load_ranker(run), load_ranker(run, precision="int8")
    errors, spread = [], []
    for first, second in zip(exact.rank_all(questions), rounded.rank_all(questions)):
        errors.append(np.abs(first.exit_scores - second.exit_scores).max())
        spread.append(first.exit_scores)
    assert 0 < max(errors) < 0.5 * np.concatenate(spread, axis=1).std(axis=1).max()


@needs_precision("int8")
def test_quantization_is_refused_where_it_does_not_belong(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    with pytest.raises(RunDirectoryError, match="wqa quantize"):
        load_ranker(run, precision="int8")
    quantize(run, read_questions(builtin_path("dev")), most=2)
    forget_digests(run, ["model.params", "int8.safetensors"])
    load_ranker(run, precision="int8")
    other = mx.nd.load(str(run / "model.params"))
    mx.nd.save(str(run / "model.params"), {name: array * 1.01 for name, array in other.items()})
    with pytest.raises(RunDirectoryError, match="computed from other weights"):
        load_ranker(run, precision="int8")
    for nothing in ([], [Question("q", "what is ice ?", (Candidate(" "),))]):
        with pytest.raises(OptionError, match="no question"):
            quantize(run, nothing)


@needs_onednn
def test_precisions_need_their_processor(tiny_run, monkeypatch):
    monkeypatch.setattr(
        "wqa.engines.onednn.library.instruction_set", lambda: 0x03
    )  # AVX and nothing more
    for precision, name in (("bfloat16", "AVX512_BF16"), ("int8", "AVX2")):
        with pytest.raises(PrecisionError, match=f"without {name}.*precision float32"):
            load_ranker(tiny_run, precision=precision)
    load_ranker(tiny_run, precision="float32")


@pytest.mark.once
@needs_precision("int8")
def test_int8_without_vnni_is_as_exact_as_with_it(tiny_run, tmp_path):
    """In 16 bits sums of two products saturate; weights of seven bits keep below that."""
    run = shutil.copytree(tiny_run, tmp_path / "run")
    quantize(run, read_questions(builtin_path("dev")), most=5)
    code = """
import sys, numpy as np
from wqa.data import builtin_path, read_questions
from wqa import load_ranker
ranker = load_ranker(sys.argv[1], precision="int8")
rankings = list(ranker.rank_all(read_questions(builtin_path("test"))))
np.save(sys.argv[2], np.concatenate([ranking.exit_scores.ravel() for ranking in rankings]))
"""
    rankings = load_ranker(run).rank_all(read_questions(builtin_path("test")))
    exact = np.concatenate([ranking.exit_scores.ravel() for ranking in rankings])
    capped = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    run_python("-c", code, run, tmp_path / "a.npy", check=True, variables=capped)
    assert np.abs(np.load(tmp_path / "a.npy") - exact).max() < 0.5 * exact.std()


@needs_precision("int8")
def test_an_int8_product_does_not_saturate_by_hand():
    from wqa.engines.onednn.library import Memory
    from wqa.engines.onednn.operations import Dense, Operations, Quantized

    weight = np.full((64, 16), 127, np.int8)
    product = Quantized(weight, np.full(16, 0.5, np.float32), np.ones(64, np.float32))
    dense = Dense(lambda: weight.T, np.ones(16, np.float32), product)
    source = np.array([[127] * 64, [-127] * 64], np.int8)
    out = np.zeros((2, 16), np.float32)
    Operations().dense(Memory.of(source), dense, Memory.of(out))()
    exact = 64 * 127 * 127 / 2
    # Without VNNI weights are rounded to seven bits, 127 to 128.
    np.testing.assert_allclose(out, [[exact + 1] * 16, [1 - exact] * 16], rtol=0.01)


@needs_onednn
def test_threads_are_those_of_the_process(tiny_run):
    most = len(os.sched_getaffinity(0))
    with pytest.raises(OptionError, match="2 devices"):
        load_ranker(tiny_run, engine="onednn", ctx="cpu:0-1")
    for threads in (0, -1, most + 1):
        with pytest.raises(OptionError, match=f"threads.*1 to {most}"):
            load_ranker(tiny_run, threads=threads)
    question = next(read_questions(builtin_path("test")))
    scores = [
        load_ranker(tiny_run, threads=threads, engine=engine)
        .rank(question.question, question.texts)
        .scores
        for engine in ("onednn", "mxnet")
        for threads in (1, most)
    ]
    for each in scores[1:]:
        np.testing.assert_allclose(each, scores[0], atol=1e-5)


@needs_onednn
def test_without_its_library_float32_falls_back_on_mxnet(tiny_run, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "files", lambda name: [])
    library.cache_clear()
    try:
        assert type(load_ranker(tiny_run)._engine).__name__ == "MXNetEngine"
        with pytest.raises(MissingDependency, match="onednn-cpu-gomp"):
            load_ranker(tiny_run, engine="onednn")
        with pytest.raises(MissingDependency, match="onednn-cpu-gomp"):
            load_ranker(tiny_run, precision="bfloat16")
    finally:
        monkeypatch.undo()
        library.cache_clear()
    assert type(load_ranker(tiny_run)._engine).__name__ == "OneDNNEngine"
