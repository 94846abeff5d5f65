"""Choose a cascade's drop ratios, or which of its exits to use, on development questions.

examples:
  wqa tune runs/wikiqa --data data/wikiqa/dev.jsonl
  wqa tune runs/wikiqa --data data/wikiqa/dev.jsonl --max-cost 0.6
  wqa tune runs/all_layers --data data/wikiqa/dev.jsonl --place-exits 3 --min-map 0.75
  wqa evaluate runs/wikiqa --data data/wikiqa/test.jsonl --drop-ratio 0 --drop-ratio tuned

Every candidate is scored at every exit once; all configurations of the grid are evaluated from
those scores. RUN/tune (or --out) gets configurations.tsv, pareto.tsv and figure.png. --max-cost
takes the best configuration that costs at most so much of the full encoder, --min-map the cheapest
that reaches a MAP (from 0 to 1); it is timed and stored in the run, where --drop-ratio tuned finds
it. --place-exits N uses N of the run's exits, with one ratio for those before the last.

The cost of the table counts whole candidates, as they would run on these questions; paper_cost is
that of the ratios alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from wqa.cli.options import add_filter, add_ranking, numbers, ranking_options
from wqa.errors import OptionError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.add_argument("run", metavar="RUN", help="run directory of a cascade")
    parser.add_argument(
        "--data",
        required=True,
        metavar="FILE",
        help="labelled development questions, canonical JSONL",
    )
    parser.add_argument(
        "--grid",
        default="0.1,0.2,0.3,0.4,0.5,0.6",
        metavar="A,...",
        help="drop ratios of each exit (default: 0.1,0.2,0.3,0.4,0.5,0.6)",
    )
    parser.add_argument(
        "--place-exits",
        type=int,
        metavar="N",
        help="choose N of the run's exits instead, the last among them",
    )
    parser.add_argument(
        "--metric", default="map", choices=("map", "mrr", "p@1", "ndcg@10"), help="(default: map)"
    )
    pick = parser.add_mutually_exclusive_group()
    pick.add_argument(
        "--max-cost",
        type=float,
        metavar="C",
        help="pick the best that costs at most C of the full encoder",
    )
    pick.add_argument(
        "--min-map",
        "--min-metric",
        dest="least",
        type=float,
        metavar="M",
        help="pick the cheapest whose MAP (or --metric) is at least M, from 0 to 1",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="folder of the tables and the picture (default: RUN/tune)"
    )
    parser.add_argument("--no-picture", action="store_true", help="leave the picture out")
    add_filter(parser, "--filter", "no-all-negative", "questions to score")
    add_ranking(parser)


def run(options: argparse.Namespace) -> None:
    """Tune as the options say, and print the Pareto front and what was picked.

    Parameters
    ----------
    options : argparse.Namespace
    """
    import pathlib

    from wqa.data import filter_questions, read_questions
    from wqa.evaluation import table
    from wqa.evaluation.picture import check_matplotlib
    from wqa.inference.load import load_cascade
    from wqa.inference.scored import ScoredQuestions
    from wqa.inference.tuning import as_row, check_grid, full_grid, pareto_front, pick, placements

    grid = check_grid(numbers(options.grid, "--grid", float))
    if not options.no_picture:
        check_matplotlib()
    questions = filter_questions(read_questions(options.data), options.filter)
    ranker = load_cascade(options.run, **ranking_options(options))
    if len(ranker.model.exits) < 2:
        raise OptionError(
            "RUN",
            f"{options.run}, a ranker with a single exit",
            "a cascade",
            "train one: wqa train cascade",
        )
    exits = ranker.model.exits
    place = options.place_exits
    wanted = full_grid(grid, len(exits)) if place is None else placements(grid, len(exits), place)
    rankings = _rank(ranker, questions, "scoring")
    scored = ScoredQuestions(rankings, questions, exits, ranker.model.config.num_layers)
    begin = time.perf_counter()
    found = scored.evaluate(wanted)
    seconds = time.perf_counter() - begin
    front = pareto_front(found, options.metric)
    diagonal = scored.evaluate([(alpha,) * (len(exits) - 1) for alpha in (0.3, 0.4, 0.5)])
    out = pathlib.Path(options.out or pathlib.Path(options.run) / "tune")
    _write_tsv(out / "configurations.tsv", [as_row(each, exits) for each in found])
    _write_tsv(out / "pareto.tsv", [as_row(each, exits) for each in front])
    if not options.no_picture:
        _draw(out / "figure.png", found, front, diagonal, options.metric)
    print(
        f"{len(questions)} questions, filter {options.filter}; {len(found)} configurations in "
        f"{seconds:.1f} s; {out}"
    )
    print("Pareto front:")
    print(table([as_row(each, exits) for each in _thinned(front)]))
    if options.max_cost is None and options.least is None:
        return
    picked = pick(found, options.metric, options.max_cost, options.least)
    _store(options, ranker, questions, picked)


def _rank(ranker: Any, questions: List, what: str) -> List:
    from tqdm import tqdm

    return list(
        tqdm(
            ranker.rank_all(questions),
            total=len(questions),
            desc=what,
            unit="question",
            delay=1,
            leave=False,
            file=sys.stderr,
        )
    )


def _thinned(front: Sequence, most: int = 20) -> List:
    """At most ``most`` of the front, evenly taken, both ends included; the file has all."""
    if len(front) <= most:
        return list(front)
    return [front[place * (len(front) - 1) // (most - 1)] for place in range(most)]


def _write_tsv(path: Any, rows: Sequence[Dict[str, Any]]) -> None:
    from wqa.data import atomic_writer

    with atomic_writer(path) as file:
        file.write("\t".join(rows[0]) + "\n")
        file.writelines("\t".join(f"{value:.6g}" for value in row.values()) + "\n" for row in rows)


def _draw(path: Any, found: Sequence, front: Sequence, diagonal: Sequence, metric: str) -> None:
    from wqa.evaluation.picture import draw_costs

    def point(each: Any) -> Tuple[float, float]:
        return each.cost, each.metrics[metric]

    draw_costs(
        path,
        [point(each) for each in found],
        [point(each) for each in front],
        {f"drop ratio {each.ratios[0]}": point(each) for each in diagonal},
        metric,
    )


def _store(options: argparse.Namespace, ranker: Any, questions: List, picked: Any) -> None:
    from wqa.data.files import sha256
    from wqa.inference.tuned import write_tuned

    seconds: Dict[bool, List[float]] = {True: [], False: []}
    for _ in range(3):  # in turn, as a machine's speed wanders
        for tuned, times in seconds.items():
            ranker.drop_ratio = picked.ratios if tuned else 0.0
            begin = time.perf_counter()
            _rank(ranker, questions, "timing")
            times.append(time.perf_counter() - begin)
    best, full = min(seconds[True]), min(seconds[False])
    limit: Optional[float] = options.max_cost if options.max_cost is not None else options.least
    path = write_tuned(
        options.run,
        picked,
        {
            "chosen_by": {
                "metric": options.metric,
                "max_cost" if options.max_cost is not None else "least": limit,
            },
            "data_sha256": sha256(options.data),
            "filter": options.filter,
            "questions": len(questions),
            "seconds": best,
            "seconds_of_ratio_0": full,
        },
    )
    ratios = (
        ", ".join(
            f"{layer}: {ratio:g}"
            for layer, ratio in zip(ranker.model.exits[:-1], picked.ratios)
            if ratio
        )
        or "none"
    )
    print(
        f"picked drop ratios at exits {ratios}; {options.metric} "
        f"{100 * picked.metrics[options.metric]:.2f}, "
        f"cost {picked.cost:.3f}, time {best:.2f} s of {full:.2f} s at ratio 0 "
        f"({best / full:.3f}); stored in {path}"
    )
