"""wqa: answer sentence selection with MXNet and GluonNLP.

The names that most programs need are here; each loads its package when it is first used, and MXNet
where it needs a network. `wqa.systems`, `wqa.inference`, `wqa.data`, `wqa.evaluation` and
`wqa.training` hold all others.
"""

from importlib import import_module
from typing import Any, List

__version__ = "0.3.0"

#: Names of this package, and where they are defined.
_NAMES = {
    "Candidate": "wqa.data",
    "Question": "wqa.data",
    "ask": "wqa.systems.ask",
    "evaluate": "wqa.evaluation",
    "load_ranker": "wqa.systems.load",
    "load_reader": "wqa.systems.run_directory",
    "load_verifier": "wqa.systems.run_directory",
    "rank_all": "wqa.systems.load",
    "read_questions": "wqa.data",
    "save_run": "wqa.systems.saving",
    "train": "wqa.systems.train",
}

__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_NAMES[name]), name)


def __dir__() -> List[str]:
    return [*globals(), *_NAMES]
