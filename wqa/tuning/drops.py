"""Drops of a run or a sequence, chosen on development questions.

Which drop ratios the exits of a cascade have, or which exits it uses (Soldaini and Moschitti 2020,
sections 5.5 and 6); what each ranker of a sequence hands on (section 3.2; Bonadiman and Moschitti
2020, section 5.4). Each candidate is scored once, and all configurations are evaluated from these
scores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from wqa.config import read_json
from wqa.data import DEFAULT_FILTER, Question, read_questions
from wqa.data.ranker_files import ranker_file_kind
from wqa.errors import OptionError, shorten
from wqa.evaluation import evaluate
from wqa.evaluation.picture import check_matplotlib
from wqa.evaluation.rankers import questions_that_count, rank_questions
from wqa.inference.dropping import Drop, total
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking
from wqa.inference.sequential import SequentialRanker
from wqa.inference.timing import time_rankers
from wqa.io.files import PathLike, check_file, write_json
from wqa.io.locks import lock_output
from wqa.io.progress import with_bar
from wqa.systems.load import load_ranker
from wqa.tuning.configurations import (
    GRID,
    Configuration,
    as_row,
    check_grid,
    check_limits,
    full_grid,
    pick,
    placements,
    tuning_record,
    write_front,
)
from wqa.tuning.replay import ReplayedRanker, score_questions

#: Drop ratios for all exits that the picture marks (Table 3).
MARKED = (0.3, 0.4, 0.5)
#: Numbers of candidates that a ranker of a sequence may keep, by default.
KEEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)
#: Number of timed rounds of what was picked and of the full ranking; medians count.
ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class Picked:
    """The configuration that was picked for a run or a sequence.

    Attributes
    ----------
    configuration : Configuration
        What is dropped, with its cost and metrics.
    seconds, full_seconds : float
        Time to rank the questions with these drops, and without; for a sequence, by its last ranker
        alone.
    path : pathlib.Path
        File that stores the configuration: one in the run directory, or that of the sequence.
    """

    configuration: Configuration
    seconds: float
    full_seconds: float
    path: pathlib.Path


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Result of tuning the drops of a run or a sequence.

    Attributes
    ----------
    questions : int
        Number of questions that were scored.
    seconds : float
        Time to evaluate the configurations from the scores.
    configurations, front : list of Configuration
        All evaluated configurations, and their Pareto front, by ascending cost.
    columns : tuple of str
        Names of the columns for the drops, in tables.
    out : pathlib.Path
        Folder of the tables and the picture.
    picked : Picked or None
        Configuration that was picked; None without a limit.
    truncated_questions, skipped_questions : int
        Number of over-long questions that were truncated, and that were left out.
    """

    questions: int
    seconds: float
    configurations: List[Configuration]
    front: List[Configuration]
    columns: Tuple[str, ...]
    out: pathlib.Path
    picked: Optional[Picked] = None
    truncated_questions: int = 0
    skipped_questions: int = 0

    def front_rows(self, most: int = 20) -> List[Dict[str, Any]]:
        """Rows of the Pareto front, both ends included; a front longer than ``most`` is thinned."""
        front = self.front
        if len(front) > most:
            front = [front[index * (len(front) - 1) // (most - 1)] for index in range(most)]
        return [as_row(configuration, self.columns) for configuration in front]

    def to_dict(self) -> Dict[str, Any]:
        """Counts, the Pareto front and what was picked, in types of JSON."""
        picked = None
        if self.picked is not None:
            picked = as_row(self.picked.configuration, self.columns)
            picked["seconds"] = self.picked.seconds
            picked["seconds_without_drops"] = self.picked.full_seconds
            picked["file"] = str(self.picked.path)
        return {
            "questions": self.questions,
            "configurations": len(self.configurations),
            "out": str(self.out),
            "front": self.front_rows(len(self.front)),
            "picked": picked,
        }


class _Evaluated(NamedTuple):
    """Configurations, the columns of their drops, and those that the picture marks."""

    configurations: List[Configuration]
    columns: Tuple[str, ...]
    marked: Dict[str, Configuration]
    seconds: float


def tune(
    run: PathLike,
    data: PathLike,
    grid: Optional[Sequence[float]] = None,
    keeps: Optional[Sequence[int]] = None,
    place_exits: Optional[int] = None,
    metric: str = "map",
    max_cost: Optional[float] = None,
    min_metric: Optional[float] = None,
    max_loss: Optional[float] = None,
    out: PathLike = "",
    picture: bool = True,
    filter: str = DEFAULT_FILTER,
    progress: bool = False,
    **options: Any,
) -> Tuning:
    """Choose what the exits of a run, or the rankers of a sequence, drop.

    All configurations are written to ``configurations.tsv``, ``pareto.tsv`` and ``figure.png``.
    With a limit, a configuration is picked, timed, and stored: in the run as ``tuned.json``, which
    ``load_ranker(run, drop_ratio="tuned")`` reads, or in the file of the sequence.

    Parameters
    ----------
    run : str or path-like
        Run directory of a ranker with several exits, or ``.json`` file of a sequence.
    data : str or path-like
        Labelled development questions, canonical JSONL.
    grid : sequence of float, optional
        Drop ratios that an exit, or a ranker of a sequence, may have; `GRID` by default, of a
        sequence none beside ``keeps``.
    keeps : sequence of int, optional
        Numbers of candidates that a ranker of a sequence may keep; `KEEPS` by default, none beside
        ``grid``.
    place_exits : int, optional
        Number of exits of a run to use, including the last, with one ratio for those before it. By
        default all exits are used, and each has a ratio of its own.
    metric : {"map", "mrr", "p@1", "ndcg@10"}
        Metric by which configurations are compared.
    max_cost, min_metric, max_loss : float, optional
        Pick the best configuration up to a cost relative to the full encoder or the last ranker;
        the cheapest whose metric is at least so much; or the cheapest whose metric is at most so
        much below that with nothing dropped.
    out : str or path-like
        Folder of the tables and the picture; by default ``tune`` in the run directory, or the
        file's name with ``.tune`` in place of ``.json``.
    picture : bool
        Whether to draw the picture, which needs matplotlib.
    filter : {"all", "no-all-negative", "clean"}
        Filter of questions.
    progress : bool
        Show bars on standard error.
    **options
        Further parameters of `wqa.load_ranker`.

    Returns
    -------
    Tuning
        All configurations, their Pareto front, and the picked one.

    Raises
    ------
    OptionError
        If an option does not fit, there is a single exit or ranker, or no configuration keeps the
        limit.
    DataError
        If a candidate has no label, or all questions are over-long and skipped.
    QuestionTooLong
        If a question is over-long, and neither truncated nor skipped.
    MissingDependency
        If matplotlib is not installed, and a picture is wanted.
    OutputLocked
        If another process writes to the run, the file or the folder.
    """
    limits = check_limits({"max_cost": max_cost, "min_metric": min_metric, "max_loss": max_loss})
    path = pathlib.Path(run)
    is_sequence = ranker_file_kind(path) == "sequence"
    if is_sequence and place_exits is not None:
        raise OptionError("place_exits", "with a sequence", "a run with several exits")
    if keeps is not None and not is_sequence:
        raise OptionError("keeps", "with a run", "the .json file of a sequence; for a run the grid")
    choices = _choices(keeps, grid, is_sequence)
    if picture:
        check_matplotlib()
    judged = questions_that_count(read_questions(data), filter)
    folder = pathlib.Path(out or (path.with_suffix(".tune") if is_sequence else path / "tune"))
    outputs = {folder if out or is_sequence else path}
    if limits or is_sequence:
        outputs.add(path)
    with contextlib.ExitStack() as locks:
        for output in sorted({output.resolve() for output in outputs}):
            locks.enter_context(lock_output(output))
        ranker = load_ranker(path, **options)
        if is_sequence:
            prepared = ranker.prepare(judged)
            evaluated = _of_sequence(path, ranker, prepared.questions, choices, progress)
        else:
            drops = _drops_of_exits(path, ranker, choices, place_exits, max_loss is not None)
            prepared = ranker.prepare(judged)
            evaluated = _of_exits(ranker, prepared.questions, drops, picture, progress)
        configurations, columns, marked, seconds = evaluated
        front = write_front(folder, configurations, metric, columns, marked if picture else None)
        picked = None
        if limits:
            configuration = pick(configurations, metric, **limits)
            limit = {"least" if name == "min_metric" else name: limits[name] for name in limits}
            record = tuning_record({"metric": metric, **limit}, data, filter, prepared)
            picked = _store(path, ranker, prepared.questions, configuration, record, progress)
    counts = prepared.truncated, prepared.skipped
    count = len(prepared.questions)
    return Tuning(count, seconds, configurations, front, columns, folder, picked, *counts)


def _choices(
    keeps: Optional[Sequence[int]], grid: Optional[Sequence[float]], is_sequence: bool
) -> List[Drop]:
    """What each stage may drop, numbers to keep first, each kind in ascending order."""
    if grid is None and keeps is None:
        grid = GRID
        keeps = KEEPS if is_sequence else None
    for number in keeps or ():
        if type(number) is not int or number < 1:
            raise OptionError("keeps", shorten(number), "whole numbers above 0")
    if keeps is not None and not len(keeps) and grid is None:
        raise OptionError("keeps", "nothing", "at least one number of candidates")
    choices = [Drop(keep=number) for number in sorted(set(keeps or ()))]
    ratios = () if grid is None else check_grid(grid)
    return [*choices, *map(Drop, ratios)]


def _drops_of_exits(
    path: pathlib.Path,
    ranker: Ranker,
    choices: Sequence[Drop],
    place_exits: Optional[int],
    needs_full: bool,
) -> List[Tuple[float, ...]]:
    """What each configuration drops; a loss also needs the one that drops nothing."""
    capabilities = ranker.capabilities
    exits, grid = len(capabilities.exits), [drop.ratio for drop in choices]
    if exits < 2:
        problem = f"{path}, {capabilities.kind} ({capabilities.system})"
        raise OptionError("run", problem, "a run with several exits, as a cascade has")
    drops = full_grid(grid, exits)
    if place_exits is not None:
        drops = placements(grid, exits, place_exits)
    nothing = (0.0,) * (exits - 1)
    if needs_full and nothing not in drops:
        drops.append(nothing)
    return drops


def _of_exits(
    ranker: Ranker,
    questions: Sequence[Question],
    drops: Sequence[Tuple[float, ...]],
    picture: bool,
    progress: bool,
) -> _Evaluated:
    scored = score_questions(ranker, questions, progress)
    begin = time.perf_counter()
    configurations = scored.evaluate(drops)
    seconds = time.perf_counter() - begin
    before_last = scored.exits[:-1]
    marked = MARKED if picture else ()
    at_ratio = scored.evaluate([(ratio,) * len(before_last) for ratio in marked])
    names = [f"drop ratio {ratio}" for ratio in marked]
    columns = tuple(f"exit_{layer}" for layer in before_last)
    return _Evaluated(configurations, columns, dict(zip(names, at_ratio)), seconds)


def _of_sequence(
    path: pathlib.Path,
    ranker: Ranker,
    questions: Sequence[Question],
    choices: Sequence[Drop],
    progress: bool,
) -> _Evaluated:
    rankers = ranker.capabilities.rankers
    if len(rankers) < 2:
        raise OptionError("run", f"{path}, a sequence of one ranker", "at least two rankers")
    replayed = SequentialRanker([ReplayedRanker(inner, questions) for inner in rankers])
    rank_questions(replayed, questions, "scoring", progress)
    begin = time.perf_counter()
    most = max(len(question.candidates) for question in questions)
    drops = [drop for drop in choices if drop.discards and drop.keep < most]
    stages = len(rankers) - 1
    all_drops = list(itertools.product((*drops, Drop()), repeat=stages))
    configurations = []
    for values in with_bar(all_drops, len(all_drops), "evaluating", progress, "configuration"):
        configurations.append(_replay(replayed, questions, values))
    kinds = []
    if any(drop.keep for drop in choices):
        kinds.append("keep")
    if not all(drop.keep for drop in choices):
        kinds.append("drop_ratio")
    columns = tuple(f"{kind}_{number}" for number in range(1, stages + 1) for kind in kinds)
    marked = {"nothing dropped": configurations[-1]}
    return _Evaluated(configurations, columns, marked, time.perf_counter() - begin)


def _replay(
    sequence: SequentialRanker, questions: Sequence[Question], drops: Sequence[Drop]
) -> Configuration:
    """Cost and metrics of one configuration of a sequence."""
    ratios = (*(drop.ratio for drop in drops), 0.0)
    keep = tuple(drop.keep for drop in drops)
    configuration = Configuration(ratios, 0.0, 0.0, {}, keep)
    sequence.set_drops(**configuration.stored())
    rankings = list(sequence.rank_all(questions))
    figures = evaluate(rankings, questions)
    del figures["questions"]
    cost = total([ranking.cost for ranking in rankings])
    return Configuration(ratios, cost.relative, cost.paper, figures, keep)


def _store(
    path: pathlib.Path,
    ranker: Ranker,
    questions: Sequence[Question],
    configuration: Configuration,
    record: Dict[str, Any],
    progress: bool,
) -> Picked:
    """Time a configuration beside the full ranking, and write it to the run or the sequence."""
    drops, rankers = configuration.stored(), ranker.capabilities.rankers

    def full(group: Sequence[Question]) -> List[Ranking]:
        if not rankers:
            ranker.set_drops()
        return list((rankers or (ranker,))[-1].rank_all(group))

    def tuned(group: Sequence[Question]) -> List[Ranking]:
        ranker.set_drops(**drops)
        return list(ranker.rank_all(group))

    rows = time_rankers({"full": full, "tuned": tuned}, questions, ROUNDS, progress)
    full_seconds, seconds = (row["seconds"] for row in rows)
    values: Dict[str, Any] = {"cost": configuration.cost, "paper_cost": configuration.paper_cost}
    values.update(metrics=configuration.metrics, **record)
    values.update(seconds=seconds, seconds_of_ratio_0=full_seconds)
    if path.is_dir():
        path = path / "tuned.json"
        check_file(path, ("drop_ratio", "cost", "metrics"))
        values = {"drop_ratio": list(configuration.ratios), **values}
    else:
        kept = read_json(path)
        for name in ("drop_ratio", "keep"):
            kept.pop(name, None)
        values = {**kept, **drops, "tuned": values}
    write_json(path, values)
    return Picked(configuration, seconds, full_seconds, path)
