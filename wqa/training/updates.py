"""The rows of an update: on several devices at once, and in steps one after another."""

from __future__ import annotations

from typing import Dict, List, NamedTuple

import numpy as np

from wqa.config import TrainingConfig
from wqa.text import split_rows


class UpdatePlan(NamedTuple):
    """How the batches of a plan become updates."""

    tokens: int
    steps: int

    def step_tokens(self, max_length: int, workers: int = 1) -> int:
        """Most tokens that the devices of a worker compute at a time."""
        parts = self.steps * workers
        if parts == 1:
            return self.tokens
        # Parts are equal but for a row.
        return self.tokens // parts + max_length

    def split(self, batch: Dict[str, np.ndarray]) -> List[Dict[str, np.ndarray]]:
        """Divide a batch into the parts that the devices compute one after another."""
        if self.steps == 1:
            return [batch]
        rows = len(next(iter(batch.values())))
        parts = []
        for start, end in split_rows(rows, self.steps):
            if start < end:
                parts.append({name: array[start:end] for name, array in batch.items()})
        return parts


def plan_updates(config: TrainingConfig, devices: int) -> UpdatePlan:
    """Choose the batches of the plan and the steps of an update.

    With ``tokens_per_update`` an update has the same rows on any number of devices: the plan does
    not depend on the devices, only the number of steps does.
    """
    at_once = config.tokens_per_batch * devices
    if not config.tokens_per_update:
        return UpdatePlan(at_once, 1)
    steps = -(-config.tokens_per_update // at_once)
    return UpdatePlan(config.tokens_per_update, steps)
