"""A run directory to a ranker."""
from __future__ import annotations

import os
import pathlib
from typing import Any, Union

import mxnet as mx

from wqa.config import read_run_config
from wqa.errors import EncoderError, OptionError, RunDirectoryError, shorten
from wqa.inference.cascade import CascadeRanker
from wqa.models import build_model, parse_devices
from wqa.text import PairEncoder, load_tokenizer


def load_ranker(run: Union[str, os.PathLike[str]], drop_ratio: Any = 0.0, ctx: str = "cpu",
                precision: str = "float32", **options: Any) -> CascadeRanker:
    """Load the ranker of a run directory.

    Parameters
    ----------
    run : str or path-like
        Holds ``config.json``, ``model.params`` and ``tokenizer.json``.
    drop_ratio : float or sequence of float
        One, or one an exit.
    ctx : str
        Device.
    precision : {"float32"}
    **options
        Further parameters of `CascadeRanker`.

    Returns
    -------
    CascadeRanker

    Raises
    ------
    RunDirectoryError
        If a file is missing, cut off, or does not fit the others.
    """
    if precision != "float32":
        raise OptionError("precision", shorten(precision), "float32")
    folder = pathlib.Path(run)
    if not folder.is_dir():
        raise RunDirectoryError(folder, "there is no such directory", "a run directory as `wqa train` writes it")
    config = read_run_config(folder / "config.json")
    devices = parse_devices(ctx)
    try:
        tokenizer = load_tokenizer(folder)
        tokenizer.check_fits(config.backbone, folder / "tokenizer.json")
    except EncoderError as error:
        raise RunDirectoryError(folder / "tokenizer.json", error.found, "the tokenizer of the run",
                                "restore the file from its run") from None
    model = build_model(config.system, config.backbone, config.exits)
    path = folder / "model.params"
    if not path.exists():
        mend = ("the training has not finished: run its command again with --resume"
                if (folder / "checkpoints").is_dir() else "restore the file from its run")
        raise RunDirectoryError(path, "the file is missing", "the parameters of the run", mend)
    try:
        model.load_parameters(str(path), ctx=devices)
    except (mx.base.MXNetError, AssertionError, ValueError, OSError) as error:
        raise RunDirectoryError(path, f"does not load ({str(error).strip().splitlines()[-1]})",
                                "parameters that fit config.json", "restore the file from its run") from None
    return CascadeRanker(model, PairEncoder(tokenizer, config.max_length), drop_ratio, ctx, **options)
