"""Making a store: questions in, arrays appended, a journal that tells up to where they are good."""

from __future__ import annotations

import array
import json
import os
import pathlib
import shutil
import sys
from typing import IO, Any, Dict, Iterator, Optional, Union

import numpy as np
from tqdm import tqdm

from wqa.data import atomic_writer, read_questions, storage_errors
from wqa.data.files import sha256, sync_directory
from wqa.errors import DataError, OptionError, shorten
from wqa.text.encoding import PairEncoder
from wqa.text.store import FORMAT, PairStore, array_types, made_with

PathLike = Union[str, "os.PathLike[str]"]

#: Pairs between two entries of the journal.
JOURNAL_PAIRS = 100_000


def build_store(source: PathLike, out: PathLike, encoder: PairEncoder) -> Dict[str, Any]:
    """Tokenize a corpus into a store; a build that was stopped goes on.

    Parameters
    ----------
    source : str or path-like
        Labelled questions, canonical JSONL.
    out : str or path-like
        The folder to make. A whole store of the same corpus, tokenizer and length is left as it is;
        anything else that stands there is refused.
    encoder : PairEncoder

    Returns
    -------
    dict
        ``meta.json``: ``questions``, ``pairs``, ``blank`` (candidates without a token, which are
        left out), ``truncated``.

    Raises
    ------
    DataError
        If a line is not canonical or a candidate has no label, or another store stands in the way.
    OptionError
        If ``out`` is a file.
    StorageError
        If the store cannot be written; what was written stays, to go on from.
    """
    out, source = pathlib.Path(out), pathlib.Path(source)
    if out.is_file():
        raise OptionError("--out", f"{out}, a file", "a folder to make")
    made = {"source_sha256": _digest(source), **made_with(encoder)}
    partial = out.with_name(f".{out.name}.partial")
    if out.exists() and any(out.iterdir()):
        store = _whole(out)
        if store is None:
            shutil.rmtree(
                out
            )  # never whole under this name but for a copy that was cut off: made anew
        elif all(store.meta[name] == value for name, value in made.items()):
            return store.meta
        else:
            raise DataError(
                out,
                "holds a store of another corpus, tokenizer or --max-length",
                "an empty place",
                "delete it, or choose another --out",
            )
    with _Builder(partial, made) as builder:
        for question in tqdm(
            builder.rest(source),
            desc="tokenizing",
            unit="question",
            initial=builder.state["questions"],
            mininterval=0.5 if sys.stderr.isatty() else 20,
            delay=2,
            file=sys.stderr,
        ):
            builder.add(question, encoder)
        builder.finish(made)
    with storage_errors(out):
        if out.exists():
            out.rmdir()
        os.rename(partial, out)
        sync_directory(out.parent)
    return PairStore(out).meta


def _digest(source: pathlib.Path) -> str:
    if not source.is_file():
        raise DataError(source, "there is no such file", "canonical JSONL", "check the path")
    return sha256(source)


def _whole(path: pathlib.Path) -> Optional[PairStore]:
    if not (path / "meta.json").exists() and any(
        not file.name.endswith(".bin") for file in path.iterdir()
    ):
        raise OptionError("--out", f"{path}, a folder with other files", "a folder to make")
    try:
        return PairStore(path)
    except DataError:
        return None


class _Builder:
    """The arrays of a store, appended to; the journal tells up to where they are good."""

    def __init__(self, folder: pathlib.Path, made: Dict[str, Any]) -> None:
        self._folder, self._made, self._kinds = folder, made, array_types(made["vocab_size"])
        self._parts = {
            name: array.array("q") for name in self._kinds
        }  # far smaller than lists of numbers
        self.state: Dict[str, Any] = {
            "made": made,
            "questions": 0,
            "pairs": 0,
            "blank": 0,
            "truncated": 0,
            "question_end": 0,
            "candidate_end": 0,
            "files": dict.fromkeys(self._kinds, 0),
        }
        self._waiting = 0

    def __enter__(self) -> _Builder:
        try:
            stands = json.loads((self._folder / "journal.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            stands = {}
        with storage_errors(self._folder):
            if stands.get("made") == self._made and self._long_enough(stands["files"]):
                self.state = stands
            else:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder.mkdir(parents=True)
            self._files: Dict[str, IO[bytes]] = {}
            for name, size in self.state["files"].items():
                self._files[name] = open(self._folder / f"{name}.bin", "ab")
                self._files[name].truncate(size)  # what was written after the journal's last entry
        return self

    def _long_enough(self, sizes: Dict[str, int]) -> bool:
        paths = {name: self._folder / f"{name}.bin" for name in sizes}
        return all(
            path.exists() and path.stat().st_size >= sizes[name] for name, path in paths.items()
        )

    def __exit__(self, *_: Any) -> None:
        for file in self._files.values():
            file.close()

    def rest(self, source: pathlib.Path) -> Iterator[Any]:
        """Questions that are not in the store yet."""
        done = self.state["questions"]
        for number, question in enumerate(read_questions(source)):
            if number >= done:
                yield question

    def add(self, question: Any, encoder: PairEncoder) -> None:
        """Tokenize a question and its candidates."""
        if None in question.labels:
            raise DataError(
                f"question {shorten(question.id)}",
                "a candidate has no label",
                "a label, 0 or 1, on each candidate to train on",
            )
        first, rest, cut = encoder.segments(question.question, question.texts, question.id)
        state, parts = self.state, self._parts
        parts["question_tokens"].extend(first)
        state["question_end"] += len(first)
        parts["question_ends"].append(state["question_end"])
        for second, label, was_cut in zip(rest, question.labels, cut):
            if not second:
                state["blank"] += 1
                continue
            parts["candidate_tokens"].extend(second)
            state["candidate_end"] += len(second)
            parts["candidate_ends"].append(state["candidate_end"])
            parts["question_of"].append(state["questions"])
            parts["labels"].append(label)
            state["truncated"] += was_cut
        state["questions"] += 1
        self._waiting += len(rest)
        if self._waiting >= JOURNAL_PAIRS:
            self._flush()

    def _flush(self) -> None:
        with storage_errors(self._folder):
            self.state["pairs"] += len(self._parts["labels"])
            for name, values in self._parts.items():
                self._files[name].write(
                    np.array(values, dtype=np.int64).astype(self._kinds[name]).tobytes()
                )
                self._files[name].flush()
                os.fsync(self._files[name].fileno())
                self.state["files"][name] += len(values) * self._kinds[name].itemsize
                del values[:]
            with atomic_writer(self._folder / "journal.json") as file:
                json.dump(self.state, file)
        self._waiting = 0

    def finish(self, made: Dict[str, Any]) -> None:
        """Write the rest and ``meta.json``."""
        self._flush()
        counts = {name: self.state[name] for name in ("questions", "pairs", "blank", "truncated")}
        if not counts["pairs"]:
            raise DataError("--data", "no candidate with a token", "at least one")
        with atomic_writer(self._folder / "meta.json") as file:
            json.dump(
                {"format": FORMAT, **made, **counts, "files": self.state["files"]}, file, indent=2
            )
            file.write("\n")
        (self._folder / "journal.json").unlink()
