"""Fields of configurations that become options of the command line."""

from __future__ import annotations

import dataclasses
from typing import Any


def option(default: Any, text: str, chosen: str = "") -> Any:
    """Create a field with the help text of its option."""
    return dataclasses.field(default=default, metadata={"help": text, "chosen": chosen})


def without_option(default: Any) -> Any:
    """Create a field that has no option: a training fills it in, or a system has it fixed."""
    return dataclasses.field(default=default, metadata={"option": False})
