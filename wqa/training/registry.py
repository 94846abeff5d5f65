"""Tasks by system."""

from __future__ import annotations

from typing import Dict, Type

from wqa.errors import OptionError, shorten
from wqa.training.cascade import ExitTask
from wqa.training.task import Task

#: Task of each system. A new system adds its own.
TASKS: Dict[str, Type[Task]] = {"cascade": ExitTask, "pairwise": ExitTask}


def task_type(system: str) -> Type[Task]:
    """Look up a system's task.

    Parameters
    ----------
    system : str
        A key of `TASKS`.

    Returns
    -------
    type

    Raises
    ------
    OptionError
        If the system is unknown.
    """
    if system not in TASKS:
        raise OptionError("system", shorten(system), "one of " + ", ".join(TASKS))
    return TASKS[system]
