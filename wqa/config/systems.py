"""What a paper brings: the record of a system, and the fields of its configuration."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Any, Dict, Tuple


def option(default: Any, text: str, chosen: str = "") -> Any:
    """Create a field with the help text of its option."""
    return dataclasses.field(default=default, metadata={"help": text, "chosen": chosen})


def without_option(default: Any) -> Any:
    """Create a field that has no option: a training fills it in, or a system has it fixed."""
    return dataclasses.field(default=default, metadata={"option": False})


#: Description of what a run computes, by `wqa.models.Network.computes`, and how it is used.
KINDS: Dict[str, Tuple[str, str]] = {
    "scores": ("a ranker", "load it with load_ranker, or `wqa rank` and `wqa ask --ranker`"),
    "spans": ("a reader of spans", "load it with load_reader, or `wqa ask --reader`"),
    "labels": ("a classifier of claims", "load it with load_verifier, or `wqa verify`"),
}


@dataclasses.dataclass(frozen=True)
class System:
    """What a system brings. Its parts are named, and imported when they are first used.

    A part may also be given itself, in place of its full name.

    Parameters
    ----------
    name : str
        Name of the system, as `wqa train` takes it and ``config.json`` records it.
    help : str
        What it is, in a few words, for the help of `wqa train`.
    network : str
        Full name of the class of its network, a `wqa.models.Network`.
    task : str
        Full name of its `wqa.training.Task`.
    ranker : str
        Full name of the class that uses the trained network: a `wqa.inference.Ranker` where the
        network scores candidates. Where its head decides what it computes, a dict of such names by
        the keys of `KINDS`.
    inputs : str
        Full name of the class of its inputs, a `wqa.text.PairInputs`, by which exported graphs rank
        without the network.
    development : str
        Full name of the function that makes the evaluator on development data, for a network that
        does not score candidates; empty where there is none.
    checkpoint : str
        Full name of the form of its authors' file of tensors; empty where there is none.
    directory : str
        Full name of the form of a directory in Hugging Face's form that holds its network; empty
        for none.
    """

    name: str
    help: str
    network: Any
    task: Any
    ranker: Any = "wqa.inference.exit_ranker.CascadeRanker"
    inputs: Any = "wqa.text.PairInputs"
    development: Any = ""
    checkpoint: Any = ""
    directory: Any = ""

    def network_type(self) -> Any:
        """Class of the network, whose ``Config`` has the options of the system."""
        return import_part(self.network)

    def task_type(self) -> Any:
        """Class of the task."""
        return import_part(self.task)

    def ranker_type(self, computes: str = "scores") -> Any:
        """Class of what uses a network that computes this, a key of `KINDS`, or None."""
        is_one = not isinstance(self.ranker, dict)
        return import_part(self.ranker if is_one else self.ranker.get(computes))

    def part(self, name: str) -> Any:
        """Any other part, by the name of its field; None where the system has none."""
        return import_part(getattr(self, name))


def import_part(part: Any) -> Any:
    """Import a part of a system by its full name; None for an empty name.

    A part itself stays as it is.
    """
    if not isinstance(part, str) or not part:
        return part or None
    module, _, name = part.rpartition(".")
    return getattr(import_module(module), name)
