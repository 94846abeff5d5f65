#!/usr/bin/env python3
"""Machine-hours of a number of pairs, from a rate that was measured.

    wqa score RUN --data FILE --out OUT --shard 1/1 --threads 4 --json measured.json
    python recipes/scale/arithmetic.py measured.json --threads 4 --pairs 1e9 --workers 16 256 1024

The rate is that of one worker: of `wqa score` the pairs over the seconds that all partitions took,
added up over whoever scored them; of `wqa bench` the candidates a second of its first row, or of
the row with --drop-ratio. The pairs are taken to be as long as the measured ones, and the workers
to be as fast; what it costs to read, to plan and to merge is not in it.
"""

import argparse
import json
import math
import pathlib
import sys

#: Pairs of ASNQ, Table 1 of the Cascade Transformer.
ASNQ = 23_662_238


def rates(value):
    """Candidates a second of one worker, by what was measured; empty where nothing was.

    Parameters
    ----------
    value : dict or list of dict
        What `wqa score --json` or `wqa bench --json` wrote.

    Returns
    -------
    dict of str to float
    """
    if isinstance(value, dict) and value.get("seconds") and value.get("meta"):
        return {"score": value["meta"]["pairs"] / value["seconds"]}
    rows = value if isinstance(value, list) else []
    measured = {}
    for row in rows:
        if row.get("candidates_per_second"):
            measured[str(row.get("drop_ratio", "0"))] = float(row["candidates_per_second"])
    return measured


def table(rate, pairs, workers, threads):
    """Lines for each number of pairs.

    Parameters
    ----------
    rate : float
        Pairs a second of one worker.
    pairs, workers : list of float
        Numbers of pairs, and of workers.
    threads : int
        Processors of a worker.

    Returns
    -------
    list of str
    """
    head = ["pairs", "worker-hours", "core-hours"]
    head += [f"hours of {count:g} workers" for count in workers]
    rows = [head]
    for count in pairs:
        hours = count / rate / 3600
        cells = [f"{count:,.0f}", f"{hours:,.2f}", f"{hours * threads:,.2f}"]
        rows.append(cells + [f"{hours / number:,.2f}" for number in workers])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]


def positive(text):
    """A number above 0, such as 1e9."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}, not a number above 0")
    return value


def main():
    """Print the table, or say that nothing was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measured", type=pathlib.Path)
    parser.add_argument("--pairs", type=positive, nargs="+", default=[ASNQ, 1e9])
    parser.add_argument("--workers", type=positive, nargs="+", default=[1, 16, 256])
    parser.add_argument("--threads", type=int, default=1, help="processors of a worker")
    parser.add_argument("--drop-ratio", help="row of `wqa bench`")
    parser.add_argument("--is-measured", action="store_true", help="only say whether it is")
    options = parser.parse_args()
    measured = rates(json.loads(options.measured.read_text(encoding="utf-8")))
    if options.is_measured:
        return 0 if measured else 1
    name = options.drop_ratio or next(iter(measured), "")
    if name not in measured:
        expected = "the JSON of `wqa score` where it has merged partitions, or of `wqa bench`"
        print(f"error: {options.measured}: no rate {name}; expected {expected}", file=sys.stderr)
        return 2
    rate = measured[name]
    print(f"{rate:,.1f} pairs a second of one worker of {options.threads} processors, measured")
    print("\n".join(table(rate, options.pairs, options.workers, options.threads)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
