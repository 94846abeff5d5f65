"""Drops of a run or a sequence, chosen on development questions.

Which drop ratios the exits of a cascade have, or which exits it uses (Soldaini and Moschitti 2020,
sections 5.5 and 6); what each ranker of a sequence hands on (section 3.2; Bonadiman and Moschitti
2020, section 5.4). Each candidate is scored once, and all configurations are evaluated from these
scores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from typing import Any, Dict, List, Optional, Sequence, Tuple

from wqa.config import read_json
from wqa.data import DEFAULT_FILTER, read_questions
from wqa.data.probe import DESCRIPTIONS, probe
from wqa.data.ranker_files import ranker_file_kind
from wqa.errors import OptionError, RunDirectoryError, shorten
from wqa.evaluation.rankers import questions_that_count
from wqa.evaluation.report import write_rows
from wqa.inference.dropping import Drop
from wqa.inference.ranker import Capabilities
from wqa.io.files import PathLike, lock_output, write_json
from wqa.systems.load import load_ranker
from wqa.tuning.configurations import (
    GRID,
    KEEPS,
    Configuration,
    Drops,
    check_limits,
    full_grid,
    pareto_front,
    pick,
    placements,
    tuning_record,
)
from wqa.tuning.replay import ScoredQuestions


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Result of tuning the drops of a run or a sequence.

    Attributes
    ----------
    questions : int
        Number of questions that were scored.
    configurations, front : list of Configuration
        All evaluated configurations, and their Pareto front, by ascending cost.
    columns : tuple of str
        Names of the columns for the drops, in tables.
    out : pathlib.Path
        Folder of the tables.
    picked : Configuration or None
        Configuration that was picked; None without a limit.
    path : pathlib.Path or None
        File that stores it: one in the run directory, or that of the sequence.
    truncated_questions, skipped_questions : int
        Number of over-long questions that were truncated, and that were left out.
    """

    questions: int
    configurations: List[Configuration]
    front: List[Configuration]
    columns: Tuple[str, ...]
    out: pathlib.Path
    picked: Optional[Configuration] = None
    path: Optional[pathlib.Path] = None
    truncated_questions: int = 0
    skipped_questions: int = 0

    def to_dict(self) -> Dict[str, Any]:
        """Counts, the Pareto front and what was picked, in types of JSON."""
        picked = None
        if self.picked is not None:
            picked = {**self.picked.row(self.columns), "file": str(self.path)}
        return {
            "questions": self.questions,
            "configurations": len(self.configurations),
            "out": str(self.out),
            "front": [configuration.row(self.columns) for configuration in self.front],
            "picked": picked,
        }


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
    filter: str = DEFAULT_FILTER,
    progress: bool = False,
    **options: Any,
) -> Tuning:
    """Choose what the exits of a run, or the rankers of a sequence, drop.

    All configurations are written to ``configurations.tsv`` and ``pareto.tsv``. With a limit, a
    configuration is picked and stored: in the run as ``tuned.json``, which
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
        Folder of the tables; by default ``tune`` in the run directory, or the file's name with
        ``.tune`` in place of ``.json``.
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
    RunDirectoryError
        If there is no run and no file of a sequence.
    DataError
        If a candidate has no label, or all questions are over-long and skipped.
    QuestionTooLong
        If a question is over-long, and neither truncated nor skipped.
    OutputLocked
        If another process writes to the run, the file or the folder.
    """
    limits = check_limits(max_cost=max_cost, min_metric=min_metric, max_loss=max_loss)
    source = probe(run)
    if source.kind in ("", "baseline"):  # before the lock, which makes folders
        expected = "a run with several exits, or the .json file of a sequence"
        raise RunDirectoryError(run, DESCRIPTIONS[source.kind], expected)
    path = source.path
    is_sequence = ranker_file_kind(path) == "sequence"
    if is_sequence and place_exits is not None:
        raise OptionError("place_exits", "with a sequence", "a run with several exits")
    if keeps is not None and not is_sequence:
        raise OptionError("keeps", "with a run", "the .json file of a sequence; for a run the grid")
    choices = _choices(keeps, grid, is_sequence)
    judged = questions_that_count(read_questions(data), filter)
    folder = pathlib.Path(out or (path.with_suffix(".tune") if is_sequence else path / "tune"))
    outputs = {folder if out or is_sequence else path}
    if limits or is_sequence:
        outputs.add(path)
    with contextlib.ExitStack() as locks:
        for output in sorted({output.resolve() for output in outputs}):
            locks.enter_context(lock_output(output))
        ranker = load_ranker(path, **options)
        most = max(len(question.candidates) for question in judged)
        columns, drops = _drops(path, ranker.capabilities, choices, place_exits, most)
        nothing = (Drop(),) * len(drops[0])
        if max_loss is not None and nothing not in drops:
            drops.append(nothing)
        prepared = ranker.prepare(judged)
        configurations = ScoredQuestions(ranker, prepared.questions, progress).evaluate(drops)
        front = pareto_front(configurations, metric)
        _write(folder / "configurations.tsv", configurations, columns)
        _write(folder / "pareto.tsv", front, columns)
        result = Tuning(
            len(prepared.questions),
            configurations,
            front,
            columns,
            folder,
            truncated_questions=prepared.truncated,
            skipped_questions=prepared.skipped,
        )
        if not limits:
            return result
        picked = pick(configurations, metric, **limits)
        limits = {name.replace("min_metric", "least"): value for name, value in limits.items()}
        record = tuning_record({"metric": metric, **limits}, data, filter, prepared)
        return dataclasses.replace(result, picked=picked, path=_store(path, picked, record))


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
    for ratio in grid or ():
        if not 0 <= ratio < 1:
            raise OptionError("grid", shorten(ratio), "drop ratios from 0 up to, not including, 1")
    choices = [Drop(keep=number) for number in sorted(set(keeps or ()))]
    choices += [Drop(float(ratio)) for ratio in sorted(set(grid or ()))]
    if not choices:
        raise OptionError("grid" if keeps is None else "keeps", "nothing", "at least one")
    return choices


def _drops(
    path: pathlib.Path,
    capabilities: Capabilities,
    choices: Sequence[Drop],
    place_exits: Optional[int],
    most: int,
) -> Tuple[Tuple[str, ...], List[Drops]]:
    """Columns of the drops, and what each configuration drops."""
    if not capabilities.rankers:
        exits = capabilities.exits
        if len(exits) < 2:
            problem = f"{path}, {capabilities.kind} ({capabilities.system})"
            raise OptionError("run", problem, "a run with several exits, as a cascade has")
        columns = tuple(f"exit_{layer}" for layer in exits[:-1])
        if place_exits is not None:
            return columns, placements(choices, len(exits), place_exits)
        return columns, full_grid(choices, len(exits))
    stages = len(capabilities.rankers)
    if stages < 2:
        raise OptionError("run", f"{path}, a sequence of one ranker", "at least two rankers")
    kinds = []
    if any(drop.keep for drop in choices):
        kinds.append("keep")
    if not all(drop.keep for drop in choices):
        kinds.append("drop_ratio")
    columns = tuple(f"{kind}_{number}" for number in range(1, stages) for kind in kinds)
    kept = [drop for drop in choices if drop.discards and drop.keep < most]
    return columns, full_grid([*kept, Drop()], stages)


def _write(path: pathlib.Path, configurations: Sequence[Configuration], columns: Any) -> None:
    rows = []
    for configuration in configurations:
        row = configuration.row(columns)
        for name, value in row.items():
            row[name] = value if isinstance(value, str) else f"{value:.6g}"
        rows.append(row)
    write_rows(path, rows)


def _store(path: pathlib.Path, picked: Configuration, record: Dict[str, Any]) -> pathlib.Path:
    """Write a configuration to the run or the sequence; returns the file."""
    figures = {"cost": picked.cost, "paper_cost": picked.paper_cost, "metrics": picked.metrics}
    values = {**figures, **record}
    if path.is_dir():
        path = path / "tuned.json"
        values = {"drop_ratio": [*(drop.ratio for drop in picked.drops), 0.0], **values}
    else:
        kept = read_json(path)
        for name in ("drop_ratio", "keep"):
            kept.pop(name, None)
        values = {**kept, **picked.stored(), "tuned": values}
    write_json(path, values)
    return path
