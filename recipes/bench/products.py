#!/usr/bin/env python3
"""How fast the processor multiplies: the bare products of an encoder layer, by oneDNN.

    python recipes/bench/products.py [--units 768] [--rows 1024] [--threads 2] [--seconds 2]

They are those of a layer on a micro-batch of so many tokens, with prepacked weights, and nothing
between them. Each thread has products of its own, as rankers have. Speeds are in 10^12 operations a
second, two for each multiply-add; the best of three rounds. What a ranker makes of them says how
much of its time is anything else.
"""

import argparse
import threading
import time

import numpy as np
from machine import machine

from wqa.engines.onednn import check_precision
from wqa.engines.onednn.choice import encoding_kind
from wqa.engines.onednn.library import Array, Layout, openmp_threads
from wqa.engines.onednn.operations import Dense, Operations, Quantized
from wqa.errors import WqaError
from wqa.evaluation import table

PRECISIONS = ("float32", "bfloat16", "int8")


def products_of(precision, units, rows):
    """The products of a layer, bound to arrays of their own."""
    operations, calls = Operations(0.0), []
    for inputs, outputs in [(units, units)] * 4 + [(units, 4 * units), (4 * units, units)]:
        weight, quantized = np.ones((outputs, inputs), np.float32), None
        if precision == "int8":
            ones = np.ones((inputs, outputs), np.int8)
            quantized = Quantized(ones, np.ones(outputs, "f"), np.ones(inputs, "f"))
        dense = Dense(lambda weight=weight: weight, np.zeros(outputs, np.float32), quantized)
        source = Array(Layout((rows, inputs), precision))
        out = Array(Layout((rows, outputs), encoding_kind(precision)))
        calls.append(operations.dense(source, dense, out))
    return calls


def run(calls, times):
    """Run the products of a layer several times by one thread."""
    with openmp_threads(1):
        for _ in range(times):
            for call in calls:
                call()


def speed_of(precision, units, rows, threads, seconds):
    """Operations a second of all threads together, in 10^12; a round takes some seconds."""
    with openmp_threads(1):  # oneDNN chooses a product's threads when it is compiled
        layers = [products_of(precision, units, rows) for _ in range(threads)]
    begin = time.perf_counter()
    for calls in layers:
        run(calls, 3)
    times = max(1, round(seconds * 3 * threads / (time.perf_counter() - begin)))
    best = 0.0
    for _ in range(3):
        workers = [threading.Thread(target=run, args=(calls, times)) for calls in layers]
        begin = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        operations = threads * times * 24 * rows * units**2
        best = max(best, operations / (time.perf_counter() - begin) / 1e12)
    return best


def main():
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--units", type=int, default=768, help="width of the encoder (768)")
    parser.add_argument("--rows", type=int, default=1024, help="tokens of a micro-batch (1024)")
    parser.add_argument("--threads", type=int, default=2, help="number of threads (2)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each of three rounds (2)")
    options = parser.parse_args()
    print(machine())
    rows = []
    for precision in PRECISIONS:
        try:
            check_precision(precision)
        except WqaError as error:
            print(f"left out: {error}")
            continue
        sizes = options.units, options.rows, options.threads
        speed = speed_of(precision, *sizes, options.seconds)
        rows.append({"precision": precision, "units": str(options.units), "tops": f"{speed:.3f}"})
    print(table(rows))


if __name__ == "__main__":
    main()
