"""Training of a system into a run directory."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import os
import pathlib
import random
import sys
from typing import Any, Callable, Dict, Iterator, Optional

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np

from wqa.config import RunConfig, TrainingConfig, read_run_config
from wqa.config.environment import device_numbers
from wqa.config.runs import as_json, to_json
from wqa.data.digests import RUN_FILES, forget_digests, record_digests
from wqa.data.formats import data_digest
from wqa.data.ir_names import is_ir_name
from wqa.engines.choice import choose_engine, choose_training_engine
from wqa.errors import OptionError, RunDirectoryError, printable, shorten
from wqa.io.files import PathLike, atomic_writer, lock_output, refuse
from wqa.io.progress import LossyStream
from wqa.models import library_versions, parse_devices
from wqa.systems.development import ENSEMBLE, Comparison, Development
from wqa.systems.registry import find_system, system_config
from wqa.systems.saving import write_model_card
from wqa.text import PairInputs
from wqa.training.checkpoint import Checkpoints, MetricsFile, State
from wqa.training.schedules import Schedule, plan_schedule, plan_updates, with_chosen
from wqa.training.start import open_start
from wqa.training.task import Setup, Task
from wqa.training.teachers import open_teachers, scores_of_teachers
from wqa.training.trainer import Evaluator, Trainer
from wqa.training.workers import Workers, open_workers

LOGGER = logging.getLogger(__name__)

#: Fields of ``config.json`` that must not change when a training is resumed.
_FIXED = ("system", "backbone", "max_length", "encoder", "train_sha256", "teachers_sha256")

_RESUME_HINT = "resume with the options that the run was started with"


@dataclasses.dataclass
class Trained(State):
    """State of a training after its last update, as one of its workers has it.

    Parameters
    ----------
    rank : int
        Number of this worker. Worker 0 shows and writes what comes of a training.
    """

    rank: int = 0


def train(
    system: str,
    train_file: str,
    out: str,
    encoder: PathLike = "",
    init: PathLike = "",
    config: Optional[TrainingConfig] = None,
    max_length: int = 128,
    resume: bool = False,
    make_evaluator: Optional[Callable[[PairInputs], Evaluator]] = None,
    command: str = "",
    dev: str = "",
    **options: Any,
) -> Trained:
    """Train a system into a run directory.

    Messages and progress bars that standard error does not take are dropped.

    Parameters
    ----------
    system : str
        Name of the system, a key of `wqa.systems.SYSTEMS`.
    train_file : str
        Canonical JSONL, or a store that `wqa tokenize` wrote.
    out : str
        Run directory; it must not hold a run, unless ``resume``.
    encoder : str or path
        Pretrained encoder to start from, as `wqa.pretrained.load_backbone` takes it.
    init : str or path
        Run directory to start from instead (the adapt step of TANDA). A head is kept if the run has
        a head at the same layer with the same names and shapes of parameters; other heads are new.
        The first line of ``metrics.jsonl`` lists the heads that are kept.
    config : TrainingConfig, optional
        Settings of the training; by default those of `NetworkConfig.training_defaults`, and
        otherwise those of `TrainingConfig`. A learning rate and a warm-up that are left out are
        chosen from the number of updates.
    max_length : int
        Greatest length of an input in tokens.
    resume : bool
        Resume the run in ``out``; its settings must be the same.
    make_evaluator : callable, optional
        Takes the inputs of the network and returns the evaluator that the trainer calls.
    command : str
        Command line that ``config.json`` records.
    dev : str
        Development questions, or what else the system is evaluated on; empty for none. The run
        keeps the parameters with the best figure, as of those of ``make_evaluator``. The model card
        names the file.
    **options
        Fields of the system's own configuration, such as ``exits=(2, 4, 6)``.

    Returns
    -------
    Trained
        State of the training after the last update. Where the run was complete already,
        ``finished`` alone is set.

    Raises
    ------
    WqaError
        If the data, the encoder or the run cannot be read, the settings do not fit, the training
        diverges or is stopped, or one of several workers fails.
    """
    kind, own_config, dev = find_system(system), system_config(system, options), str(dev or "")
    config = config or TrainingConfig(**own_config.training_defaults())
    encoder, init = os.fspath(encoder or ""), os.fspath(init or "")
    run, devices = pathlib.Path(out), parse_devices(config.ctx)
    choose_engine(config.engine_config)  # fails before any data is read
    if dev and make_evaluator:
        raise OptionError("dev and make_evaluator", "both", "one of the two")
    development = Development(dev, system, own_config, config) if dev else None
    make_evaluator = development.evaluator if development else make_evaluator
    with _joined(run, config) as workers:
        devices_now = len(devices) * workers.count
        began_on = (resume and _devices_of(run)) or devices_now
        with open_start(encoder, init) as start:
            setup = Setup(kind, start, own_config, train_file, config, max_length)
            task = kind.task_type().create(setup)
            choose_training_engine(task.network, config)
            schedule = _schedule(task, config, run, began_on)
            config = with_chosen(config, schedule)
            teachers = open_teachers(task, config)
            evaluator = make_evaluator(task.inputs) if make_evaluator and workers.writes else None
            record = RunConfig(
                system=system,
                backbone=task.network.config,
                network=as_json(task.network.own_config),
                max_length=max_length,
                training=config,
                encoder=start.name,
                train_sha256=task.digest,
                teachers_sha256=tuple(teacher.digest for teacher in teachers),
                versions=library_versions(),
                command=command,
                workers=workers.count,
                data=_describe_data(task, train_file, dev) if workers.writes else {},
            )
            _check_agreement(record, workers)
            compare = functools.partial(_compare, development, workers, task.inputs, encoder, init)
            if workers.first(workers.writes and _is_complete(run, record, resume)):
                return _end_again(task, run, workers, compare)
            if teachers:
                task.teach(functools.partial(scores_of_teachers, teachers, train_file=train_file))
            _seed(config.seed)
            start_line = task.initialize(start, devices)
            compared = compare()  # before anything is written
            if workers.writes:
                _begin(run, record, task)
            _log_start(run, start_line, compared, workers)
            _warn_of_devices(began_on, devices_now)
        trainer = Trainer(task, config, run, evaluator, schedule, workers, began_on)
        state = _fit(trainer, run, resume, compared)
        return Trained(**vars(state), rank=workers.rank)


@contextlib.contextmanager
def _joined(run: pathlib.Path, config: TrainingConfig) -> Iterator[Workers]:
    """Meet the other workers, of which one locks the run; standard error may go away meanwhile."""
    stderr: Any = LossyStream(sys.stderr)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stderr(stderr))
        workers = stack.enter_context(open_workers(config.kvstore))
        if workers.writes:
            stack.enter_context(lock_output(run))
        yield workers


def _check_agreement(record: RunConfig, workers: Workers) -> None:
    """Check that all workers train the same, whatever their command lines say."""
    if workers.count == 1:
        return
    values = json.loads(to_json(record))
    values.update(values.pop("training"))
    of_workers = workers.gather(values)
    for name, value in of_workers[0].items():
        for rank, theirs in enumerate(of_workers):
            if theirs[name] != value and name not in ("command", "data"):
                problem = f"{shorten(theirs[name])} on worker {rank}, {shorten(value)} on worker 0"
                hint = "give them the same options and data"
                raise OptionError(name, problem, "the same training on all workers", hint)


def _devices_of(run: pathlib.Path) -> int:
    """Number of devices of all workers with which a run began; 0 where there is no run."""
    path = run / "config.json"
    if not path.exists():
        return 0
    record = read_run_config(path)
    return len(device_numbers((record.training or TrainingConfig()).ctx)[1]) * record.workers


def _schedule(task: Task, config: TrainingConfig, run: pathlib.Path, devices: int) -> Schedule:
    """Count the updates; a new training that ends within its warm-up is refused.

    ``max_updates`` may cut a trial short, and a run of an earlier version may be resumed.
    """
    schedule = plan_schedule(config, task.plan(plan_updates(config, devices).tokens))
    if config.learning_rate is None:
        rate = with_chosen(config, schedule).learning_rate
        LOGGER.info(f"learning_rate={rate} for {schedule.total} updates")
    if schedule.warmup < schedule.total:
        return schedule
    if schedule.total != config.max_updates and not (run / "config.json").exists():
        problem = f"{schedule.warmup}, and epochs={config.epochs} gives {schedule.total} updates"
        expected = "fewer, so that the learning rate reaches its peak"
        raise OptionError("warmup_updates", problem, expected, "give warmup_share=0.1")
    LOGGER.warning(
        f"the training ends after {schedule.total} updates, within its warm-up, "
        f"warmup_updates={schedule.warmup}: the learning rate does not pass its peak; give "
        "warmup_share=0.1"
    )
    return schedule


def _warn_of_devices(began_on: int, devices: int) -> None:
    """Say that a training goes on with another number of devices."""
    if began_on != devices:
        LOGGER.warning(
            f"the training began on {began_on} devices and goes on with {devices}; "
            "each update keeps its rows"
        )


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    mx.random.seed(seed)


def _compare(
    development: Optional[Development], workers: Workers, inputs: Any, encoder: str, init: str
) -> Optional[Comparison]:
    """Rank the development data by what needs no training, where there are such rankers."""
    if development is None or not workers.writes:
        return None
    return development.comparison(inputs, encoder, init)


def _end_again(
    task: Task,
    run: pathlib.Path,
    workers: Workers,
    compare: Callable[[], Optional[Comparison]],
) -> Trained:
    """Leave a complete run as it is, but for what a stop behind its last update left out."""
    compared = None if (run / ENSEMBLE).exists() else compare()
    if compared:
        lines = MetricsFile(run / "metrics.jsonl").lines()
        compared.finish(run, max((line["update"] for line in lines), default=0))
    _write_card(run, task, workers)
    return Trained(finished=True, rank=workers.rank)


def _log_start(
    run: pathlib.Path, line: str, compared: Optional[Comparison], workers: Workers
) -> None:
    """Log the parts taken from another run, and what ranks without the training."""
    if not workers.writes:
        return
    lines: Dict[str, Any] = {"start": line} if line else {}
    if compared:
        lines["untrained"] = compared.figures
    metrics = MetricsFile(run / "metrics.jsonl")
    if lines and not metrics.path.exists():
        metrics.append({"update": 0, **lines})
        if line:
            LOGGER.info(f"start: {printable(line)}")
        if compared:
            LOGGER.info(f"without training: {compared.described()}")


def _fit(
    trainer: Trainer, run: pathlib.Path, resume: bool, compared: Optional[Comparison]
) -> State:
    """Train to the end, and write what a finished run holds."""
    if resume:
        trainer.resume()
    state = trainer.fit()
    if trainer.workers.writes:
        trainer.checkpoints.finish(trainer.network, run / "model.params")
        record_digests(run)
        if compared:
            compared.finish(run, state.update)
    _write_card(run, trainer.task, trainer.workers)
    return state


def _is_complete(run: pathlib.Path, record: RunConfig, resume: bool) -> bool:
    """Compare config.json with that of the resumed run, if there is one; True if it is complete.

    The digests of a complete run are recorded again.
    """
    path = run / "config.json"
    if not path.exists():
        for name in (*RUN_FILES, "checkpoints", "metrics.jsonl"):
            if os.path.lexists(run / name):
                raise refuse(run, name, "run")
        return False
    if not resume:
        hint = "choose another directory, or resume this run"
        raise RunDirectoryError(run, "holds a run already", "an empty directory", hint)
    began = read_run_config(path)
    old, new = _fixed_settings(began), _fixed_settings(record)
    if not began.data:  # a run of an earlier version
        new["dev_sha256"] = old["dev_sha256"]
    for name in {**old, **new}:
        if old.get(name) != new.get(name):
            expected = f"{new.get(name)}, as given now"
            raise RunDirectoryError(path, f"{name} was {old.get(name)}", expected, _RESUME_HINT)
    if not (run / "model.params").exists():
        return False
    # They remain if the process is killed after the last rename.
    Checkpoints(run).remove()
    record_digests(run, [name for name in RUN_FILES if (run / name).is_file()])
    return True


def _fixed_settings(record: RunConfig) -> Dict[str, Any]:
    """What must not change when a training is resumed; its devices may."""
    settings = {name: getattr(record, name) for name in _FIXED}
    training = dataclasses.asdict(record.training or TrainingConfig())
    for name in ("ctx", "kvstore"):
        del training[name]
    dev = record.data.get("dev", {})
    settings["dev_sha256"] = dev.get("sha256", dev.get("file", "none"))
    return {**settings, **record.network, **training}


def _describe_data(task: Task, train_file: str, dev: str) -> Dict[str, Any]:
    """What ``config.json`` records for the model card."""
    data: Dict[str, Any] = {"metric": task.metric}
    data["train"] = {"file": printable(str(train_file)), **task.size()}
    if dev:
        data["dev"] = {"file": printable(dev)}
        if is_ir_name(dev) or pathlib.Path(dev).is_file():
            data["dev"]["sha256"] = data_digest(dev)
    return data


def _write_card(run: pathlib.Path, task: Task, workers: Workers) -> None:
    if workers.writes:
        write_model_card(run, read_run_config(run / "config.json"), task.network.computes)


def _begin(run: pathlib.Path, record: RunConfig, task: Task) -> None:
    """Write the files of a new run; digests of a resumed one are out of date from now on."""
    path = run / "config.json"
    if path.exists():
        forget_digests(run)
    else:
        with atomic_writer(path) as file:
            file.write(to_json(record))
    task.inputs.tokenizer.save(run / "tokenizer.json")
