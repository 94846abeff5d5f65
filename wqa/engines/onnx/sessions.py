"""ONNX Runtime's engine: exported graphs on padded micro-batches, on a CPU or a GPU, in float32.

Each stage is a graph of its own, so that candidates can be dropped between them by any rule.
Between two stages encodings are stored without padding, and padded anew to the longest survivor.
Nothing here needs MXNet or onnx.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.config.environment import device_numbers
from wqa.engines.engine import MicroBatch, PaddedEngine
from wqa.engines.inputs import EngineInputs
from wqa.errors import (
    DeviceError,
    MissingDependency,
    OptionError,
    RunDirectoryError,
    how_to_install,
)

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
        problem, expected = f"the library cannot be imported ({error})", "the extra onnx"
        hint = how_to_install("onnx")
        raise MissingDependency("onnxruntime", problem, expected, hint) from None
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
    hint = "name the run that was exported, and another engine than onnxruntime"
    if config.engine not in ("auto", "onnxruntime"):
        problem = f"{config.engine} for exported graphs"
        raise OptionError("engine", problem, "onnxruntime, or auto", hint)
    if config.precision != "float32":
        problem = f"{config.precision} for exported graphs"
        raise OptionError("precision", problem, "float32", hint)
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
        problem = f"{ctx}, but ONNX Runtime has {', '.join(available)}"
        hint = 'take ctx="cpu", or install onnxruntime-gpu in place of onnxruntime'
        raise DeviceError("ctx", problem, provider, hint)
    return provider, {"device_id": numbers[0]} if kind == "gpu" else {}


class Mask(NamedTuple):
    """A mask that a graph takes for an array of numbers of real positions: 1 there, 0 behind.

    Attributes
    ----------
    name : str
        Name of the mask.
    axis : str
        Name of its last axis.
    padded : dict of str to int
        Arrays of networks that it may be for, and their axes that have the size of its last one.
    """

    name: str
    axis: str
    padded: Mapping[str, int]


#: Names of inputs by those of the networks' arrays; others keep their names.
INPUT_NAMES = {
    "token_ids": "input_ids",
    "token_types": "token_type_ids",
    "positions": "position_ids",
}
#: Masks by the names of the networks' arrays.
MASKS = {
    "valid_length": Mask("attention_mask", "length", {"token_ids": 1, "hidden": 1}),
    "question_valid": Mask("question_mask", "question_length", {"question_ids": 1, "question": 1}),
    "document_valid": Mask("document_mask", "candidate_length", {"document": 1}),
    "candidate_valid": Mask("candidate_mask", "candidate_length", {"candidate_ids": -1}),
    "list_valid": Mask("list_mask", "candidates", {"candidate_ids": 1}),
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
            mask = MASKS[name]
            padded = next(own for own in mask.padded if own in arrays)
            inputs[mask.name] = mask_of(array, arrays[padded].shape[mask.padded[padded]])
        elif array.dtype == np.int32:
            inputs[INPUT_NAMES.get(name, name)] = array.astype(np.int64)
        else:
            inputs[INPUT_NAMES.get(name, name)] = array
    return inputs


class OnnxEngine(PaddedEngine):
    """Graphs of the stages of an exported network.

    Parameters
    ----------
    inputs : EngineInputs
        Pads the pairs; its network has the ``folder`` and the names of its ``graphs``.
    config : EngineConfig
        Device, threads and sizes.

    Raises
    ------
    RunDirectoryError
        If ONNX Runtime cannot load a graph.
    DeviceError, MissingDependency
        If it is not installed, or cannot use the device.
    """

    def __init__(self, inputs: EngineInputs, config: EngineConfig) -> None:
        super().__init__(inputs, config)
        folder = inputs.network.folder
        graphs = [folder / f"{name}.onnx" for name in inputs.network.graphs]
        paths = [folder / WEIGHTS, *graphs]
        # The library refuses files behind a link that leads out of the folder, as in a hub's cache.
        is_linked = any(path.is_symlink() for path in paths)
        weights = paths[0].read_bytes() if is_linked else None
        self._sessions = [self._session(path, weights) for path in graphs]

    def _session(self, path: pathlib.Path, weights: Optional[bytes]) -> Any:
        library = runtime()
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
            problem = f"ONNX Runtime {library.__version__} cannot load it ({reason})"
            expected = "a graph of `wqa export --format onnx`"
            hint = "export the run again, or install a newer onnxruntime"
            raise RunDirectoryError(path, problem, expected, hint) from None
        if provider not in session.get_providers():  # it falls back to the CPU with a warning
            problem = f"{self._config.ctx}, which ONNX Runtime cannot use"
            expected = "a GPU with the CUDA and cuDNN of this onnxruntime-gpu"
            hint = 'take ctx="cpu", or install the libraries that its messages name'
            raise DeviceError("ctx", problem, expected, hint)
        return session

    def _compute(
        self, batch: MicroBatch, arrays: Mapping[str, np.ndarray]
    ) -> Tuple[Any, List[np.ndarray]]:
        hidden, scores = None, []
        for stage in batch.stages:
            session, inputs = self._sessions[stage], graph_inputs(arrays)
            names = [value.name for value in session.get_outputs()]
            values = {value.name: inputs[value.name] for value in session.get_inputs()}
            outputs = dict(zip(names, session.run(names, values)))
            if "logits" in outputs:
                scores.append(outputs["logits"])
            if "last_hidden_state" in outputs:
                hidden = outputs["last_hidden_state"]
                arrays = {"hidden": hidden, "valid_length": batch.lengths}
        return hidden, scores
