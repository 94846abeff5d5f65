"""Zero-shot rankers: the similarity of texts that a pretrained bi-encoder encodes independently.

An encoder that was trained to match texts, such as all-MiniLM-L6-v2, ranks without further
training. Questions and candidates are encoded as by DC-BERT's ranker, and candidates may come from
a document cache.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from wqa.engines.choice import build_engine
from wqa.engines.mxnet import Engine
from wqa.engines.onednn.engine import PackedEngine
from wqa.engines.onednn.quantize import QuantizedLayers
from wqa.systems.dcbert.engines import DecoupledHybridEngine
from wqa.systems.dcbert.ranker import DecoupledRanker


class SimilarityRanker(DecoupledRanker):
    """Ranks by `wqa.systems.dcbert.similarity.SimilarityNetwork`.

    The engine and the precision are those of the encoders. MXNet compares their encodings, in
    float32.

    Parameters
    ----------
    network : SimilarityNetwork
        Network with its parameters on the engine's device.
    encoder : SplitEncoder
        Encodes both texts apart.
    **options
        Further parameters of `wqa.systems.dcbert.ranker.DecoupledRanker`.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency, DataError
        As `wqa.systems.dcbert.ranker.DecoupledRanker`.
    """

    def _build_engine(self, quantized: Optional[QuantizedLayers]) -> Engine:
        config = dataclasses.replace(self._config, engine="mxnet", precision="float32")
        engines = (DecoupledHybridEngine, PackedEngine)
        return build_engine(self.network, self.encoder.tokenizer, config, engines=engines)
