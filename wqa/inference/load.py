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
from wqa.inference.ranker import Ranker
from wqa.inference.sequential import SequentialRanker
from wqa.inference.tuned import read_tuned
from wqa.models import build_model, parse_devices
from wqa.models.onednn import check_precision
from wqa.pretrained import encoder_directory, load_classifier
from wqa.text import PairEncoder, load_tokenizer

#: Greatest length of a pair for a classifier that does not say what it was trained with.
MAX_LENGTH = 128


def load_ranker(
    run: Union[str, os.PathLike[str]],
    drop_ratio: Any = None,
    ctx: str = "cpu",
    precision: str = "float32",
    threads: Optional[int] = None,
    engine: str = "auto",
    **options: Any,
) -> Ranker:
    """Load the ranker of a run directory, or of a file that names several in sequence.

    Parameters
    ----------
    run : str or path-like
        Holds ``config.json``, ``model.params`` and ``tokenizer.json``; or a fine-tuned classifier
        in another library's form, as `wqa.pretrained.load_classifier` takes it, such as TANDA's; or
        a ``.json`` file of a sequence, ``{"rankers": [...], "drop_ratio": ...}``. Its rankers are
        paths beside the file, or ``{"run": PATH, "drop_ratio": ...}``; its ``drop_ratio`` is what
        `wqa.inference.SequentialRanker` takes.
    drop_ratio : float, sequence of float, or "tuned", optional
        One, or one an exit; ``tuned``: what `wqa tune` stored in the run; 0 by default. Of a
        sequence: what stands instead of the file's.
    ctx : str
        Device.
    precision : {"float32", "bfloat16", "int8"}
        What products compute in. bfloat16 and int8 need a CPU with instructions for them; int8 also
        a run that `wqa quantize` has calibrated.
    threads : int, optional
        Threads of oneDNN's engine; all that the process may use by default.
    engine : {"auto", "mxnet", "onednn"}
        ``auto`` takes oneDNN on a CPU where its library is installed, MXNet otherwise.
    **options
        Further parameters of `CascadeRanker`.

    Returns
    -------
    Ranker
        A `CascadeRanker`, of a sequence a `SequentialRanker`.

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
    if folder.suffix == ".json" and folder.is_file():
        return _load_sequence(folder, drop_ratio, ctx, **options)
    if drop_ratio is None:
        drop_ratio = 0.0
    elif isinstance(drop_ratio, str) and drop_ratio == "tuned":
        drop_ratio = read_tuned(folder)
    if _is_huggingface(folder):
        return _load_classifier(folder, drop_ratio, ctx, **options)
    if not folder.is_dir():
        raise RunDirectoryError(
            folder,
            "there is no such directory",
            "a run directory as `wqa train` writes it, or a classifier's directory or tar",
        )
    config = read_run_config(folder / "config.json")
    if config.system == "encoder":
        raise RunDirectoryError(
            folder,
            "an encoder without a ranker",
            "a run, or a converted classifier",
            "train one: wqa train SYSTEM --encoder " + str(folder),
        )
    try:
        tokenizer = load_tokenizer(folder)
        tokenizer.check_fits(config.backbone, folder / "tokenizer.json")
    except EncoderError as error:
        raise RunDirectoryError(
            folder / "tokenizer.json",
            error.found,
            "the tokenizer of the run",
            "restore the file from its run",
        ) from None
    model = build_model(config.system, config.backbone, config.exits)
    path = folder / "model.params"
    if not path.exists():
        mend = (
            "the training has not finished: run its command again with --resume"
            if (folder / "checkpoints").is_dir()
            else "restore the file from its run"
        )
        raise RunDirectoryError(path, "the file is missing", "the parameters of the run", mend)
    try:
        model.load_parameters(str(path), ctx=devices)
    except (mx.base.MXNetError, AssertionError, ValueError, OSError) as error:
        raise RunDirectoryError(
            path,
            f"does not load ({str(error).strip().splitlines()[-1]})",
            "parameters that fit config.json",
            "restore the file from its run",
        ) from None
    if precision == "int8":
        options["quantized"] = read_quantized(folder, model)
    return CascadeRanker(
        model, PairEncoder(tokenizer, config.max_length), drop_ratio, ctx, **options
    )


def load_cascade(run: Union[str, os.PathLike[str]], **options: Any) -> CascadeRanker:
    """Load the ranker of a run directory where a single network is needed.

    Parameters
    ----------
    run : str or path-like
    **options
        As `load_ranker` takes them.

    Returns
    -------
    CascadeRanker

    Raises
    ------
    RunDirectoryError
        If it is a sequence of rankers; else as `load_ranker`.
    """
    ranker = load_ranker(run, **options)
    if not isinstance(ranker, CascadeRanker):
        raise RunDirectoryError(
            run, "a sequence of rankers", "a single run", "name one of its runs"
        )
    return ranker


def _load_sequence(
    path: pathlib.Path, drop_ratio: Any, ctx: str, **options: Any
) -> SequentialRanker:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        entries = [
            entry if isinstance(entry, dict) else {"run": entry} for entry in values["rankers"]
        ]
        runs = [(path.parent / entry["run"], entry.get("drop_ratio", 0.0)) for entry in entries]
        stored = values.get("drop_ratio", 0.0)
        if set(values) - {"rankers", "drop_ratio"} or any(
            set(entry) - {"run", "drop_ratio"} for entry in entries
        ):
            raise ValueError("a field besides rankers, run and drop_ratio")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(
            path,
            f"is no sequence of rankers ({type(error).__name__}: {error})",
            '{"rankers": [RUN, {"run": RUN, "drop_ratio": A}, ...], "drop_ratio": [A or K, ...]}',
        ) from None
    rankers = [load_ranker(run, ratio, ctx, **options) for run, ratio in runs]
    try:
        return SequentialRanker(rankers, stored if drop_ratio is None else drop_ratio)
    except OptionError as error:
        raise RunDirectoryError(path, f"{error.where}: {error.found}", error.expected) from None


def _is_huggingface(folder: pathlib.Path) -> bool:
    try:
        if folder.is_file():
            return tarfile.is_tarfile(folder)
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return "hidden_size" in values and "system" not in values
    except (OSError, ValueError, TypeError):  # reading it as a run tells what is wrong
        return False


def _load_classifier(
    path: pathlib.Path, drop_ratio: Any, ctx: str, **options: Any
) -> CascadeRanker:
    if options["precision"] == "int8":
        raise OptionError(
            "--precision",
            f"int8 of {path}, another library's directory",
            "a calibrated run",
            f"wqa convert {path} RUN, then wqa quantize RUN --data DEV.jsonl",
        )
    with encoder_directory(path) as folder:
        model, tokenizer = load_classifier(folder, parse_devices(ctx)), load_tokenizer(folder)
        tokenizer.check_fits(model.config, path)
    encoder = PairEncoder(tokenizer, min(MAX_LENGTH, model.config.max_positions))
    return CascadeRanker(model, encoder, drop_ratio, ctx, **options)
