"""Scores of candidates by a ranker, which teach another ranker: their keys and their folder.

A candidate is looked up by its key, a digest of its text, its question and its index, so that
scores of other data, or of an edited file, are never taken for those of the training data. The
folder is one of arrays (see `wqa.io.arrays`): ``keys`` and ``scores``, in the order of the
questions. Its ``meta.json`` holds the digests of the questions and of the ranker.
"""

from __future__ import annotations

import hashlib
from typing import Dict

import numpy as np

from wqa.data.records import Question
from wqa.io.arrays import ArrayFolder, Output
from wqa.io.files import PathLike

#: Changes whenever older folders can no longer be read.
FORMAT = 1

KIND = "folder of scores"

#: Element types of the arrays of a folder of scores, by name.
TYPES: Dict[str, np.dtype] = {"keys": np.dtype("<u8"), "scores": np.dtype("<f4")}

#: Counts in the ``meta.json`` of a folder of scores.
COUNTS = ("questions", "pairs", "blank", "truncated_questions", "skipped_questions")

_HINT = "make it with `wqa score`"


def candidate_keys(question: Question) -> np.ndarray:
    """Keys of a question's candidates.

    A key is the BLAKE2b digest, 8 bytes, of the question's id and text and the candidate's index
    and text.

    Parameters
    ----------
    question : Question
        Question with its candidates. Labels and document ids do not count.

    Returns
    -------
    numpy.ndarray
        (k,) keys by candidate, uint64.
    """
    start = hashlib.blake2b(delimited(question.id) + delimited(question.question), digest_size=8)
    digests = []
    for index, text in enumerate(question.texts):
        digest = start.copy()
        digest.update(b"%d " % index + delimited(text))
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), TYPES["keys"])


def delimited(text: str) -> bytes:
    """A text after its length, so that no two lists of texts have the same bytes."""
    content = text.encode("utf-8", "surrogatepass")
    return b"%d " % len(content) + content


class StoredScores:
    """A folder that `wqa score` wrote, open for reading. Its arrays are memory-mapped.

    Parameters
    ----------
    path : str or path-like
        The folder.

    Attributes
    ----------
    path : pathlib.Path
        The folder.
    meta : dict
        The content of its ``meta.json``.
    digest : str
        SHA-256 of the arrays, in hexadecimal.
    keys : numpy.ndarray
        (N,) key of each candidate, as `candidate_keys` computes it.
    scores : numpy.ndarray
        (N,) float32 log-odds; minus infinity for a candidate that is blank to the ranker.

    Raises
    ------
    DataError
        If the folder is absent, incomplete, damaged, of another version, or no folder of scores.
        All of it is read once.
    """

    def __init__(self, path: PathLike) -> None:
        folder = ArrayFolder(path, FORMAT, KIND, _HINT, COUNTS)
        self.path, self.meta = folder.path, folder.meta
        arrays = folder.arrays(TYPES)
        self.keys, self.scores = arrays["keys"], arrays["scores"]
        folder.check_lengths(arrays, dict.fromkeys(TYPES, self.meta["pairs"]))
        digest = hashlib.sha256()
        for name in arrays:
            folder.check(name)
            digest.update(self.meta["sha256"][name].encode("ascii"))
        self.digest = digest.hexdigest()

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Look candidates up.

        Parameters
        ----------
        keys : numpy.ndarray
            (M,) keys of the candidates.

        Returns
        -------
        numpy.ndarray
            (M,) index of each candidate in ``scores``; -1 for one that has no score.
        """
        if np.array_equal(keys, self.keys):
            return np.arange(len(keys))
        if not len(self.keys):
            return np.full(len(keys), -1)
        order = np.argsort(self.keys, kind="stable")
        after = np.searchsorted(self.keys, keys, sorter=order)
        nearest = np.minimum(after, len(order) - 1)
        indices = order[nearest]
        indices[self.keys[indices] != keys] = -1
        return indices


def scores_output(path: PathLike) -> Output:
    """The folder of scores that a command writes."""
    return Output(path, FORMAT, KIND, list(TYPES))
