"""The bar of a training, which estimates the time that is left."""

from __future__ import annotations

import sys
from typing import Any, Dict, Optional, Tuple

from tqdm import tqdm

#: Number of updates without an estimate. Libraries compile their kernels in the first ones, for the
#: shapes of those batches, which takes many times longer than an update does.
COMPILING = 10


class TrainingBar(tqdm):
    """Bar on standard error whose speed is measured after the first updates of the process.

    Until then it shows no time that is left. The measurement includes evaluations and checkpoints.
    """

    def __init__(self, total: int, done: int, **options: Any) -> None:
        # Number of updates and the time at which the measurement starts.
        self._measured_from: Optional[Tuple[int, float]] = None
        options = {
            "desc": "training",
            "unit": "update",
            "file": sys.stderr,
            "mininterval": 0.5 if sys.stderr.isatty() else 20,
            "dynamic_ncols": True,
            **options,
        }
        super().__init__(total=total, initial=done, **options)

    def update(self, n: float = 1) -> Optional[bool]:
        """Count updates."""
        if self.disable:
            return None
        if self._measured_from is None and self.n + n - self.initial >= COMPILING:
            self._measured_from = (self.n + n, self._time())
        return super().update(n)

    @property
    def format_dict(self) -> Dict[str, Any]:
        """What the line of the bar is made of; tqdm shows a question mark for a rate of 0."""
        return {**super().format_dict, "rate": self._updates_per_second()}

    def _updates_per_second(self) -> float:
        if self._measured_from is None:
            return 0.0
        number, begin = self._measured_from
        return (self.n - number) / max(self._time() - begin, 1e-9)
