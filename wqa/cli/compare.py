"""Compare runs on the same questions, or TREC runs against the same qrels.

examples:
  wqa compare runs/pairwise runs/cascade --data data/wikiqa/test.jsonl
  wqa compare runs/a runs/a --data data/wikiqa/test.jsonl --drop-ratio 0 --drop-ratio 0.3
  wqa compare minilm runs/pairwise runs/cascade --data data/wikiqa/test.jsonl --latex table.tex
  wqa compare --run one.txt --run two.txt --qrels qrels.txt
  wqa compare --run original.txt --run reproduced.txt --qrels qrels.txt --reproduction

Each run is compared with the first by each metric: paired t-test, Wilcoxon's signed-rank test, the
95 % interval of the mean difference by a bootstrap over the questions, and Spearman's rho between
the values of the questions, with its p-value. The title has the mean over the questions of rho
between the rankings of the candidates. --csv and --latex write one table of all runs, with each
metric and its p-value by the t-test against the first run. A RUN may be a .json file of a sequence
or an ensemble, or a ranker without training: minilm, maxsim:ENCODER, cosine:ENCODER, rr, wo, wo+rr,
random:SEED, bm25.

--reproduction says how well the second TREC run reproduces the first: Kendall's tau of the
documents' orders, RMSE and p-value of the paired t-test. With four, an original baseline and run
and a reproduced baseline and run, it adds the effect ratio and the difference of the relative
improvements (Breuer et al. 2020).
"""

from __future__ import annotations

import argparse

from wqa.cli.options import add_long_candidates, add_ranking, add_scoring, metric_names
from wqa.cli.output import add_json, figures_table, note_long_rows, note_omissions, show
from wqa.cli.runs import add_drops, named_rankers, read_trec, scores_trec_runs
from wqa.data.records import chosen_filter
from wqa.errors import OptionError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa compare`` to its parser."""
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="run directory, or another ranker; at least two"
    )
    add_scoring(parser)
    add_drops(parser, "; give it once for all RUNs, or once for each")
    parser.add_argument(
        "--reproduction", action="store_true", help="measure how well a TREC run reproduces another"
    )
    add_json(parser)
    for form, ending in (("csv", ".csv"), ("latex", ".tex")):
        parser.add_argument(
            f"--{form}",
            metavar="FILE",
            help=f"write one table of all runs and their p-values too, such as table{ending}",
        )
    add_ranking(parser)
    add_long_candidates(parser)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa compare`` and print tables of figures and tests."""
    from wqa.data import read_questions
    from wqa.evaluation.comparison import compare_rankers, compare_trec_runs, comparison_table
    from wqa.evaluation.report import experiment_table
    from wqa.io.files import atomic_writer

    metrics = metric_names(options.metrics)
    options.filter = chosen_filter(options.filter)
    of_trec_runs = scores_trec_runs(options)
    if options.reproduction:
        _show_reproduction(options, of_trec_runs)
        return
    if of_trec_runs:
        runs, qrels = read_trec(options)
        result = compare_trec_runs(runs, qrels, options.filter, metrics, options.complete)
        for row in result["rows"]:
            note_omissions(row, options.complete)
    else:
        if len(options.runs) < 2:  # before the first is ranked
            expected = "at least two to compare"
            raise OptionError("runs", "one", expected, "for one: wqa evaluate RUN")
        rankers = named_rankers(options)
        questions = list(read_questions(options.data))
        result = compare_rankers(
            rankers, questions, options.filter, metrics, progress=True, ties=options.ties
        )
    note_long_rows(result["rows"])
    tables = [figures_table(result["rows"])]
    tables += map(comparison_table, result["comparisons"])
    for form, path in (("csv", options.csv), ("latex", options.latex)):
        if path:
            with atomic_writer(path) as file:
                file.write(experiment_table(result, form))
    show("\n\n".join(tables), result, options.json)


def _show_reproduction(options: argparse.Namespace, of_trec_runs: bool) -> None:
    from wqa.evaluation import table
    from wqa.evaluation.reproducibility import compare_reproduction

    if not of_trec_runs or options.csv or options.latex:
        raise OptionError("reproduction", "with RUN, csv or latex", "TREC runs: --run and --qrels")
    runs, qrels = read_trec(options)
    metrics = metric_names(options.metrics)
    rows = compare_reproduction(runs, qrels, options.filter, metrics, options.complete)
    show(table(rows), rows, options.json)
