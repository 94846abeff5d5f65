"""Timing of what ranks questions: rankers, or one ranker at several drop settings.

What is compared takes turns, as the speed of a machine changes over time.
"""

from __future__ import annotations

import functools
import statistics
import time
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from wqa.errors import OptionError
from wqa.inference.dropping import total
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking

#: Figures of one row, by name.
Row = Dict[str, Any]
#: Ranks some of the questions.
Rank = Callable[[Sequence[Any]], Sequence[Ranking]]


def ranks_at_drops(ranker: Ranker, settings: Mapping[str, Mapping[str, Any]]) -> Dict[str, Rank]:
    """Make what ranks at each of several drop settings.

    Parameters
    ----------
    ranker : Ranker
        Ranker, which has the setting that ranked last afterwards.
    settings : mapping of str to mapping
        Keywords of `Ranker.set_drops`, by the name of the setting.

    Returns
    -------
    dict of str to callable
        What `time_rankers` and `time_latency` take.
    """

    def rank(drops: Mapping[str, Any], questions: Sequence[Any]) -> Sequence[Ranking]:
        ranker.set_drops(**drops)
        return list(ranker.rank_all(questions))

    return {name: functools.partial(rank, drops) for name, drops in settings.items()}


def time_rankers(
    ranks: Mapping[str, Rank], questions: Sequence[Any], rounds: int = 5, column: str = "ranker"
) -> List[Row]:
    """Time the ranking of all questions by each of several rankers.

    Parameters
    ----------
    ranks : mapping of str to callable
        What ranks a sequence of questions, by name; ratios of time are over the first.
    questions : sequence of Question
        Questions to rank.
    rounds : int
        Number of timed rounds, which follow one round of warm-up.
    column : str
        Column of the names.

    Returns
    -------
    list of dict
        A row for each name. ``seconds`` and ``time_ratio``, over the first one's seconds of the
        same round, are medians over the rounds; ``deviation`` is the standard deviation of the
        seconds, 0 for a single round; ``paper_cost``, ``cost`` and ``token_cost`` are those of
        `wqa.inference.Cost`.

    Raises
    ------
    OptionError
        If ``rounds`` is below 1, or there is no question.
    """
    if rounds < 1 or not questions:
        raise OptionError("rounds", f"{rounds} of {len(questions)} questions", "at least one each")
    seconds: Dict[str, List[float]] = {name: [] for name in ranks}
    rankings: Dict[str, Sequence[Ranking]] = {}
    for _ in range(rounds + 1):
        for name, rank in ranks.items():
            elapsed, rankings[name] = _timed(rank, questions)
            seconds[name].append(elapsed)
    [base, *_] = seconds.values()
    rows = []
    for name, (_, *counted) in seconds.items():  # the first round warms up
        candidates = sum(np.count_nonzero(~ranking.blank) for ranking in rankings[name])
        cost = total([ranking.cost for ranking in rankings[name]])
        median = statistics.median(counted)
        ratios = [own / first for own, first in zip(counted, base[1:])]
        row = {
            column: name,
            "seconds": median,
            "deviation": statistics.pstdev(counted),
            "time_ratio": statistics.median(ratios),
            "paper_cost": cost.paper,
            "cost": cost.relative,
            "token_cost": cost.relative_tokens,
            "candidates_per_second": candidates / median,
        }
        rows.append(row)
    return rows


def time_latency(
    ranks: Mapping[str, Rank], questions: Sequence[Any], count: int, column: str = "ranker"
) -> List[Row]:
    """Time the ranking of single questions, from text to ranking.

    Parameters
    ----------
    ranks, column
        As `time_rankers` takes them.
    questions : sequence of Question
        Questions to rank one by one; after the last comes the first again.
    count : int
        Number of timed questions, at least two.

    Returns
    -------
    list of dict
        A row for each name: the milliseconds of the first call, which compiles, and the median and
        99th percentile of the other calls.

    Raises
    ------
    OptionError
        If ``count`` is below 2, or there is no question.
    """
    if count < 2 or not questions:
        raise OptionError("count", f"{count} of {len(questions)} questions", "at least 2 of some")
    milliseconds: Dict[str, List[float]] = {name: [] for name in ranks}
    for number in range(count + 1):
        question = questions[max(number - 1, 0) % len(questions)]
        for name, rank in ranks.items():
            milliseconds[name].append(1000 * _timed(rank, [question])[0])
    rows = []
    for name, (first, *rest) in milliseconds.items():
        p50, p99 = np.percentile(rest, [50, 99]).tolist()
        row = {column: name, "questions": count, "first_ms": first, "p50_ms": p50, "p99_ms": p99}
        rows.append(row)
    return rows


def _timed(rank: Rank, questions: Sequence[Any]) -> Tuple[float, Sequence[Ranking]]:
    begin = time.perf_counter()
    rankings = rank(questions)
    return time.perf_counter() - begin, rankings
