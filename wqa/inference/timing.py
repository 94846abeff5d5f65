"""Timing of rankers at several drop settings, and of several rankers.

A drop setting is a name and the keyword arguments of `Ranker.set_drops`. Settings, or rankers, take
turns, as the speed of a machine changes over time.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
)

import numpy as np

from wqa.errors import OptionError, printable
from wqa.inference.dropping import total
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking

#: Figures of one setting, by name.
Row = Dict[str, Any]
#: Keyword arguments of `Ranker.set_drops`, by the name of the setting.
Settings = Mapping[str, Mapping[str, Any]]
#: Ranks some of the questions.
Rank = Callable[[Sequence[Any]], Sequence[Ranking]]


class Turn(NamedTuple):
    """One ranking of all questions.

    Attributes
    ----------
    seconds : float
        Time of the ranking.
    rankings : sequence of Ranking
        Ranking of each question.
    """

    seconds: float
    rankings: Sequence[Ranking]


def take_turns(
    ranker: Ranker,
    questions: Sequence[Any],
    settings: Settings,
    rounds: int,
    rank: Optional[Rank] = None,
    progress: bool = False,
) -> Iterator[Dict[str, Turn]]:
    """Rank all questions at each setting in turn, several times.

    Parameters
    ----------
    ranker : Ranker
        Ranker, which has the last setting afterwards.
    questions : sequence of Question
        Questions to rank.
    settings : mapping of str to mapping
        Drop settings by name.
    rounds : int
        Number of turns of each setting.
    rank : callable, optional
        Ranks a sequence of questions; ``ranker.rank_all`` by default.
    progress : bool
        Show a progress bar on standard error.

    Yields
    ------
    dict of str to Turn
        One round: a turn of each setting.
    """
    rank = rank or _rank_all(ranker)
    for _ in _bar(rounds, "rounds", "round", progress):
        turns = {}
        for name, setting in settings.items():
            ranker.set_drops(**setting)
            turns[name] = _turn(rank, questions)
        yield turns


def _bar(count: int, title: str, unit: str, progress: bool) -> Iterable[int]:
    """Numbers below ``count``, behind a bar."""
    from tqdm import tqdm

    off = not progress
    return tqdm(range(count), desc=title, unit=unit, delay=1, disable=off, file=sys.stderr)


def _turn(rank: Rank, questions: Sequence[Any]) -> Turn:
    begin = time.perf_counter()
    rankings = rank(questions)
    return Turn(time.perf_counter() - begin, rankings)


def time_rankings(
    ranker: Ranker,
    questions: Sequence[Any],
    settings: Settings,
    rounds: int = 5,
    rank: Optional[Rank] = None,
    progress: bool = False,
) -> List[Row]:
    """Time the ranking of all questions at several drop settings.

    Parameters
    ----------
    ranker, questions, rank, progress
        As `take_turns` takes them.
    settings : mapping of str to mapping
        Drop settings by name; ratios of time are over the first.
    rounds : int
        Number of timed rounds, which follow one round of warm-up.

    Returns
    -------
    list of dict
        A row for each setting, with its name as ``drop_ratio``. ``seconds`` and ``time_ratio``,
        over the first setting's seconds of the same round, are medians over the rounds;
        ``deviation`` is the standard deviation of the seconds, 0 for a single round;
        ``paper_cost``, ``cost`` and ``token_cost`` are those of `wqa.inference.Cost`.

    Raises
    ------
    OptionError
        If ``rounds`` is below 1, or there is no question.
    """
    _check(rounds, questions)
    turns = list(take_turns(ranker, questions, settings, rounds + 1, rank, progress))
    return _rows(turns, "drop_ratio")


def time_rankers(
    ranks: Mapping[str, Rank], questions: Sequence[Any], rounds: int = 5, progress: bool = False
) -> List[Row]:
    """Time the ranking of all questions by several rankers.

    Parameters
    ----------
    ranks : mapping of str to callable
        What ranks a sequence of questions, by the ranker's name; ratios of time are over the first.
    questions : sequence of Question
        Questions to rank.
    rounds : int
        Number of timed rounds, which follow one round of warm-up.
    progress : bool
        Show a progress bar on standard error.

    Returns
    -------
    list of dict
        A row for each ranker, with its name as ``ranker``, and the figures of `time_rankings`.

    Raises
    ------
    OptionError
        If ``rounds`` is below 1, or there is no question.
    """
    _check(rounds, questions)
    turns = []
    for _ in _bar(rounds + 1, "rounds", "round", progress):
        turns.append({name: _turn(rank, questions) for name, rank in ranks.items()})
    return _rows(turns, "ranker")


def _rows(turns: Sequence[Mapping[str, Turn]], column: str) -> List[Row]:
    """Figures of what took turns, whose names are in a column; the first round warms up."""
    first = next(iter(turns[0]))
    base = [turn[first].seconds for turn in turns[1:]]
    rows = []
    for name in turns[0]:
        seconds = [turn[name].seconds for turn in turns[1:]]
        rankings = turns[-1][name].rankings
        candidates = sum(np.count_nonzero(~ranking.blank) for ranking in rankings)
        cost = total([ranking.cost for ranking in rankings])
        median = statistics.median(seconds)
        ratios = [current / reference for current, reference in zip(seconds, base)]
        row = {
            column: name,
            "seconds": median,
            "deviation": statistics.pstdev(seconds),
            "time_ratio": statistics.median(ratios),
            "paper_cost": cost.paper,
            "cost": cost.relative,
            "token_cost": cost.relative_tokens,
            "candidates_per_second": candidates / median,
        }
        rows.append(row)
    return rows


def time_latency(
    ranker: Ranker,
    questions: Sequence[Any],
    settings: Settings,
    count: int,
    rank: Optional[Rank] = None,
    progress: bool = False,
) -> List[Row]:
    """Time the ranking of single questions, from text to ranking.

    Parameters
    ----------
    ranker, settings, rank, progress
        As `take_turns` takes them.
    questions : sequence of Question
        Questions to rank one by one; after the last comes the first again.
    count : int
        Number of timed questions, at least two.

    Returns
    -------
    list of dict
        A row for each setting, with its name as ``drop_ratio``: the milliseconds of the first call,
        which compiles, and the median and 99th percentile of the other calls.

    Raises
    ------
    OptionError
        If ``count`` is below 2, or there is no question.
    """
    if count < 2:
        raise OptionError("count", count, "at least 2 questions")
    _check_questions(questions)
    rank = rank or _rank_all(ranker)
    rows = []
    for name, setting in settings.items():
        ranker.set_drops(**setting)
        first, *rest = _milliseconds(rank, questions, count, f"drop ratio {name}", progress)
        row = {
            "drop_ratio": name,
            "questions": count,
            "first_ms": first,
            "p50_ms": float(np.percentile(rest, 50)),
            "p99_ms": float(np.percentile(rest, 99)),
        }
        rows.append(row)
    return rows


def _milliseconds(
    rank: Rank, questions: Sequence[Any], count: int, title: str, progress: bool
) -> List[float]:
    """Milliseconds of a warm-up call on the first question, and of the timed calls."""
    milliseconds = []
    for number in _bar(count + 1, printable(title), "question", progress):
        question = questions[max(number - 1, 0) % len(questions)]
        begin = time.perf_counter()
        rank([question])
        milliseconds.append(1000 * (time.perf_counter() - begin))
    return milliseconds


def _rank_all(ranker: Ranker) -> Rank:
    return lambda questions: list(ranker.rank_all(questions))


def _check(rounds: int, questions: Sequence[Any]) -> None:
    if rounds < 1:
        raise OptionError("rounds", rounds, "a whole number above 0")
    _check_questions(questions)


def _check_questions(questions: Sequence[Any]) -> None:
    if not questions:
        raise OptionError("questions", "none", "at least one")
