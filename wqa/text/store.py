"""A tokenized corpus on disk: tokenized once, memory-mapped ever after.

A store is a folder. ``meta.json`` tells with what it was made and how long each file is; the others
are bare arrays: the tokens of all questions and of all candidates one behind another, where each
ends, which question a candidate belongs to, and its label. A question's tokens are stored once,
however many candidates it has.

While it is being made the folder has another name, and ``journal.json`` tells how much of each file
is good; a build that was stopped goes on from there. A folder under its final name is whole, or it
is refused.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Dict, Union

import numpy as np

from wqa.errors import DataError, shorten
from wqa.text.encoding import PairEncoder

PathLike = Union[str, "os.PathLike[str]"]

#: Changes whenever older stores can no longer be read.
FORMAT = 1


def array_types(vocab_size: int) -> Dict[str, np.dtype]:
    """Types of a store's arrays, by name.

    Parameters
    ----------
    vocab_size : int
        Of the tokenizer; it settles how wide a token id is.

    Returns
    -------
    dict of str to numpy.dtype
    """
    token = np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
    return {
        "question_tokens": token,
        "question_ends": np.dtype("<i8"),
        "candidate_tokens": token,
        "candidate_ends": np.dtype("<i8"),
        "question_of": np.dtype("<i4"),
        "labels": np.dtype("i1"),
    }


def made_with(encoder: PairEncoder) -> Dict[str, Any]:
    """What of an encoder a store depends on, as ``meta.json`` has it.

    Parameters
    ----------
    encoder : PairEncoder

    Returns
    -------
    dict
    """
    return {
        "tokenizer_sha256": encoder.tokenizer.fingerprint,
        "max_length": encoder.max_length,
        "vocab_size": encoder.tokenizer.vocab_size,
    }


def is_store(path: PathLike) -> bool:
    """Whether a path names a store rather than a file of questions.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    bool
    """
    return pathlib.Path(path).is_dir() or str(path).endswith(".store")


class PairStore:
    """A store, open for reading.

    Parameters
    ----------
    path : str or path-like
        The folder.

    Attributes
    ----------
    meta : dict
    question_tokens, candidate_tokens : numpy.memmap
    question_ends, candidate_ends : numpy.memmap
        Where each one's tokens end.
    question_of, labels : numpy.memmap
        (N,) question and label of each pair.

    Raises
    ------
    DataError
        If it is absent, half written, or cut off.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = pathlib.Path(path)
        mend = f"make it: wqa tokenize --data FILE.jsonl --out {self.path} --encoder DIR"
        try:
            self.meta: Dict[str, Any] = json.loads(
                (self.path / "meta.json").read_text(encoding="utf-8")
            )
            files, version = self.meta["files"], self.meta["format"]
        except (OSError, ValueError, KeyError, TypeError):
            raise DataError(
                self.path,
                "is no store, or one that is not whole",
                "a folder that `wqa tokenize` wrote",
                mend,
            ) from None
        if version != FORMAT:
            raise DataError(self.path, f"a store of format {version}", f"format {FORMAT}", mend)
        for name, size in files.items():
            found = (
                (self.path / f"{name}.bin").stat().st_size
                if (self.path / f"{name}.bin").exists()
                else None
            )
            if found != size:
                raise DataError(
                    self.path / f"{name}.bin",
                    f"{found} bytes" if found is not None else "is missing",
                    f"{size} bytes",
                    "delete the folder and " + mend,
                )
        arrays = {
            name: np.memmap(self.path / f"{name}.bin", kind, "r")
            if files[name]
            else np.zeros(0, kind)
            for name, kind in array_types(self.meta["vocab_size"]).items()
        }
        self.question_tokens, self.question_ends = (
            arrays["question_tokens"],
            arrays["question_ends"],
        )
        self.candidate_tokens, self.candidate_ends = (
            arrays["candidate_tokens"],
            arrays["candidate_ends"],
        )
        self.question_of, self.labels = arrays["question_of"], arrays["labels"]

    def __len__(self) -> int:
        return len(self.labels)

    def check_fits(self, encoder: PairEncoder) -> None:
        """Refuse a store of another tokenizer or length limit.

        Parameters
        ----------
        encoder : PairEncoder

        Raises
        ------
        DataError
        """
        for name, wanted in made_with(encoder).items():
            if self.meta[name] != wanted:
                raise DataError(
                    self.path,
                    f"made with {name} {shorten(self.meta[name])}",
                    shorten(wanted),
                    "tokenize the corpus again with this encoder and --max-length",
                )

    def lengths(self, specials: int) -> np.ndarray:
        """Tokens of every pair.

        Parameters
        ----------
        specials : int
            Special tokens of a pair.

        Returns
        -------
        numpy.ndarray
            (N,), uint16.
        """
        of_questions = np.diff(self.question_ends, prepend=0)
        lengths = np.diff(self.candidate_ends, prepend=0).astype(np.uint16)
        lengths += (of_questions + specials).astype(np.uint16)[self.question_of]
        return lengths

    def question(self, number: int) -> np.ndarray:
        """Tokens of a question, by its number."""
        return self.question_tokens[
            self.question_ends[number - 1] if number else 0 : self.question_ends[number]
        ]

    def candidate(self, number: int) -> np.ndarray:
        """Tokens of a candidate, by the number of its pair."""
        return self.candidate_tokens[
            self.candidate_ends[number - 1] if number else 0 : self.candidate_ends[number]
        ]
