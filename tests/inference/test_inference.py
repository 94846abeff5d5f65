import json
import math
import sys

import mxnet as mx
import numpy as np
import pytest
from conftest import DATA, ROOT, needs_onednn
from random_rankers import random_pairs, random_ranker

from wqa.config import BackboneConfig, EngineConfig
from wqa.data import Candidate, Question, builtin_path, read_questions
from wqa.errors import DeviceError, InputError, OptionError, RunDirectoryError
from wqa.evaluation import evaluate
from wqa.inference import CascadeRanker
from wqa.inference.dropping import dropped
from wqa.systems.load import load_ranker
from wqa.systems.registry import build_network
from wqa.text import PairInputs, load_tokenizer, pad_pairs

pytestmark = pytest.mark.onednn

CONFIG = BackboneConfig(
    vocab_size=200, units=16, hidden_size=32, num_layers=4, num_heads=2, max_positions=64
)
EXITS = (1, 2, 4)


def ranker_with(**options):
    ranker = random_ranker(CONFIG, EXITS, **options)
    for name, parameter in ranker.network.collect_params().items():  # spread the scores out
        if name.endswith("weight"):
            parameter.set_data(parameter.data() * 5)
    return ranker


def full_scores(ranker, pairs):
    """Score of every pair at every exit, one pair at a time through the whole network."""
    rows = []
    for pair in pairs:
        arrays = [
            mx.nd.array(array, dtype=array.dtype)
            for array in pad_pairs([pair], len(pair.token_ids), 0, False)
        ]
        rows.append(
            [
                float(ranker.network.path(index)(*arrays)[1].asscalar())
                for index in range(len(EXITS))
            ]
        )
    return np.array(rows).T


def by_hand(scores, ratios, size=None):
    """The cascade on a table of scores, as section 4.3.2 tells it."""
    k = scores.shape[1]
    pools = (
        [list(range(k))]
        if size is None
        else [list(range(start, min(start + size, k))) for start in range(0, k, size)]
    )
    last = {}
    for place, (layer, ratio) in enumerate(zip(EXITS, ratios)):
        kept = []
        for pool in pools:
            for index in pool:
                last[index] = (layer, scores[place, index])
            best = sorted(pool, key=lambda index: (-scores[place, index], index))  # noqa: B023 - used at once
            kept.append(sorted(best[: len(pool) - dropped(ratio, len(pool))]))
        pools = kept
    return sorted(range(k), key=lambda index: (-last[index][0], -last[index][1], index)), [
        last[i][0] for i in range(k)
    ]


@pytest.mark.parametrize("ratios", [0.0, 0.3, [0.5, 0.0], [0.0, 0.5], [0.25, 0.6], 0.99])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"engine": EngineConfig(engine="mxnet", batch_tokens=100)},
        {"engine": EngineConfig(engine="mxnet", hidden_bytes=5000)},
        {"pool": "batch", "pool_size": 7},
    ],
)
def test_equals_the_cascade_by_hand(ratios, options):
    ranker = ranker_with(**options)
    group = [
        random_pairs(np.random.default_rng(seed), k, 4, 60, 200)
        for seed, k in enumerate((37, 1, 2, 24))
    ]
    ranker.drop_ratio = ratios
    for pairs, ranking in zip(group, ranker.rank_pairs(group)):
        reached = ~np.isnan(ranking.exit_scores)
        scores = full_scores(ranker, pairs)
        np.testing.assert_allclose(ranking.exit_scores[reached], scores[reached], atol=1e-4)
        # From here on by the scores as they ran, which differ in the last bits where the padding
        # does.
        scores[reached] = ranking.exit_scores[reached]
        order, exits = by_hand(scores, ranker.drop_ratio, options.get("pool_size"))
        assert ranking.order.tolist() == order
        assert ranking.exits.tolist() == exits
        cost, work = ranking.cost, CONFIG.layer_work
        tokens = sum(depth * len(pair.token_ids) for depth, pair in zip(exits, pairs))
        assert cost.candidate_work == work * sum(exits)
        assert cost.multiply_adds == work * tokens
        assert cost.padded_multiply_adds >= cost.multiply_adds
        if "pool" not in options:
            assert ranking.cost.relative == pytest.approx(ranking.cost.paper)


def test_without_drops_the_scores_are_the_full_networks():
    ranker = ranker_with()
    pairs = random_pairs(np.random.default_rng(5), 50, 4, 60, 200)
    [ranking] = ranker.rank_pairs([pairs])
    from wqa.text import bucketed, plan_batches

    ranker.network.hybridize()
    full = np.empty(50)
    for batch in plan_batches([len(pair.token_ids) for pair in pairs], 2048):
        length = bucketed(max(len(pairs[index].token_ids) for index in batch))
        arrays = [
            mx.nd.array(a, dtype=a.dtype)
            for a in pad_pairs([pairs[index] for index in batch], length, 0, False)
        ]
        full[batch] = ranker.network(*arrays).asnumpy()
    np.testing.assert_allclose(ranking.scores, full, rtol=1e-4, atol=1e-5)
    by_score = np.argsort(-ranking.scores, kind="stable")
    assert ranking.order.tolist() == by_score.tolist()


def test_one_candidate_and_ten_thousand():
    ranker = random_ranker(
        BackboneConfig(
            vocab_size=50, units=8, hidden_size=8, num_layers=2, num_heads=1, max_positions=32
        ),
        (1, 2),
        drop_ratio=0.5,
        engine=EngineConfig(engine="mxnet", hidden_bytes=1 << 16),
    )
    rng = np.random.default_rng(0)
    [ranking] = ranker.rank_pairs([random_pairs(rng, 1, 5, 9, 50)])
    assert ranking.order.tolist() == [0] and ranking.exits.tolist() == [2]
    [ranking] = ranker.rank_pairs([random_pairs(rng, 10_000, 4, 30, 50)])
    assert (
        sorted(ranking.order.tolist()) == list(range(10_000)) and (ranking.exits == 2).sum() == 5000
    )


def test_ties_keep_the_original_order():
    ranker = ranker_with(drop_ratio=0.5)
    pair = random_pairs(np.random.default_rng(0), 1, 9, 9, 200)[0]
    [ranking] = ranker.rank_pairs([[pair] * 8])
    assert ranking.order.tolist() == list(range(8)) and ranking.exits.tolist() == [
        4,
        4,
        2,
        2,
        1,
        1,
        1,
        1,
    ]


def test_the_contract(tiny_run):
    ranker = load_ranker(tiny_run, drop_ratio=0.3)
    candidates = [
        "a glacier is ice .",
        "",
        "  \t",
        "the moon",
        "moon " * 500,
        "who ?",
        "bees make honey",
    ]
    ranking = ranker.rank("what is a glacier ?", candidates)
    assert sorted(ranking.order.tolist()) == list(range(7)) and ranking.order[-2:].tolist() == [
        1,
        2,
    ]
    assert ranking.blank.tolist() == [False, True, True, False, False, False, False]
    assert ranking.truncated.tolist() == [False] * 4 + [True, False, False]
    assert ranking.exits[1] == 0 and ranking.scores[1] == -math.inf
    assert (
        set(ranking.exits.tolist()) <= {0, 1, 2, 3}
        and np.isfinite(np.delete(ranking.scores, [1, 2])).all()
    )
    # Blank candidates cost nothing.
    assert ranking.cost.full_candidate_work == 15 * ranker.network.config.layer_work
    only_blank = ranker.rank("what is a glacier ?", ["", " "])
    assert only_blank.order.tolist() == [0, 1] and only_blank.cost.relative == 0
    huge = ranker.rank("what is a glacier ?", ["ice " * 100_000, "ice"])
    assert huge.truncated.tolist() == [True, False]


def test_rank_all_equals_rank(tiny_run):
    ranker = load_ranker(tiny_run, drop_ratio=[0.2, 0.5], group_tokens=2000)
    questions = list(read_questions(builtin_path("test")))
    together = list(ranker.rank_all(questions))
    for question, ranking in zip(questions, together):
        alone = ranker.rank(question.question, question.texts)
        assert ranking.order.tolist() == alone.order.tolist()
        np.testing.assert_allclose(ranking.scores, alone.scores, atol=1e-4)
    assert evaluate(together, questions)["questions"] == 25


def test_bad_questions(tiny_run):
    ranker = load_ranker(tiny_run)
    for question, candidates in (("", ["x"]), (" ", ["x"]), ("who ?", []), ("who " * 60, ["x"])):
        with pytest.raises(InputError):
            ranker.rank(question, candidates)
    with pytest.raises(InputError, match="Q8"):
        list(ranker.rank_all([Question("Q8", "moon " * 60, (Candidate("x"),))]))
    for alpha in (-0.1, 1.0, [0.1, 0.1, 0.1, 0.1]):
        with pytest.raises(OptionError, match="drop_ratio"):
            load_ranker(tiny_run, drop_ratio=alpha)
    with pytest.raises(OptionError, match="pool"):
        load_ranker(tiny_run, pool="all")
    with pytest.raises(OptionError, match="precision"):
        load_ranker(tiny_run, precision="int4")
    with pytest.raises(DeviceError):
        load_ranker(tiny_run, ctx="tpu")
    with pytest.raises(OptionError, match="which is 2 devices"):
        load_ranker(tiny_run, ctx="cpu:0-1")


@pytest.mark.parametrize("name", ["config.json", "model.params", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["missing", "cut", "empty"])
def test_damaged_run_directories(tiny_run, tmp_path, name, damage):
    import shutil

    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    raw = (run / name).read_bytes()
    if damage == "missing":
        (run / name).unlink()
    else:
        (run / name).write_bytes(raw[: len(raw) // 2] if damage == "cut" else b"")
    with pytest.raises(RunDirectoryError, match=name):
        load_ranker(run)


def test_run_directories_that_contradict_themselves(tiny_run, tmp_path):
    import shutil

    with pytest.raises(RunDirectoryError, match="no such directory"):
        load_ranker(tmp_path / "absent")
    for number, (old, new) in enumerate(
        (
            ('"num_layers": 3', '"num_layers": 2'),
            ('"units": 16', '"units": "wide"'),
            ('"system": "cascade"', '"system": "pairwise"'),
            ('"max_length"', '"longest"'),
        )
    ):
        run = tmp_path / str(number)
        shutil.copytree(tiny_run, run)
        text = (run / "config.json").read_text()
        assert old in text
        (run / "config.json").write_text(text.replace(old, new))
        with pytest.raises((RunDirectoryError, OptionError)):
            load_ranker(run)


def test_trained_saved_and_loaded_scores_are_the_same(tiny_encoder, tmp_path):
    """The ranker of the model in memory and of its run directory agree to the bit."""
    from wqa.config import TrainingConfig
    from wqa.pretrained import initialize_from, read_backbone_config
    from wqa.systems import SYSTEMS
    from wqa.systems.train import train
    from wqa.training import Trainer, TrainingPairs

    for system, exits in (("cascade", (1, 3)), ("pairwise", ())):
        config = TrainingConfig(
            max_updates=4, learning_rate=1e-2, warmup_updates=1, tokens_per_batch=500
        )
        out = tmp_path / system
        train(
            system,
            str(builtin_path("dev")),
            str(out),
            str(tiny_encoder),
            exits=exits,
            config=config,
            max_length=64,
        )
        inputs = PairInputs(load_tokenizer(tiny_encoder), 64)
        model = build_network(system, read_backbone_config(tiny_encoder), exits=exits)
        mx.random.seed(config.seed)
        initialize_from(model, tiny_encoder)
        (tmp_path / f"again_{system}").mkdir()
        pairs = TrainingPairs(read_questions(builtin_path("dev")), inputs)
        task = SYSTEMS[system].task_type()(model, inputs, pairs, config)
        Trainer(task, config, tmp_path / f"again_{system}").fit()
        questions = list(read_questions(builtin_path("test")))[:5]
        in_memory = list(CascadeRanker(model, inputs).rank_all(questions))
        loaded = list(load_ranker(out, engine="mxnet").rank_all(questions))
        for first, second in zip(in_memory, loaded):
            np.testing.assert_array_equal(first.scores, second.scores)


def test_a_run_of_the_version_before_still_loads():
    run = DATA / "run_0_2_0"
    expected = json.loads((run / "expected.json").read_text())
    ranker = load_ranker(run, drop_ratio=expected["drop_ratio"])
    assert ranker.capabilities.exits == (1, 3)
    questions = list(read_questions(builtin_path("test")))[: len(expected["rankings"])]
    for ranking, was in zip(ranker.rank_all(questions), expected["rankings"]):
        assert ranking.order.tolist() == was["order"] and ranking.exits.tolist() == was["exits"]
        np.testing.assert_allclose(ranking.scores, was["scores"], atol=1e-4)


@needs_onednn
def test_a_warm_ranking_enters_few_files(tiny_run):
    """Whoever follows a ranking reads them."""
    ranker = load_ranker(tiny_run, drop_ratio=0.3, engine="onednn")
    question, candidates = "how do tides rise ?", ["The moon pulls the water.", "A cat sleeps."]
    ranker.rank(question, candidates)  # compiles
    package, entered = str(ROOT / "wqa"), set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(package):
            entered.add(frame.f_code.co_filename[len(package) + 1 :])

    sys.setprofile(note)
    try:
        ranker.rank(question, candidates)
    finally:
        sys.setprofile(None)
    assert {"inference/exit_ranker.py", "engines/onednn/engine.py"} <= entered
    assert len(entered) <= 20, sorted(entered)
