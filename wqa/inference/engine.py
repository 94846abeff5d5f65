"""What computes a ranker's encodings and scores: MXNet's hybridized stages, or oneDNN on packed
rows.

An engine plans micro-batches, runs a segment of stages on each, and keeps the encodings of pairs
between segments; which pairs go on is the ranker's business (`wqa.inference.cascade`).
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, List, Optional, Sequence

import mxnet as mx
import numpy as np

from wqa.errors import OptionError, shorten
from wqa.inference.encoder import PackedEncoder
from wqa.inference.hidden import HiddenStore, RowStore
from wqa.inference.packed import Batch, Quantized
from wqa.models import onednn, parse_devices
from wqa.models.heads import ExitNetwork
from wqa.models.onednn import check_precision
from wqa.text import EncodedPair, Tokenizer, bucketed, pack_batches, pad_pairs, plan_batches

ENGINES = ("auto", "mxnet", "onednn")


class Engine:
    """Base of the engines.

    Parameters
    ----------
    model : ExitNetwork
    typed : bool
        Whether pairs have token types.
    padding_id : int
    batch_tokens : int
        Tokens of a micro-batch.
    hidden_bytes : int
        Encodings held in memory between segments; more go to a temporary file.
    """

    def __init__(
        self, model: ExitNetwork, typed: bool, padding_id: int, batch_tokens: int, hidden_bytes: int
    ) -> None:
        self.model, self._typed, self._padding_id = model, typed, padding_id
        self._batch_tokens, self._hidden_bytes = batch_tokens, hidden_bytes

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        """Micro-batches of pairs of these lengths, which ascend."""
        raise NotImplementedError

    def store(self) -> Any:
        """An empty store for the encodings between two segments."""
        raise NotImplementedError

    def run(
        self,
        segment: Sequence[int],
        numbers: np.ndarray,
        pairs: Sequence[EncodedPair],
        store: Any,
        following: Any,
    ) -> np.ndarray:
        """Run stages on a micro-batch.

        Parameters
        ----------
        segment : sequence of int
            Stages, from 0.
        numbers : numpy.ndarray
            (pairs,) what the stores know the pairs by.
        pairs : sequence of EncodedPair
        store : optional
            Where their encodings are; at the first stage there is none.
        following : optional
            Takes their encodings after the last of the stages.

        Returns
        -------
        numpy.ndarray
            (pairs,) positions that each pair took, padding included.
        """
        raise NotImplementedError

    def collect(self) -> np.ndarray:
        """Scores of all micro-batches since the last call, (stages, pairs), pairs in the order of
        the runs."""
        raise NotImplementedError


class HybridEngine(Engine):
    """MXNet's hybridized stages on padded micro-batches, on any device, in float32."""

    def __init__(
        self,
        model: ExitNetwork,
        typed: bool,
        padding_id: int,
        batch_tokens: int = 2048,
        hidden_bytes: int = 1 << 29,
        ctx: Optional[mx.Context] = None,
    ) -> None:
        super().__init__(model, typed, padding_id, batch_tokens, hidden_bytes)
        self._ctx = ctx or mx.cpu()
        self._stages = [model.stage(index) for index in range(len(model.exits))]
        for stage in self._stages:
            stage.hybridize()
        self._scores: List[np.ndarray] = []

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        return plan_batches(lengths, self._batch_tokens)

    def store(self) -> HiddenStore:
        return HiddenStore(self._hidden_bytes)

    def run(
        self,
        segment: Sequence[int],
        numbers: np.ndarray,
        pairs: Sequence[EncodedPair],
        store: Optional[HiddenStore],
        following: Optional[HiddenStore],
    ) -> np.ndarray:
        lengths = np.array([len(pair.token_ids) for pair in pairs])
        length = bucketed(int(lengths.max()), self.model.config.max_positions)
        if store is None:
            arrays = pad_pairs(pairs, length, self._padding_id, self._typed)
            inputs = tuple(mx.nd.array(array, ctx=self._ctx, dtype=array.dtype) for array in arrays)
        else:
            inputs = (
                store.take(numbers.tolist(), length, self._ctx),
                mx.nd.array(lengths, ctx=self._ctx, dtype="float32"),
            )
        scores = []
        for stage in segment:
            hidden, score = self._stages[stage](*inputs)
            inputs = (hidden, inputs[-1])
            scores.append(score)
        if following is not None:
            following.put(numbers.tolist(), hidden)
        self._scores.append(np.stack([score.asnumpy() for score in scores]))
        return np.full(len(pairs), length)

    def collect(self) -> np.ndarray:
        scores, self._scores = np.concatenate(self._scores, axis=1), []
        return scores


class PackedEngine(Engine):
    """oneDNN on packed rows, on the CPU, in any precision.

    Parameters
    ----------
    precision : str
        A key of `wqa.models.onednn.PRECISIONS`.
    threads : int, optional
        OpenMP threads; all that MXNet was given by default.
    quantized : list of dict, optional
        `Quantized` products of each layer, for int8.

    Raises
    ------
    PrecisionError
        If this processor lacks the instructions.
    """

    def __init__(
        self,
        model: ExitNetwork,
        typed: bool,
        padding_id: int,
        batch_tokens: int = 1024,
        hidden_bytes: int = 1 << 29,
        precision: str = "float32",
        threads: Optional[int] = None,
        quantized: Optional[Sequence[Dict[str, Quantized]]] = None,
    ) -> None:
        batch_tokens = max(batch_tokens, model.config.max_positions)
        super().__init__(model, typed, padding_id, batch_tokens, hidden_bytes)
        check_precision(precision)
        self._threads = threads
        kind = "float32" if precision == "float32" else "bfloat16"
        self._encoder = PackedEncoder(model, typed, kind, batch_tokens, quantized)
        self._bounds = [0, *model.exits]
        self._pooled: Dict[int, List[np.ndarray]] = {}

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        return pack_batches(lengths, self._batch_tokens)

    def store(self) -> RowStore:
        return RowStore(self._hidden_bytes)

    def run(
        self,
        segment: Sequence[int],
        numbers: np.ndarray,
        pairs: Sequence[EncodedPair],
        store: Optional[RowStore],
        following: Optional[RowStore],
    ) -> np.ndarray:
        if self._threads:
            _openmp().omp_set_num_threads(self._threads)
        encoder, lengths = self._encoder, np.array([len(pair.token_ids) for pair in pairs])
        batch = Batch(lengths)
        if store is None:
            encoder.embed(pairs, batch)
        else:
            encoder.load(store.take(numbers.tolist()))
        for stage in segment:
            self._pooled.setdefault(stage, []).append(self._stage(stage, batch))
        if following is not None:
            following.put(numbers.tolist(), lengths, encoder.encodings[: batch.tokens])
        return lengths

    def collect(self) -> np.ndarray:
        # Heads are small beside their weights, so they wait for all micro-batches.
        scores = np.stack(
            [
                self._encoder.scores(stage, np.concatenate(self._pooled[stage]))
                for stage in sorted(self._pooled)
            ]
        )
        self._pooled.clear()
        return scores

    def _stage(self, stage: int, batch: Batch) -> np.ndarray:
        encoder, start, end = self._encoder, *self._bounds[stage : stage + 2]
        only_first = (
            encoder.takes_first(stage) and end == self._bounds[-1]
        )  # nothing else is read any more
        for layer in range(start, end - only_first):
            encoder.layer(layer, batch)
        return (
            encoder.last_layer_first_rows(end - 1, batch)
            if only_first
            else encoder.pooled(stage, batch)
        )


def check_threads(threads: Optional[int]) -> None:
    """Check a number of threads.

    Parameters
    ----------
    threads : int, optional

    Raises
    ------
    OptionError
        If it is below 1, or more than this process may use.
    """
    most = len(os.sched_getaffinity(0))
    if threads is not None and not 1 <= threads <= most:
        raise OptionError(
            "--threads", threads, f"1 to {most}, the processors that this process may use"
        )


def _openmp() -> ctypes.CDLL:
    return ctypes.CDLL("libgomp.so.1")


def build_engine(
    model: ExitNetwork,
    tokenizer: Tokenizer,
    ctx: str = "cpu",
    engine: str = "mxnet",
    precision: str = "float32",
    threads: Optional[int] = None,
    batch_tokens: Optional[int] = None,
    hidden_bytes: int = 1 << 29,
    quantized: Optional[Sequence[Dict[str, Quantized]]] = None,
) -> Engine:
    """Build the engine of a ranker.

    Parameters
    ----------
    model : ExitNetwork
        With its parameters on ``ctx``.
    tokenizer : Tokenizer
    ctx : str
        A single device.
    engine : {"auto", "mxnet", "onednn"}
        ``auto`` takes oneDNN on a CPU where its library is installed.
    precision : {"float32", "bfloat16", "int8"}
        Other than float32 on oneDNN only.
    threads : int, optional
        Threads on a CPU; all that the process may use by default.
    batch_tokens : int, optional
        Tokens of a micro-batch; the engine's own default.
    hidden_bytes : int
    quantized : list of dict, optional
        Needed for int8.

    Returns
    -------
    Engine

    Raises
    ------
    OptionError, PrecisionError, MissingDependency
    """
    if engine not in ENGINES:
        raise OptionError("--engine", shorten(engine), "one of " + ", ".join(ENGINES))
    check_threads(threads)
    if batch_tokens is not None and batch_tokens < 1:
        raise OptionError("--batch-tokens", batch_tokens, "a whole number above 0")
    check_precision(precision)
    devices = parse_devices(ctx)
    if len(devices) > 1:
        raise OptionError(
            "--ctx", f"{ctx}, which is {len(devices)} devices", "one device to rank on"
        )
    on_cpu = devices[0].device_type == "cpu"
    if (engine == "onednn" or precision != "float32") and (engine == "mxnet" or not on_cpu):
        raise OptionError(
            "--engine and --precision",
            f"{engine} and {precision} on {ctx}",
            "float32 by MXNet",
            "other precisions are computed by oneDNN on the CPU: --ctx cpu --engine onednn",
        )
    if precision == "int8" and quantized is None:
        raise OptionError(
            "--precision",
            "int8 of a model without calibration",
            "a calibrated run",
            "wqa quantize RUN --data DEV.jsonl",
        )
    options: Dict[str, Any] = {} if batch_tokens is None else {"batch_tokens": batch_tokens}
    shared = (model, tokenizer.pair_form == "bert", tokenizer.padding_id)
    if (
        engine == "mxnet"
        or engine == "auto"
        and (not on_cpu or precision == "float32" and not onednn.available())
    ):
        if threads is not None:
            mx.base.check_call(mx.base._LIB.MXSetNumOMPThreads(threads))
        return HybridEngine(*shared, hidden_bytes=hidden_bytes, ctx=devices[0], **options)
    return PackedEngine(
        *shared,
        hidden_bytes=hidden_bytes,
        precision=precision,
        threads=threads,
        quantized=quantized,
        **options,
    )
