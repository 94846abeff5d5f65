"""The training loop, the systems' tasks, schedule, sampling, losses and checkpoints."""

import wqa.models  # noqa: F401 - prepares the process before any module here imports MXNet
from wqa.training.pairs import TrainingPairs
from wqa.training.schedules import ExitTask
from wqa.training.start import Start
from wqa.training.task import PairTask, Setup, Task
from wqa.training.trainer import Trainer

__all__ = ["ExitTask", "PairTask", "Setup", "Start", "Task", "Trainer", "TrainingPairs"]
