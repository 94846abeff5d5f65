"""From options to a run directory: what `wqa train` calls, and a notebook can."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import shutil
import sys
from typing import Any, Callable, Dict, Optional

import mxnet as mx
import numpy as np

from wqa.config import RunConfig, TrainingConfig, read_run_config, to_json
from wqa.data import atomic_writer
from wqa.errors import OptionError, RunDirectoryError
from wqa.models import library_versions, network_type, parse_devices
from wqa.onednn import choose_engine
from wqa.text import PairEncoder
from wqa.training.checkpoint import State
from wqa.training.registry import task_type
from wqa.training.start import open_start
from wqa.training.task import Task
from wqa.training.trainer import Evaluator, Trainer, gradient_obstacle

#: Fields of ``config.json`` that must be the same for a training to go on.
_FIXED = ("system", "backbone", "network", "max_length", "encoder", "train_sha256")

_RESUME_MEND = "resume with the options that the run was started with"


def train(
    system: str,
    train_file: str,
    out: str,
    encoder: str = "",
    init: str = "",
    config: Optional[TrainingConfig] = None,
    max_length: int = 128,
    resume: bool = False,
    make_evaluator: Optional[Callable[[PairEncoder], Evaluator]] = None,
    command: str = "",
    **options: Any,
) -> State:
    """Train a system into a run directory.

    Parameters
    ----------
    system : str
        A key of `wqa.training.TASKS`.
    train_file : str
        Canonical JSONL, or a store that `wqa tokenize` made of it.
    out : str
        Run directory; must not hold a run yet, unless ``resume``.
    encoder : str
        Pretrained encoder to start from, as `wqa.pretrained.load_backbone` takes it.
    init : str
        Run directory to start from instead (the adapt step of TANDA). A head is kept where the run
        has one at the same layer with parameters of the same names and shapes; others are new.
        ``metrics.jsonl`` begins with what was kept.
    config : TrainingConfig, optional
        Settings of the training; those of section 5.2 where it is left out.
    max_length : int
        Greatest length of an input in tokens.
    resume : bool
        Go on with the run that stands in ``out``; its settings must be the same.
    make_evaluator : callable, optional
        Takes the pair encoder, gives the evaluator that the trainer calls.
    command : str
        The command line, for the record.
    **options
        Fields of the system's own configuration, such as ``exits=(2, 4, 6)``.

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
    kind = task_type(system)
    run, devices = pathlib.Path(out), parse_devices(config.ctx)
    choose_engine(config.engine_config)  # refuses what this machine lacks before it reads anything
    with open_start(encoder, init) as start:
        own_config = _own_config(system, options)
        task = kind.create(system, start, own_config, train_file, config, max_length)
        choose_engine(config.engine_config, gradient_obstacle(task.network))
        evaluator = make_evaluator(task.encoder) if make_evaluator else None
        record = RunConfig(
            system=system,
            backbone=task.network.config,
            network=_as_json(task.network.own_config),
            max_length=max_length,
            training=config,
            encoder=start.name,
            train_sha256=task.digest,
            versions=library_versions(),
            command=command,
        )
        if _begin(run, record, resume):
            # Left by a kill after the last rename.
            shutil.rmtree(run / "checkpoints", ignore_errors=True)
            return State(finished=True)
        task.encoder.tokenizer.save(run / "tokenizer.json")
        _seed(config.seed)
        _note_start(run, task.initialize(start, devices))
    return _fit(task, config, run, evaluator, resume)


def _own_config(system: str, options: Dict[str, Any]) -> Any:
    try:
        return network_type(system).Config(**options)
    except TypeError as error:
        raise OptionError(f"options of {system}", str(error)) from None


def _as_json(own_config: Any) -> Dict[str, Any]:
    return json.loads(json.dumps(dataclasses.asdict(own_config)))


def _note_start(run: pathlib.Path, said: str) -> None:
    """Say what was taken from another run, and begin ``metrics.jsonl`` with it."""
    if said and not (run / "metrics.jsonl").exists():
        print(f"start: {said}", file=sys.stderr)
        with open(run / "metrics.jsonl", "w", encoding="utf-8") as log:
            log.write(json.dumps({"update": 0, "start": said}) + "\n")


def _fit(
    task: Task,
    config: TrainingConfig,
    run: pathlib.Path,
    evaluator: Optional[Evaluator],
    resume: bool,
) -> State:
    trainer = Trainer(task, config, run, evaluator)
    if resume:
        trainer.resume()
    state = trainer.fit()
    trainer.checkpoints.finish(task.network, run / "model.params")
    return state


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    mx.random.seed(seed)


def _begin(run: pathlib.Path, record: RunConfig, resume: bool) -> bool:
    """Write config.json, or compare it with the one that stands; True if the run is complete."""
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
            "choose another directory, or resume to go on with this run",
        )
    earlier = read_run_config(path)
    for name in _FIXED:
        _compare(path, name, getattr(earlier, name), getattr(record, name))
    old = dataclasses.asdict(earlier.training or TrainingConfig())
    new = dataclasses.asdict(record.training or TrainingConfig())
    for name in old:
        _compare(path, name, old[name], new[name])
    return (run / "model.params").exists()


def _compare(path: pathlib.Path, name: str, old: Any, new: Any) -> None:
    if name == "network":
        for field in sorted({*old, *new}):
            _compare(path, field, old.get(field), new.get(field))
    elif old != new:
        raise RunDirectoryError(path, f"{name} was {old}", f"{new}, as given now", _RESUME_MEND)
