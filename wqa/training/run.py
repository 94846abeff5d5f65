"""From options to a run directory: what `wqa train` calls, and a notebook can."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import random
import shutil
import sys
from typing import Callable, List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from wqa.config import BackboneConfig, RunConfig, TrainingConfig, read_run_config, to_json
from wqa.data import atomic_writer, filter_questions, read_questions
from wqa.data.files import sha256
from wqa.errors import OptionError, RunDirectoryError
from wqa.models import build_model, library_versions, parse_devices
from wqa.models.heads import ExitNetwork
from wqa.pretrained import encoder_directory, initialize_from, read_backbone_config
from wqa.text import PairEncoder, PairStore, is_store, load_tokenizer
from wqa.training.checkpoint import State
from wqa.training.pairs import Pairs, StoredPairs, TrainingPairs
from wqa.training.trainer import Evaluator, Trainer, uses_onednn


def train(
    system: str,
    train_file: str,
    out: str,
    encoder: str = "",
    init: str = "",
    exits: Sequence[int] = (),
    config: Optional[TrainingConfig] = None,
    max_length: int = 128,
    resume: bool = False,
    make_evaluator: Optional[Callable[[PairEncoder], Evaluator]] = None,
    command: str = "",
) -> State:
    """Train a system into a run directory.

    Parameters
    ----------
    system : str
        A key of `wqa.models.SYSTEMS`.
    train_file : str
        Canonical JSONL, or a store that `wqa tokenize` made of it.
    out : str
        Run directory; must not hold a run yet, unless ``resume``.
    encoder : str
        Pretrained encoder to start from: what `wqa.pretrained.load_backbone` takes.
    init : str
        Run directory to start from instead (the adapt step of TANDA). A head is kept where the run
        has one at the same layer with parameters of the same names and shapes; others are new.
        ``metrics.jsonl`` begins with what was kept.
    exits : sequence of int
        The system's default where it is empty.
    config : TrainingConfig, optional
        The defaults of section 5.2 where it is left out.
    max_length : int
        Greatest length of a pair in tokens.
    resume : bool
        Go on with the run that stands in ``out``; its settings must be the same.
    make_evaluator : callable, optional
        Takes the pair encoder, gives the evaluator that the trainer calls.
    command : str
        The command line, for the record.

    Returns
    -------
    State
        Where the training ended.

    Raises
    ------
    WqaError
        Of the type that fits what was wrong.
    """
    config = config or TrainingConfig()
    if bool(encoder) == bool(init):
        raise OptionError(
            "--encoder and --init", "both" if encoder else "neither", "one of the two"
        )
    run, devices = pathlib.Path(out), parse_devices(config.ctx)
    uses_onednn(config)  # before anything is written
    with (
        encoder_directory(encoder) if encoder else contextlib.nullcontext(pathlib.Path(init))
    ) as source:
        backbone = (
            read_backbone_config(source)
            if encoder
            else read_run_config(source / "config.json").backbone
        )
        model = build_model(system, backbone, exits)
        tokenizer = load_tokenizer(source)
        tokenizer.check_fits(backbone, source)
        pair_encoder = PairEncoder(tokenizer, _within(max_length, backbone))
        pairs, digest = _pairs(train_file, config, pair_encoder)
        evaluator = make_evaluator(pair_encoder) if make_evaluator else None
        record = RunConfig(
            system,
            backbone,
            model.exits,
            max_length,
            config,
            encoder or init,
            digest,
            library_versions(),
            command,
        )
        if _begin(run, record, resume):
            shutil.rmtree(
                run / "checkpoints", ignore_errors=True
            )  # left by a kill after the last rename
            return State(finished=True)
        tokenizer.save(run / "tokenizer.json")
        _seed(config.seed)
        if encoder:
            initialize_from(model, source, devices)
        else:
            start = _initialize_from_run(model, source, devices)
            if not (run / "metrics.jsonl").exists():
                print(f"start: {start}", file=sys.stderr)
                with open(run / "metrics.jsonl", "w", encoding="utf-8") as log:
                    log.write(json.dumps({"update": 0, "start": start}) + "\n")
    trainer = Trainer(model, pairs, config, run, evaluator)
    if resume:
        trainer.resume()
    state = trainer.fit()
    trainer.checkpoints.finish(model, run / "model.params")
    return state


def _pairs(path: str, config: TrainingConfig, encoder: PairEncoder) -> Tuple[Pairs, str]:
    """Pairs to train on, and the digest of the questions that they come from."""
    if is_store(path):
        store = PairStore(path)
        return StoredPairs(store, encoder, config.train_filter, config.shuffle), store.meta[
            "source_sha256"
        ]
    questions = filter_questions(read_questions(path), config.train_filter)
    return TrainingPairs(questions, encoder, config.shuffle), sha256(path)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    mx.random.seed(seed)


def _within(max_length: int, backbone: BackboneConfig) -> int:
    if max_length > backbone.max_positions:
        raise OptionError(
            "--max-length",
            max_length,
            f"at most {backbone.max_positions}, the positions of the encoder",
        )
    return max_length


def _begin(run: pathlib.Path, record: RunConfig, resume: bool) -> bool:
    """Write config.json, or hold it against the one that stands; True if the run is complete."""
    path = run / "config.json"
    if not path.exists():
        with atomic_writer(path) as file:
            file.write(to_json(record))
        return False
    if not resume:
        raise RunDirectoryError(
            run,
            "holds a run already",
            "an empty directory",
            "choose another --out, or pass --resume to go on with this run",
        )
    stands = read_run_config(path)
    for field in ("system", "backbone", "exits", "max_length", "encoder", "train_sha256"):
        if getattr(stands, field) != getattr(record, field):
            raise RunDirectoryError(
                path,
                f"{field} was {getattr(stands, field)}",
                f"{getattr(record, field)}, as given now",
                "resume with the options that the run was started with",
            )
    old, new = (
        dataclasses.asdict(stands.training or TrainingConfig()),
        dataclasses.asdict(record.training),
    )  # type: ignore[arg-type]
    for name in old:
        if old[name] != new[name]:
            raise RunDirectoryError(
                path,
                f"{name} was {old[name]}",
                f"{new[name]}, as given now",
                "resume with the options that the run was started with",
            )
    return (run / "model.params").exists()


def _initialize_from_run(
    model: ExitNetwork, source: pathlib.Path, devices: Sequence[mx.Context]
) -> str:
    """Take a run's encoder, and every head whose parameters all agree in name and shape; gives what
    was taken, in words."""
    stands = read_run_config(source / "config.json")
    model.initialize(mx.init.Normal(0.02), ctx=list(devices))
    path = source / "model.params"
    try:
        arrays = mx.nd.load(str(path))
    except mx.base.MXNetError:
        raise RunDirectoryError(
            path, "is missing or cut off", "the parameters of a finished run"
        ) from None
    kept: List[str] = []
    new: List[str] = []
    parameters = model._collect_params_with_prefix()
    for part in ["backbone", *(f"head_{layer}" for layer in model.exits)]:
        names = [name for name in parameters if name.startswith(part + ".")]
        missing = [
            name
            for name in names
            if name not in arrays or arrays[name].shape != parameters[name].shape
        ]
        if part == "backbone" and missing:
            raise RunDirectoryError(
                path,
                f"parameter {missing[0]} is missing or of another shape",
                f"the {stands.backbone.layout} encoder of its config.json",
                "an encoder of another family or size stands there: restore the files from "
                "their run",
            )
        (new if missing else kept).append(part)
        if not missing:
            for name in names:
                parameters[name].set_data(arrays[name])
    heads = [
        f"heads {what} at " + ", ".join(part[5:] for part in parts)
        for what, parts in (("kept", kept[1:]), ("new", new))
        if parts
    ]
    return f"encoder of {source} ({stands.system})" + "".join("; " + text for text in heads)
