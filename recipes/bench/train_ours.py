"""A training of wqa, for `compare_training.py`: trains in turns and reports the time of each turn.

    python recipes/bench/train_ours.py RUN DATA ENGINE PRECISION UPDATES OUT

It is `wqa.train` from a run, with a turn of UPDATES updates between two evaluations. The
evaluator reports the seconds of the turn and waits for the next line on standard input.
"""

import pathlib
import sys
import time

from machine import say

from wqa.config import TrainingConfig, read_run_config
from wqa.errors import MissingDependency, PrecisionError
from wqa.systems.train import train


class Turns:
    """An evaluator that evaluates nothing: it lets the training go on when it is told to."""

    def __init__(self):
        self._start = None

    def wait(self):
        """Wait for a line on standard input; at its end, end the process."""
        if not sys.stdin.readline():
            sys.exit()
        self._start = time.perf_counter()

    def __call__(self, model):
        """Report the turn's seconds and wait.

        Parameters
        ----------
        model : mxnet.gluon.Block
            The network in training; it is not read.

        Returns
        -------
        dict of str to float
            Figures that are never the best, so that no parameters are written.
        """
        import mxnet as mx  # not before wqa, which sets the threads that MXNet reads when imported

        mx.nd.waitall()
        say(seconds=time.perf_counter() - self._start)
        self.wait()
        return {"map": float("-inf")}


def main(run, data, engine, precision, updates, out):
    """Train until standard input ends.

    Parameters
    ----------
    run : str
        Run directory to start from.
    data : str
        Labelled questions, canonical JSONL.
    engine, precision : str
        What computes the layers, and in what.
    updates : str
        Updates of a turn.
    out : str
        New run directory.
    """
    record = read_run_config(pathlib.Path(run) / "config.json")
    config = TrainingConfig(
        epochs=1000,
        learning_rate=1e-5,
        eval_every=int(updates),
        log_every=10**6,
        checkpoint_every=10**6,
        engine=engine,
        precision=precision,
    )
    turns = Turns()

    def make_evaluator(inputs):
        """Report that the data is encoded, and wait for the first turn."""
        say(ready=True)
        turns.wait()
        return turns

    try:
        train(
            record.system,
            data,
            out,
            init=run,
            config=config,
            max_length=record.max_length,
            make_evaluator=make_evaluator,
            **record.network,
        )
    except (PrecisionError, MissingDependency) as error:
        say(left_out=str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
