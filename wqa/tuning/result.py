"""What tuning leaves: its configurations, tables of them, and a record of the choice."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from wqa.data.formats import data_digest
from wqa.evaluation.picture import draw_costs
from wqa.evaluation.report import write_rows
from wqa.io.files import PathLike
from wqa.text import PreparedQuestions
from wqa.tuning.configurations import Configuration, as_row


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


def write_configurations(
    folder: pathlib.Path,
    configurations: Sequence[Configuration],
    front: Sequence[Configuration],
    columns: Sequence[str],
) -> None:
    """Write ``configurations.tsv`` and ``pareto.tsv``."""
    for name, shown in (("configurations", configurations), ("pareto", front)):
        rows = []
        for configuration in shown:
            row = as_row(configuration, columns)
            rows.append({column: _cell(value) for column, value in row.items()})
        write_rows(folder / f"{name}.tsv", rows)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def draw_configurations(
    folder: pathlib.Path,
    configurations: Sequence[Configuration],
    front: Sequence[Configuration],
    marked: Mapping[str, Configuration],
    metric: str,
) -> None:
    """Draw ``figure.png``."""

    def point(configuration: Configuration) -> Tuple[float, float]:
        return configuration.cost, configuration.metrics[metric]

    draw_costs(
        folder / "figure.png",
        [point(configuration) for configuration in configurations],
        [point(configuration) for configuration in front],
        {name: point(configuration) for name, configuration in marked.items()},
        metric,
    )
