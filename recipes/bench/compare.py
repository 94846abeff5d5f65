#!/usr/bin/env python3
"""Rank the same candidates with the same weights, ours and the peers' in turn, and lay the speeds
side by side.

    python recipes/bench/compare.py --peers-python .venv-peers/bin/python --json bench.json
    python recipes/bench/compare.py --peers-python .venv-peers/bin/python --pairwise
    runs/wikiqa_pairwise \\
        --cascade runs/wikiqa_cascade --data data/wikiqa/test.jsonl --calibration
        data/wikiqa/dev.jsonl

Without runs, it makes rankers of RoBERTa-base's size with random weights, and questions whose
lengths follow WikiQA's (`corpus.py`). Every contender is a process of its own that loads once. They
take turns on a few questions at a time, so that what else the machine does meets all of them; a
ratio is the median over the turns. Candidates and tokens a second are over all turns; a cascade's
count all candidates, those that it drops too.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
from scipy.stats import spearmanr

HERE = pathlib.Path(__file__).parent
PEERS = [
    ("pytorch", "float32"),
    ("pytorch", "bfloat16"),
    ("onnxruntime", "float32"),
    ("onnxruntime", "int8"),
    ("cross-encoder", "float32"),
]
PRECISIONS = ("float32", "bfloat16", "int8")
RATIOS = ("0", "0.3", "0.5")


class Contender:
    """A process that ranks when it is told to."""

    def __init__(self, name, precision, command):
        self.name, self.precision, self.turns, self.memory = name, precision, [], 0.0
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def answer(self):
        line = self.process.stdout.readline()
        while line and not line.startswith("{"):  # libraries print their greetings
            line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} {self.precision} ended: {self.process.stderr.read()[-2000:]}")
        return json.loads(line)

    def rank(self, begin, end):
        print(begin, end, file=self.process.stdin, flush=True)
        return self.answer()


def contenders(options, runs):
    """Start one after another: loading takes more memory than ranking."""
    for name, precision in PEERS if options.peers_python else ():
        yield Contender(
            name,
            precision,
            [
                options.peers_python,
                HERE / "peers.py",
                runs["huggingface"],
                options.data,
                name,
                precision,
            ],
        )
    for system, ratios in (("pairwise", ("0",)), ("cascade", RATIOS)):
        for precision in PRECISIONS:
            yield Contender(
                f"wqa {system}",
                precision,
                [
                    sys.executable,
                    HERE / "ours.py",
                    runs[system],
                    options.data,
                    precision,
                    "onednn",
                    *ratios,
                ],
            )


def measure(found, questions, chunk):
    """Let the contenders take turns; the first turn warms up and is not counted."""
    for contender in found:
        contender.rank(0, min(chunk, questions))
    for number, begin in enumerate(range(0, questions, chunk)):
        for contender in found if number % 2 else found[::-1]:
            contender.turns.append(contender.rank(begin, min(begin + chunk, questions)))
            contender.memory = max(contender.memory, contender.turns[-1]["memory_mib"])
        print(
            f"{min(begin + chunk, questions)} of {questions} questions", file=sys.stderr, flush=True
        )


def agreement(scores, reference):
    """Mean Spearman's rho of the questions' scores, and the share of questions with the same first
    candidate."""
    with np.errstate(all="ignore"):
        rho = [
            spearmanr(mine, theirs)[0] for mine, theirs in zip(scores, reference) if len(mine) > 1
        ]
    first = [np.argmax(mine) == np.argmax(theirs) for mine, theirs in zip(scores, reference)]
    return float(np.nanmean(rho)), float(np.mean(first))


def rows_of(found, questions):
    tokens = sum(turn["tokens"] for turn in found[-1].turns)
    candidates = sum(len(texts) for _, texts in questions)
    rows, seconds, scores = [], {}, {}
    for contender in found:
        for place, row in enumerate(contender.turns[0]["rows"]):
            key = (contender.name, contender.precision, row["drop_ratio"])
            seconds[key] = [turn["rows"][place]["seconds"] for turn in contender.turns]
            scores[key] = [
                each for turn in contender.turns for each in turn["rows"][place]["scores"]
            ]
            whole = [turn["rows"][place].get("end_to_end") for turn in contender.turns]
            rows.append(
                {
                    "name": contender.name,
                    "precision": contender.precision,
                    "drop_ratio": row["drop_ratio"],
                    "candidates_per_s": candidates / sum(seconds[key]),
                    "tokens_per_s": tokens / sum(seconds[key]),
                    "memory_mib": contender.memory,
                    "end_to_end": ratio(whole, seconds[key]) if whole[0] else None,
                }
            )
            if whole[0]:
                seconds[(*key, "text")] = whole
    for row in rows:
        key = (row["name"], row["precision"], row["drop_ratio"])
        row["over"] = {
            f"{name} {precision}": ratio(
                seconds[name, precision, 0.0],
                seconds.get((*key, "text"), seconds[key])
                if name == "cross-encoder"
                else seconds[key],
            )
            for name, precision in PEERS
            if (name, precision, 0.0) in seconds
        }
        row["time_over_0"] = ratio(seconds[key], seconds[(*key[:2], 0.0)])
        same = row["name"] == "wqa cascade" or ("pytorch", "float32", 0.0) not in scores
        reference = (row["name"] if same else "pytorch", "float32", 0.0)
        row["spearman"], row["same_first"] = agreement(scores[key], scores[reference])
    return rows


def read(path):
    """Questions of a canonical file, as (question, candidates)."""
    with open(path, encoding="utf-8") as lines:
        return [
            (record["question"], [candidate["text"] for candidate in record["candidates"]])
            for record in map(json.loads, lines)
        ]


def ratio(numerators, denominators):
    return statistics.median(above / below for above, below in zip(numerators, denominators))


def table(rows):
    lines = [
        f"{'ranker':13} {'precision':9} {'drop':>4} {'cand/s':>8} {'tokens/s':>9} "
        f"{'time/0':>6} {'text/net':>8} "
        f"{'MiB':>6} {'rho':>6} {'first':>5}  times as fast as " + ", ".join(rows[0]["over"])
    ]
    for row in rows:
        whole = f"{row['end_to_end']:8.3f}" if row["end_to_end"] else f"{'-':>8}"
        lines.append(
            f"{row['name']:13} {row['precision']:9} {row['drop_ratio']:4.1f} "
            f"{row['candidates_per_s']:8.1f} "
            f"{row['tokens_per_s']:9.0f} {row['time_over_0']:6.3f} {whole} "
            f"{row['memory_mib']:6.0f} "
            f"{row['spearman']:6.3f} {row['same_first']:5.2f}  "
            + " ".join(f"{value:7.2f}" for value in row["over"].values())
        )
    return "\n".join(lines)


def prepare(options, folder):
    """Directories of the rankers, made if none were given, and the data; by a process of its own,
    which ends."""
    runs = {
        "pairwise": options.pairwise,
        "cascade": options.cascade,
        "huggingface": folder / "huggingface",
    }
    if options.pairwise:
        arguments = ["prepare", *runs.values(), options.calibration]
    else:
        runs.update(pairwise=folder / "pairwise", cascade=folder / "cascade")
        options.data = folder / "questions.jsonl"
        arguments = [
            "make",
            folder,
            options.data,
            options.shape,
            options.questions,
            options.candidates,
        ]
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
    parser.add_argument("--data", help="questions to rank with them")
    parser.add_argument(
        "--calibration", help="questions to calibrate int8 on, where the runs are not"
    )
    parser.add_argument(
        "--shape",
        default="roberta_12_768_12",
        help="of the random weights: a name of wqa.config.BACKBONES, or tiny (default: "
        "roberta_12_768_12)",
    )
    parser.add_argument(
        "--questions", type=int, default=100, help="with random weights (default: 100)"
    )
    parser.add_argument(
        "--candidates", type=int, default=100, help="with random weights (default: 100)"
    )
    parser.add_argument("--chunk", type=int, default=5, help="questions a turn (default: 5)")
    parser.add_argument("--json", help="write the figures here too")
    options = parser.parse_args()
    if (
        bool(options.pairwise) != bool(options.cascade)
        or options.pairwise
        and not (options.data and options.calibration)
    ):
        parser.error("--pairwise, --cascade, --data and --calibration go together")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        runs = prepare(options, pathlib.Path(name))
        found = []
        for contender in contenders(options, runs):
            stack.callback(contender.process.kill)
            print(
                f"{contender.name} {contender.precision} is ready {contender.answer()}",
                file=sys.stderr,
                flush=True,
            )
            found.append(contender)
        questions = read(options.data)
        measure(found, len(questions), options.chunk)
        rows = rows_of(found, questions)
    candidates = sum(len(texts) for _, texts in questions)
    print(f"{len(questions)} questions, {candidates} candidates, {options.chunk} questions a turn")
    print(table(rows))
    if options.json:
        pathlib.Path(options.json).write_text(
            json.dumps({"rows": rows}, indent=2) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
