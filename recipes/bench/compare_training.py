#!/usr/bin/env python3
"""Compare the speed of training on the same batches: wqa and PyTorch, in turn.

    python recipes/bench/compare_training.py --peers-python .venv-peers/bin/python \\
        --pairwise runs/wikiqa_pairwise --cascade runs/wikiqa_cascade --data data/wikiqa/train.jsonl
    python recipes/bench/compare_training.py --peers-python .venv-peers/bin/python --updates 2

All contenders start from the same encoder and take the same mini-batches, those of `wqa train`: of
nearly one length and at most 2,000 padded tokens. The optimizer is Adam. They take turns of a few
updates. A ratio is the median over the turns; for a cascade, whose updates draw an exit, it is that
of the sums. Without runs the weights are random, of RoBERTa-base's size. What the processor cannot
run is left out, and the output says so.
"""

import contextlib
import pathlib
import statistics
import sys
import tempfile

import numpy as np
from contenders import HERE, Contender, lines_of, make_parser, prepare, run_corpus, start_all
from machine import machine

from wqa.errors import run_script
from wqa.evaluation import table

TRAININGS = (
    ("pairwise", "onednn", "float32"),
    ("pairwise", "mxnet", "float32"),
    ("pairwise", "onednn", "bfloat16"),
    ("cascade", "onednn", "float32"),
    ("cascade", "onednn", "bfloat16"),
)
REFERENCE = "wqa pairwise onednn"


def trainings(options, runs, folder):
    """List the contenders.

    Parameters
    ----------
    options : argparse.Namespace
        The script's options.
    runs : dict of str to path-like
        Directories of `contenders.prepare`.
    folder : pathlib.Path
        Directory for what the trainings write; holds ``batches.npz``.

    Yields
    ------
    Contender
        A training that is not started yet.
    """
    script = HERE / "train_ours.py"
    for number, (system, engine, precision) in enumerate(TRAININGS):
        arguments = [runs[system], options.data, engine, precision, options.updates]
        command = [sys.executable, script, *arguments, folder / f"training_{number}"]
        yield Contender(f"wqa {system} {engine}", precision, command)
    if options.peers_python:
        command = [options.peers_python, HERE / "train_peer.py", runs["huggingface"]]
        for precision in ("float32", "bfloat16"):
            arguments = [*command, folder / "batches.npz", precision]
            yield Contender("pytorch", precision, arguments)
            yield Contender("torch.compile", precision, [*arguments, "compiled"])


def measure(contenders, turns, updates):
    """Let the contenders take turns; the first turn warms up and is not counted.

    Parameters
    ----------
    contenders : list of Contender
        The trainings.
    turns : int
        Counted turns.
    updates : int
        Updates of a turn.
    """
    for turn in range(turns + 1):
        for contender in contenders if turn % 2 else contenders[::-1]:
            seconds = contender.work(turn * updates, (turn + 1) * updates)["seconds"]
            if turn > 0:
                contender.turns.append(seconds)


def ratio(slow, fast):
    """How many times as fast one training is as another.

    Parameters
    ----------
    slow, fast : Contender
        The trainings.

    Returns
    -------
    float
        The median over the turns, or, where updates differ in depth, the ratio of the sums.
    """
    if "cascade" in slow.name + fast.name:
        return sum(slow.turns) / sum(fast.turns)
    return statistics.median(above / below for above, below in zip(slow.turns, fast.turns))


def rows_of(contenders, tokens):
    """Compute the speeds, and the ratios to PyTorch and to this package.

    Parameters
    ----------
    contenders : list of Contender
        The trainings, with their turns.
    tokens : float
        Tokens of all counted turns.

    Returns
    -------
    list of dict
        One row for each training.
    """
    references = {slow.precision: slow for slow in contenders if slow.name == REFERENCE}
    rows = []
    for contender in contenders:
        row = {"training": contender.name, "precision": contender.precision}
        row["tokens_per_s"] = tokens / sum(contender.turns)
        for peer in contenders:
            if peer.name == "pytorch":
                row[f"over {peer}"] = ratio(peer, contender)
        same = references.get(contender.precision)
        row[f"over {REFERENCE} of this precision"] = same and ratio(same, contender)
        rows.append(row)
    return rows


def tokens_of(path, begin, end):
    """Tokens of a range of mini-batches, padding not counted.

    Parameters
    ----------
    path : pathlib.Path
        Mini-batches, as ``corpus.py batches`` writes them.
    begin, end : int
        The first one, and the one after the last.

    Returns
    -------
    float
    """
    with np.load(path) as arrays:
        return sum(float(arrays[f"{number}_lengths"].sum()) for number in range(begin, end))


def main():
    """Parse the options, measure, and print a table."""
    parser = make_parser(__doc__)
    parser.add_argument("--updates", type=int, default=5, help="updates a turn (default: 5)")
    parser.add_argument(
        "--turns", type=int, default=8, help="counted turns, after one that warms up (default: 8)"
    )
    options = parser.parse_args()
    total = options.updates * (options.turns + 1)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        runs = prepare(options, folder, 100, 50, 0)
        run_corpus("batches", folder / "batches.npz", runs["pairwise"], options.data, total)
        ready, left_out = start_all(trainings(options, runs, folder), stack)
        measure(ready, options.turns, options.updates)
        tokens = tokens_of(folder / "batches.npz", options.updates, total)
    mean = tokens / options.turns / options.updates
    print(machine())
    print(
        f"{options.turns} turns of {options.updates} updates, {mean:.0f} tokens an update, "
        "padding not counted"
    )
    print(table(rows_of(ready, tokens)), *lines_of(left_out), sep="\n")


if __name__ == "__main__":
    run_script(main)
