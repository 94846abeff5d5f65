"""The small corpus that was written for this project: 100 / 25 / 25 questions."""

from __future__ import annotations

import pathlib

from wqa.errors import OptionError, shorten

SPLITS = ("train", "dev", "test")


def builtin_path(split: str) -> pathlib.Path:
    """Path of a split of the built-in corpus.

    Parameters
    ----------
    split : {"train", "dev", "test"}
        The split.

    Returns
    -------
    pathlib.Path
        A canonical JSONL file.

    Raises
    ------
    OptionError
        If there is no such split.
    """
    if split not in SPLITS:
        raise OptionError("split", shorten(split), "one of " + ", ".join(SPLITS))
    return pathlib.Path(__file__).with_name(f"{split}.jsonl")
