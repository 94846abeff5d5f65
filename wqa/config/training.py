"""Configuration of engines and of the training loop."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Dict, Optional, Tuple

from wqa.config.systems import option
from wqa.errors import OptionError, check_choice, check_range

#: Engines of training: MXNet, oneDNN, or oneDNN where it supports the network.
ENGINES = ("auto", "mxnet", "onednn")
#: Engines of ranking, which also runs exported graphs.
RANKING_ENGINES = (*ENGINES, "onnxruntime")
#: Precisions of products.
PRECISIONS = ("float32", "bfloat16", "int8")
#: SmoothQuant's alpha, the share of the inputs' imbalance that moves to the weights. The paper's
#: 0.5 loses up to 2.6 points of WikiQA's dev MAP with the MiniLM rankers; from 0.7 on the loss is
#: within the split's noise.
STRENGTH = 0.8
#: Filters of questions, whose rules are `wqa.data.records.FILTERS`.
QUESTION_FILTERS = ("all", "no-all-negative", "clean")
#: What to do with a question that leaves too few tokens for its candidates.
LONG_QUESTIONS = ("error", "truncate", "skip")
#: What may become of candidates that do not fit: they lose their last tokens, or all are read.
LONG_CANDIDATES = ("truncate", "windows")


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    """Settings of the engine that computes a network.

    Parameters
    ----------
    engine : {"auto", "mxnet", "onednn", "onnxruntime"}
        ``auto`` takes oneDNN on a single CPU where its library is installed and the network is made
        of transformer layers, MXNet for other runs, and ONNX Runtime for exported folders. Cosinet
        is computed by sparse products on a CPU, unless MXNet is named.
    precision : {"float32", "bfloat16", "int8"}
        Precision of products; MXNet and ONNX Runtime support float32 alone.
    threads : int, optional
        Number of threads on a CPU; by default all that the process may use.
    ctx : str
        Device, as `wqa.models.parse_devices` takes it.
    batch_tokens : int, optional
        Tokens of a micro-batch; the default depends on the engine.

    Raises
    ------
    OptionError
        If a value is out of range.
    """

    engine: str = "auto"
    precision: str = "float32"
    threads: Optional[int] = None
    ctx: str = "cpu"
    batch_tokens: Optional[int] = None

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, RANKING_ENGINES)
        check_choice("precision", self.precision, PRECISIONS)
        if self.threads is not None:
            check_range("threads", self.threads, 1, len(os.sched_getaffinity(0)))
        if self.batch_tokens is not None:
            check_range("batch_tokens", self.batch_tokens, 1)


#: Stores that sum gradients: over the devices of a process, or also over several processes.
KVSTORES = ("device", "dist_sync")
#: How several teachers teach the scores of a student.
TEACHINGS = ("each", "sum", "round-robin")
#: Least alpha but 0, with which losses do not overflow.
_LEAST_ALPHA = 1e-6
#: Least and greatest value of each number of a training; a rate below the least is 0 in float32.
_BOUNDS: Dict[str, Tuple[float, float]] = {
    **dict.fromkeys(("epochs", "tokens_per_batch", "checkpoint_every"), (1, math.inf)),
    **dict.fromkeys(("accumulate", "log_every"), (1, math.inf)),
    **dict.fromkeys(("max_updates", "seed", "eval_every", "patience"), (0, math.inf)),
    **dict.fromkeys(("warmup_updates", "tokens_per_update"), (0, math.inf)),
    **dict.fromkeys(("clip_norm", "weight_decay"), (0.0, math.inf)),
    **dict.fromkeys(("encoder_rate", "alpha"), (0.0, 1.0)),
    "learning_rate": (1e-37, math.inf),
    "warmup_share": (0.0, 0.999999),
    "tau": (0.01, 100),
}

#: Schedules of the learning rate: both rise to a peak and fall.
SCHEDULES = ("triangular", "slanted")
#: Updates of the warm-up in section 5.2 of Soldaini and Moschitti 2020. It was the default once, so
#: that runs recorded it beside a share of the updates, or a schedule without a warm-up of its own.
WARMUP_UPDATES = 4000


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training loop.

    By default they are those of Soldaini and Moschitti 2020, section 5.2, but for the learning rate
    and the warm-up, which suit a corpus as large as ASNQ there and are chosen from the number of
    updates here.

    Parameters
    ----------
    epochs : int
        Passes over the training data.
    max_updates : int
        Number of updates after which training ends; 0 for no limit.
    seed : int
        Seed of Python, NumPy and MXNet.
    learning_rate : float, optional
        Peak of the schedule; by default `wqa.training.schedules.default_learning_rate` of the
        number of updates.
    encoder_rate : float
        Learning rate of the network's encoders, from 0 to 1, as a share of that of its other
        parameters; 1 in the papers.
    schedule : {"triangular", "slanted"}
        ``triangular`` rises over the warm-up and falls to 0. ``slanted`` rises over a tenth of the
        updates and falls to 1/32 of the peak (Howard and Ruder 2018), and has no other warm-up.
    warmup_updates : int, optional
        Number of updates before the peak; by default a tenth of them. None where ``warmup_share``
        or the schedule decides it.
    warmup_share : float
        Share of all updates that come before the peak, from 0 to below 1, in place of
        ``warmup_updates``; 0 to take that.
    tokens_per_batch : int
        Tokens of a mini-batch on each device, padding included.
    tokens_per_update : int
        Tokens of an update, padding included, whatever the number of devices. The devices compute
        the update in as many steps as ``tokens_per_batch`` requires; its rows are divided evenly,
        so a device may compute one row more than fits. 0 for one mini-batch on each device.
    accumulate : int
        Number of mini-batches of an update, which follows the gradient of the mean loss over all
        their rows; 1 with ``tokens_per_update``.
    weight_decay : float
        Decoupled weight decay (Loshchilov and Hutter 2019): an update multiplies weights by 1 minus
        this times the learning rate. Biases and normalisations do not decay.
    clip_norm : float
        Greatest norm of the gradient; 0 for no limit.
    checkpoint_every : int
        Number of updates between two checkpoints.
    eval_every : int
        Number of updates between two evaluations on the development questions; 0 for once an epoch.
    patience : int
        Number of evaluations without a better figure before training stops early; 0 for never.
        Evaluations up to the peak of the schedule do not count.
    log_every : int
        Number of updates between two lines of ``metrics.jsonl``.
    ctx : str
        Devices, as `wqa.models.parse_devices` takes them.
    kvstore : {"device", "dist_sync"}
        Store that sums the gradients: over the devices of this process, or also over those of the
        other workers, which ``recipes/scale/launch.sh`` starts.
    engine : {"auto", "mxnet", "onednn"}
        ``auto`` takes oneDNN for transformer layers on a single CPU where it is installed.
    precision : {"float32", "bfloat16"}
        Precision of products; bfloat16 needs oneDNN.
    shuffle : {"pair", "question"}
        Units that an epoch shuffles: pairs, or blocks of whole questions, which a store reads in
        long sequential runs.
    train_filter, dev_filter : str
        Filters of training and development questions, keys of `wqa.data.records.FILTERS`.
    long_questions : {"error", "truncate", "skip"}
        What to do with a training or development question that leaves too few tokens for its
        candidates, as `wqa.text.PairInputs` takes it.
    teachers : tuple of str
        Teachers of knowledge distillation: folders that `wqa score` wrote. None by default.
    alpha : float
        Share of the loss that the labels teach, from 0 to 1; the teachers teach the rest
        (Matsubara et al. 2022, equation 1).
    tau : float
        Temperature of the probabilities of teachers and student, from 0.01 to 100 (equations 2
        and 3).
    teaching : {"each", "sum", "round-robin"}
        What several teachers teach. ``each``: score i of the student, such as that of its head i,
        learns from teacher i alone. ``sum``: every score learns from all teachers, by the sum of
        their losses (KD-Sum of section 5.2). ``round-robin``: in each update every score learns
        from one teacher; the first teacher comes first, and after the last the first again (KD-RR).

    Raises
    ------
    OptionError
        If a value is out of range.
    """

    epochs: int = option(3, "passes over the training data")
    max_updates: int = option(0, "updates after which training ends, 0 for no limit")
    seed: int = option(0, "seed of Python, NumPy and MXNet")
    learning_rate: Optional[float] = option(
        None, "peak of the schedule", "chosen from the number of updates, 1e-6 to 5e-5"
    )
    encoder_rate: float = option(1.0, "learning rate of encoders, as a share of that of the others")
    schedule: str = option(
        "triangular", "slanted rises over a tenth of the updates, triangular over the warm-up"
    )
    warmup_updates: Optional[int] = option(None, "updates up to the peak", "a tenth of them")
    warmup_share: float = option(0.0, "share of all updates up to the peak, in place of a number")
    tokens_per_batch: int = option(2000, "padded tokens of a mini-batch on each device")
    tokens_per_update: int = option(0, "padded tokens of an update, 0 for one mini-batch a device")
    accumulate: int = option(1, "mini-batches of an update")
    weight_decay: float = option(0.0, "decoupled weight decay, 0 for none")
    clip_norm: float = option(0.0, "greatest norm of the gradient, 0 for no limit")
    checkpoint_every: int = option(500, "updates between two checkpoints")
    eval_every: int = option(0, "updates between two evaluations, 0 for once an epoch")
    patience: int = option(
        0, "evaluations after the peak without a better figure before stopping, 0 for never"
    )
    log_every: int = option(50, "updates between two lines of metrics.jsonl")
    ctx: str = option("cpu", "devices: cpu, gpu:0, or a range such as gpu:0-7")
    kvstore: str = option("device", "dist_sync: several machines, by recipes/scale/launch.sh")
    engine: str = option("auto", "auto takes oneDNN on a single CPU where it is installed")
    precision: str = option("float32", "precision of products: float32, or bfloat16 by oneDNN")
    shuffle: str = option("pair", "shuffle all pairs, or blocks of questions")
    train_filter: str = option(
        "all",
        "training questions to use: all; no-all-negative, those with an answer; clean, those with "
        "both an answer and a wrong candidate",
    )
    dev_filter: str = option("no-all-negative", "development questions to score")
    long_questions: str = option("error", "questions that leave a candidate fewer than 16 tokens")
    teachers: Tuple[str, ...] = option(
        (), "teachers to learn from: folders of `wqa score`, separated by commas"
    )
    alpha: float = option(0.5, "share of the loss that the labels teach; teachers teach the rest")
    tau: float = option(1.0, "temperature of the probabilities that teachers teach")
    teaching: str = option(
        "each",
        "each: score i, such as that of head i, learns from teacher i; sum: every score from all "
        "teachers; round-robin: from one of them an update, in turn",
    )

    #: Values that some fields are limited to.
    CHOICES = {
        "kvstore": KVSTORES,
        "engine": ENGINES,
        "precision": ("float32", "bfloat16"),
        "schedule": SCHEDULES,
        "shuffle": ("pair", "question"),
        "train_filter": QUESTION_FILTERS,
        "dev_filter": QUESTION_FILTERS,
        "long_questions": LONG_QUESTIONS,
        "teaching": TEACHINGS,
    }

    def __post_init__(self) -> None:
        for name, bounds in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None:
                check_range(name, value, *bounds)
        for name, known in self.CHOICES.items():
            check_choice(name, getattr(self, name), known)
        has_updates = self.warmup_updates not in (None, WARMUP_UPDATES)
        if self.warmup_share and has_updates:
            raise OptionError("warmup_updates and warmup_share", "both", "one of the two")
        if self.schedule == "slanted" and (self.warmup_share or has_updates):
            problem = "slanted with a warm-up of its own"
            hint = 'set schedule="triangular", or leave the warm-up out'
            raise OptionError("schedule", problem, "slanted alone", hint)
        if self.warmup_share or self.schedule == "slanted":
            object.__setattr__(self, "warmup_updates", None)
        if self.tokens_per_update and self.accumulate > 1:
            raise OptionError("accumulate and tokens_per_update", "both", "one of the two")
        if isinstance(self.teachers, str) or not all(self.teachers):
            raise OptionError("teachers", repr(self.teachers), "a sequence of paths")
        if 0 < self.alpha < _LEAST_ALPHA:
            raise OptionError("alpha", self.alpha, f"0, or a number from {_LEAST_ALPHA} to 1")
        for name in () if self.teachers else ("alpha", "tau", "teaching"):
            value = getattr(self, name)
            if value != getattr(type(self), name):
                hint = "set teachers, or leave the option out"
                problem = f"{value} without teachers"
                raise OptionError(name, problem, "teachers to learn from", hint)

    @property
    def engine_config(self) -> EngineConfig:
        """Engine, precision and devices."""
        return EngineConfig(self.engine, self.precision, ctx=self.ctx)
