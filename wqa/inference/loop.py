"""The one loop that scores texts: encode ahead of time, run in micro-batches, decode.

A thread encodes the next items while a group of them runs. The inputs of a group are sorted by
length and divided into micro-batches by the engine's budget of tokens, and results go back to the
items they belong to. Rankers, readers, verifiers and encoders of texts differ in the functions
that they hand in.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.engines.engine import Encodings, Engine, MicroBatch
from wqa.engines.inputs import EngineInputs
from wqa.engines.onnx.sessions import OnnxEngine
from wqa.errors import InputError
from wqa.inference.ranking import candidate_name, question_name, score_error

if TYPE_CHECKING:
    from wqa.engines.onednn.quantize import QuantizedLayers


def read_ahead(
    source: Iterable[Any], prepare: Callable[[Any], Tuple[Any, int]], limit: int
) -> Iterator[List[Any]]:
    """Read groups of items in a thread, while the caller works on the group before.

    ``prepare`` returns what is made of an item, and its size. A group ends before the item that
    exceeds the limit, so that groups depend on the items alone. An exception of the source, or of
    the preparation, is raised after the groups of all items before it. The thread is a daemon:
    where the source blocks, it does not keep the process alive.
    """
    groups: queue.Queue[Any] = queue.Queue(maxsize=1)
    ended = threading.Event()

    def put(entry: Any) -> None:
        if not ended.is_set():
            groups.put(entry)

    def read() -> None:
        """Put the groups, then None, or the exception that ended the source."""
        items: List[Any] = []
        total, last = 0, None
        try:
            for item in source:
                prepared, size = prepare(item)
                if items and total + size > limit:
                    put(items)
                    items, total = [], 0
                items.append(prepared)
                total += size
                if ended.is_set():
                    return
        except BaseException as error:  # noqa: B036 - the caller raises it
            last = error
        if items:
            put(items)
        put(last)

    threading.Thread(target=read, name="wqa look-ahead", daemon=True).start()
    try:
        for group in iter(groups.get, None):
            if isinstance(group, BaseException):
                raise group
            yield group
    finally:
        group = None  # no cycle with the traceback of an error
        ended.set()
        with contextlib.suppress(queue.Empty):
            groups.get_nowait()  # room for what the thread is putting; it puts nothing more


def build_engine(
    inputs: EngineInputs, config: EngineConfig, quantized: Optional[QuantizedLayers]
) -> Engine:
    """Build the engine of a network in memory, or of one in an exported folder."""
    if inputs.is_exported:
        return OnnxEngine(inputs, config)
    from wqa.engines.choice import build_engine as build  # needs MXNet

    return build(inputs, config, quantized)


def score_inputs(engine: Any, inputs: Sequence[Any], outputs: int) -> np.ndarray:
    """Outputs of a network of one stage, (inputs, outputs); the head runs once for all."""
    values = np.zeros((len(inputs), outputs))
    numbers, rows = [], []
    batches = micro_batches(engine, inputs, np.array([one.length for one in inputs], dtype=int))
    for batch, done in zip(batches, engine.run_all(batches)):
        numbers.append(batch.numbers)
        rows += done.rows
    if numbers:
        scores = engine.scores(0, np.concatenate(rows))
        values[np.concatenate(numbers)] = scores.reshape(-1, outputs)
    return values


def micro_batches(
    engine: Any, inputs: Sequence[Any], lengths: np.ndarray, next_store: Optional[Encodings] = None
) -> List[MicroBatch]:
    """Micro-batches of inputs of similar lengths, for a network of one stage.

    Shapes: `lengths` (inputs,).
    """
    order, batches = np.argsort(lengths, kind="stable"), []
    for indices in engine.plan(lengths[order]):
        batch = order[indices]
        own = [inputs[number] for number in batch]
        batches.append(MicroBatch([0], batch, own, next_store=next_store))
    return batches


def check_ids(
    inputs: Sequence[np.ndarray], rows: int, name_of: Callable[[int], Tuple[str, str]]
) -> None:
    """Check token ids, which engines use as indices of ``rows`` word embeddings.

    ``name_of`` gives the names of an input's question and candidate by its index.
    """
    if not len(inputs):
        return
    ids = np.concatenate(inputs)
    if ids.max(initial=0) >= rows or ids.min(initial=0) < 0:
        wrong = int(np.flatnonzero((ids < 0) | (ids >= rows))[0])
        ends = np.cumsum([len(input_ids) for input_ids in inputs])
        where, candidate = name_of(int(np.searchsorted(ends, wrong, side="right")))
        problem = f"token id {ids[wrong]}" + (f" with {candidate}" if candidate else "")
        expected = f"ids from 0 to {rows - 1}, the rows of the word embeddings"
        hint = "encode with the tokenizer of the network's encoder"
        raise InputError(where, problem, expected, hint)


class GroupPairs:
    """The pairs of a group of questions, numbered over the group, with their names."""

    def __init__(self, group: Sequence[Any]) -> None:
        self.all = [pair for encoded in group for pair in encoded.pairs]
        self.lengths = np.array([pair.length for pair in self.all], dtype=int)
        self.non_blank = np.array([not pair.empty for pair in self.all], dtype=bool)
        self.starts = np.cumsum([0] + [len(encoded.pairs) for encoded in group])
        self._questions = [encoded.question for encoded in group]

    def questions(self) -> Iterator[Tuple[int, int]]:
        """First pair of each question, and the one after its last."""
        return zip(self.starts, self.starts[1:])

    def name(self, pair: int) -> Tuple[str, str]:
        """Names of a pair's question and candidate."""
        index = int(np.searchsorted(self.starts, pair, side="right")) - 1
        question = self._questions[index]
        return question_name(question), candidate_name(question, int(pair - self.starts[index]))

    def check_lengths(self, lengths: np.ndarray, limit: Optional[int]) -> None:
        """Check the lengths of an input of all pairs."""
        if limit is not None and lengths.max(initial=0) > limit:
            name, candidate = self.name(int(lengths.argmax()))
            found = f"{lengths.max()} tokens with {candidate}"
            raise InputError(name, found, f"at most {limit}, the positions of the network")


def check_finite(scores: np.ndarray, name_of: Callable[[int], Tuple[str, str]]) -> None:
    """Refuse scores that are not finite; the error names the first of them."""
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        raise score_error(*name_of(int(wrong[0])), scores[wrong[0]])
