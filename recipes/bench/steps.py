#!/usr/bin/env python3
"""What each step towards the engine gives, in turn in one sitting: products first, then rankers.

    python recipes/bench/steps.py

Products are (1024 x 768) @ (768 x 3072), as a base encoder's feed-forward: by MXNet's operators in
float32, in bfloat16 with AMX (FullyConnected on plain weights; a 1x1 Convolution, which blocks
them), and by oneDNN 3.2 called directly, alone and with GELU in the same step. Rankers are
monolithic, of RoBERTa-base's size with random weights, on 4 questions of 100 candidates of 15 to 70
tokens; a row changes one thing of the row above. What the processor cannot run is left out, and the
output says so.
"""

import functools
import pathlib
import statistics
import tempfile
import time

import wqa.models  # noqa: F401 - before mxnet, whose threads it sets

import mxnet as mx  # isort: skip
import numpy as np
from contenders import run_corpus

from wqa.config import BACKBONES
from wqa.engines.onednn import check_precision, library, primitives
from wqa.errors import MissingDependency, PrecisionError
from wqa.systems.load import load_ranker
from wqa.systems.random import random_pairs

ROWS, IN, OUT = 1024, 768, 3072
SHAPE = "roberta_12_768_12"
BFLOAT16 = np.dtype([("bfloat16", np.uint16)])


def in_turn(title, steps, rounds):
    """Print the medians of the steps' seconds; a round runs every step once.

    Parameters
    ----------
    title : str
        Title of the table.
    steps : dict of str to callable
        By name, what builds a step. A step is a callable without arguments.
    rounds : int
        Counted rounds, after one that warms up.
    """
    ready, left_out = {}, {}
    for name, build in steps.items():
        try:
            ready[name] = build()
        except (PrecisionError, MissingDependency) as error:
            left_out[name] = error
    seconds = {name: [] for name in ready}
    for number in range(rounds + 1):
        for name, step in ready.items():
            start = time.perf_counter()
            step()
            if number > 0:
                seconds[name].append(time.perf_counter() - start)
    print(title)
    first = next(iter(seconds.values()))
    for name, times in seconds.items():
        faster = statistics.median(base / mine for base, mine in zip(first, times))
        milliseconds = 1000 * statistics.median(times)
        print(f"  {name:66} {milliseconds:9.2f} ms  {faster:5.2f} times as fast as the first")
    for name, error in left_out.items():
        print(f"  left out: {name}: {error}")


def mxnet_product(kind, convolution=False):
    """Build a product by MXNet's operators.

    Parameters
    ----------
    kind : {"float32", "bfloat16"}
        Type of the arrays.
    convolution : bool
        Whether it is a 1x1 Convolution in place of FullyConnected.

    Returns
    -------
    callable
        Computes the product.
    """
    check_precision(kind)
    rng = np.random.default_rng(0)
    shapes = ((ROWS, IN), (OUT, IN), (OUT,))
    if convolution:
        shapes = ((1, IN, 1, ROWS), (OUT, IN, 1, 1), (OUT,))
    arrays = [mx.nd.array(rng.normal(size=shape), dtype="float32") for shape in shapes]
    if kind == "bfloat16":
        arrays = [mx.nd.amp_cast(array, dtype=BFLOAT16) for array in arrays]
    operator = functools.partial(mx.nd.FullyConnected, num_hidden=OUT)
    if convolution:
        operator = functools.partial(mx.nd.Convolution, kernel=(1, 1), num_filter=OUT)
    return lambda: operator(*arrays).wait_to_read()


def onednn_product(kind, *steps):
    """Build a product by oneDNN.

    Parameters
    ----------
    kind : {"float32", "bfloat16", "int8"}
        Type of the operands.
    *steps : tuple
        Steps after the product, as `wqa.engines.onednn.primitives.Attributes` takes them.

    Returns
    -------
    callable
        Computes the product.
    """
    check_precision(kind)
    source = library.Array(library.Layout((ROWS, IN), kind))
    bias = library.Array(library.Layout((1, OUT), "float32"))
    out = library.Array(library.Layout((ROWS, OUT), "float32" if kind == "float32" else "bfloat16"))
    weights = library.Layout((IN, OUT), kind, any_layout=True)
    scales = {primitives.WEIGHTS: 0} if kind == "int8" else None
    kernel = primitives.product(source.layout, weights, out.layout, bias.layout, scales, steps)
    arrays = {
        primitives.SRC: source,
        primitives.WEIGHTS: primitives.PackedWeights(kernel),
        primitives.BIAS: bias,
        primitives.DST: out,
    }
    if scales:
        scale = library.Array(library.Layout((1,), "float32"), np.ones(1, np.float32))
        arrays[primitives.scale_argument(primitives.WEIGHTS)] = scale
    return kernel.bind(arrays, scratch=library.Scratch())


def ranker(run, **options):
    """Build a ranker that ranks the same pairs at each call.

    Parameters
    ----------
    run : pathlib.Path
        Run directory.
    **options
        Parameters of `wqa.load_ranker`.

    Returns
    -------
    callable
        Ranks the pairs.
    """
    rng = np.random.default_rng(0)
    vocab_size = BACKBONES[SHAPE].vocab_size
    pairs = [random_pairs(rng, 100, 15, 70, vocab_size) for _ in range(4)]
    return functools.partial(load_ranker(run, **options).rank_pairs, pairs)


def main():
    """Measure, and print two tables."""
    product, part = onednn_product, functools.partial
    steps = {
        "MXNet FullyConnected, float32": part(mxnet_product, "float32"),
        "MXNet FullyConnected, bfloat16": part(mxnet_product, "bfloat16"),
        "MXNet 1x1 Convolution, bfloat16, with its reorders": part(mxnet_product, "bfloat16", True),
        "oneDNN 3.2, float32": part(product, "float32"),
        "oneDNN 3.2, bfloat16": part(product, "bfloat16"),
        "oneDNN 3.2, bfloat16, GELU in the same step": part(product, "bfloat16", ("gelu", None)),
        "oneDNN 3.2, int8": part(product, "int8"),
    }
    in_turn("products", steps, 40)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run_corpus("make", folder, folder / "questions.jsonl", SHAPE, 1, 1, 0)
        build = part(ranker, folder / "pairwise")
        steps = {
            "MXNet, hybridized, padded to multiples of 8, float32": part(build, engine="mxnet"),
            "oneDNN on packed rows, float32": part(build, engine="onednn"),
            "the same in bfloat16": part(build, precision="bfloat16"),
        }
        for tokens in (512, 2048, 4096):
            title = f"the same with {tokens} tokens a micro-batch"
            steps[title] = part(build, precision="bfloat16", batch_tokens=tokens)
        in_turn("rankers", steps, 2)


if __name__ == "__main__":
    main()
