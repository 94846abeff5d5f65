"""Tuning of a run: tables, a picture, and the configuration that is stored in it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from wqa.data import DEFAULT_FILTER, Question, read_questions
from wqa.errors import OptionError
from wqa.evaluation.picture import check_matplotlib
from wqa.evaluation.rankers import questions_that_count
from wqa.inference.ranker import Ranker
from wqa.inference.timing import take_turns
from wqa.io.files import atomic_writer
from wqa.io.locks import lock_output
from wqa.systems.load import load_ranker
from wqa.tuning.configurations import (
    GRID,
    Configuration,
    check_grid,
    check_limits,
    full_grid,
    pareto_front,
    pick,
    placements,
)
from wqa.tuning.result import (
    Picked,
    Tuning,
    chosen_by,
    draw_configurations,
    exit_columns,
    tuning_record,
    write_configurations,
)
from wqa.tuning.scored import score_questions

PathLike = Union[str, "os.PathLike[str]"]
#: Drop ratios for all exits that the picture marks (Table 3).
MARKED = (0.3, 0.4, 0.5)
#: Number of turns of the picked ratios and of ratio 0; the fastest turn of each counts.
TURNS = 3


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
        front = pareto_front(configurations, metric)
        write_configurations(folder, configurations, front, exit_columns(exits))
        if picture:
            before_last = len(exits) - 1
            at_ratio = scored.evaluate([(ratio,) * before_last for ratio in MARKED])
            names = [f"drop ratio {ratio}" for ratio in MARKED]
            marked = dict(zip(names, at_ratio))
            draw_configurations(folder, configurations, front, marked, metric)
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
    values = {
        "drop_ratio": list(configuration.ratios),
        "cost": configuration.cost,
        "paper_cost": configuration.paper_cost,
        "metrics": configuration.metrics,
        **record,
    }
    with atomic_writer(path) as file:
        json.dump(values, file, indent=2)
        file.write("\n")
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
