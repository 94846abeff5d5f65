"""Time ranking at several drop ratios, side by side in one sitting.

examples:
  wqa bench runs/wikiqa --data data/wikiqa/test.jsonl
  wqa bench --random bert_12_768_12 --candidates 400 --tokens 20-60
  wqa bench runs/wikiqa --data data/wikiqa/test.jsonl --latency 200

Each round runs every drop ratio once, so the ratios of one round saw the same machine. The table
gives medians over the rounds: seconds, seconds over those of ratio 0 (paired in each round), and
the cost in layers x candidates and layers x tokens over the full encoder's. --random needs no run:
an encoder of a named shape with random weights, and random candidates.

--latency N ranks N questions one by one, text in, ranking out, and gives the median and the 99th
percentile of their milliseconds; the first call, which compiles, is shown apart.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

from wqa.cli.options import add_ranking, drop_ratio, numbers, ranking_options
from wqa.config import BACKBONES
from wqa.errors import OptionError, shorten


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.add_argument("run", nargs="?", metavar="RUN", help="run directory")
    parser.add_argument("--data", metavar="FILE", help="questions to rank, canonical JSONL")
    parser.add_argument(
        "--random", metavar="SHAPE", help="encoder with random weights: " + ", ".join(BACKBONES)
    )
    parser.add_argument(
        "--candidates", type=int, default=400, metavar="K", help="with --random (default: 400)"
    )
    parser.add_argument(
        "--tokens",
        default="20-60",
        metavar="A-B",
        help="pair lengths with --random (default: 20-60)",
    )
    parser.add_argument(
        "--exits", default="", metavar="I,J,...", help="with --random (default: as the papers)"
    )
    parser.add_argument(
        "--drop-ratio",
        action="append",
        metavar="A",
        help="give it once a row (default: 0, 0.3, 0.4, 0.5)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        metavar="N",
        help="counted rounds, after one warm-up (default: 5)",
    )
    parser.add_argument(
        "--latency", type=int, metavar="N", help="time N questions one by one instead"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of --random (default: 0)"
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write the figures too; - for standard output instead of the table",
    )
    add_ranking(parser)


def run(options: argparse.Namespace) -> None:
    """Time as the options say, and print a table.

    Parameters
    ----------
    options : argparse.Namespace
    """
    from wqa.data import atomic_writer
    from wqa.evaluation import table

    if options.rounds < 1:
        raise OptionError("--rounds", options.rounds, "a whole number above 0")
    ratios = options.drop_ratio or ["0", "0.3", "0.4", "0.5"]
    ratios = ratios if "0" in ratios else ["0", *ratios]
    if options.latency is not None and options.latency < 2:
        raise OptionError("--latency", options.latency, "at least 2 questions")
    ranker, questions, rank = _random(options) if options.random else _of_run(options)
    if options.latency is not None:
        rows = _latency(
            ranker,
            [functools.partial(rank, [question]) for question in questions],
            ratios,
            options.latency,
        )
    else:
        rows = _time(ranker, functools.partial(rank, questions), ratios, options.rounds)
    text = json.dumps(rows, indent=2) + "\n"
    if options.json == "-":
        sys.stdout.write(text)
        return
    print(table(rows))
    if options.json:
        with atomic_writer(options.json) as file:
            file.write(text)


def _of_run(options: argparse.Namespace) -> Tuple[Any, List, Callable[[List], List]]:
    from wqa.data import read_questions
    from wqa.inference import load_ranker

    if not options.run or not options.data:
        raise OptionError("wqa bench", "neither RUN with --data nor --random", "one or the other")
    ranker = load_ranker(options.run, **ranking_options(options))
    questions = list(read_questions(options.data))
    if not questions:
        raise OptionError("--data", f"{options.data}, which has no question", "at least one")
    return ranker, questions, lambda some: list(ranker.rank_all(some))


def _random(options: argparse.Namespace) -> Tuple[Any, List, Callable[[List], List]]:
    import numpy as np

    from wqa.inference.random import random_pairs, random_ranker

    if options.random not in BACKBONES:
        raise OptionError("--random", shorten(options.random), "one of " + ", ".join(BACKBONES))
    low, _, high = options.tokens.partition("-")
    shortest, longest = numbers(f"{low},{high or low}", "--tokens")
    if not 4 <= shortest <= longest <= 512 or options.candidates < 1:
        raise OptionError(
            "--tokens and --candidates",
            f"{options.tokens} and {options.candidates}",
            "lengths from 4 to 512, and at least one candidate",
        )
    exits = numbers(options.exits, "--exits") if options.exits else ()
    ranker = random_ranker(
        BACKBONES[options.random], exits, options.seed, **ranking_options(options)
    )
    rng = np.random.default_rng(options.seed)
    flight = [
        random_pairs(
            rng, options.candidates, shortest, longest, BACKBONES[options.random].vocab_size
        )
        for _ in range(min(options.latency or 1, 20))
    ]
    return ranker, flight, ranker.rank_pairs


def _latency(
    ranker: Any, questions: List[Callable[[], List]], ratios: List[str], count: int
) -> List[Dict[str, Any]]:
    import numpy as np
    from tqdm import tqdm

    rows = []
    for ratio in ratios:
        ranker.drop_ratio = drop_ratio(ratio)
        milliseconds = []
        for number in tqdm(
            range(count + 1), desc=f"drop ratio {ratio}", unit="question", delay=1, file=sys.stderr
        ):
            begin = time.perf_counter()
            questions[
                max(number - 1, 0) % len(questions)
            ]()  # the first question twice: once to warm up
            milliseconds.append(1000 * (time.perf_counter() - begin))
        first, rest = milliseconds[0], milliseconds[1:]
        rows.append(
            {
                "drop_ratio": ratio,
                "questions": count,
                "first_ms": first,
                "p50_ms": float(np.percentile(rest, 50)),
                "p99_ms": float(np.percentile(rest, 99)),
            }
        )
    return rows


def _time(
    ranker: Any, rank: Callable[[], List], ratios: List[str], rounds: int
) -> List[Dict[str, Any]]:
    from tqdm import tqdm

    from wqa.inference.cost import total

    seconds: Dict[str, List[float]] = {ratio: [] for ratio in ratios}
    costs, candidates = {}, 0
    for number in tqdm(range(rounds + 1), desc="rounds", unit="round", delay=1, file=sys.stderr):
        for ratio in ratios:
            ranker.drop_ratio = drop_ratio(ratio)
            begin = time.perf_counter()
            rankings = rank()
            if number:  # the first round warms up
                seconds[ratio].append(time.perf_counter() - begin)
            costs[ratio] = total([ranking.cost for ranking in rankings])
            candidates = sum(int((~ranking.blank).sum()) for ranking in rankings)
    return [
        {
            "drop_ratio": ratio,
            "seconds": statistics.median(seconds[ratio]),
            "time_ratio": statistics.median(
                mine / base for mine, base in zip(seconds[ratio], seconds["0"])
            ),
            "paper_cost": costs[ratio].paper,
            "cost": costs[ratio].relative,
            "token_cost": costs[ratio].relative_tokens,
            "candidates_per_second": candidates / statistics.median(seconds[ratio]),
        }
        for ratio in ratios
    ]
