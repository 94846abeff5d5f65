import json

import mxnet as mx
import numpy as np
import pytest
from conftest import dev_run, few_questions
from rankers import Table

from wqa.data import Candidate, Question, builtin_path, read_questions
from wqa.errors import OptionError, RunDirectoryError
from wqa.evaluation import evaluate_ranker
from wqa.evaluation.comparison import NamedRanker, compare_rankers
from wqa.inference import CascadeRanker, Cost, EnsembleRanker
from wqa.inference.ensemble import log_odds_of_mean
from wqa.pretrained import read_backbone_config
from wqa.systems.load import load_ranker
from wqa.systems.registry import build_network
from wqa.text import PairInputs, load_tokenizer


def question(*texts, qid="q"):
    return Question(qid, "q", tuple(Candidate(text) for text in texts))


def log_odds(probability):
    return float(np.log(probability / (1 - probability)))


def test_by_hand():
    first = Table({"a": log_odds(0.75), "b": log_odds(0.5), "long": 0.0}, layers=2, depth=4)
    second = Table({"a": log_odds(0.25), "b": log_odds(0.6), "long": -1.0}, layers=6, depth=6)
    ranker = EnsembleRanker([first, second], [3, 1])
    assert ranker.weights == (0.75, 0.25)
    [ranking] = ranker.rank_all([question("b", "", "a", "long")])
    # a: 0.75 * 0.75 + 0.25 * 0.25 = 0.625; b: 0.75 * 0.5 + 0.25 * 0.6 = 0.525
    long = 0.75 * 0.5 + 0.25 / (1 + np.e)
    expected = [log_odds(0.525), -np.inf, log_odds(0.625), log_odds(long)]
    np.testing.assert_allclose(ranking.scores, expected, rtol=1e-12)
    assert ranking.order.tolist() == [2, 0, 3, 1]
    assert ranking.exits.tolist() == [6, 0, 6, 6]
    assert ranking.blank.tolist() == [False, True, False, False]
    assert ranking.truncated.tolist() == [False, False, False, True]
    expected[1] = np.nan
    np.testing.assert_allclose(ranking.exit_scores, [expected], rtol=1e-12)
    # The sum over both, relative to the larger of both full networks: 3 candidates of 6 layers.
    assert ranking.cost == Cost((2 + 6) / 6, 24, 18, 120, 90)
    capabilities = ranker.capabilities
    assert (capabilities.system, capabilities.stages, capabilities.num_layers) == ("ensemble", 1, 6)
    assert capabilities.rankers == (first, second) and capabilities.exits == ()
    assert ranker.rank("q", ["b", "a"]).order.tolist() == [1, 0]


def test_scores_are_combined_as_they_are():
    first, second = Table({"a": 3.0, "b": -1.0}), Table({"a": 0.0, "b": 8.0})
    ranker = EnsembleRanker([first, second], [2, 1], combine="scores")
    [ranking] = ranker.rank_all([question("a", "b", "")])
    np.testing.assert_allclose(ranking.scores, [2.0, 2.0, -np.inf], rtol=1e-12)
    # A ranker of weight 0 does not count, whatever it scores.
    first_alone = EnsembleRanker([first, Table({"a": np.inf, "b": 0.0})], [1, 0], combine="scores")
    assert first_alone.weights == (1.0, 0.0)
    with pytest.raises(OptionError, match="combine"):
        EnsembleRanker([first, second], combine="votes")


def test_scores_beyond_the_rounding_of_probabilities():
    scores = np.array([[800.0, -800.0, 40.0], [790.0, -810.0, 41.0]])
    found = log_odds_of_mean(scores, (0.5, 0.5))
    # 1 - p is the mean of exp(-800) and exp(-790), and so on.
    expected = [790 + np.log(2), -800 - np.log(2), 40 + np.log(2) - np.log1p(np.exp(-1))]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(log_odds_of_mean(scores[:1], (1.0,)), scores[0], rtol=1e-12)
    # A ranker of weight 0 does not count, whatever it scores.
    np.testing.assert_array_equal(
        log_odds_of_mean(scores, (1.0, 0.0)), log_odds_of_mean(scores[:1], (1.0,))
    )


def test_ties_keep_the_order_of_the_candidates():
    ranker = EnsembleRanker([Table({"a": 1.0, "b": -1.0}), Table({"a": -1.0, "b": 1.0})])
    assert ranker.rank("q", ["b", "a"]).order.tolist() == [0, 1]
    assert ranker.rank("q", ["a", "b"]).order.tolist() == [0, 1]


@pytest.mark.parametrize(
    "weights",
    [[1], [1, 2, 3], [0, 0], [-1, 2], [float("nan"), 1], [float("inf"), 1], [True, 1], ["1", 1]]
    + [[None, 1], [10**400, 1], []],
)
def test_weights_that_do_not_fit(weights):
    with pytest.raises(OptionError, match="^weights: "):
        EnsembleRanker([Table({}), Table({})], weights)


@pytest.fixture(scope="module")
def runs(tiny_encoder, tmp_path_factory):
    """Two monolithic rankers of different seeds."""
    folder = tmp_path_factory.mktemp("ensemble")
    for seed in (1, 2):
        settings = {"max_updates": 2, "learning_rate": 1e-2, "warmup_updates": 1, "seed": seed}
        dev_run("pairwise", folder / f"seed{seed}", tiny_encoder, **settings)
    return folder


@pytest.fixture
def write(runs):
    """Write a file beside the runs."""

    def write_file(name, **content):
        path = runs / name
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return write_file


@pytest.fixture(scope="module")
def questions():
    return list(read_questions(builtin_path("test")))[:6]


def test_a_file_ranks_wherever_a_run_does(runs, write, questions, tiny_run):
    path = write("two.json", ensemble=["seed1", "seed2"], weights=[1, 3])
    ranker = load_ranker(path)
    assert ranker.weights == (0.25, 0.75)
    alone = [list(load_ranker(runs / f"seed{seed}").rank_all(questions)) for seed in (1, 2)]
    rankings = list(ranker.rank_all(questions))
    for ranking, one, two in zip(rankings, *alone):
        probability = 0.25 / (1 + np.exp(-one.scores)) + 0.75 / (1 + np.exp(-two.scores))
        np.testing.assert_allclose(ranking.scores, np.log(probability / (1 - probability)), 1e-4)
        assert ranking.cost.multiply_adds == one.cost.multiply_adds + two.cost.multiply_adds
        assert ranking.cost.relative == pytest.approx(2) == pytest.approx(ranking.cost.paper)
    [row] = evaluate_ranker(ranker, questions)
    assert row["cost"] == pytest.approx(2)
    named = [NamedRanker("a", ranker), NamedRanker("b", load_ranker(runs / "seed1"))]
    assert len(compare_rankers(named, questions)["comparisons"]) == 1
    # Inside a sequence, and around one.
    inside = load_ranker(write("inside.json", rankers=[str(tiny_run), "two.json"], keep=[3]))
    [ranking] = inside.rank_all(questions[:1])
    scored = ~np.isnan(ranking.exit_scores[1])
    np.testing.assert_allclose(ranking.scores[scored], rankings[0].scores[scored], atol=1e-4)
    around = load_ranker(write("around.json", ensemble=["inside.json", "seed1", "two.json"]))
    assert around.weights == (1 / 3,) * 3
    assert around.names == ["inside.json", "seed1", "two.json"]
    assert len(list(around.rank_all(questions))) == len(questions)


@pytest.mark.parametrize(
    "text, problem",
    [
        ('{"ensemble": "seed1"}', "is no ensemble of rankers .*ensemble is 'seed1'"),
        ('{"ensemble": ["seed1"], "rankers": ["seed1"]}', "is no sequence .*besides"),
        ('{"ensemble": ["seed1", 3]}', "run is 3"),
        ('{"ensemble": ["seed1"], "combine": "votes"}', "combine is 'votes'"),
        ('{"ensemble": [], "ensemble": ["seed1"]}', "key 'ensemble' occurs twice"),
        ('{"weights": [1]}', "is no sequence or ensemble .*neither rankers nor ensemble"),
        ('{"ensemble": []}', "rankers: none"),
        ('{"ensemble": ["seed1", "seed2"], "weights": [1]}', "weights: 1 values"),
        ('{"ensemble": ["seed1", "seed2"], "weights": [1, -1]}', "weights: -1"),
        ('{"ensemble": ["seed1", "absent"]}', "no such directory"),
        ('{"ensemble": ["way.json", "seed1"]}', "the ensemble is inside itself"),
    ],
)
def test_files_that_do_not_fit(runs, write, text, problem):
    write("way.json", rankers=["seed1", "bad.json"])
    path = runs / "bad.json"
    path.write_text(text)
    with pytest.raises(RunDirectoryError, match=problem):
        load_ranker(path)


def test_bm25_and_a_similarity_by_name(write, questions, tiny_encoder):
    ranker = load_ranker(f"bm25+maxsim:{tiny_encoder}")
    pair = [load_ranker("bm25"), load_ranker(f"maxsim:{tiny_encoder}")]
    alone = [list(one.rank_all(questions)) for one in pair]
    path = write("sum.json", ensemble=["bm25", f"maxsim:{tiny_encoder}"], combine="scores")
    in_file = load_ranker(path).rank_all(questions)
    for ranking, same, bm25, maxsim in zip(ranker.rank_all(questions), in_file, *alone):
        np.testing.assert_allclose(ranking.scores, (bm25.scores + maxsim.scores) / 2, rtol=1e-5)
        np.testing.assert_array_equal(ranking.scores, same.scores)
    for name in ("bm25+bm25", "bm25+rr", "bm25+bm25+minilm", "bm25+"):
        with pytest.raises(OptionError, match="no ranker"):
            load_ranker(name)


# Weights


@pytest.fixture
def dev(tmp_path):
    """The first development questions."""
    return few_questions(tmp_path / "dev.jsonl", 8)


def tune(path, data, **options):
    pytest.importorskip("optuna", reason="the extra [tune] is not installed")
    from wqa.tuning import tune_weights

    return tune_weights(path, data, **{"trials": 12, **options})


def test_tuned_weights_are_stored_and_no_worse_than_equal_ones(write, dev):
    path = write("tuned.json", ensemble=["seed1", "seed2"])
    tuned = tune(path, dev)
    assert tuned.metrics["map"] >= tuned.equal["map"] and sum(tuned.weights) == pytest.approx(1)
    stored = json.loads(path.read_text())
    assert stored["ensemble"] == ["seed1", "seed2"] and stored["weights"] == list(tuned.weights)
    assert stored["tuned"]["chosen_by"] == {"metric": "map", "trials": 12, "seed": 0}
    # The file ranks with these weights: the same figures.
    ranker = load_ranker(path)
    assert ranker.weights == pytest.approx(tuned.weights)
    [row] = evaluate_ranker(ranker, read_questions(dev), filter="no-all-negative")
    assert {name: row[name] for name in tuned.metrics} == pytest.approx(tuned.metrics)
    [row] = evaluate_ranker(
        EnsembleRanker(ranker.rankers), read_questions(dev), filter="no-all-negative"
    )
    assert row["map"] == pytest.approx(tuned.equal["map"])
    # Seeded: the same again, from a file that has weights already.
    assert tune(path, dev).weights == tuned.weights
    assert tune(path, dev, metric="mrr", seed=3).metrics["mrr"] >= tuned.equal["mrr"]


def test_weights_are_not_tuned_over_windows(write, dev):
    with pytest.raises(OptionError, match="long_candidates: 'windows'; expected truncate"):
        tune(write("tuned.json", ensemble=["seed1", "seed2"]), dev, long_candidates="windows")


def test_heads_of_a_student_are_its_members(tiny_encoder):
    """An ensemble of the heads ranks as the student does (equation 5)."""
    backbone = read_backbone_config(tiny_encoder)
    network = build_network("mhs", backbone, body=2, heads=3, head_layers=1)
    mx.random.seed(2)
    network.initialize(mx.init.Normal(0.3))
    student = CascadeRanker(network, PairInputs(load_tokenizer(tiny_encoder), 64), system="mhs")
    members = student.members()
    assert len(members) == 3
    questions = list(read_questions(builtin_path("dev")))[:3]
    ensemble = EnsembleRanker(members)
    for one, two in zip(student.rank_all(questions), ensemble.rank_all(questions)):
        np.testing.assert_allclose(one.scores, two.scores, atol=1e-5)
    heads = [next(iter(member.rank_all(questions))).scores for member in members]
    assert np.ptp(heads, axis=0).max() > 0.01  # the heads differ
