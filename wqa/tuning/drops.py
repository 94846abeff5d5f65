"""Drops of a run or a sequence, chosen on development questions.

Which drop ratios the exits of a cascade have (Soldaini and Moschitti 2020, section 5.5); how many
candidates each ranker of a sequence hands on (section 3.2; Bonadiman and Moschitti 2020, section
5.4). Each candidate is scored once, and all configurations are evaluated from these scores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
from typing import Any, Dict, List, Optional, Sequence, Tuple

from wqa.config import read_json
from wqa.data import DEFAULT_FILTER, read_questions
from wqa.data.probe import DESCRIPTIONS, probe, ranker_file_kind
from wqa.errors import OptionError, RunDirectoryError, check_choice, check_range, shorten
from wqa.evaluation import METRICS
from wqa.evaluation.rankers import questions_that_count
from wqa.evaluation.report import write_rows
from wqa.inference.dropping import Drop
from wqa.inference.ranker import Capabilities
from wqa.io.files import PathLike, lock_output, write_json
from wqa.systems.load import load_ranker
from wqa.text import naming_file
from wqa.tuning.replay import Configuration, Drops, ScoredQuestions, tuning_record

#: The grid of section 5.5.
GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
#: Numbers of candidates that a ranker of a sequence may keep.
KEEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)


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
        picked = self.picked and {**self.picked.row(self.columns), "file": str(self.path)}
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
    metric: str = "map",
    max_cost: Optional[float] = None,
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
        Drop ratios that an exit may have, `GRID` by default; for a sequence, numbers of candidates
        that a ranker may keep, `KEEPS` by default.
    metric : {"map", "mrr", "p@1", "ndcg@10"}
        Metric by which configurations are compared.
    max_cost, max_loss : float, optional
        Pick the best configuration up to a cost relative to the full encoder or the last ranker, or
        the cheapest whose metric is at most so much below that with nothing dropped.
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
        If an option does not fit, there is a single exit or ranker, or all cost more.
    RunDirectoryError
        If there is no run and no file of a sequence.
    DataError
        If a candidate has no label, or all questions are over-long and skipped.
    QuestionTooLong
        If a question is over-long, and neither truncated nor skipped.
    OutputLocked
        If another process writes to the run, the file or the folder.
    """
    check_choice("metric", metric, METRICS)
    given = {"max_cost": max_cost, "max_loss": max_loss}
    limits = {name: value for name, value in given.items() if value is not None}
    if len(limits) > 1:
        raise OptionError(" and ".join(limits), "together", "one of them")
    for name, value in limits.items():
        check_range(name, value, 0.0)
    source = probe(run)
    path, file_kind = source.path, ranker_file_kind(run)
    # Before the lock, which makes folders.
    if source.kind in ("", "baseline") or file_kind == "ensemble":
        problem = "an ensemble" if file_kind else DESCRIPTIONS[source.kind]
        expected = "a run with several exits, or the .json file of a sequence"
        raise RunDirectoryError(run, problem, expected)
    is_sequence = file_kind == "sequence"
    for name, replayed in {"pool": "question", "long_candidates": "truncate"}.items():
        is_replayed = options.get(name, replayed) == replayed
        if not is_replayed and not (is_sequence and name == "pool"):
            raise OptionError(name, options[name], f"{replayed}, for which drops are replayed")
    choices = _choices(grid, is_sequence)
    with naming_file(data):
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
        columns, drops = _drops(path, ranker.capabilities, choices, most)
        nothing = (Drop(),) * len(drops[0])
        if max_loss is not None and nothing not in drops:
            drops.append(nothing)
        with naming_file(data):
            prepared = ranker.prepare(judged)
        configurations = ScoredQuestions(ranker, prepared.questions, progress).evaluate(drops)
        front = pareto_front(configurations, metric)
        _write(folder / "configurations.tsv", configurations, columns)
        _write(folder / "pareto.tsv", front, columns)
        picked, stored = None, None
        if limits:
            picked = pick(configurations, metric, **limits)
            record = tuning_record({"metric": metric, **limits}, data, filter, prepared)
            stored = _store(path, picked, record)
    count = len(prepared.questions)
    return Tuning(count, configurations, front, columns, folder, picked, stored, **prepared.counts)


def _choices(grid: Optional[Sequence[float]], is_sequence: bool) -> List[Drop]:
    """What each stage may drop, in ascending order of the grid."""
    if grid is None:
        grid = KEEPS if is_sequence else GRID
    for value in grid:
        check_range("grid", value, 0.0)
    values = sorted(set(grid))
    if not values:
        raise OptionError("grid", "nothing", "at least one number")
    for value in values:
        if is_sequence and (value < 1 or value % 1):
            raise OptionError("grid", shorten(value), "whole numbers of candidates to keep")
        if not is_sequence and not 0 <= value < 1:
            raise OptionError("grid", shorten(value), "drop ratios from 0 to below 1")
    return [Drop(keep=int(value)) if is_sequence else Drop(float(value)) for value in values]


def _drops(
    path: pathlib.Path, capabilities: Capabilities, choices: Sequence[Drop], most: int
) -> Tuple[Tuple[str, ...], List[Drops]]:
    """Columns of the drops, and what each configuration drops."""
    if not capabilities.rankers:
        exits = capabilities.exits
        if len(exits) < 2:
            problem = f"{path}, a ranker without several exits ({capabilities.system})"
            raise OptionError("run", problem, "a run with several exits, as a cascade has")
        columns = tuple(f"exit_{layer}" for layer in exits[:-1])
        return columns, list(itertools.product(choices, repeat=len(exits) - 1))
    stages = len(capabilities.rankers)
    if stages < 2:
        raise OptionError("run", f"{path}, a sequence of one ranker", "at least two rankers")
    columns = tuple(f"keep_{number}" for number in range(1, stages))
    kept = [drop for drop in choices if drop.keep < most]
    return columns, list(itertools.product([*kept, Drop()], repeat=stages - 1))


def pareto_front(
    configurations: Sequence[Configuration], metric: str = "map"
) -> List[Configuration]:
    """Configurations that no other configuration beats.

    One configuration beats another if it costs no more and is better, or costs less and is as
    good.

    Parameters
    ----------
    configurations : sequence of Configuration
        Configurations of the grid.
    metric : str
        Name of the metric by which they are compared.

    Returns
    -------
    list of Configuration
        The Pareto front, by ascending cost.
    """

    def by_cost(configuration: Configuration) -> Tuple:
        value = configuration.metrics[metric]
        return configuration.cost, -value, configuration.paper_cost, configuration.drops

    front: List[Configuration] = []
    for configuration in sorted(configurations, key=by_cost):
        if not front or configuration.metrics[metric] > front[-1].metrics[metric]:
            front.append(configuration)
    return front


def pick(
    configurations: Sequence[Configuration],
    metric: str = "map",
    max_cost: Optional[float] = None,
    max_loss: float = 0.0,
) -> Configuration:
    """Pick a configuration of the Pareto front.

    Parameters
    ----------
    configurations, metric
        As `pareto_front` takes them.
    max_cost : float, optional
        Greatest cost; the best configuration up to it is picked.
    max_loss : float
        Without ``max_cost``, greatest loss of the metric beside the configuration that drops
        nothing, which is one of the configurations; the cheapest that loses no more is picked.

    Returns
    -------
    Configuration
        Picked configuration.

    Raises
    ------
    OptionError
        If all configurations cost more.
    """
    front = pareto_front(configurations, metric)
    if max_cost is not None:
        fits = [configuration for configuration in front if configuration.cost <= max_cost]
        if not fits:
            cheapest = f"at least {front[0].cost:.4f}, the cheapest configuration's"
            raise OptionError("max_cost", max_cost, cheapest)
        return fits[-1]
    full = next(row for row in configurations if not row.discards)
    # The same figures summed in another order may differ in the last bits.
    least = full.metrics[metric] - max_loss - 1e-12
    return next(row for row in front if row.metrics[metric] >= least)


def _write(path: pathlib.Path, configurations: Sequence[Configuration], columns: Any) -> None:
    rows = [configuration.row(columns) for configuration in configurations]
    for row in rows:
        row.update((name, f"{value:.6g}") for name, value in row.items() if value != str(value))
    write_rows(path, rows)


def _store(path: pathlib.Path, picked: Configuration, record: Dict[str, Any]) -> pathlib.Path:
    """Write a configuration to the run or the sequence; returns the file."""
    figures = {"cost": picked.cost, "paper_cost": picked.paper_cost, "metrics": picked.metrics}
    values = {**figures, **record}
    if path.is_dir():
        path = path / "tuned.json"
        values = {"drop_ratio": [*(drop.ratio for drop in picked.drops), 0.0], **values}
    else:
        content = read_json(path)
        content.pop("drop_ratio", None)
        content["keep"] = [drop.keep or None for drop in picked.drops]
        values = {**content, "tuned": values}
    write_json(path, values)
    return path
