"""ONNX Runtime's engine: exported graphs on padded micro-batches, on a CPU or a GPU, in float32.

Each stage is a graph of its own, so that candidates can be dropped between them by any rule.
Between two stages encodings are stored without padding, and padded anew to the longest survivor.
Nothing here needs MXNet or onnx.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.config.environment import device_numbers
from wqa.engines.engine import (
    Engine,
    MicroBatch,
    Readings,
    store_encodings,
    take_encodings,
)
from wqa.engines.inputs import EngineInputs, pad_encodings, real_rows
from wqa.errors import (
    DeviceError,
    MissingDependency,
    OptionError,
    RunDirectoryError,
    how_to_install,
)
from wqa.text import plan_batches

#: Providers of ONNX Runtime by the kinds of devices.
PROVIDERS = {"cpu": "CPUExecutionProvider", "gpu": "CUDAExecutionProvider"}
#: Name of the file of the weights of all graphs.
WEIGHTS = "weights.bin"
#: Level of messages of ONNX Runtime that are shown: errors.
_SEVERITY = 3


def runtime() -> Any:
    """ONNX Runtime's module."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingDependency(
            "onnxruntime",
            f"the library cannot be imported ({error})",
            "the extra onnx, or onnxruntime-gpu",
            how_to_install("onnx"),
        ) from None
    return onnxruntime


def check_runtime(config: EngineConfig) -> EngineConfig:
    """Check that ONNX Runtime can compute as an engine's settings say, and name it in them.

    Parameters
    ----------
    config : EngineConfig
        Engine, precision and device that the caller wants.

    Returns
    -------
    EngineConfig
        The same settings, with the engine ``onnxruntime``.

    Raises
    ------
    OptionError, DeviceError, MissingDependency
        If the engine, the precision or the device is not one of ONNX Runtime on this machine.
    """
    if config.engine not in ("auto", "onnxruntime"):
        raise OptionError(
            "engine",
            f"{config.engine} for exported graphs",
            "onnxruntime, or auto",
            "name the run that was exported",
        )
    if config.precision != "float32":
        raise OptionError(
            "precision",
            f"{config.precision} for exported graphs",
            "float32",
            "quantize the graphs by the tool of ONNX Runtime, as docs/deployment.md says, or name "
            "the run that was exported",
        )
    _provider(config.ctx)
    return dataclasses.replace(config, engine="onnxruntime")


def _provider(ctx: str) -> Tuple[str, Dict[str, Any]]:
    """Provider of a device, with its options."""
    kind, numbers = device_numbers(ctx)
    if len(numbers) > 1:
        problem = f"{ctx}, which is {len(numbers)} devices"
        raise OptionError("ctx", problem, "one device to rank on")
    provider = PROVIDERS[kind]
    available = runtime().get_available_providers()
    if provider not in available:
        raise DeviceError(
            "ctx",
            f"{ctx}, but ONNX Runtime has {', '.join(available)}",
            provider,
            'take ctx="cpu", or install onnxruntime-gpu in place of onnxruntime',
        )
    return provider, {"device_id": numbers[0]} if kind == "gpu" else {}


class GraphSessions:
    """Open graphs of a folder, by their names.

    Parameters
    ----------
    folder : path-like
        Exported folder.
    names : sequence of str
        Names of the graphs.
    config : EngineConfig
        Device and threads.

    Raises
    ------
    RunDirectoryError
        If ONNX Runtime cannot load a graph.
    DeviceError, MissingDependency
        If it is not installed, or cannot use the device.
    """

    def __init__(self, folder: pathlib.Path, names: Sequence[str], config: EngineConfig) -> None:
        self._folder, self._config = folder, config
        paths = [folder / WEIGHTS, *(folder / f"{name}.onnx" for name in names)]
        # The library refuses files behind a link that leads out of the folder, as in a hub's cache.
        is_linked = any(path.is_symlink() for path in paths)
        weights = paths[0].read_bytes() if is_linked else None
        self._sessions = {name: self._session(name, weights) for name in names}

    def _session(self, name: str, weights: Optional[bytes]) -> Any:
        library, path = runtime(), self._folder / f"{name}.onnx"
        provider, settings = _provider(self._config.ctx)
        options = library.SessionOptions()
        options.intra_op_num_threads = self._config.threads or len(os.sched_getaffinity(0))
        # Threads that wait in a loop would hold the processors that the next stage's session needs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = _SEVERITY
        model: Any = str(path)
        try:
            if weights is not None:
                model, sizes = path.read_bytes(), [len(weights)]
                options.add_external_initializers_from_files_in_memory([WEIGHTS], [weights], sizes)
            session = library.InferenceSession(
                model, options, providers=[provider], provider_options=[settings]
            )
        except Exception as error:  # the library's exceptions have no base class of their own
            reason = str(error).strip().partition("\n")[0]
            raise RunDirectoryError(
                path,
                f"ONNX Runtime {library.__version__} cannot load it ({reason})",
                "a graph of `wqa export --format onnx`",
                "export the run again, or install a newer onnxruntime",
            ) from None
        if provider not in session.get_providers():  # it falls back to the CPU with a warning
            raise DeviceError(
                "ctx",
                f"{self._config.ctx}, which ONNX Runtime cannot use",
                "a GPU with the CUDA and cuDNN of this onnxruntime-gpu",
                'take ctx="cpu", or install the libraries that its messages name',
            )
        return session

    def run(self, name: str, inputs: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """Run a graph.

        Parameters
        ----------
        name : str
            Name of the graph.
        inputs : mapping of str to numpy.ndarray
            Its inputs by their names; others are not read.

        Returns
        -------
        dict of str to numpy.ndarray
            The outputs by their names.
        """
        session = self._sessions[name]
        given = {value.name: inputs[value.name] for value in session.get_inputs()}
        names = [value.name for value in session.get_outputs()]
        return dict(zip(names, session.run(names, given)))


class Mask(NamedTuple):
    """A mask that a graph takes for an array of numbers of real positions: 1 there, 0 behind.

    Attributes
    ----------
    name : str
        Name of the mask.
    axis : str
        Name of its last axis.
    padded : tuple of (str, int)
        Array of the network, and the axis of it, that has the size of the mask's last axis.
    """

    name: str
    axis: str
    padded: Tuple[str, int]


#: Names of inputs by those of the networks' arrays; others keep their names.
INPUT_NAMES = {
    "token_ids": "input_ids",
    "token_types": "token_type_ids",
    "positions": "position_ids",
}
#: Masks by the names of the networks' arrays.
MASKS = {
    "valid_length": Mask("attention_mask", "length", ("token_ids", -1)),
    "question_valid": Mask("question_mask", "question_length", ("question_ids", -1)),
    "document_valid": Mask("document_mask", "candidate_length", ("document_ids", -1)),
    "candidate_valid": Mask("candidate_mask", "candidate_length", ("candidate_ids", -1)),
    "list_valid": Mask("list_mask", "candidates", ("candidate_ids", 1)),
}


def mask_of(lengths: np.ndarray, size: int) -> np.ndarray:
    """Mask of numbers of real positions.

    Shapes: `lengths` (...), the result (..., size).
    """
    return (np.arange(size) < np.asarray(lengths)[..., None]).astype(np.int64)


def graph_inputs(arrays: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """Inputs of a graph for the arrays of its network."""
    inputs = {}
    for name, array in arrays.items():
        if name in MASKS:
            padded, axis = MASKS[name].padded
            if padded not in arrays:  # encodings in place of token ids
                padded, axis = padded.replace("_ids", ""), 1
            inputs[MASKS[name].name] = mask_of(array, arrays[padded].shape[axis])
        elif array.dtype == np.int32:
            inputs[INPUT_NAMES.get(name, name)] = array.astype(np.int64)
        else:
            inputs[INPUT_NAMES.get(name, name)] = array
    return inputs


#: Default number of tokens of a micro-batch, padding included.
TOKENS = 2048
_MASK = MASKS["valid_length"].name


class OnnxEngine(Engine):
    """Graphs of the stages of an exported network.

    Parameters
    ----------
    inputs : EngineInputs
        Pads the pairs; its network has the ``folder`` and the names of its ``graphs``.
    config : EngineConfig
        Device, threads and sizes.

    Raises
    ------
    OptionError
        If the network is not exported.
    RunDirectoryError, DeviceError, MissingDependency
        As `GraphSessions` raises them.
    """

    def __init__(self, inputs: EngineInputs, config: EngineConfig) -> None:
        if not inputs.is_exported:
            raise OptionError(
                "engine",
                "onnxruntime for a network in memory",
                "a folder of exported graphs, or the directory of a run",
                "save the run, then export it: wqa export RUN OUT --format onnx",
            )
        super().__init__(config)
        self._inputs, self._stages = inputs, inputs.network.graphs
        self._sessions = GraphSessions(inputs.network.folder, self._stages, config)

    def plan(self, lengths: np.ndarray) -> List[np.ndarray]:
        return plan_batches(lengths, self._config.batch_tokens or TOKENS)

    def _run(self, batch: MicroBatch) -> Readings:
        lengths = batch.lengths
        if batch.store is None:
            arrays = self._inputs.arrays(batch.pairs)
            positions = self._inputs.positions(arrays)
            inputs = graph_inputs(arrays)
        else:
            positions = int(lengths.max())
            encodings = take_encodings(batch.store, batch.numbers)
            stored = pad_encodings(encodings, positions)  # (B, L, C)
            inputs = {"hidden": stored, _MASK: mask_of(lengths, positions)}
        rows = []
        for stage in batch.stages:
            outputs = self._sessions.run(self._stages[stage], inputs)
            if "logits" in outputs:
                rows.append(outputs["logits"])
            if "last_hidden_state" in outputs:
                hidden = outputs["last_hidden_state"]
                inputs = {"hidden": hidden, _MASK: mask_of(lengths, hidden.shape[1])}
        if batch.next_store is not None:
            rows_of_pairs = real_rows(hidden, lengths)
            store_encodings(batch.next_store, batch.numbers, lengths, rows_of_pairs)
        return Readings(np.full(len(lengths), positions), rows)
