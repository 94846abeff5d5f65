"""Tasks by system."""

from __future__ import annotations

from typing import Dict, Type

from wqa.errors import check_choice
from wqa.training.cascade import CascadeTask
from wqa.training.claims import ClaimTask
from wqa.training.dcbert import DCBERTTask
from wqa.training.exits import ExitTask
from wqa.training.lists import ListTask
from wqa.training.mhs import MHSTask
from wqa.training.mspp import MSPPTask
from wqa.training.paragraphs import ParagraphTask
from wqa.training.reader import ReaderTask
from wqa.training.task import Task

#: Task of each system; a new system adds an entry.
TASKS: Dict[str, Type[Task]] = {
    "cascade": CascadeTask,
    "pairwise": ExitTask,
    "mhs": MHSTask,
    "dcbert": DCBERTTask,
    "mspp": MSPPTask,
    "mspp_pretraining": ParagraphTask,
    "mspp_claims": ClaimTask,
    "reader": ReaderTask,
    "cosinet": ListTask,
    "compare_aggregate": ListTask,
}


def task_type(system: str) -> Type[Task]:
    """Look up a system's task.

    Parameters
    ----------
    system : str
        Name of the system, a key of `TASKS`.

    Returns
    -------
    type
        Subclass of `Task`.

    Raises
    ------
    OptionError
        If the system is unknown.
    """
    check_choice("system", system, TASKS)
    return TASKS[system]
