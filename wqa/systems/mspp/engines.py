"""How engines read joint inputs: k candidates of a question as one sequence, with marks."""

from __future__ import annotations

from typing import Any, Dict, Sequence

import numpy as np

from wqa.engines.inputs import EngineInputs
from wqa.systems.mspp.inputs import JointInput


class JointEngineInputs(EngineInputs):
    """Joint inputs, of which the heads read the marks."""

    def arrays(self, pairs: Sequence[JointInput]) -> Dict[str, np.ndarray]:
        most = 0 if self.is_exported else self.network.max_positions
        return dict(zip(self.inputs.names, self.inputs.pad(pairs, most)))

    def read_positions(self, pairs: Sequence[JointInput]) -> np.ndarray:
        return np.stack([joint.marks for joint in pairs])

    def embed(self, layers: Any, pairs: Sequence[JointInput], batch: Any) -> None:
        types = np.concatenate([joint.token_types for joint in pairs])
        positions = None
        if pairs[0].positions is not None:
            positions = np.concatenate([joint.positions for joint in pairs])
        layers.embed(pairs, batch, types, positions)
