#!/usr/bin/env python3
"""Time a system on an encoder of a named shape with random weights, on random candidates.

    python recipes/bench/random_weights.py SHAPE [--system mhs --heads 3 ...]
        [--beside SHAPE[,SHAPE...] ...] [--candidates 400] [--tokens 20-60] [--json TIMES.json]

The options of the system are those of `wqa train SYSTEM`. It takes turns with monolithic rankers of
the shapes of --beside, or ensembles of them, in each round; a ratio is that to the first, the
median over the rounds. A system that encodes documents apart from questions is timed with its
documents in a file on disk, without them, and beside the others, which read question and document
as one input. The line after the table says what encoding a document costs.
"""

import argparse
import pathlib
import sys
import tempfile
import time

import numpy as np

from wqa.cli.options import add_fields, fields_of
from wqa.config import BACKBONES, EngineConfig
from wqa.errors import check_choice, run_script
from wqa.evaluation import table
from wqa.inference.document_cache import StoredDocument
from wqa.inference.ensemble import EnsembleRanker
from wqa.inference.timing import time_rankers
from wqa.io.files import write_json
from wqa.systems.registry import find_system
from wqa.text import SplitPair

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from random_rankers import joined, random_pairs, random_ranker, random_splits


def configs(shapes):
    """Encoders of shapes that are separated by commas."""
    for name in shapes.split(","):
        check_choice("shape", name, BACKBONES)
    return [BACKBONES[name] for name in shapes.split(",")]


def joining(ranker):
    """Rank questions and documents, which are encoded apart, as one input each."""
    return lambda group: ranker.rank_pairs([[joined(pair) for pair in pairs] for pairs in group])


def time_cached(name, ranker, pairs, beside, rounds):
    """Rows of a ranker with its documents on disk and without them, and a line about encoding."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "documents.npy")
        encode = ranker.document_encoder.encode
        encode([pairs[0].document.token_ids])  # compiles
        begin = time.perf_counter()
        rows = encode([pair.document.token_ids for pair in pairs])
        bounds = np.cumsum([len(own) for own in rows])[:-1]
        np.save(path, np.concatenate(rows).astype(np.float16))
        encoding = (time.perf_counter() - begin) / len(pairs)

        def cached(group):
            stored = []
            for pair, own in zip(group[0], np.split(np.load(path, mmap_mode="r"), bounds)):
                own = np.array(own[:1] if ranker.reads_first else own)
                stored.append(SplitPair(pair.question, StoredDocument(own, False)))
            return ranker.rank_pairs([stored])

        ranks = {f"{name}, cached": cached, f"{name}, not cached": ranker.rank_pairs, **beside}
        rows = time_rankers(ranks, [pairs], rounds)
    for row in rows:
        row["questions_per_second"] = 1 / row["seconds"]
    return rows, [f"encoding costs {1e3 * encoding:.2f} ms a document"]


def measure(options):
    """Rows of all rankers, and lines to print below them."""
    engine = EngineConfig(precision=options.precision)
    own = fields_of(options, find_system(options.system).network_type().Config)
    [config] = configs(options.shape)
    ranker = random_ranker(config, system=options.system, own=own, engine=engine)
    others = {}
    for shapes in options.beside:
        rankers = []
        for seed, other in enumerate(configs(shapes)):
            rankers.append(random_ranker(other, seed=seed, system="pairwise", engine=engine))
        name = f"{shapes} pairwise"
        others[name] = rankers[0] if len(rankers) == 1 else EnsembleRanker(rankers)
    names = [options.shape, *options.beside]
    vocab_size = min(each.vocab_size for shapes in names for each in configs(shapes))
    lengths, name = span(options.tokens), f"{options.shape} {options.system}"
    if ranker.inputs.joins_pairs:
        pairs = random_pairs(np.random.default_rng(0), options.candidates, *lengths, vocab_size)
        ranks = {name: ranker.rank_pairs}
        ranks.update({name: other.rank_pairs for name, other in others.items()})
        return time_rankers(ranks, [pairs], options.rounds), []
    of_questions = span(options.question_tokens)
    splits = random_splits(1, options.candidates, of_questions, lengths, vocab_size)
    beside = {name: joining(other) for name, other in others.items()}
    if ranker.takes_cache:
        return time_cached(name, ranker, splits[0], beside, options.rounds)
    return time_rankers({name: ranker.rank_pairs, **beside}, splits, options.rounds), []


def span(text):
    """Least and greatest length of texts, as 20-60, or one length."""
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def parse():
    """Parse the command line, with the options of the system that it names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shape", help=", ".join(BACKBONES))
    parser.add_argument("--system", default="cascade")
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("--candidates", type=int, default=400)
    parser.add_argument("--tokens", default="20-60", help="of a pair, or of a document")
    parser.add_argument("--question-tokens", default="16-20")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--json")
    system = parser.parse_known_args()[0].system
    add_fields(parser, find_system(system).network_type().Config)
    return parser.parse_args()


def main():
    """Print the table, and write it as JSON."""
    options = parse()
    rows, lines = measure(options)
    print("\n".join([table(rows), *lines]))
    if options.json:
        write_json(options.json, rows)


if __name__ == "__main__":
    run_script(main)
