"""Tuning of a run: tables, a picture, and the configuration that is stored in it."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from wqa.data import DEFAULT_FILTER, Question, read_questions
from wqa.data.formats import data_digest
from wqa.errors import OptionError
from wqa.evaluation.picture import check_matplotlib
from wqa.evaluation.rankers import questions_that_count
from wqa.inference.ranker import Ranker
from wqa.inference.timing import take_turns
from wqa.io.files import PathLike, write_json
from wqa.io.locks import lock_output
from wqa.io.outputs import check_file
from wqa.systems.load import load_ranker
from wqa.text import PreparedQuestions
from wqa.tuning.configurations import (
    GRID,
    Configuration,
    as_row,
    check_grid,
    check_limits,
    full_grid,
    pick,
    placements,
    write_front,
)
from wqa.tuning.replay import score_questions

#: Drop ratios for all exits that the picture marks (Table 3).
MARKED = (0.3, 0.4, 0.5)
#: Number of turns of the picked ratios and of ratio 0; the fastest turn of each counts.
TURNS = 3


@dataclasses.dataclass(frozen=True)
class Picked:
    """The configuration that was picked for a run or a sequence.

    Attributes
    ----------
    configuration : Configuration
        What is dropped, with its cost and metrics.
    seconds : float
        Time to rank the questions with these drops.
    seconds_of_ratio_0 : float
        Time to rank the questions without drops; for a sequence, by its last ranker alone.
    path : pathlib.Path
        File that stores the configuration: one in the run directory, or that of the sequence.
    """

    configuration: Configuration
    seconds: float
    seconds_of_ratio_0: float
    path: pathlib.Path


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Result of tuning the drops of a run or a sequence.

    Attributes
    ----------
    exits : tuple of int
        rho(1), ..., rho(N), the layers of the run's exits; empty for a sequence.
    questions : int
        Number of questions that were scored.
    seconds : float
        Time to evaluate the configurations from the scores.
    configurations : list of Configuration
        All evaluated configurations.
    front : list of Configuration
        Pareto front of the configurations, by ascending cost.
    out : pathlib.Path
        Folder of the tables and the picture.
    picked : Picked or None
        Configuration that was picked; None without a limit.
    truncated_questions, skipped_questions : int
        Number of over-long questions that were truncated, and that were left out.
    columns : tuple of str
        Names of the columns for the drops, in tables; by default those of the exits.
    """

    exits: Tuple[int, ...]
    questions: int
    seconds: float
    configurations: List[Configuration]
    front: List[Configuration]
    out: pathlib.Path
    picked: Optional[Picked]
    truncated_questions: int = 0
    skipped_questions: int = 0
    columns: Tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.columns:
            object.__setattr__(self, "columns", exit_columns(self.exits))

    def front_rows(self, most: int = 20) -> List[Dict[str, Any]]:
        """Rows of the Pareto front, both ends included.

        Parameters
        ----------
        most : int
            Greatest number of rows, at least 2; a longer front is thinned evenly.

        Returns
        -------
        list of dict
            Drops, costs and metrics, as `wqa.tuning.configurations.as_row` returns them.
        """
        front = self.front
        if len(front) > most:
            front = [front[index * (len(front) - 1) // (most - 1)] for index in range(most)]
        return [as_row(configuration, self.columns) for configuration in front]

    def to_dict(self) -> Dict[str, Any]:
        """The result as values of JSON.

        Returns
        -------
        dict
            Numbers of questions and configurations, the folder, all rows of the Pareto front, and
            the row that was picked with the seconds of its ranking and of that without drops, or
            None.
        """
        picked = None
        if self.picked is not None:
            picked = {
                **as_row(self.picked.configuration, self.columns),
                "seconds": self.picked.seconds,
                "seconds_without_drops": self.picked.seconds_of_ratio_0,
                "file": str(self.picked.path),
            }
        return {
            "questions": self.questions,
            "configurations": len(self.configurations),
            "out": str(self.out),
            "front": [as_row(configuration, self.columns) for configuration in self.front],
            "picked": picked,
        }


def chosen_by(metric: str, limits: Mapping[str, float]) -> Dict[str, Any]:
    """What a configuration was picked by, as files of tuned settings record it."""
    named = {"least" if name == "min_metric" else name: limits[name] for name in limits}
    return {"metric": metric, **named}


def tuning_record(
    choice: Dict[str, Any], data: PathLike, filter: str, prepared: PreparedQuestions
) -> Dict[str, Any]:
    """What a choice was made by, as files of tuned settings record it."""
    return {
        "chosen_by": choice,
        "data_sha256": data_digest(data),
        "filter": filter,
        "questions": len(prepared.questions),
        **prepared.counts,
    }


def exit_columns(exits: Sequence[int]) -> Tuple[str, ...]:
    """Names of the exits in tables."""
    return tuple(f"exit_{layer}" for layer in exits[:-1])


def tune(
    run: PathLike,
    data: PathLike,
    grid: Sequence[float] = GRID,
    place_exits: Optional[int] = None,
    metric: str = "map",
    max_cost: Optional[float] = None,
    min_metric: Optional[float] = None,
    out: PathLike = "",
    picture: bool = True,
    filter: str = DEFAULT_FILTER,
    progress: bool = False,
    max_loss: Optional[float] = None,
    **options: Any,
) -> Tuning:
    """Choose drop ratios for a run, or which of its exits to use, on development questions.

    Each candidate is scored at each exit once. All configurations are evaluated from these scores,
    and written to ``configurations.tsv``, ``pareto.tsv`` and ``figure.png``. With a limit, a
    configuration is picked, timed, and stored in the run as ``tuned.json``, which
    ``load_ranker(run, drop_ratio="tuned")`` reads.

    Parameters
    ----------
    run : str or path-like
        Run directory of a ranker with several exits.
    data : str or path-like
        Labelled development questions, canonical JSONL.
    grid : sequence of float
        Drop ratios that an exit may have.
    place_exits : int, optional
        Number of exits to use, including the last, with one ratio for those before it. By default
        all exits are used, and each has a ratio of its own.
    metric : {"map", "mrr", "p@1", "ndcg@10"}
        Metric by which configurations are compared.
    max_cost : float, optional
        Pick the best configuration up to this cost, relative to the full encoder.
    min_metric : float, optional
        Pick the cheapest configuration whose metric is at least this, from 0 to 1.
    out : str or path-like
        Folder of the tables and the picture; ``tune`` in the run directory by default.
    picture : bool
        Whether to draw the picture, which needs matplotlib.
    filter : {"all", "no-all-negative", "clean"}
        Filter of questions.
    progress : bool
        Show a bar on standard error while ranking.
    max_loss : float, optional
        Pick the cheapest configuration whose metric is at most this much below that of the run
        without drops.
    **options
        Further parameters of `wqa.load_ranker`.

    Returns
    -------
    Tuning
        All configurations, their Pareto front, and the picked one.

    Raises
    ------
    OptionError
        If an option does not fit, the run has a single exit, or no configuration keeps the limit.
    DataError
        If a candidate has no label, or all questions are over-long and skipped.
    QuestionTooLong
        If a question is over-long, and neither truncated nor skipped.
    MissingDependency
        If matplotlib is not installed, and a picture is wanted.
    OutputLocked
        If another process writes to the run or the folder.
    """
    ratios = check_grid(grid)
    limits = check_limits({"max_cost": max_cost, "min_metric": min_metric, "max_loss": max_loss})
    if picture:
        check_matplotlib()
    judged = questions_that_count(read_questions(data), filter)
    ranker = load_ranker(run, **options)
    exits = _exits_of(ranker, run)
    prepared = ranker.prepare(judged)
    questions = prepared.questions
    drops = _grid(ratios, len(exits), place_exits, max_loss is not None)
    folder = pathlib.Path(out or pathlib.Path(run) / "tune")
    outputs = {pathlib.Path(out or run).resolve()}
    if limits:
        outputs.add(pathlib.Path(run).resolve())
    with contextlib.ExitStack() as locks:
        for output in sorted(outputs):
            locks.enter_context(lock_output(output))
        scored = score_questions(ranker, questions, progress)
        begin = time.perf_counter()
        configurations = scored.evaluate(drops)
        seconds = time.perf_counter() - begin
        marked = None
        if picture:
            before_last = len(exits) - 1
            at_ratio = scored.evaluate([(ratio,) * before_last for ratio in MARKED])
            marked = dict(zip([f"drop ratio {ratio}" for ratio in MARKED], at_ratio))
        front = write_front(folder, configurations, metric, exit_columns(exits), marked)
        picked = None
        if limits:
            configuration = pick(configurations, metric, **limits)
            record = tuning_record(chosen_by(metric, limits), data, filter, prepared)
            picked = _store(run, ranker, questions, configuration, record, progress)
    return Tuning(
        exits,
        len(questions),
        seconds,
        configurations,
        front,
        folder,
        picked,
        truncated_questions=prepared.truncated,
        skipped_questions=prepared.skipped,
    )


def write_tuned(
    run: PathLike, configuration: Configuration, record: Dict[str, Any]
) -> pathlib.Path:
    """Store a configuration in a run, for `wqa.systems.run_directory.read_tuned`.

    Parameters
    ----------
    run : str or path-like
        Run directory.
    configuration : Configuration
        Drop ratios, with their cost and metrics.
    record : dict
        Further fields of the file: the questions, the limit and the times.

    Returns
    -------
    pathlib.Path
        The file, ``tuned.json`` in the run directory.
    """
    path = pathlib.Path(run) / "tuned.json"
    check_file(path, ("drop_ratio", "cost", "metrics"))
    values = {
        "drop_ratio": list(configuration.ratios),
        "cost": configuration.cost,
        "paper_cost": configuration.paper_cost,
        "metrics": configuration.metrics,
        **record,
    }
    write_json(path, values)
    return path


def _exits_of(ranker: Ranker, run: PathLike) -> Tuple[int, ...]:
    capabilities = ranker.capabilities
    if len(capabilities.exits) > 1:
        return capabilities.exits
    raise OptionError(
        "run",
        f"{run}, {capabilities.kind} ({capabilities.system})",
        "a run with several exits, as a cascade has",
    )


def _grid(
    ratios: Sequence[float], exits: int, place_exits: Optional[int], needs_full: bool
) -> List[Tuple[float, ...]]:
    """What each configuration drops; a loss also needs the one that drops nothing."""
    if place_exits is None:
        drops = full_grid(ratios, exits)
    else:
        drops = placements(ratios, exits, place_exits)
    nothing = (0.0,) * (exits - 1)
    if needs_full and nothing not in drops:
        drops.append(nothing)
    return drops


def _store(
    run: PathLike,
    ranker: Ranker,
    questions: Sequence[Question],
    configuration: Configuration,
    record: Dict[str, Any],
    progress: bool,
) -> Picked:
    """Time a configuration beside ratio 0, and write it."""
    settings = {"tuned": {"drop_ratio": configuration.ratios}, "0": {}}
    turns = list(take_turns(ranker, questions, settings, TURNS, progress=progress))
    seconds = min(turn["tuned"].seconds for turn in turns)
    seconds_of_ratio_0 = min(turn["0"].seconds for turn in turns)
    times = {"seconds": seconds, "seconds_of_ratio_0": seconds_of_ratio_0}
    path = write_tuned(run, configuration, {**record, **times})
    return Picked(configuration, seconds, seconds_of_ratio_0, path)
