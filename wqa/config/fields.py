"""Fields of configurations that become options of the command line."""

from __future__ import annotations

import dataclasses
from typing import Any


def option(default: Any, text: str, chosen: str = "") -> Any:
    """Create a field with the help text of its option.

    Parameters
    ----------
    default : Any
        Default of the field.
    text : str
        Help text.
    chosen : str
        How a value is chosen where the default is None.

    Returns
    -------
    dataclasses.Field
    """
    return dataclasses.field(default=default, metadata={"help": text, "chosen": chosen})


def without_option(default: Any) -> Any:
    """Create a field that has no option: a training fills it in, or a system has it fixed.

    Parameters
    ----------
    default : Any
        Default of the field.

    Returns
    -------
    dataclasses.Field
    """
    return dataclasses.field(default=default, metadata={"option": False})
