#!/usr/bin/env python3
"""Compare two rankers of several seeds each, by paired tests over the questions.

    python recipes/cosinet/over_seeds.py FOLDER METRIC,METRIC... QRELS RUN ... -- RUN ...

The RUNs are TREC runs, of the first ranker before the dashes, of the second behind them; FOLDER is
left out of their names. A question counts by its mean over the seeds. Then each seed of the second
ranker is compared with that of the first in its place, or with its only one.
"""

import os
import sys

from wqa.errors import WqaError
from wqa.evaluation import read_qrels, read_run, table
from wqa.evaluation.significance import compare, per_question_of_run

COLUMNS = ("first", "second", "difference", "low", "high", "t_test", "wilcoxon")


def means(values):
    """Mean of each question over the seeds."""
    return {qid: sum(value[qid] for value in values) / len(values) for qid in values[0]}


def row(title, metric, first, second):
    """One comparison, by its columns."""
    comparison = compare(first, second, metric)
    return {
        "seeds": title,
        "metric": metric,
        **{name: getattr(comparison, name) for name in COLUMNS},
    }


def main(folder, names, qrels, *runs):
    """Print the comparisons."""
    metrics = names.split(",")
    divide = runs.index("--")
    judged = read_qrels(qrels)
    sides = []
    for paths in (runs[:divide], runs[divide + 1 :]):
        print(" ".join(os.path.relpath(path, folder) for path in paths))
        sides.append([per_question_of_run(read_run(path), judged, metrics) for path in paths])
    first, second = sides
    rows = []
    for metric in metrics:
        pair = (means([values[metric] for values in side]) for side in sides)
        rows.append(row("mean", metric, *pair))
    for number, values in enumerate(second):
        other = first[number] if number < len(first) else first[0]
        for metric in metrics:
            rows.append(row(f"{number + 1}", metric, other[metric], values[metric]))
    print(table(rows))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
