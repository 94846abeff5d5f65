"""A tokenized corpus on disk, memory-mapped when it is read.

A store is a folder of arrays (see `wqa.io.arrays`), those of `wqa.text.tokenized`. Its
``meta.json`` holds the digests of the corpus and of the tokenizer, the length limit, the option for
over-long questions, and counts.

The option does not matter where it changed nothing: such a store is that of each option.
"""

from __future__ import annotations

import pathlib
from typing import Any, Dict, Iterator, Mapping, Optional

import numpy as np

from wqa.data.formats import data_digest, read_questions
from wqa.data.ir_names import is_ir_name
from wqa.data.partitions import Partition, PartitionReader, partitions_of, question_size
from wqa.data.parts import Arrays, PartTask, run_whole
from wqa.errors import DataError
from wqa.io.arrays import (
    ArrayFolder,
    ArrayWriter,
    Output,
    check_made_with,
    write_arrays,
)
from wqa.io.files import PathLike
from wqa.io.progress import with_bar
from wqa.text.inputs import PairInputs
from wqa.text.long_questions import naming_file
from wqa.text.tokenized import COUNTS, TokenizedPairs, array_types, tokenize_pairs

#: Changes whenever older stores can no longer be read.
FORMAT = 1


def is_store(path: PathLike) -> bool:
    """Whether a path names a store rather than a file of questions.

    Parameters
    ----------
    path : str or path-like
        The path of a corpus.

    Returns
    -------
    bool
        True for a folder, and for a name that ends in ``.store``.
    """
    return pathlib.Path(path).is_dir() or str(path).endswith(".store")


#: Numbers of questions that the option for over-long questions changed.
_CHANGED = ("truncated_questions", "skipped_questions")

_HINT = "make it with `wqa tokenize`"


class PairStore(TokenizedPairs):
    """A store, open for reading. Its arrays are memory-mapped.

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

    Raises
    ------
    DataError
        If the store is absent, incomplete, or truncated. The elements of its arrays are not read.
    """

    def __init__(self, path: PathLike) -> None:
        facts = ("vocab_size", "max_length", "questions", "pairs", *COUNTS)
        self._folder = ArrayFolder(path, FORMAT, "store", _HINT, facts)
        self.path = self._folder.path
        self.meta = self._folder.meta
        arrays = self._folder.arrays(array_types(self.meta["vocab_size"]))
        super().__init__(arrays, **{name: self.meta[name] for name in COUNTS})

    def check(self, inputs: PairInputs) -> None:
        """Read the whole store once, and refuse a damaged one or one of other inputs.

        Parameters
        ----------
        inputs : PairInputs
            What its pairs are to be assembled by.

        Raises
        ------
        DataError
            If the store was made with other inputs, or an array is not the one that was written.
        """
        self.check_fits(inputs)
        names = array_types(self.meta["vocab_size"])
        for name in with_bar(names, len(names), "checking", True, "array"):
            self._folder.check(name)

    def check_fits(self, inputs: PairInputs) -> None:
        """Refuse a store of another form, tokenizer, length limit or over-long questions' option.

        Parameters
        ----------
        inputs : PairInputs
            What its pairs are to be assembled by.

        Raises
        ------
        DataError
            If the store was made with another one.
        """
        if not inputs.joins_pairs:
            problem = "a store of pairs, whose candidates are cut to the room beside a question"
            expected = "texts, as questions and candidates are encoded apart"
            raise DataError(self.path, problem, expected, "give the corpus as canonical JSONL")
        hint = "tokenize the corpus again with this encoder and max_length"
        check_made_with(self.path, self.meta, _settings(inputs), hint)
        option = self.meta.get("long_questions")
        if option != inputs.long_questions and any(self.meta[name] for name in _CHANGED):
            counts = " and ".join(f"{self.meta[name]} {name}" for name in _CHANGED)
            found = f'made with long_questions="{option}", and holds {counts}'
            hint = f'set long_questions="{option}", or tokenize the corpus again'
            raise DataError(self.path, found, inputs.long_questions, hint)


def _settings(inputs: PairInputs) -> Dict[str, Any]:
    """Settings that a store depends on beside the corpus."""
    return {
        "tokenizer_sha256": inputs.tokenizer.fingerprint,
        "max_length": inputs.max_length,
        "vocab_size": inputs.tokenizer.vocab_size,
    }


def build_store(source: PathLike, out: PathLike, inputs: PairInputs) -> Dict[str, Any]:
    """Tokenize a corpus into a store; a build that was stopped continues.

    Parameters
    ----------
    source : str or path-like
        The corpus: labelled questions, canonical JSONL.
    out : str or path-like
        The folder to make. A whole store of the same corpus, tokenizer and length limit is kept as
        it is; any other content is refused.
    inputs : PairInputs
        Tokenizes the texts, cuts candidates to its length limit, and says what to do with over-long
        questions.

    Returns
    -------
    dict
        ``meta.json``: ``questions``, ``pairs``, ``blank`` (candidates without a token, which are
        left out), ``truncated``, ``long_questions`` (the option of ``inputs``),
        ``truncated_questions``, ``skipped_questions``, and more.

    Raises
    ------
    DataError
        If a line is not canonical, a candidate has no label, no pair is left, or ``out`` is a
        store of another corpus, tokenizer, length limit or option.
    QuestionTooLong
        If a question leaves too few tokens for its candidates and is neither truncated nor skipped.
    OptionError
        If ``out`` is a file, or a folder with other files.
    StorageError
        If the store cannot be written.
    OutputLocked
        If another process builds it.
    """
    if not is_ir_name(source) and not pathlib.Path(source).is_file():
        raise DataError(source, "there is no such file", "canonical JSONL", "check the path")
    return run_whole(_Tokenizing(str(source), str(out), inputs), progress=True)


class _Tokenizing(PartTask):
    """Tokenization of a corpus, in parts."""

    verb, unit = "tokenize", "candidate"

    def __init__(self, data: str, out: str, inputs: PairInputs) -> None:
        self.data, self.out = data, out
        self._inputs = inputs
        self.settings = {"source_sha256": data_digest(data), **_settings(inputs)}
        self._types = array_types(inputs.tokenizer.vocab_size)
        self._reader = PartitionReader(data)

    def loaded_settings(self) -> Dict[str, Any]:
        # Not among `settings`, as a whole store may fit several options.
        return {"long_questions": self._inputs.long_questions}

    def divide(self) -> Iterator[Partition]:
        divided = partitions_of(read_questions(self.data), question_size)
        return (partition for partition, _ in divided)

    def compute(self, partition: Partition) -> Arrays:
        questions = self._reader.read(partition)
        with naming_file(self.data):
            pairs = tokenize_pairs(questions, self._inputs, with_keys=True)
        counts = [getattr(pairs, name) for name in COUNTS]
        return {**pairs.arrays, "counts": np.array(counts, np.int64)}

    def destination(self) -> Output:
        return Output(self.out, FORMAT, "store", list(self._types))

    def finished(self, settings: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
        meta = super().finished(self.settings)
        if meta is not None:
            PairStore(self.out).check_fits(self._inputs)
        return meta

    def merge(self, settings: Mapping[str, Any], parts: Iterator[Arrays]) -> None:
        counts = np.zeros(len(COUNTS), np.int64)
        with write_arrays(self.destination(), self._types, settings) as writer:
            for arrays in parts:
                counts += arrays.pop("counts")
                _append(arrays, writer)
            questions, pairs = writer.count("question_ends"), writer.count("labels")
            if not pairs:
                raise DataError(self.data, "no candidate has a token", "at least one that has")
            facts = {"questions": questions, "pairs": pairs, **dict(zip(COUNTS, counts.tolist()))}
            writer.finish(facts)


def _append(arrays: Arrays, writer: ArrayWriter) -> None:
    """Append the arrays of a part; ends and indices are shifted by what the store holds."""
    shifts = {
        "question_ends": writer.count("question_tokens"),
        "candidate_ends": writer.count("candidate_tokens"),
        "question_of": writer.count("question_ends"),
    }
    for name, values in arrays.items():
        writer.append(name, values + shifts[name] if name in shifts else values)
