#!/usr/bin/env python3
"""What a few hundred labels are worth: MAP of BM25, an encoder, what they train, and sums of these.

    python recipes/few_labels/few_labels.py --selqa data/selqa --wikiqa data/wikiqa --out runs/few

Whole questions of SelQA's dev and of WikiQA's train are drawn until they have 100, 300, 1,000 and
3,000 candidates, for three seeds; a fifth of them is the dev part. A cascade and the encoder's own
similarity are trained on the rest. The table has the MAP on development questions (half of SelQA's
dev by sections, WikiQA's dev) and on test questions (150 of SelQA's, all answered ones of
WikiQA's). The folders are those of ``data_scripts``. A training or a ranking that stands in --out
is not repeated.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys

import numpy as np

from wqa import load_ranker
from wqa.cli import main as wqa
from wqa.data import read_questions, write_questions
from wqa.errors import run_script
from wqa.evaluation import evaluate
from wqa.io.files import write_json

SIZES, SEEDS = (100, 300, 1000, 3000), (0, 1, 2)
#: Rankers whose scores are added in a row of the table.
METHODS = {
    "bm25": ["bm25"],
    "minilm": ["minilm"],
    "bm25+minilm": ["bm25", "minilm"],
    "cascade": ["cascade"],
    "cascade/ensemble.json": ["bm25", "minilm", "cascade"],
    "similarity": ["similarity"],
    "similarity/ensemble.json": ["bm25", "similarity"],
}
#: Options of each system, and of both.
SYSTEMS = {"cascade": ["--exits", "2,4,6"], "similarity": []}
TRAINING = ("--epochs", "4", "--learning-rate", "1e-4")


def answered(path):
    """Questions with a right and a wrong candidate, all of which have text."""
    for question in read_questions(path):
        mixed = any(question.labels) and not all(question.labels)
        if mixed and all(text.strip() for text in question.texts):
            yield question


def draw(options):
    """Write the parts of both corpora."""
    rng, sections, half, dev = random.Random(7), {}, [], []
    for question in answered(options.selqa / "dev.jsonl"):
        sections.setdefault(question.texts[0], []).append(question)
    names = sorted(sections)
    rng.shuffle(names)
    for name in names:
        (dev if len(dev) < 200 else half).extend(sections[name])
    test = list(answered(options.selqa / "test.jsonl"))
    rng.shuffle(test)
    pools = {"selqa": half, "wikiqa": list(answered(options.wikiqa / "train.jsonl"))}
    parts = {"selqa_val": dev, "selqa_test": test[:150]}
    parts["wikiqa_val"] = answered(options.wikiqa / "dev.jsonl")
    parts["wikiqa_test"] = answered(options.wikiqa / "test.jsonl")
    for corpus, pool in pools.items():
        for size in SIZES:
            for seed in SEEDS:
                drawn, questions = draw_rows(pool, size, seed), f"{corpus}_{size}_{seed}"
                fifth = max(1, round(len(drawn) / 5))
                parts[f"{questions}_dev"] = drawn[:fifth]
                parts[f"{questions}_train"] = drawn[fifth:]
    for name, questions in parts.items():
        write_questions(options.out / f"{name}.jsonl", questions)


def draw_rows(pool, size, seed):
    """Whole questions until they have so many candidates."""
    shuffled, drawn = list(pool), []
    random.Random(1000 * seed + size).shuffle(shuffled)
    while sum(len(question.candidates) for question in drawn) < size:
        drawn.append(shuffled[len(drawn)])
    return drawn


def scores_of(options, run, corpus, name):
    """Scores of the development and test questions, by part."""
    path = options.out / f"scores_{name}.json"
    if not path.exists():
        ranker, scores = load_ranker(run, long_questions="truncate"), {}
        for part in ("val", "test"):
            questions = read_questions(options.out / f"{corpus}_{part}.jsonl")
            scores[part] = [ranking.scores.tolist() for ranking in ranker.rank_all(questions)]
        write_json(path, scores)
    return json.loads(path.read_text())


def train(options, system, name):
    """Train a system on a part, unless it is trained already; returns the name of the run."""
    run = f"{system}_{name}"
    files = [f"--{part}={options.out / f'{name}_{part}.jsonl'}" for part in ("train", "dev")]
    command = ["train", system, "--encoder=minilm", *files, f"--out={options.out / run}"]
    command += [*SYSTEMS[system], *TRAINING, "--seed", name[-1]]
    more = ["--warmup-share=0.1", "--long-questions=truncate", "--resume"]
    if not (options.out / f"scores_{run}.json").exists() and wqa([*command, *more]):
        sys.exit(1)
    return run


def rows_of(options, corpus, size):
    """Rows of the table: mean MAP of each method, and its deviation over seeds."""
    maps = {(method, part): [] for method in METHODS for part in ("val", "test")}
    for seed in SEEDS:
        scores = {}
        for system in SYSTEMS:
            run = train(options, system, f"{corpus}_{size}_{seed}")
            scores[system] = scores_of(options, options.out / run, corpus, run)
        for run in ("bm25", "minilm"):
            scores[run] = scores_of(options, run, corpus, f"{corpus}_{run}")
        for (method, part), values in maps.items():
            rankings = zip(*(scores[run][part] for run in METHODS[method]))
            orders = [np.argsort(-np.sum(each, axis=0), kind="stable") for each in rankings]
            questions = list(read_questions(options.out / f"{corpus}_{part}.jsonl"))
            values.append(100 * evaluate(orders, questions)["map"])
    for method in METHODS:
        cells = [corpus, str(size), method]
        for part in ("val", "test"):
            values = maps[method, part]
            cells += [f"{statistics.mean(values):.2f}", f"{statistics.stdev(values):.2f}"]
        yield cells


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("selqa", "wikiqa", "out"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not (options.out / f"wikiqa_{SIZES[-1]}_{SEEDS[-1]}_train.jsonl").exists():
        draw(options)
    print("corpus", "rows", "method", "dev", "dev_sd", "test", "test_sd", sep="\t")
    for corpus in ("selqa", "wikiqa"):
        for size in SIZES:
            for cells in rows_of(options, corpus, size):
                print(*cells, sep="\t", flush=True)


if __name__ == "__main__":
    run_script(main)
