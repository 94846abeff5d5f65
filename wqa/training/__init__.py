"""The one training loop, its schedule, sampling, losses and checkpoints."""
from wqa.training.pairs import TrainingPairs
from wqa.training.run import train
from wqa.training.trainer import Trainer

__all__ = ["Trainer", "TrainingPairs", "train"]
