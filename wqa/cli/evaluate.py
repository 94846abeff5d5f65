"""Score runs on labelled questions or claims, or TREC runs against qrels, and compare them.

examples:
  wqa evaluate runs/wikiqa --data data/wikiqa/test.jsonl --drop-ratio 0 --drop-ratio 0.3
  wqa evaluate runs/wikiqa --data data/wikiqa/test.jsonl --trec-run run.txt --write-qrels qrels.txt
  wqa evaluate runs/pairwise runs/cascade --data data/wikiqa/test.jsonl
  wqa evaluate runs/seed0 runs/seed1 runs/seed2 --data data/wikiqa/test.jsonl --seeds
  wqa evaluate wo+rr --data data/wikiqa/test.jsonl --filter all
  wqa evaluate runs/claims --data data/fever/dev.jsonl
  wqa evaluate --run run.txt --run other.txt --qrels qrels.txt
  wqa evaluate --retrieved --data retrieved/dev.jsonl --metrics hit@1,hit@10

Metrics equal trec_eval's; questions without an answer are left out unless --filter or --total says
otherwise. With one RUN, each --drop-ratio and each --keep is a row of the table. Several RUNs, or
TREC runs, stand side by side, and each is compared with the first by each metric: paired t-test,
Wilcoxon's signed-rank test, the 95 % interval of the mean difference by a bootstrap over the
questions, and Spearman's rho. With --seeds, the RUNs are seeds of one system, and the table ends
with mean and deviation. Without a RUN, --run and --qrels name the TREC files to score, and
--retrieved scores the order of the candidates in --data, that of `wqa retrieve`. hit@K is the share
of questions with a correct candidate among the first K; pbt@K and ptb@K compare with the order in
--data. A RUN may be a .json file of a sequence or an ensemble of rankers, or the name of a ranker
without training: minilm, maxsim:ENCODER, cosine:ENCODER, rr, wo, wo+rr, random:SEED, bm25. For a
RUN that labels claims, --data holds labelled claims, and the table has the accuracy and what is
predicted for each label.
"""

from __future__ import annotations

import argparse
import functools
import shlex
from typing import Any, Dict, List, Mapping

from wqa.cli.options import (
    add_long_candidates,
    add_ranking,
    add_scoring,
    metric_names,
    ranking_options,
    refuse,
    values_of,
)
from wqa.cli.output import add_json, figures_table, note_long_rows, note_omissions, show
from wqa.cli.runs import add_drops, named_rankers, read_trec, scores_trec_runs, settings_by_name
from wqa.cli.verify import evaluate_claims, labels_claims
from wqa.data.records import chosen_filter
from wqa.errors import OptionError

#: Options that need a RUN or a TREC run.
_OF_RANKINGS = (
    *("runs", "trec_runs", "qrels", "drops", "seeds", "per_exit", "ties"),
    "run_metadata",
)
#: Options of a single RUN.
_OF_ONE_RUN = ("per_exit", "trec_run", "run_metadata", "trec_qrels", "total")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa evaluate`` to its parser."""
    parser.add_argument("runs", nargs="*", metavar="RUN", help="run directory, or another ranker")
    add_scoring(parser)
    add_drops(parser, "; give it again for another row, or, with several RUNs, once for each")
    parser.add_argument(
        "--seeds", action="store_true", help="the RUNs are seeds of one system: mean and deviation"
    )
    parser.add_argument(
        "--retrieved",
        action="store_true",
        help="score the order of the candidates in --data instead of a RUN's",
    )
    parser.add_argument(
        "--total",
        type=int,
        default=0,
        metavar="N",
        help="questions of the corpus: those that retrieved no candidate, and so are not in "
        "--data, count as 0",
    )
    parser.add_argument(
        "--per-exit",
        action="store_true",
        help="add a row for each exit on its own, with nothing dropped",
    )
    parser.add_argument(
        "--trec-run",
        default="",
        metavar="FILE",
        help="TREC run to write; {} in its name is replaced by the drop ratio",
    )
    parser.add_argument(
        "--run-metadata",
        action="store_true",
        help="begin the TREC run with a header of ir_metadata, which says how it was made; "
        "trec_eval does not read such a run",
    )
    parser.add_argument(
        "--write-qrels",
        dest="trec_qrels",
        default="",
        metavar="FILE",
        help="TREC judgements to write",
    )
    add_json(parser)
    add_ranking(parser)
    add_long_candidates(parser)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa evaluate`` and print a table of figures."""
    from wqa.data import read_questions
    from wqa.evaluation.comparison import compare_rankers, compare_trec_runs

    metrics = metric_names(options.metrics)
    if options.total < 0:
        raise OptionError("total", options.total, "a number of questions")
    reads_trec_run = not options.retrieved and scores_trec_runs(options)
    ranks = options.retrieved or reads_trec_run or options.seeds
    if not ranks and labels_claims(options.runs):
        evaluate_claims(options)
        return
    options.metrics = metrics
    options.filter = chosen_filter(options.filter, options.total)
    if options.retrieved:
        rows = _of_retrieval(options)
    elif reads_trec_run and len(options.trec_runs) > 1:
        runs, qrels = read_trec(options)
        _show(compare_trec_runs(runs, qrels, options.filter, metrics), options)
        return
    elif reads_trec_run:
        rows = _of_trec_run(options)
    elif options.seeds:
        rows = _of_seeds(options)
    elif len(options.runs) > 1:
        refuse(options, _OF_ONE_RUN, "with several RUNs", "a single RUN")
        questions = list(read_questions(options.data))
        given = values_of(options, "filter", "metrics", "ties")
        _show(compare_rankers(named_rankers(options), questions, progress=True, **given), options)
        return
    else:
        rows = _of_run(options)
    note_long_rows(rows)
    show(figures_table(rows), rows[0] if len(rows) == 1 else rows, options.json)


def _show(result: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Print the figures of several runs, and their tests against the first."""
    from wqa.evaluation.comparison import comparison_table

    for row in result["rows"]:
        note_omissions(row)
    note_long_rows(result["rows"])
    tables = [figures_table(result["rows"]), *map(comparison_table, result["comparisons"])]
    show("\n\n".join(tables), result, options.json)


def _of_run(options: argparse.Namespace) -> List[Dict[str, Any]]:
    from wqa.data import read_questions
    from wqa.evaluation import evaluate_ranker
    from wqa.evaluation.run_metadata import describe_run
    from wqa.systems.load import load_ranker

    [run] = options.runs
    describe = None
    if options.run_metadata:
        if not options.trec_run:
            raise OptionError("run_metadata", "without trec_run", "a TREC run to describe")
        command = shlex.join(options.command_line)
        describe = functools.partial(
            describe_run, command, run, options.data, settings={"precision": options.precision}
        )
    questions = list(read_questions(options.data))
    settings = settings_by_name(options.drops, run)
    return evaluate_ranker(
        load_ranker(run, **ranking_options(options)),
        questions,
        settings or None,
        progress=True,
        describe=describe,
        **values_of(options, "filter", "metrics", "per_exit", "trec_run", "trec_qrels"),
        **values_of(options, "total", "ties"),
    )


def _of_retrieval(options: argparse.Namespace) -> List[Dict[str, Any]]:
    from wqa.data import read_questions
    from wqa.evaluation import evaluate_retrieved

    problem = "with --retrieved, where nothing is ranked"
    refuse(options, _OF_RANKINGS, problem, "one or the other")
    if not options.data:
        raise OptionError("data", "nothing", "labelled questions with their candidates")
    given = values_of(options, "filter", "metrics", "trec_run", "trec_qrels", "total")
    return [evaluate_retrieved(read_questions(options.data), **given)]


def _of_seeds(options: argparse.Namespace) -> List[Dict[str, Any]]:
    from wqa.data import read_questions
    from wqa.evaluation.comparison import evaluate_seeds

    refuse(options, _OF_ONE_RUN, "with --seeds", "a single RUN")
    rankers = named_rankers(options)
    questions = read_questions(options.data)
    return evaluate_seeds(
        rankers, questions, options.filter, options.metrics, progress=True, ties=options.ties
    )


def _of_trec_run(options: argparse.Namespace) -> List[Dict[str, Any]]:
    from wqa.evaluation import score_run

    [(_, run)], qrels = read_trec(options)
    figures = score_run(run, qrels, options.filter, options.metrics)
    note_omissions(figures)
    return [{"filter": options.filter, **figures}]
