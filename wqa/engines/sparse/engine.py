"""The engine of networks on lists of candidates: sparse products on a CPU, in float32.

Recurrent layers run over the candidates of all questions at once, step by step. Their cells are
those of Gluon's `rnn.RNN` with tanh and of `rnn.LSTM`, whose gates are the input, the forget, the
new memory and the output gate.

Shapes: n candidates of all questions, C units of an encoded pair, H units of a direction.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import pathlib
import threading
from typing import Any, Callable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.engines.engine import Engine, MicroBatch, Readings
from wqa.engines.onednn.library import count_threads
from wqa.engines.sparse.rows import (
    TABLE_BYTES,
    Relatedness,
    Steps,
    WordRows,
    stretches,
    window_outputs,
)
from wqa.engines.threads import MXNET_LOCK, in_threads

#: Positions whose outputs are computed at once, so that they stay in a processor's cache.
POSITIONS = 2560
#: Words of the texts of a pass, so that a table of fewer rows than a vocabulary holds them all.
PASS_WORDS = 1 << 15

#: Lock of all sparse engines, which set the number of threads of NumPy's BLAS.
_LOCK = threading.RLock()


class SparseEngine(Engine):
    """Scores lists by convolutions of word vectors, and by a recurrent layer over the candidates.

    It reads the parameters of the network once. A pair of a micro-batch is a list, with the ids of
    its ``question``, those of the ``words`` of its candidates and the ``lengths`` of these; it has
    a score for each of them, and 0 behind.

    Parameters
    ----------
    network : ListNetwork
        Network with `text_filters`, on the CPU.
    config : EngineConfig
        Number of threads.
    most_bytes : int
        Most bytes of the tables of words.
    """

    #: Whether its inputs are whole lists, also where each candidate is scored by itself.
    takes_lists = True

    def __init__(self, network: Any, config: EngineConfig, most_bytes: int = TABLE_BYTES) -> None:
        super().__init__(config, _LOCK)
        self._threads = config.threads or count_threads()
        with MXNET_LOCK:
            vectors = network.vectors.data().asnumpy()
            of_questions, of_candidates = map(_values, network.text_filters)
            self._directions = _directions(network)
            self._weight, self._bias = _values(network.out)
        self._relatedness = Relatedness(vectors)
        # The words of questions are fewer than those of candidates.
        self._questions = _Side(vectors, *of_questions, most_bytes // 4)
        self._candidates = _Side(vectors, *of_candidates, most_bytes - most_bytes // 4)

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        return [np.arange(len(lengths))]

    def _run(self, batch: MicroBatch) -> Readings:
        words = np.array([len(one.words) for one in batch.pairs])
        with one_blas_thread():
            parts = []
            for first, last in stretches(np.cumsum(words) - words, PASS_WORDS):
                parts += self._score_group(batch.pairs[first:last], words[first:last])
        counts = np.array([len(one.lengths) for one in batch.pairs])
        scores = np.zeros((len(counts), counts.max()), np.float32)
        scores[np.arange(counts.max()) < counts[:, None]] = np.concatenate(parts)
        of_questions = counts * [len(one.question) for one in batch.pairs]
        return Readings(of_questions + words, [scores])  # no position is padding

    def _score_group(self, lists: Sequence[Any], words: np.ndarray) -> List[np.ndarray]:
        """Score lists, a share in each thread; a long list is divided by its texts."""
        if len(lists) == 1:
            return [self._score(lists, self._threads)]
        # Then the threads only read the tables.
        self._questions.rows.rows(np.concatenate([one.question for one in lists]))
        self._candidates.rows.rows(np.concatenate([one.words for one in lists]))
        share = -(-int(words.sum()) // self._threads)
        bounds = stretches(np.cumsum(words) - words, share)
        shares = [lists[first:last] for first, last in bounds]
        return in_threads(self._score, shares, self._threads)

    def _score(self, lists: Sequence[Any], threads: int = 1) -> np.ndarray:
        counts = np.array([len(one.lengths) for one in lists])
        related = [self._relatedness(one) for one in lists]
        repeated = [np.tile(one.question, len(one.lengths)) for one in lists]
        sizes = np.repeat([len(one.question) for one in lists], counts)
        of_questions, of_candidates = map(np.concatenate, zip(*related))
        questions = _Texts(np.concatenate(repeated), sizes, of_questions)
        ids, lengths = (np.concatenate(arrays) for arrays in zip(*(one[1:] for one in lists)))
        question = self._questions.encode(questions, threads)
        candidate = self._candidates.encode(_Texts(ids, lengths, of_candidates), threads)
        # Encoded pairs (Bonadiman and Moschitti 2020, section 4.1.2), (n, 2 F).
        hidden = np.concatenate([question * candidate, question - candidate], axis=1)
        if self._directions:
            steps, outputs = Steps(counts), []
            for index, direction in enumerate(self._directions):
                outputs.append(_run_direction(direction, hidden, steps, backwards=index == 1))
            hidden = np.concatenate(outputs, axis=1)
        return hidden @ self._weight[0] + self._bias


def _run_direction(
    parameters: Sequence[np.ndarray], pairs: np.ndarray, steps: Steps, backwards: bool
) -> np.ndarray:
    """Run one direction of a recurrent layer over the candidates of all questions.

    Shapes: `pairs` (n, C), the result (n, H); `parameters`, G being H, or 4 H of an LSTM, are the
    weights of the input, (G, C), and of the state, (G, H), and their biases, (G,).
    """
    input_weight, hidden_weight, input_bias, hidden_bias = parameters
    rows, units = steps.rows(backwards), hidden_weight.shape[1]
    is_lstm, before = len(hidden_weight) == 4 * units, 0
    gates = np.take(pairs @ input_weight.T, rows, axis=0, mode="clip")
    gates += input_bias + hidden_bias
    hidden = np.empty((len(rows), units), np.float32)
    memory = np.empty_like(hidden)
    weight = np.ascontiguousarray(hidden_weight.T)
    for start, end in steps:
        state, count = gates[start:end], end - start
        if start:
            state += hidden[before : before + count] @ weight
        if is_lstm:
            previous = memory[before : before + count] if start else None
            _lstm_cell(state, previous, memory[start:end], hidden[start:end])
        else:
            np.tanh(state, out=hidden[start:end])
        before = start
    outputs = np.empty_like(hidden)
    outputs[rows] = hidden
    return outputs


def _lstm_cell(gates: np.ndarray, previous: Any, memory: np.ndarray, hidden: np.ndarray) -> None:
    """One step of an LSTM; ``gates`` become their activations."""
    units = hidden.shape[1]
    for gate in (gates[:, : 2 * units], gates[:, 3 * units :]):
        # The logistic function, without an overflow.
        np.multiply(gate, 0.5, out=gate)
        np.tanh(gate, out=gate)
        gate += 1
        gate *= 0.5
    new = gates[:, 2 * units : 3 * units]
    np.tanh(new, out=new)
    np.multiply(gates[:, :units], new, out=memory)
    if previous is not None:
        memory += gates[:, units : 2 * units] * previous
    np.multiply(np.tanh(memory), gates[:, 3 * units :], out=hidden)


def _values(block: Any) -> Tuple[np.ndarray, np.ndarray]:
    """Weight and bias of a block."""
    return block.weight.data().asnumpy(), block.bias.data().asnumpy()


def _directions(network: Any) -> List[List[np.ndarray]]:
    """Parameters of each direction of the recurrent layer; empty without one."""
    if network.recurrent is None:
        return []
    names = [f"l0_{name}" for name in ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")]
    directions = []
    for layer in network.recurrent.directions:
        directions.append([getattr(layer, name).data().asnumpy() for name in names])
    return directions


class _Texts(NamedTuple):
    """Texts behind one another."""

    ids: np.ndarray  # (words,)
    lengths: np.ndarray  # (n,)
    related: np.ndarray  # (words,)

    def parts(self, words: int) -> List[_Texts]:
        """Runs of texts of about so many words."""
        ends = np.cumsum(self.lengths)
        begins = ends - self.lengths
        parts = []
        for first, last in stretches(begins, words):
            own = slice(begins[first], ends[last - 1])
            parts.append(_Texts(self.ids[own], self.lengths[first:last], self.related[own]))
        return parts


class _Side:
    """The convolution of questions or of candidates."""

    def __init__(
        self, vectors: np.ndarray, weight: np.ndarray, bias: np.ndarray, most_bytes: int
    ) -> None:
        self._bias = bias
        self.rows = WordRows(vectors, weight, most_bytes)

    def encode(self, texts: _Texts, threads: int) -> np.ndarray:
        """Encode texts, (n, F)."""
        encoded = []
        for part in texts.parts(PASS_WORDS):  # whose words the table holds at once
            rows = self.rows.rows(part.ids)
            # Below two parts the work takes less time than a second thread does to begin.
            own_threads = threads if len(rows) > 2 * POSITIONS else 1
            parts = part._replace(ids=rows).parts(POSITIONS)
            encoded += in_threads(self._maxima, parts, own_threads)
        return np.concatenate(encoded)

    def _maxima(self, texts: _Texts) -> np.ndarray:
        steps = Steps(texts.lengths)
        outputs = window_outputs(steps, texts.ids, texts.related, self.rows.table)
        maxima = np.empty((len(texts.lengths), outputs.shape[1]), np.float32)
        maxima[steps.order] = steps.maxima(outputs)
        maxima += self._bias
        return np.maximum(maxima, 0, out=maxima)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let NumPy's OpenBLAS compute on the calling threads alone; another BLAS stays as it is.

    It divides every product of more than some 260,000 multiply-adds among threads of its own.
    Products of a list are not much larger, so that waking the threads takes longer than it saves.
    """
    get_threads, set_threads = _openblas()
    threads = get_threads()
    set_threads(1)
    try:
        yield
    finally:
        set_threads(threads)


@functools.lru_cache(maxsize=None)
def _openblas() -> Tuple[Callable[[], int], Callable[[int], Any]]:
    """What reads and sets the threads of NumPy's OpenBLAS; without one, functions that do not."""
    folder = pathlib.Path(np.__file__).parent.parent / "numpy.libs"
    for path in sorted(folder.glob("libopenblas*")):
        library = ctypes.CDLL(str(path))  # loaded already
        for suffix in ("64_", ""):  # of indices of 64 bits, or not
            name = f"openblas_set_num_threads{suffix}"
            if hasattr(library, name):
                return getattr(library, name.replace("set", "get")), getattr(library, name)
    return int, int
