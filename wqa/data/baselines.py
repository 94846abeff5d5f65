"""Names of baselines: rankers that need no training, by a rule or by a pretrained encoder."""

from __future__ import annotations

import os
import pathlib
import re
from typing import NamedTuple, Optional, Union

from wqa.config.encoders import SIMILARITIES
from wqa.errors import OptionError, shorten
from wqa.io.encoder_directories import INSTALLED

#: Names of the baselines, as they stand where a run is expected.
BASELINE_NAMES = (
    "rr",
    "wo",
    "wo+rr",
    "random:SEED",
    "bm25",
    "maxsim:ENCODER",
    "cosine:ENCODER",
    *INSTALLED,
)

#: Changes whenever the scores of a baseline change.
BASELINES_VERSION = 2

_RANDOM = "random"
_PLAIN = tuple(name for name in BASELINE_NAMES if ":" not in name and name not in INSTALLED)


class BaselineName(NamedTuple):
    """A baseline that is named in place of a run."""

    rule: str
    seed: int = 0
    encoder: str = ""

    @property
    def is_similarity(self) -> bool:
        """Whether it compares encodings of an encoder, which may come from a document cache."""
        return self.rule in SIMILARITIES

    def __str__(self) -> str:
        if self.is_similarity:
            return f"{self.rule}:{self.encoder}"
        return f"{self.rule}:{self.seed}" if self.rule == _RANDOM else self.rule


def parse_baseline(
    run: Union[str, os.PathLike[str]], folder: Union[str, os.PathLike[str]] = ""
) -> Optional[BaselineName]:
    """Parse the name of a baseline."""
    name = os.fspath(run)
    rule, colon, argument = name.partition(":")
    if name not in (*_PLAIN, *INSTALLED) and rule not in (_RANDOM, *SIMILARITIES):
        return None
    if _exists(pathlib.Path(folder) / name):
        return None
    if name in INSTALLED:
        return BaselineName("maxsim", encoder=name)
    if rule in SIMILARITIES:
        return _parse_similarity(rule, argument, pathlib.Path(folder))
    if rule != _RANDOM:
        return BaselineName(name)
    if colon and not re.fullmatch("[0-9]{1,18}", argument):
        raise OptionError("run", shorten(name), "random:SEED, a whole number from 0")
    return BaselineName(rule, int(argument or 0))


def _parse_similarity(rule: str, encoder: str, folder: pathlib.Path) -> BaselineName:
    if not encoder:
        expected = f"{rule}:ENCODER, such as {rule}:{next(iter(INSTALLED))}"
        raise OptionError("run", rule, expected)
    if _exists(folder / encoder):
        encoder = os.fspath(folder / encoder)
    return BaselineName(rule, encoder=encoder)


def _exists(path: pathlib.Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False
