"""The one training loop, its schedule, sampling, losses and checkpoints."""

import wqa.models  # noqa: F401 - prepares the process before any module here imports MXNet
from wqa.training.pairs import TrainingPairs
from wqa.training.run import train
from wqa.training.trainer import Trainer

__all__ = ["Trainer", "TrainingPairs", "train"]
