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
from wqa.data import Candidate, Question
from wqa.engines.engine import Encodings, Engine, MicroBatch
from wqa.engines.inputs import EngineInputs
from wqa.engines.onnx.sessions import OnnxEngine
from wqa.errors import InputError, OptionError, check_choice
from wqa.inference.dropping import DropRatio, Keep
from wqa.inference.ranker import Ranker
from wqa.inference.ranking import Ranking, candidate_name, question_name, score_error

if TYPE_CHECKING:
    from wqa.engines.onednn.quantize import QuantizedLayers

#: Candidates that an exit compares: all of a question, or a batch of them.
POOLS = ("question", "batch")


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
    arguments = (source, prepare, limit, groups, ended)
    threading.Thread(target=_read, args=arguments, name="wqa look-ahead", daemon=True).start()
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


def _read(
    source: Iterable[Any],
    prepare: Callable[[Any], Tuple[Any, int]],
    limit: int,
    groups: queue.Queue[Any],
    ended: threading.Event,
) -> None:
    """Read a source to its end: its groups, then None, or the exception that ended it."""

    def put(entry: Any) -> None:
        if not ended.is_set():
            groups.put(entry)

    group: List[Any] = []
    total = 0
    last = None
    try:
        for item in source:
            prepared, size = prepare(item)
            if group and total + size > limit:
                put(group)
                group, total = [], 0
            group.append(prepared)
            total += size
            if ended.is_set():
                return
    except BaseException as error:  # noqa: B036 - the reader raises it
        last = error
    if group:
        put(group)
    put(last)


class GroupRanker(Ranker):
    """A ranker that ranks questions in groups; the next group is encoded meanwhile."""

    #: Greatest size of a group; a larger question is a group of its own.
    _group_size = 4096

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        for group in read_ahead(questions, self._encode, self._group_size):
            yield from self._rank_group(group)

    def _rank_question(self, question: Question) -> Ranking:
        encoded, _ = self._encode(question)
        [ranking] = self._rank_group([encoded])
        return ranking

    def _encode(self, question: Question) -> Tuple[Any, int]:
        """What is ranked of a question, and its size: by default its number of candidates."""
        return question, len(question.candidates)

    def _rank_group(self, group: Sequence[Any]) -> Iterable[Ranking]:
        """Rank encoded questions as one group."""
        raise NotImplementedError


class InputsRanker(GroupRanker):
    """A ranker of one network: it tokenizes questions, and its engine ranks groups of them.

    Parameters
    ----------
    network : Network
        Network with its parameters on the engine's device.
    inputs : PairInputs
        Token ids of questions and candidates, as the network reads them.
    drop_ratio : float, or sequence of float or None, optional
        alpha, as `Ranker.set_drops` takes it. Without drops the ranking is the full network's.
    keep : int, or sequence of int or None, optional
        k, as `Ranker.set_drops` takes it.
    engine : EngineConfig, optional
        Engine, precision, device and sizes. By default MXNet on the CPU, which reads the current
        parameters at each ranking; other engines read them once.
    quantized : list of dict, optional
        `wqa.engines.onednn.operations.Quantized` products of each layer, for int8.
    pool : {"question", "batch"}
        Drop among all candidates of a question, or, as the cascade paper's inference does, inside
        batches of ``pool_size`` candidates.
    pool_size : int
        b, for ``pool="batch"``.
    system : str
        Name of the system, for `Ranker.capabilities`; by default that of the network's class.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option is out of range, or does not fit the network or this machine.
    """

    #: How the engines read the inputs.
    engine_inputs = EngineInputs
    _group_size = 65536  # tokens

    def __init__(
        self,
        network: Any,
        inputs: Any,
        drop_ratio: DropRatio = None,
        keep: Keep = None,
        engine: Optional[EngineConfig] = None,
        quantized: Optional[QuantizedLayers] = None,
        pool: str = "question",
        pool_size: int = 128,
        system: str = "",
    ) -> None:
        check_choice("pool", pool, POOLS)
        if pool_size < 1:
            raise OptionError("pool_size", pool_size, "a whole number above 0")
        self.network, self.inputs = network, inputs
        self._system = system or type(network).__name__
        self._pool_size = pool_size if pool == "batch" else 0
        self._config = engine or EngineConfig(engine="mxnet")
        self.set_drops(drop_ratio, keep)
        self._engine = self._build_engine(quantized)

    def _build_engine(self, quantized: Optional[QuantizedLayers]) -> Any:
        """Build the engine of `_config`."""
        inputs = self.engine_inputs(self.network, self.inputs)
        return build_engine(inputs, self._config, quantized)

    def rank_pairs(self, group: Sequence[Sequence[Any]]) -> List[Ranking]:
        """Rank tokenized questions as one group.

        Parameters
        ----------
        group : sequence of sequence of TextInput or SplitPair
            Pairs of each question, as the ranker's `inputs` make them. Errors call the questions
            by their numbers in the group.

        Returns
        -------
        list of Ranking
            Ranking of each question.

        Raises
        ------
        InputError
            If an input is longer than the network's positions, or holds a token id without a row in
            its word embeddings.
        ScoreError
            If a score is not finite.
        """
        encoded = []
        for number, pairs in enumerate(group, 1):
            question = Question(str(number), "", (Candidate(""),) * len(pairs))
            encoded.append(self._of_pairs(pairs, question))
        return list(self._rank_group(encoded))

    def _of_pairs(self, pairs: Sequence[Any], question: Question) -> Any:
        """A tokenized question of its pairs."""
        raise NotImplementedError

    def _ranking_of_stage(
        self, indices: np.ndarray, scores: np.ndarray, question: Question, **parts: Any
    ) -> Ranking:
        """Ranking by one stage, which scored some of the candidates; the others are blank.

        ``indices`` are the candidates of ``scores``, both (n,); ``parts`` are other fields of the
        `Ranking`, ``exits`` the layer of the stage.
        """

        def name_of(index: int) -> Tuple[str, str]:
            name = f"{question_name(question)}, scores"
            return name, candidate_name(question, int(indices[index]))

        check_finite(scores, name_of)
        count, layer = len(parts["truncated"]), parts.pop("exits")
        exit_scores = np.full((1, count), np.nan)
        exit_scores[0, indices] = scores
        blank = np.isnan(exit_scores[0])
        by_candidate = np.where(blank, -np.inf, exit_scores[0])
        return Ranking(
            order=np.argsort(-by_candidate, kind="stable"),
            scores=by_candidate,
            exits=np.where(blank, 0, layer),
            blank=blank,
            exit_scores=exit_scores,
            probabilities=self.calibration.probabilities(exit_scores),
            threshold=self.threshold,
            **parts,
        )


def build_engine(
    inputs: EngineInputs, config: EngineConfig, quantized: Optional[QuantizedLayers]
) -> Engine:
    """Build the engine of a network in memory, or of one in an exported folder."""
    if inputs.is_exported:
        return OnnxEngine(inputs, config)
    from wqa.engines.choice import build_engine as build  # needs MXNet

    return build(inputs, config, quantized)


def score_inputs(engine: Any, inputs: Sequence[Any], outputs: int) -> Tuple[np.ndarray, np.ndarray]:
    """Outputs of a network of one stage for inputs, and the positions that ran, with padding.

    The head runs once for all micro-batches. Shapes: the outputs (inputs, outputs), the positions
    (inputs,).
    """
    values = np.zeros((len(inputs), outputs))
    positions = np.zeros(len(inputs))
    numbers, rows = [], []
    batches = micro_batches(engine, inputs, np.array([one.length for one in inputs], dtype=int))
    for batch, done in zip(batches, engine.run_all(batches)):
        positions[batch.numbers] = done.positions
        numbers.append(batch.numbers)
        rows += done.rows
    if numbers:
        scores = engine.scores(0, np.concatenate(rows))
        values[np.concatenate(numbers)] = scores.reshape(-1, outputs)
    return values, positions


def micro_batches(
    engine: Any,
    inputs: Sequence[Any],
    lengths: np.ndarray,
    next_store: Optional[Encodings] = None,
) -> List[MicroBatch]:
    """Micro-batches of inputs of similar lengths, for a network of one stage.

    Shapes: `lengths` (inputs,).
    """
    order, batches = np.argsort(lengths, kind="stable"), []
    for indices in engine.plan(lengths[order]) if len(order) else []:
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
        raise InputError(
            where,
            f"token id {ids[wrong]}" + (f" with {candidate}" if candidate else ""),
            f"ids from 0 to {rows - 1}, the rows of the word embeddings",
            "encode with the tokenizer of the network's encoder",
        )


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

    def check_ids(self, inputs: Sequence[np.ndarray], rows: int) -> None:
        """Check the token ids of an input of each pair."""
        check_ids(inputs, rows, self.name)


def check_finite(scores: np.ndarray, name_of: Callable[[int], Tuple[str, str]]) -> None:
    """Refuse scores that are not finite; the error names the first of them."""
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        raise score_error(*name_of(int(wrong[0])), scores[wrong[0]])
