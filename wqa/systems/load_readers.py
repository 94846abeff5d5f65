"""Loading of what uses networks that do not rank: readers of spans and verifiers of claims."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Optional, Union

from wqa.config import EngineConfig
from wqa.errors import OptionError, RunDirectoryError
from wqa.systems.mspp.verifier import Verifier, check_labels
from wqa.systems.reader.reader import Reader
from wqa.systems.run_directory import load_run


def load_reader(
    run: Union[str, os.PathLike[str]],
    ctx: str = "cpu",
    precision: str = "float32",
    threads: Optional[int] = None,
    engine: str = "auto",
    batch_tokens: Optional[int] = None,
    long_questions: str = "error",
    **options: Any,
) -> Reader:
    """Load the reader of a run directory.

    Parameters
    ----------
    run : str or path-like
        Run directory of a system that computes spans.
    ctx : str
        Device to read on.
    precision : {"float32", "bfloat16", "int8"}
        Precision of products. bfloat16 and int8 need a CPU that supports them, int8 also a run that
        `wqa quantize` has calibrated.
    threads : int, optional
        Number of threads on a CPU; by default all that the process may use.
    engine : {"auto", "mxnet", "onednn"}
        ``auto`` takes oneDNN on a CPU where its library is installed, and MXNet otherwise.
    batch_tokens : int, optional
        Tokens of a micro-batch; the default depends on the engine.
    long_questions : {"error", "truncate", "skip"}
        What to do with a question that leaves fewer than 16 tokens for a document, as
        `wqa.load_ranker` takes it.
    **options
        Further keywords of `Reader`, such as ``max_answer_tokens``.

    Returns
    -------
    Reader
        The reader.

    Raises
    ------
    RunDirectoryError
        If a file is missing, truncated, or contradicts another file, or the run is no reader.
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option does not fit the run, or this machine lacks what it needs.
    """
    config = EngineConfig(engine, precision, threads, ctx, batch_tokens)
    expected = "a run directory of `wqa train reader`"
    loaded = load_run(run, config, long_questions, "spans", expected)
    return Reader(loaded.network, loaded.encoder, **loaded.options, **options)


def load_verifier(
    run: Union[str, os.PathLike[str]],
    ctx: str = "cpu",
    precision: str = "float32",
    threads: Optional[int] = None,
    engine: str = "auto",
    batch_tokens: Optional[int] = None,
    long_questions: str = "error",
    **options: Any,
) -> Verifier:
    """Load the verifier of a run directory.

    Parameters
    ----------
    run : str or path-like
        Run directory of a system that computes labels of claims.
    ctx : str
        Device to compute on.
    precision : {"float32", "bfloat16", "int8"}
        Precision of products. bfloat16 and int8 need a CPU that supports them, int8 also a run that
        `wqa quantize` has calibrated.
    threads : int, optional
        Number of threads on a CPU; by default all that the process may use.
    engine : {"auto", "mxnet", "onednn"}
        ``auto`` takes oneDNN on a CPU where its library is installed, and MXNet otherwise.
    batch_tokens : int, optional
        Tokens of a micro-batch; the default depends on the engine.
    long_questions : {"error", "truncate", "skip"}
        What to do with a claim that does not fit a segment: raise an error, keep its first tokens,
        or leave it out, which `Verifier.prepare` does.
    **options
        Further keywords of `Verifier`.

    Returns
    -------
    Verifier
        The verifier.

    Raises
    ------
    RunDirectoryError
        If a file is missing, truncated, or contradicts another file, or the run is no classifier of
        claims.
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option does not fit the run, or this machine lacks what it needs.
    """
    config = EngineConfig(engine, precision, threads, ctx, batch_tokens)
    expected = "a run directory of `wqa train mspp_claims`"
    loaded = load_run(run, config, long_questions, "labels", expected)
    try:
        check_labels(loaded.network.own_config)
    except OptionError as error:
        where = f"{pathlib.Path(run) / 'config.json'}, field network"
        raise RunDirectoryError(where, error.found, error.expected) from None
    return Verifier(loaded.network, loaded.encoder, **loaded.options, **options)
