"""The drop rule of each stage, and sums of costs, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wqa.errors import OptionError
from wqa.inference.dropping import FREE, Cost, Drop, check_drops, dropped, total


@pytest.mark.parametrize(
    "alpha, k, number",
    [
        (0.3, 10, 3),
        (0.3, 9, 2),
        (0.29, 100, 29),
        (0.5, 1, 0),
        (0.0, 7, 0),
        (0.999, 1000, 999),
        (2 / 3, 3, 2),
        (0.6666, 3, 1),
        (1 - 2**-24, 9, 8),
    ],
)
def test_an_exit_drops_the_floor_of_its_share(alpha, k, number):
    assert dropped(alpha, k) == number


@given(alpha=st.floats(0, 1 - 2**-24, width=32), k=st.integers(1, 3000), n=st.integers(0, 2999))
def test_an_exit_drops_the_most_whose_share_is_at_most_its_ratio(alpha, k, n):
    for ratio in (alpha, (n % k) / k):
        shares = np.arange(k, dtype=np.float32) / np.float32(k)
        assert dropped(ratio, k) == np.count_nonzero(shares <= np.float32(ratio)) - 1
    assert dropped((n % k) / k, k) == n % k


def test_a_rule_for_each_stage():
    assert check_drops(1) == (Drop(),)
    assert check_drops(3, 0.3) == (Drop(0.3), Drop(0.3), Drop())
    assert check_drops(3, keep=5) == (Drop(keep=5), Drop(keep=5), Drop())
    assert check_drops(3, [0.3, None], [None, 5]) == (Drop(0.3), Drop(keep=5), Drop())
    assert check_drops(3, [0.3, 0.4, 0.9]) == (Drop(0.3), Drop(0.4), Drop())  # the last has none
    assert check_drops(2, 0, None) == (Drop(), Drop())
    assert check_drops(3, [0.3, None], None, [None, 0.02]) == (Drop(0.3), Drop(below=0.02), Drop())
    assert Drop(0.1).discards and Drop(keep=1).discards and not Drop().discards


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((3, 0.3, 5), "0.3 and 5 for one stage"),
        ((3, [0.3, 0.3], [None, 5]), "0.3 and 5 for one stage"),
        ((2, 1), "drop_ratio: 1; expected a number from 0 up to"),
        ((2, 1 - 1e-9), "drop_ratio: 0.999999999; expected a number from 0 up to"),
        ((2, float("nan")), "drop_ratio: nan"),
        ((2, -0.1), "drop_ratio: -0.1"),
        ((2, True), "drop_ratio: True"),
        ((2, None, None, 1), "drop_below: 1; expected a number from 0 up to"),
        ((2, 0.3, None, 0.02), "0.3 and 0.02 for one stage"),
        ((2, None, 0), "keep: 0; expected a whole number from 1"),
        ((2, None, 2.0), "keep: 2.0"),
        ((3, [0.3]), "1 values; expected a number, or one for each of 3 stages"),
        ((3, [0.1, 0.2, 0.3, 0.4]), "4 values"),
        ((1, []), "0 values"),
        ((2, np.float32(1)), "drop_ratio: .*1.0.*; expected a number from 0"),
        ((2, {3: 1}.keys), "drop_ratio: .*; expected a number"),
    ],
)
def test_rules_that_are_refused(arguments, message):
    with pytest.raises(OptionError, match=message):
        check_drops(*arguments)


def test_numbers_of_numpy_are_numbers():
    assert check_drops(2, np.float32(0.25)) == check_drops(2, 0.25)
    assert check_drops(3, keep=np.int64(5)) == check_drops(3, keep=[5, 5])


def test_what_is_below_a_relevance_is_dropped_but_for_the_best():
    drop, relevances = Drop(below=0.5), np.array([0.6, 0.5, 0.499, 0.1])
    assert drop.discards
    assert [drop.kept(count, relevances[-count:]) for count in (4, 3, 2, 1)] == [2, 1, 1, 1]
    assert drop.kept(0, relevances[:0]) == 0


def test_costs_add_up_by_hand():
    """The paper's cost is a mean over the full network's work; the other ratios are of sums."""
    first = Cost(0.5, 10.0, 20.0, 100.0, 300.0)
    second = Cost(0.8, 30.0, 60.0, 50.0, 100.0)
    both = total([first, second])
    assert both == (pytest.approx((0.5 * 20 + 0.8 * 60) / 80), 40.0, 80.0, 150.0, 400.0)
    assert both.relative == 0.5 and both.relative_tokens == 0.375
    assert total([first, FREE])[1:] == first[1:] and total([first, FREE]).paper == 0.5
    assert FREE == (0, 0, 0, 0, 0) and FREE.relative == FREE.relative_tokens == 0
    assert total([FREE, FREE]) == FREE
