import math

import numpy as np
import pytest

from wqa.data import Candidate, Question
from wqa.errors import DataError
from wqa.evaluation import evaluate
from wqa.evaluation.reliability import note_few_questions, wilson_interval
from wqa.evaluation.significance import (
    between_seeds,
    compare,
    over_seeds,
    paired,
    per_question,
    per_question_of_run,
    rank_correlation,
)


def test_the_t_test_by_hand():
    # Differences 1, 2, 3: mean 2, deviation 1, t = 2 / (1 / sqrt 3) = 3.4641, two degrees of
    # freedom.
    found = compare({"a": 0, "b": 0, "c": 0}, {"c": 3, "a": 1, "b": 2}, "map")
    t = 2 * math.sqrt(3)
    assert found.t_test == pytest.approx(1 - t / math.sqrt(t * t + 2))  # its closed form
    assert found.wilcoxon == pytest.approx(2 / 2**3)  # all three of one sign: 2 of 8 assignments
    assert (found.first, found.second, found.difference) == (0, 2, 2)
    assert (found.questions, found.changed) == (3, 3)
    assert 1 <= found.low < 2 < found.high <= 3


def test_spearmans_rho_by_hand():
    first = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4, "e": 0.5}
    second = {"a": 0.2, "b": 0.1, "c": 0.3, "d": 0.5, "e": 0.4}
    found = compare(first, second, "map")
    # Ranks 1, 2, 3, 4, 5 and 2, 1, 3, 5, 4: rho = 1 - 6 * 4 / (5 * 24). t with three degrees of
    # freedom is rho * sqrt(3 / (1 - rho^2)) = 2.3094.
    assert found.spearman == pytest.approx(0.8)
    t = 0.8 * math.sqrt(3 / 0.36)
    x = math.atan(t / math.sqrt(3))
    assert found.spearman_p == pytest.approx(1 - 2 / math.pi * (x + math.sin(x) * math.cos(x)))
    same = compare(first, first, "map")
    assert same.spearman == pytest.approx(1) and same.spearman_p == pytest.approx(0)
    for one, two in (({"a": 0, "b": 1}, {"a": 0, "b": 1}), (first, dict.fromkeys(first, 1.0))):
        few = compare(one, two, "map")
        assert math.isnan(few.spearman) and math.isnan(few.spearman_p)


def test_the_interval_of_the_bootstrap():
    rng = np.random.default_rng(1)
    first = {str(i): value for i, value in enumerate(rng.normal(size=400))}
    second = dict(zip(first, np.array(list(first.values())) + rng.normal(0.1, 1, size=400)))
    found = compare(first, second, "map")
    changes = np.array([second[key] - first[key] for key in first])
    half = 1.96 * changes.std() / 20  # of a normal mean of 400
    assert found.low == pytest.approx(changes.mean() - half, abs=0.01)
    assert found.high == pytest.approx(changes.mean() + half, abs=0.01)
    assert compare(first, second, "map") == found  # seeded


def test_equal_runs_and_constant_differences():
    same = compare({"a": 1, "b": 0}, {"a": 1, "b": 0}, "map")
    assert (same.t_test, same.wilcoxon, same.low, same.high, same.changed) == (1, 1, 0, 0, 0)
    shifted = compare({"a": 0, "b": 0}, {"a": 1, "b": 1}, "map")
    assert math.isnan(shifted.t_test) and shifted.low == shifted.high == 1
    assert math.isnan(compare({"a": 0}, {"a": 1}, "map").t_test)


def test_changes_that_tie_mathematically_tie():
    # Reciprocal ranks change by 1/6 up and down; 1/2 - 1/3 and 1/3 - 1/6 have other last bits.
    first, second = {}, {}
    for number in range(20):
        first[f"up{number}"], second[f"up{number}"] = 1 / 3, 1 / 2
        first[f"down{number}"], second[f"down{number}"] = 1 / 3, 1 / 6
    both = compare(first, second, "mrr")
    assert both.wilcoxon == pytest.approx(1) and both.t_test == pytest.approx(1)
    assert both.difference == 0
    # Values that are the same sum in another order do not change.
    sums = {"a": 0.1 + 0.2 + 0.3, "b": 1.0}, {"a": 0.3 + 0.2 + 0.1, "b": 1.0}
    same = compare(*sums, "map")
    assert (same.changed, same.t_test, same.wilcoxon, same.low, same.high) == (0, 1, 1, 0, 0)
    # Up by 1/6 everywhere: there is no variance, and so no p-value of the t-test.
    first = {"a": 1 / 3, "b": 1 / 6, "c": 1 / 2}
    second = {"a": 1 / 2, "b": 1 / 3, "c": 2 / 3}
    shifted = compare(first, second, "mrr")
    assert math.isnan(shifted.t_test) and shifted.low == shifted.high
    # Much smaller differences than the greatest are kept.
    small = compare({"a": 1.0, "b": 0.0, "c": 0.0}, {"a": 0.0, "b": 1e-9, "c": 2e-9}, "map")
    assert small.changed == 3


def test_runs_on_other_questions_are_refused():
    with pytest.raises(
        DataError, match=r"2 only in the first, such as 'a', 1 only in the second, such as 'z'"
    ):
        paired({"a": 1, "b": 0, "m": 1}, {"m": 1, "z": 0})
    with pytest.raises(DataError, match="no question in common"):
        paired({}, {})


def question(labels, qid="q"):
    return Question(qid, "q", tuple(Candidate("c", label) for label in labels))


def test_values_of_each_question():
    questions = [question([0, 1], "x"), question([1, 0, 1], "y")]
    orders = [[0, 1], [0, 2, 1]]
    found = per_question(orders, questions, ("map", "p@1"))
    assert found == {"map": {"x": 0.5, "y": 1.0}, "p@1": {"x": 0.0, "y": 1.0}}
    assert evaluate(orders, questions, metrics=("map",))["map"] == np.mean(
        list(found["map"].values())
    )
    run = {"x": {"d0": 2.0, "d1": 1.0}, "other": {"d": 1.0}}
    assert per_question_of_run(run, {"x": {"d0": 0, "d1": 1}, "absent": {"d": 1}}, ("map",)) == {
        "map": {"x": 0.5}
    }


def test_rank_correlation():
    assert rank_correlation({"x": "abc", "y": "a"}, {"x": "cba", "y": "a"}) == (-1.0, 0.0)
    # Ranks of a, b, c: 1, 2, 3 and 2, 1, 3: rho = 1 - 6 * 2 / (3 * 8) = 0.5.
    found = rank_correlation({"x": "abc", "y": "ab"}, {"x": "bac", "y": "ab"})
    assert found == (pytest.approx(0.75), pytest.approx(0.25))
    assert math.isnan(rank_correlation({"x": "a"}, {"x": "a"})[0])
    # Questions of other documents do not count.
    assert math.isnan(rank_correlation({"x": "ab"}, {"x": "ac"})[0])


def test_over_seeds():
    found = over_seeds([{"questions": 3, "map": value} for value in (0.5, 0.7, 0.6)])
    assert found == {"map": (pytest.approx(0.6), pytest.approx(0.1))}
    assert math.isnan(over_seeds([{"questions": 3, "map": 0.5}])["map"][1])
    two = over_seeds([{"questions": 3, "map": 0.5}, {"questions": 3, "map": 0.7}])
    assert two == {"map": (pytest.approx(0.6), pytest.approx(math.sqrt(0.02)))}
    with pytest.raises(DataError, match="^run 2: other figures"):
        over_seeds([{"questions": 3}, {"questions": 4}, {"questions": 3}])
    for rows in ([], [{"map": 0.5}, {"mrr": 0.5}]):
        with pytest.raises(DataError):
            over_seeds(rows)


def test_the_t_test_between_seeds_by_hand():
    # Means 1 and 3, both variances 2: t = 2 / sqrt(2 (1/2 + 1/2)) = sqrt 2, two degrees of freedom.
    assert between_seeds([0, 2], [2, 4]) == pytest.approx(1 - math.sqrt(2) / 2)
    # The order of the seeds does not matter, as they are not paired; their numbers may differ.
    assert between_seeds([2, 0], [2, 4]) == between_seeds([0, 2], [2, 4])
    # Means 1 and 3, variances 2 and 1: pooled (2 + 2) / 3, t = 2 / sqrt(4/3 (1/2 + 1/3)) = 1.897,
    # three degrees of freedom.
    a = 2 / math.sqrt(4 / 3 * 5 / 6) / math.sqrt(3)
    tail = (math.atan(a) + a / (1 + a * a)) / math.pi
    assert between_seeds([0, 2], [2, 3, 4]) == pytest.approx(1 - 2 * tail)


def test_seeds_that_do_not_vary():
    assert between_seeds([0.5, 0.5], [0.5, 0.5]) == 1
    assert math.isnan(between_seeds([0.5, 0.5], [0.6, 0.6]))
    # The same two figures, summed in another order.
    sums = [0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]
    assert sums[0] != sums[1]
    assert between_seeds(sums, sums[::-1]) == 1
    assert math.isnan(between_seeds(sums, [0.5, 0.5]))
    assert math.isnan(between_seeds([0.5], [0.6, 0.7]))
    assert math.isnan(between_seeds([0.5, 0.6], [0.7]))


def test_interval_of_a_mean_of_few():
    # Of one question: z^2 = 3.8416, and (1 + z^2 / 2 -+ z^2 / 2) / (1 + z^2).
    assert wilson_interval(1.0, 1) == pytest.approx((1 / 4.8416, 1.0))
    assert wilson_interval(0.0, 1) == pytest.approx((0.0, 3.8416 / 4.8416))
    low, high = wilson_interval(0.5, 400)
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / 400**0.5, rel=1e-2)


def test_few_questions_are_noted(caplog):
    note_few_questions(30, map=0.5)
    note_few_questions(0)
    assert not caplog.text
    note_few_questions(1, map=1.0)
    assert "questions: 1" in caplog.text and "map may be from 21 to 100" in caplog.text
