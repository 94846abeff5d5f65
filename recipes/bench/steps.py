#!/usr/bin/env python3
"""What each step towards the engine gave, in turn in one sitting: single products first, then whole
rankers.

    python recipes/bench/steps.py

Products are (1024 x 768) @ (768 x 3072), as a base encoder's feed-forward: by MXNet's operators in
float32, in bfloat16 with AMX switched on (FullyConnected on plain weights; a 1x1 Convolution, which
blocks them), and by oneDNN 3.2 called directly, alone and with GELU in the same step. Rankers are
monolithic, of RoBERTa-base's size with random weights, on 4 questions of 100 candidates of 15 to 70
tokens; each changes one thing.
"""

import statistics
import time

import mxnet as mx
import numpy as np

from wqa.config import BACKBONES
from wqa.inference import CascadeRanker
from wqa.inference.engine import PackedEngine
from wqa.inference.random import _Layout, random_pairs
from wqa.models import build_model, onednn
from wqa.models.onednn import BIAS, DST, SRC, WEIGHTS, Array, Layout, PackedWeights

ROWS, IN, OUT = 1024, 768, 3072
BFLOAT16 = np.dtype([("bfloat16", np.uint16)])


def in_turn(title, steps, rounds):
    """Medians of the steps' seconds, each round running every step once."""
    seconds = {name: [] for name in steps}
    for number in range(rounds + 1):
        for name, step in steps.items():
            begin = time.perf_counter()
            step()
            if number:
                seconds[name].append(time.perf_counter() - begin)
    print(title)
    first = next(iter(seconds.values()))
    for name, each in seconds.items():
        faster = statistics.median(base / mine for base, mine in zip(first, each))
        print(
            f"  {name:66} {1000 * statistics.median(each):9.2f} ms  {faster:5.2f} times as "
            "fast as the first"
        )


def mxnet_product(kind, convolution=False):
    rng = np.random.default_rng(0)
    shapes = ((1, IN, 1, ROWS), (OUT, IN, 1, 1)) if convolution else ((ROWS, IN), (OUT, IN))
    source, weight, bias = (
        mx.nd.array(rng.normal(size=shape), dtype="float32") for shape in (*shapes, (OUT,))
    )
    if kind == "bfloat16":
        source, weight, bias = (
            mx.nd.amp_cast(array, dtype=BFLOAT16) for array in (source, weight, bias)
        )

    def run():
        if convolution:
            mx.nd.Convolution(source, weight, bias, kernel=(1, 1), num_filter=OUT).wait_to_read()
        else:
            mx.nd.FullyConnected(source, weight, bias, num_hidden=OUT).wait_to_read()

    return run


def onednn_product(kind, *steps):
    source, bias = Array(Layout((ROWS, IN), kind)), Array(Layout((1, OUT), "float32"))
    out = Array(Layout((ROWS, OUT), "float32" if kind == "float32" else "bfloat16"))
    scales = {WEIGHTS: 0} if kind == "int8" else None
    kernel = onednn.product(
        source.layout,
        Layout((IN, OUT), kind, any_layout=True),
        out.layout,
        bias.layout,
        scales,
        steps,
    )
    packed = PackedWeights(kernel)
    arrays = {SRC: source, WEIGHTS: packed, BIAS: bias, DST: out}
    if scales:
        arrays[onednn.scale_place(WEIGHTS)] = Array(Layout((1,), "float32"), np.ones(1, np.float32))
    return kernel.bind(arrays, scratch=onednn.Scratch())


class _AllRows(PackedEngine):
    """Without the short cut of the last layer, which computes the first positions alone."""

    def _stage(self, stage, batch):
        for layer in range(*self._bounds[stage : stage + 2]):
            self._encoder.layer(layer, batch)
        return self._encoder.pooled(stage, batch)


def ranker_steps():
    rng, config = np.random.default_rng(0), BACKBONES["roberta_12_768_12"]
    mx.random.seed(0)
    model = build_model("pairwise", config)
    model.initialize(mx.init.Normal(0.02))
    flight = [random_pairs(rng, 100, 15, 70, config.vocab_size) for _ in range(4)]

    def ranker(**options):
        made = CascadeRanker(model, _Layout(), **options)
        return lambda: made.rank_pairs(flight)

    whole = CascadeRanker(model, _Layout(), engine="onednn", precision="bfloat16")
    whole._engine = _AllRows(model, False, 0, precision="bfloat16")
    rounded = {"engine": "onednn", "precision": "bfloat16"}
    return {
        "MXNet, hybridized, padded to multiples of 8, float32": ranker(engine="mxnet"),
        "oneDNN on packed rows, float32": ranker(engine="onednn"),
        "the same in bfloat16, all rows in the last layer": lambda: whole.rank_pairs(flight),
        "the same with first rows alone in the last layer": ranker(**rounded),
        **{
            f"the same with {tokens} tokens a micro-batch": ranker(**rounded, batch_tokens=tokens)
            for tokens in (512, 2048, 4096)
        },
    }


def main():
    in_turn(
        "products",
        {
            "MXNet FullyConnected, float32": mxnet_product("float32"),
            "MXNet FullyConnected, bfloat16": mxnet_product("bfloat16"),
            "MXNet 1x1 Convolution, bfloat16, with its reorders": mxnet_product(
                "bfloat16", convolution=True
            ),
            "oneDNN 3.2, float32": onednn_product("float32"),
            "oneDNN 3.2, bfloat16": onednn_product("bfloat16"),
            "oneDNN 3.2, bfloat16, GELU in the same step": onednn_product(
                "bfloat16", ("gelu", None)
            ),
            "oneDNN 3.2, int8": onednn_product("int8"),
        },
        40,
    )
    in_turn("rankers", ranker_steps(), 2)


if __name__ == "__main__":
    main()
