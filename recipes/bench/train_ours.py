"""Our training, for `compare_training.py`: takes so many updates when it is told to, and says how
long they took.

    python recipes/bench/train_ours.py RUN DATA ENGINE PRECISION BATCHES.npz

The trainer, its batches and its optimizer are those of `wqa train`; the batches of the first
updates go to BATCHES.npz for the peers, where a file is named.
"""

import json
import pathlib
import sys
import tempfile
import time

import mxnet as mx
import numpy as np
from tqdm import tqdm

from wqa.config import TrainingConfig, read_run_config
from wqa.data import read_questions
from wqa.models import build_model
from wqa.text import PairEncoder, load_tokenizer
from wqa.training.pairs import TrainingPairs
from wqa.training.trainer import Trainer

UPDATES = 64


def main(run, data, engine, precision, batches):
    folder = pathlib.Path(run)
    config = read_run_config(folder / "config.json")
    model = build_model(config.system, config.backbone, config.exits)
    model.load_parameters(str(folder / "model.params"), ctx=mx.cpu())
    pairs = TrainingPairs(
        list(read_questions(data)), PairEncoder(load_tokenizer(folder), config.max_length)
    )
    with tempfile.TemporaryDirectory() as out:
        settings = TrainingConfig(
            epochs=50, log_every=10**6, learning_rate=1e-5, engine=engine, precision=precision
        )
        trainer = Trainer(model, pairs, settings, pathlib.Path(out))
        if batches:
            arrays = {}
            for number in range(UPDATES):
                token_ids, token_types, lengths, labels = pairs.batch(trainer._next_batch())
                arrays.update(
                    {
                        f"{number}_ids": token_ids,
                        f"{number}_types": token_types,
                        f"{number}_lengths": lengths,
                        f"{number}_labels": labels,
                    }
                )
            np.savez(batches, **arrays)
            trainer.state.batch = trainer.state.epoch = 0
        print(json.dumps({"ready": True}), flush=True)
        with tqdm(disable=True) as bar:
            for line in sys.stdin:
                begin, end = map(int, line.split())
                start = time.perf_counter()
                for _ in range(begin, end):
                    trainer._update(bar)
                mx.nd.waitall()
                print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
