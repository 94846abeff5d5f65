"""Score runs on labelled questions, compare two of them, or score TREC runs against qrels.

examples:
  wqa evaluate runs/wikiqa --data data/wikiqa/test.jsonl --filter no-all-negative --drop-ratio 0
  --drop-ratio 0.3
  wqa evaluate runs/pairwise runs/cascade --data data/wikiqa/test.jsonl --drop-ratio 0 --drop-ratio
  0.3
  wqa evaluate runs/seed0 runs/seed1 runs/seed2 --data data/wikiqa/test.jsonl --seeds
  wqa evaluate --trec-run run.txt --qrels qrels.txt
  wqa evaluate --trec-run one.txt --trec-run other.txt --qrels qrels.txt

Metrics equal trec_eval's. With a RUN, --trec-run and --qrels name files to write; without it they
name the files to score. Several RUNs, or two TREC runs, are compared with the first: paired t-test,
Wilcoxon's signed ranks, and the bootstrap's 95 % interval of the mean difference over the
questions; Spearman's rho of the rankings. --seeds takes the RUNs as seeds of one system and gives
mean and deviation. A RUN may be a .json file of a sequence of rankers.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from wqa.cli.options import add_filter, add_ranking, drop_ratio, ranking_options
from wqa.errors import OptionError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.add_argument("runs", nargs="*", metavar="RUN", help="run directory")
    parser.add_argument("--data", metavar="FILE", help="labelled questions, canonical JSONL")
    parser.add_argument(
        "--drop-ratio",
        action="append",
        metavar="A",
        help="one number, one an exit separated by commas, or tuned; give it again for "
        "another row, or, with "
        "several RUNs, one for each (default: 0)",
    )
    parser.add_argument(
        "--seeds", action="store_true", help="the RUNs are seeds of one system: mean and deviation"
    )
    parser.add_argument(
        "--trec-run",
        action="append",
        metavar="FILE",
        help="TREC run: written with RUN, {} in its name being the drop ratio; scored without",
    )
    parser.add_argument(
        "--qrels", metavar="FILE", help="TREC judgements: written with RUN, read without"
    )
    parser.add_argument(
        "--metrics",
        default="map,mrr,p@1,ndcg@10",
        metavar="M,...",
        help="of map, mrr, p@K, ndcg@K (default: map,mrr,p@1,ndcg@10)",
    )
    parser.add_argument(
        "--complete",
        action="store_true",
        help="count judged questions that a TREC run leaves out as 0, as trec_eval -c does",
    )
    parser.add_argument(
        "--exits", action="store_true", help="add a row for each exit on its own, nothing dropped"
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write the figures too: one object a row, in a list where "
        "there are several; - for standard output instead of the table",
    )
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

    rows, comparisons = _rows_of_runs(options) if options.runs else _rows_of_trec(options)
    found: Any = rows[0] if len(rows) == 1 else rows
    text = (
        json.dumps({"rows": rows, "comparisons": comparisons} if comparisons else found, indent=2)
        + "\n"
    )
    if options.json == "-":
        sys.stdout.write(text)
        return
    print(f"{rows[0]['questions']} questions scored, filter {options.filter}")
    print(
        table(
            [
                {name: value for name, value in row.items() if name not in ("questions", "filter")}
                for row in rows
            ]
        )
    )
    for comparison in comparisons:
        print(
            f"\n{comparison['second']} less {comparison['first']}; Spearman's rho of the rankings "
            f"{comparison['spearman']:.3f} (deviation {comparison['spearman_deviation']:.3f})"
        )
        print(table([_readable(row) for row in comparison["metrics"]]))
    if options.json:
        with atomic_writer(options.json) as file:
            file.write(text)


def _readable(row: Dict[str, Any]) -> Dict[str, Any]:
    points = {
        name: f"{100 * row[name]:.2f}" for name in ("first", "second", "difference", "low", "high")
    }
    return {
        "metric": row["metric"],
        **points,
        "t_test": f"{row['t_test']:.4f}",
        "wilcoxon": f"{row['wilcoxon']:.4f}",
        "changed": f"{row['changed']} of {row['questions']}",
    }


def _compared(
    name: str, other: str, first: Dict[str, Any], second: Dict[str, Any], rho: Tuple[float, float]
) -> Dict[str, Any]:
    """Every metric of two runs, by their values a question."""
    import dataclasses

    from wqa.evaluation.significance import compare

    return {
        "first": name,
        "second": other,
        "spearman": rho[0],
        "spearman_deviation": rho[1],
        "metrics": [
            dataclasses.asdict(compare(first[metric], second[metric], metric)) for metric in first
        ],
    }


def _rows_of_trec(options: argparse.Namespace) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    from wqa.evaluation import read_qrels, read_run
    from wqa.evaluation.significance import per_question_of_run, rank_correlation
    from wqa.evaluation.trec import trec_order

    if not options.trec_run or not options.qrels:
        raise OptionError(
            "wqa evaluate", "neither RUN nor both --trec-run and --qrels", "one or the other"
        )
    qrels, runs = read_qrels(options.qrels), [read_run(path) for path in options.trec_run]
    rows = [
        _row_of_trec(options, path, run, qrels, len(runs) > 1)
        for path, run in zip(options.trec_run, runs)
    ]
    comparisons = []
    for path, run in zip(options.trec_run[1:], runs[1:]):
        values = [
            per_question_of_run(each, qrels, options.metrics.split(",")) for each in (runs[0], run)
        ]
        shared = [
            (runs[0][qid], run[qid])
            for qid in runs[0]
            if qid in run and set(runs[0][qid]) == set(run[qid])
        ]
        orders = [
            [[list(one).index(doc) for doc in trec_order(each)] for each in (one, two)]
            for one, two in shared
        ]
        rho = rank_correlation([pair[0] for pair in orders], [pair[1] for pair in orders])
        comparisons.append(_compared(options.trec_run[0], path, values[0], values[1], rho))
    return rows, comparisons


def _row_of_trec(
    options: argparse.Namespace, path: str, run: Any, qrels: Any, named: bool
) -> Dict[str, Any]:
    from wqa.evaluation import score_run

    figures = score_run(run, qrels, options.filter, options.metrics.split(","), options.complete)
    counted = (
        "count as 0"
        if options.complete
        else "are left out of the mean (--complete counts them as 0)"
    )
    if figures["missing"]:
        print(
            f"note: {figures['missing']} judged questions are not in the run and {counted}",
            file=sys.stderr,
        )
    if figures["unjudged"]:
        print(
            f"note: {figures['unjudged']} questions of the run have no judgement and do not count",
            file=sys.stderr,
        )
    return {**({"run": path} if named else {}), "filter": options.filter, **figures}


def _rows_of_runs(options: argparse.Namespace) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    if not options.data:
        raise OptionError("--data", "nothing", "labelled questions to score RUN on")
    if options.trec_run and len(options.trec_run) > 1:
        raise OptionError(
            "--trec-run", f"{len(options.trec_run)} files", "one file to write with RUN"
        )
    if len(options.runs) == 1 and not options.seeds:
        return _rows_of_run(options, _questions(options)), []
    if options.exits or options.trec_run:
        raise OptionError(
            "--exits and --trec-run", f"with {len(options.runs)} runs", "a single RUN"
        )
    ratios = options.drop_ratio or [None]
    if len(ratios) not in (1, len(options.runs)):
        raise OptionError(
            "--drop-ratio",
            f"{len(ratios)} for {len(options.runs)} runs",
            "one for all, or one for each",
        )
    return _rows_of_several(
        options, _questions(options), ratios * (len(options.runs) if len(ratios) == 1 else 1)
    )


def _questions(options: argparse.Namespace) -> List:
    from wqa.data import filter_questions, read_questions

    questions = filter_questions(read_questions(options.data), options.filter)
    if not questions:
        raise OptionError(
            "--filter", f"{options.filter} leaves no question of {options.data}", "at least one"
        )
    return questions


def _rows_of_several(
    options: argparse.Namespace, questions: List, ratios: List[Optional[str]]
) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    from wqa.evaluation import evaluate
    from wqa.evaluation.significance import over_seeds, per_question, rank_correlation
    from wqa.inference import load_ranker

    metrics, rows, values, orders = options.metrics.split(","), [], [], []
    for run, text in zip(options.runs, ratios):
        ranker: Any = load_ranker(
            run, drop_ratio(text, run) if text else None, **ranking_options(options)
        )
        rankings = _rank(ranker, questions, run)
        rows.append(
            {
                "run": run,
                "drop_ratio": text or "-",
                "filter": options.filter,
                **evaluate(rankings, questions, metrics=metrics),
                **_cost(rankings),
            }
        )
        values.append(per_question(rankings, questions, metrics))
        orders.append([ranking.order.tolist() for ranking in rankings])
    if options.seeds:
        figures = over_seeds(
            [{name: row[name] for name in ("questions", *metrics, "cost")} for row in rows]
        )
        count = {"questions": len(questions), "filter": options.filter}
        for place, name in enumerate(("mean", "deviation")):
            spread = {metric: pair[place] for metric, pair in figures.items()}
            rows.append({"run": name, "drop_ratio": "", **count, **spread, "token_cost": None})
        return rows, []
    names = [f"{run} at {text}" if text else run for run, text in zip(options.runs, ratios)]
    return rows, [
        _compared(names[0], name, values[0], value, rank_correlation(orders[0], order))
        for name, value, order in zip(names[1:], values[1:], orders[1:])
    ]


def _rows_of_run(options: argparse.Namespace, questions: List) -> List[Dict[str, Any]]:
    from wqa.evaluation import evaluate, write_qrels, write_run
    from wqa.inference import load_ranker

    run, metrics = options.runs[0], options.metrics.split(",")
    texts = options.drop_ratio or [None]
    trec_run = options.trec_run[0] if options.trec_run else ""
    if trec_run and len(texts) > 1 and "{}" not in trec_run:
        raise OptionError(
            "--trec-run",
            f"{len(texts)} drop ratios",
            "a file for each",
            "put {} in its name for the ratio",
        )
    ranker: Any = load_ranker(run, **ranking_options(options))
    if options.exits and not hasattr(ranker, "model"):
        raise OptionError("--exits", f"with {run}, a sequence of rankers", "a run with exits")
    rows = []
    for text in texts:
        if text is not None:
            ranker.drop_ratio = drop_ratio(text, run)
        shown = text or ("0" if hasattr(ranker, "model") else "stored")
        begin = time.perf_counter()
        rankings = _rank(ranker, questions, f"drop ratio {shown}")
        seconds = time.perf_counter() - begin
        if trec_run:
            write_run(trec_run.replace("{}", shown), questions, rankings)
        rows.append(
            {
                "drop_ratio": shown,
                "filter": options.filter,
                **evaluate(rankings, questions, metrics=metrics),
                **_cost(rankings),
                "seconds": seconds,
            }
        )
    if options.qrels:
        write_qrels(options.qrels, questions)
    if options.exits:
        rows += _rows_of_exits(ranker, questions, metrics, options.filter)
    return rows


def _rank(ranker: Any, questions: List, what: str) -> List:
    from tqdm import tqdm

    return list(
        tqdm(
            ranker.rank_all(questions),
            total=len(questions),
            desc=what,
            unit="question",
            delay=1,
            file=sys.stderr,
        )
    )


def _cost(rankings: List) -> Dict[str, float]:
    from wqa.inference.cost import total

    cost = total([ranking.cost for ranking in rankings])
    return {"cost": cost.relative, "token_cost": cost.relative_tokens}


def _rows_of_exits(
    ranker: Any, questions: List, metrics: List[str], filter: str
) -> List[Dict[str, Any]]:
    from wqa.evaluation import evaluate

    ranker.drop_ratio = 0.0
    rankings = _rank(ranker, questions, "each exit")
    depth, rows = ranker.model.config.num_layers, []
    for place, layer in enumerate(ranker.model.exits):
        orders = [ranking.order_at(place) for ranking in rankings]
        share = layer / depth
        rows.append(
            {
                "drop_ratio": f"exit {layer}",
                "filter": filter,
                **evaluate(orders, questions, metrics=metrics),
                "cost": share,
                "token_cost": share,
                "seconds": None,
            }
        )  # one pass scored all exits
    return rows
