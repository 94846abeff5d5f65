"""The record of a system: what a paper brings, by the names of its parts."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Any, Dict, Tuple

#: Description of what a run computes, by `wqa.models.Network.computes`, and how it is used.
KINDS: Dict[str, Tuple[str, str]] = {
    "scores": ("a ranker", "load it with load_ranker, or `wqa rank` and `wqa answer --ranker`"),
    "spans": ("a reader of spans", "load it with load_reader, or `wqa answer --reader`"),
    "paragraphs": (
        "a joint model that is pre-trained",
        "start the training of a joint model from it, with --init",
    ),
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
        network scores candidates.
    development : str
        Full name of the function that makes the evaluator on development data, for a network that
        does not score candidates; empty where there is none.
    checkpoint : str
        Full name of the form of its authors' file of tensors; empty where there is none.
    directory : str
        Full name of the form of its authors' directory in Hugging Face's form; empty for none.
    """

    name: str
    help: str
    network: Any
    task: Any
    ranker: Any = "wqa.inference.exit_ranker.CascadeRanker"
    development: Any = ""
    checkpoint: Any = ""
    directory: Any = ""

    def network_type(self) -> Any:
        """Class of the network, whose ``Config`` has the options of the system."""
        return _imported(self.network)

    def task_type(self) -> Any:
        """Class of the task."""
        return _imported(self.task)

    def ranker_type(self) -> Any:
        """Class of what uses the network, or None."""
        return _imported(self.ranker)

    def development_factory(self) -> Any:
        """Function that makes the evaluator on development data, or None."""
        return _imported(self.development)

    def checkpoint_layout(self) -> Any:
        """Form of its authors' file of tensors, or None."""
        layout = _imported(self.checkpoint)
        return layout() if layout else None

    def directory_layout(self) -> Any:
        """Form of its authors' directory in Hugging Face's form, or None."""
        layout = _imported(self.directory)
        return layout() if layout else None


def _imported(part: Any) -> Any:
    """Import a part by its full name; None for an empty name. A part itself stays as it is."""
    if not isinstance(part, str):
        return part
    if not part:
        return None
    module, _, name = part.rpartition(".")
    return getattr(import_module(module), name)
