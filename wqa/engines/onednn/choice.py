"""The choice of the engine, and the precisions that this processor supports."""

from __future__ import annotations

from typing import Dict, Tuple

from wqa.config import ENGINES, PRECISIONS, EngineConfig
from wqa.engines.onednn.library import available, instruction_set, library
from wqa.errors import OptionError, PrecisionError, check_choice
from wqa.models import parse_devices

#: Instruction sets with which a precision is faster than float32: oneDNN's bits, and the name.
NEEDED: Dict[str, Tuple[int, str]] = {
    "float32": (0, ""),
    "bfloat16": (0xE7, "AVX512_BF16"),
    "int8": (0x07, "AVX2"),
}

#: oneDNN's names of instruction sets by their bits, the greatest first.
_NAMES: Dict[int, str] = {
    0x1FEF: "AVX512_CORE_AMX_FP16",
    0xFEF: "AVX512_CORE_AMX",
    0x1EF: "AVX512_CORE_FP16",
    0xE7: "AVX512_CORE_BF16",
    0x67: "AVX512_CORE_VNNI",
    0x27: "AVX512_CORE",
    0x1F: "AVX2_VNNI_2",
    0x0F: "AVX2_VNNI",
    0x07: "AVX2",
    0x03: "AVX",
    0x01: "SSE41",
}


def instruction_set_name() -> str:
    """Name of the instruction sets that oneDNN uses, as ``ONEDNN_MAX_CPU_ISA`` takes it."""
    used = instruction_set()
    for bits, name in _NAMES.items():
        if used & bits == bits:
            return name
    return "none"


def check_precision(precision: str) -> None:
    """Check that this processor supports a precision, with kernels faster than float32's.

    Parameters
    ----------
    precision : str
        One of `wqa.config.PRECISIONS`.

    Raises
    ------
    OptionError
        If the precision is unknown.
    PrecisionError
        If the processor lacks the instructions.
    MissingDependency
        If the precision needs oneDNN, which is not installed.
    """
    check_choice("precision", precision, PRECISIONS)
    bits, name = NEEDED[precision]
    if bits and instruction_set() & bits != bits:
        raise PrecisionError(
            "precision",
            f"{precision} on a processor without {name}",
            f"a processor with {name}" + (" or AMX" if precision == "bfloat16" else ""),
            "take precision float32, which runs everywhere",
        )


def where_int8_runs() -> str:
    """Processors that run 8-bit products, and whether this one does."""
    bits, name = NEEDED["int8"]
    here = "this one among them" if instruction_set() & bits == bits else "not on this one"
    return f"a CPU with {name} or more and the oneDNN package, {here}; fastest with VNNI or AMX"


def encoding_kind(precision: str) -> str:
    """Element type of the encodings between two products.

    Parameters
    ----------
    precision : str
        Precision of the products, one of `wqa.config.PRECISIONS`.

    Returns
    -------
    {"float32", "bfloat16"}
        For int8, bfloat16 where the processor supports it.
    """
    bits, _ = NEEDED["bfloat16"]
    has_bfloat16 = precision != "float32" and instruction_set() & bits == bits
    return "bfloat16" if has_bfloat16 else "float32"


def choose_engine(config: EngineConfig, obstacle: str = "") -> str:
    """Choose the engine that computes a network.

    Parameters
    ----------
    config : EngineConfig
        Engine, precision and device that the caller wants.
    obstacle : str
        Why oneDNN cannot compute the network; empty where it can.

    Returns
    -------
    {"mxnet", "onednn"}
        Name of the engine.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If the engine, the precision, the devices and the network do not go together, or this
        machine lacks them.
    """
    check_choice("engine", config.engine, ENGINES)
    devices = parse_devices(config.ctx)
    on_one_cpu = [device.device_type for device in devices] == ["cpu"]
    if config.engine != "onednn" and config.precision == "float32":
        by_onednn = config.engine == "auto" and on_one_cpu and not obstacle and available()
        return "onednn" if by_onednn else "mxnet"
    if config.engine == "mxnet" or not on_one_cpu:
        raise OptionError(
            "engine and precision",
            f"{config.engine} and {config.precision} on {config.ctx}",
            "float32 by MXNet",
            "other precisions are computed by oneDNN, on one CPU: ctx cpu, engine onednn or auto",
        )
    check_precision(config.precision)
    library()  # raises where it is not installed
    if obstacle:
        raise OptionError(
            "engine and precision",
            f"{config.engine} and {config.precision} for {obstacle}",
            "float32 by MXNet",
            "take engine mxnet",
        )
    return "onednn"
