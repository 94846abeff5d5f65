"""A run directory to a ranker."""
from __future__ import annotations

import json
import os
import pathlib
import tarfile
from typing import Any, Optional, Union

import mxnet as mx

from wqa.config import read_run_config
from wqa.errors import EncoderError, OptionError, RunDirectoryError
from wqa.inference.cascade import CascadeRanker
from wqa.inference.quantized import read_quantized
from wqa.models import build_model, parse_devices
from wqa.models.onednn import check_precision
from wqa.pretrained import encoder_directory, load_classifier
from wqa.text import PairEncoder, load_tokenizer

#: Greatest length of a pair for a classifier that does not say what it was trained with.
MAX_LENGTH = 128


def load_ranker(run: Union[str, os.PathLike[str]], drop_ratio: Any = 0.0, ctx: str = "cpu",
                precision: str = "float32", threads: Optional[int] = None, engine: str = "auto",
                **options: Any) -> CascadeRanker:
    """Load the ranker of a run directory.

    Parameters
    ----------
    run : str or path-like
        Holds ``config.json``, ``model.params`` and ``tokenizer.json``; or a fine-tuned classifier in
        another library's form, as `wqa.pretrained.load_classifier` takes it, such as TANDA's.
    drop_ratio : float or sequence of float
        One, or one an exit.
    ctx : str
        Device.
    precision : {"float32", "bfloat16", "int8"}
        What products compute in. bfloat16 and int8 need a CPU with instructions for them; int8 also a
        run that `wqa quantize` has calibrated.
    threads : int, optional
        Threads of oneDNN's engine; all that the process may use by default.
    engine : {"auto", "mxnet", "onednn"}
        ``auto`` takes oneDNN on a CPU where its library is installed, MXNet otherwise.
    **options
        Further parameters of `CascadeRanker`.

    Returns
    -------
    CascadeRanker

    Raises
    ------
    RunDirectoryError, EncoderError
        If a file is missing, cut off, or does not fit the others.
    OptionError, DeviceError, PrecisionError, MissingDependency
        If the options do not go together, or this machine lacks what they ask for.
    """
    check_precision(precision)
    options.update(precision=precision, threads=threads, engine=engine)
    folder, devices = pathlib.Path(run), parse_devices(ctx)
    if _is_huggingface(folder):
        return _load_classifier(folder, drop_ratio, ctx, **options)
    if not folder.is_dir():
        raise RunDirectoryError(folder, "there is no such directory",
                                "a run directory as `wqa train` writes it, or a classifier's directory or tar")
    config = read_run_config(folder / "config.json")
    if config.system == "encoder":
        raise RunDirectoryError(folder, "an encoder without a ranker", "a run, or a converted classifier",
                                "train one: wqa train SYSTEM --encoder " + str(folder))
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
    if precision == "int8":
        options["quantized"] = read_quantized(folder, model)
    return CascadeRanker(model, PairEncoder(tokenizer, config.max_length), drop_ratio, ctx, **options)


def _is_huggingface(folder: pathlib.Path) -> bool:
    try:
        if folder.is_file():
            return tarfile.is_tarfile(folder)
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return "hidden_size" in values and "system" not in values
    except (OSError, ValueError, TypeError):  # reading it as a run tells what is wrong
        return False


def _load_classifier(path: pathlib.Path, drop_ratio: Any, ctx: str, **options: Any) -> CascadeRanker:
    if options["precision"] == "int8":
        raise OptionError("--precision", f"int8 of {path}, another library's directory", "a calibrated run",
                          f"wqa convert {path} RUN, then wqa quantize RUN --data DEV.jsonl")
    with encoder_directory(path) as folder:
        model, tokenizer = load_classifier(folder, parse_devices(ctx)), load_tokenizer(folder)
        tokenizer.check_fits(model.config, path)
    encoder = PairEncoder(tokenizer, min(MAX_LENGTH, model.config.max_positions))
    return CascadeRanker(model, encoder, drop_ratio, ctx, **options)
