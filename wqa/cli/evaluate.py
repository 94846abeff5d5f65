"""Score a run directory on labelled questions, or a TREC run against qrels.

examples:
  wqa evaluate runs/wikiqa --data data/wikiqa/test.jsonl --filter no-all-negative --drop-ratio 0 --drop-ratio 0.3
  wqa evaluate --trec-run run.txt --qrels qrels.txt

Metrics equal trec_eval's. With RUN, --trec-run and --qrels name files to write; without it they name
the files to score.
"""
from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, Dict, List

from wqa.cli.options import add_filter, add_ranking, drop_ratio, ranking_options
from wqa.errors import OptionError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.add_argument("run", nargs="?", metavar="RUN", help="run directory")
    parser.add_argument("--data", metavar="FILE", help="labelled questions, canonical JSONL")
    parser.add_argument("--drop-ratio", action="append", metavar="A",
                        help="one number, or one an exit separated by commas; give it again for another row (default: 0)")
    parser.add_argument("--trec-run", metavar="FILE", help="TREC run: written with RUN, scored without")
    parser.add_argument("--qrels", metavar="FILE", help="TREC judgements: written with RUN, read without")
    parser.add_argument("--metrics", default="map,mrr,p@1,ndcg@10", metavar="M,...",
                        help="of map, mrr, p@K, ndcg@K (default: map,mrr,p@1,ndcg@10)")
    parser.add_argument("--complete", action="store_true",
                        help="count judged questions that a TREC run leaves out as 0, as trec_eval -c does")
    parser.add_argument("--exits", action="store_true", help="add a row for each exit on its own, nothing dropped")
    parser.add_argument("--json", metavar="FILE", help="write the figures too: one object a row, in a list where "
                        "there are several; - for standard output instead of the table")
    add_filter(parser, "--filter", "all", "questions to score")
    add_ranking(parser)


def run(options: argparse.Namespace) -> None:
    """Evaluate as the options say, and print a table.

    Parameters
    ----------
    options : argparse.Namespace
    """
    from wqa.data import atomic_writer
    from wqa.evaluation import table

    rows = _rows_of_run(options) if options.run else [_row_of_trec(options)]
    text = json.dumps(rows[0] if len(rows) == 1 else rows, indent=2) + "\n"
    if options.json == "-":
        sys.stdout.write(text)
        return
    print(f"{rows[0]['questions']} questions scored, filter {options.filter}")
    print(table([{name: value for name, value in row.items() if name not in ("questions", "filter")} for row in rows]))
    if options.json:
        with atomic_writer(options.json) as file:
            file.write(text)


def _row_of_trec(options: argparse.Namespace) -> Dict[str, Any]:
    from wqa.evaluation import read_qrels, read_run, score_run

    if not options.trec_run or not options.qrels:
        raise OptionError("wqa evaluate", "neither RUN nor both --trec-run and --qrels", "one or the other")
    figures = score_run(read_run(options.trec_run), read_qrels(options.qrels), options.filter,
                        options.metrics.split(","), options.complete)
    counted = "count as 0" if options.complete else "are left out of the mean (--complete counts them as 0)"
    if figures["missing"]:
        print(f"note: {figures['missing']} judged questions are not in the run and {counted}", file=sys.stderr)
    if figures["unjudged"]:
        print(f"note: {figures['unjudged']} questions of the run have no judgement and do not count", file=sys.stderr)
    return {"filter": options.filter, **figures}


def _rows_of_run(options: argparse.Namespace) -> List[Dict[str, Any]]:
    from wqa.data import filter_questions, read_questions
    from wqa.evaluation import evaluate, write_qrels, write_run
    from wqa.inference import load_ranker

    if not options.data:
        raise OptionError("--data", "nothing", "labelled questions to score RUN on")
    texts = options.drop_ratio or ["0"]
    if options.trec_run and len(texts) > 1:
        raise OptionError("--trec-run", f"{len(texts)} drop ratios", "one, as a TREC run holds one ranking")
    questions = filter_questions(read_questions(options.data), options.filter)
    if not questions:
        raise OptionError("--filter", f"{options.filter} leaves no question of {options.data}", "at least one")
    metrics = options.metrics.split(",")
    ranker = load_ranker(options.run, **ranking_options(options))
    rows = []
    for text in texts:
        ranker.drop_ratio = drop_ratio(text)
        begin = time.perf_counter()
        rankings = _rank(ranker, questions, f"drop ratio {text}")
        seconds = time.perf_counter() - begin
        if options.trec_run:
            write_run(options.trec_run, questions, rankings)
        rows.append({"drop_ratio": text, "filter": options.filter, **evaluate(rankings, questions, metrics=metrics),
                     **_cost(rankings), "seconds": seconds})
    if options.qrels:
        write_qrels(options.qrels, questions)
    if options.exits:
        rows += _rows_of_exits(ranker, questions, metrics, options.filter)
    return rows


def _rank(ranker: Any, questions: List, what: str) -> List:
    from tqdm import tqdm

    return list(tqdm(ranker.rank_all(questions), total=len(questions), desc=what, unit="question", delay=1, file=sys.stderr))


def _cost(rankings: List) -> Dict[str, float]:
    from wqa.inference.cost import total

    cost = total([ranking.cost for ranking in rankings])
    return {"cost": cost.relative, "token_cost": cost.relative_tokens}


def _rows_of_exits(ranker: Any, questions: List, metrics: List[str], filter: str) -> List[Dict[str, Any]]:
    from wqa.evaluation import evaluate

    ranker.drop_ratio = 0.0
    rankings = _rank(ranker, questions, "each exit")
    depth, rows = ranker.model.config.num_layers, []
    for place, layer in enumerate(ranker.model.exits):
        orders = [ranking.order_at(place) for ranking in rankings]
        share = layer / depth
        rows.append({"drop_ratio": f"exit {layer}", "filter": filter, **evaluate(orders, questions, metrics=metrics),
                     "cost": share, "token_cost": share, "seconds": None})  # one pass scored all exits
    return rows
