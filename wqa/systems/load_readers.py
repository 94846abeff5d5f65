"""Loading of what uses networks that do not rank: readers of spans and verifiers of claims."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Optional, Union

from wqa.config import EngineConfig
from wqa.errors import OptionError, RunDirectoryError
from wqa.systems.registry import find_system
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
) -> Any:
    """Load the reader of a run directory.

    Parameters
    ----------
    run : str or path-like
        Run directory of a system that computes spans.
    ctx, precision, threads, engine, batch_tokens, long_questions
        As `wqa.load_ranker` takes them. A question is too long where it leaves fewer than 16 tokens
        for a document.
    **options
        Further keywords of the reader, such as ``max_answer_tokens``.

    Returns
    -------
    Reader
        The reader of the run's system, a `wqa.systems.reader.reader.Reader`.

    Raises
    ------
    RunDirectoryError
        If a file is missing, truncated, or contradicts another file, or the run is no reader.
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option does not fit the run, or this machine lacks what it needs.
    """
    config = EngineConfig(engine, precision, threads, ctx, batch_tokens)
    return _load(run, "spans", "wqa train reader", config, long_questions, options)


def load_verifier(
    run: Union[str, os.PathLike[str]],
    ctx: str = "cpu",
    precision: str = "float32",
    threads: Optional[int] = None,
    engine: str = "auto",
    batch_tokens: Optional[int] = None,
    long_questions: str = "error",
    **options: Any,
) -> Any:
    """Load the verifier of a run directory.

    Parameters
    ----------
    run : str or path-like
        Run directory of a system that computes labels of claims.
    ctx, precision, threads, engine, batch_tokens, long_questions
        As `wqa.load_ranker` takes them. A claim is too long where it does not fit a segment;
        ``"truncate"`` keeps its first tokens.
    **options
        Further keywords of the verifier.

    Returns
    -------
    Verifier
        The verifier of the run's system, a `wqa.systems.mspp.claims.Verifier`.

    Raises
    ------
    RunDirectoryError
        If a file is missing, truncated, or contradicts another file, or the run is no classifier of
        claims.
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option does not fit the run, or this machine lacks what it needs.
    """
    config = EngineConfig(engine, precision, threads, ctx, batch_tokens)
    return _load(run, "labels", "wqa train mspp_claims", config, long_questions, options)


def _load(
    run: Union[str, os.PathLike[str]],
    computes: str,
    command: str,
    config: EngineConfig,
    long_questions: str,
    options: Any,
) -> Any:
    """Load what uses a network that computes `computes`, such as `command` trains."""
    expected = f"a run directory of `{command}`"
    loaded = load_run(run, config, long_questions, computes, expected)
    build = find_system(loaded.config.system).ranker_type(computes)
    try:
        return build(loaded.network, loaded.inputs, **loaded.options, **options)
    except OptionError as error:
        if error.where != "network":
            raise
        where = f"{pathlib.Path(run) / 'config.json'}, field network"
        raise RunDirectoryError(where, error.found, error.expected) from None
