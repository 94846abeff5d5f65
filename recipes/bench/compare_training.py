#!/usr/bin/env python3
"""Train on the same batches, ours and PyTorch's in turn, and lay the speeds side by side.

    python recipes/bench/compare_training.py --peers-python .venv-peers/bin/python \\
        --pairwise runs/wikiqa_pairwise --cascade runs/wikiqa_cascade --data data/wikiqa/train.jsonl
    python recipes/bench/compare_training.py --peers-python .venv-peers/bin/python --updates 2

Each contender starts from the same encoder and takes the same mini-batches, those of `wqa train`:
of nearly one length and at most 2,000 padded tokens; the optimizer is Adam. They take turns of a
few updates. A ratio is the median over the turns; a cascade's, whose updates draw an exit each, is
that of the sums. Without runs, RoBERTa-base's size.
"""

import argparse
import contextlib
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
from compare import HERE, Contender
from train_ours import UPDATES

OURS = (
    ("pairwise", "onednn", "float32"),
    ("pairwise", "mxnet", "float32"),
    ("pairwise", "onednn", "bfloat16"),
    ("cascade", "onednn", "float32"),
    ("cascade", "onednn", "bfloat16"),
)


def contenders(options, runs, batches):
    """Ours first: the first of them writes the batches."""
    for number, (system, engine, precision) in enumerate(OURS):
        command = [
            sys.executable,
            HERE / "train_ours.py",
            runs[system],
            options.data,
            engine,
            precision,
        ]
        yield Contender(f"wqa {system} {engine}", precision, [*command, "" if number else batches])
    for precision in ("float32", "bfloat16") if options.peers_python else ():
        command = [options.peers_python, HERE / "train_peer.py", runs["huggingface"], batches]
        yield Contender("pytorch", precision, [*command, precision])


def prepare(options, folder):
    """Directories of the rankers, made if none were given, and the data."""
    runs = {
        "pairwise": options.pairwise,
        "cascade": options.cascade,
        "huggingface": folder / "huggingface",
    }
    if options.pairwise:
        arguments = ["export", runs["pairwise"], runs["huggingface"]]
    else:
        runs.update(pairwise=folder / "pairwise", cascade=folder / "cascade")
        options.data = folder / "questions.jsonl"
        arguments = ["make", folder, options.data, options.shape, 100, 50]
    subprocess.run([sys.executable, HERE / "corpus.py", *map(str, arguments)], check=True)
    return runs


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers-python",
        help="interpreter of the environment of peers.txt; without it ours alone are timed",
    )
    parser.add_argument("--pairwise", help="run of a monolithic ranker, in place of random weights")
    parser.add_argument("--cascade", help="run of a cascade on an encoder of the same size")
    parser.add_argument("--data", help="labelled questions to train them on")
    parser.add_argument(
        "--shape",
        default="roberta_12_768_12",
        help="of the random weights (default: roberta_12_768_12)",
    )
    parser.add_argument("--updates", type=int, default=5, help="updates a turn (default: 5)")
    parser.add_argument(
        "--turns", type=int, default=8, help="counted turns, after one that warms up (default: 8)"
    )
    options = parser.parse_args()
    if options.updates * (options.turns + 1) > UPDATES:
        parser.error(f"at most {UPDATES} updates in all")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        batches, found = folder / "batches.npz", []
        for contender in contenders(options, prepare(options, folder), batches):
            stack.callback(contender.process.kill)
            contender.answer()
            found.append(contender)
        for turn in range(options.turns + 1):
            for contender in found if turn % 2 else found[::-1]:
                seconds = contender.rank(turn * options.updates, (turn + 1) * options.updates)[
                    "seconds"
                ]
                contender.turns += [seconds] if turn else []
        with np.load(batches) as arrays:
            tokens = sum(
                float(arrays[f"{number}_lengths"].sum())
                for number in range(options.updates, options.updates * (options.turns + 1))
            )
    peers = [contender for contender in found if contender.name == "pytorch"]
    each = tokens / options.turns / options.updates
    print(
        f"{options.turns} turns of {options.updates} updates, {each:.0f} tokens an update, "
        "padding not counted"
    )
    print(
        f"{'training':20} {'precision':9} {'tokens/s':>9}  times as fast as "
        + ", ".join(f"pytorch {peer.precision}" for peer in peers)
        + ", wqa pairwise onednn of this precision"
    )
    for contender in found:
        same = [
            other
            for other in found
            if other.name == "wqa pairwise onednn" and other.precision == contender.precision
        ]
        print(
            f"{contender.name:20} {contender.precision:9} {tokens / sum(contender.turns):9.0f}  "
            + " ".join(f"{ratio(other, contender):7.2f}" for other in [*peers, *same])
        )


def ratio(slow, fast):
    """Median over the turns, or, where updates differ in depth, the ratio of the sums."""
    if "cascade" in slow.name + fast.name:
        return sum(slow.turns) / sum(fast.turns)
    return statistics.median(above / below for above, below in zip(slow.turns, fast.turns))


if __name__ == "__main__":
    main()
