#!/usr/bin/env python3
"""Compare systems of several seeds by paired tests over the questions, and by one over the seeds.

    python recipes/claims.py JUDGEMENTS METRIC,METRIC... --system NAME RUN ... [--system ...] \
        --pair NAME NAME ... [--pair ...]

The first system of a --pair is compared with each other one; one without a RUN that is there is
left out. The RUNs are TREC runs, one a seed, and JUDGEMENTS are qrels. With the metric accuracy
JUDGEMENTS are labelled claims, and the RUNs are files that labels.py wrote. Over the questions the
tests are Student's and Wilcoxon's, paired, and Spearman's of the correlation; a question counts by
its mean over the seeds. Over the seeds it is Student's, of two independent samples. low and high
bound the difference in 95 % of bootstrap samples of the questions. A difference is the second
system's figure less the first's.
"""

import argparse
import json
import pathlib
import statistics

from wqa.data.documents import read_claims
from wqa.errors import DataError, check_choice, run_script
from wqa.evaluation import read_qrels, read_run, table
from wqa.evaluation.significance import between_seeds, compare, per_question_of_run


def label_values(path, labels):
    """1 for each claim whose label a file of labels has right, 0 for others."""
    predicted = {}
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        predicted[str(entry["id"])] = entry["predicted_label"]
    if set(predicted) != set(labels):
        raise DataError(path, "other claims than the judgements", "a label for each of them")
    return {"accuracy": {key: float(predicted[key] == labels[key]) for key in labels}}


def reader_of(judgements, metrics):
    """What reads the values of a RUN by metric and question."""
    if metrics == ["accuracy"]:
        labels = {claim.id: claim.label for claim in read_claims(judgements)}
        return lambda path: label_values(path, labels)
    judged = read_qrels(judgements)
    return lambda path: per_question_of_run(read_run(path), judged, metrics)


def over_questions(values):
    """Mean of each question over the seeds."""
    return {qid: statistics.fmean(value[qid] for value in values) for qid in values[0]}


def row_of(metric, sides):
    """One comparison of two systems, from their values by metric and question for each seed."""
    first, second = ([values[metric] for values in side] for side in sides)
    means = [[statistics.fmean(value.values()) for value in values] for values in (first, second)]
    comparison = compare(over_questions(first), over_questions(second), metric)
    return {
        "metric": metric,
        "first": comparison.first,
        "second": comparison.second,
        "difference": comparison.difference,
        "low": comparison.low,
        "high": comparison.high,
        "t_test": comparison.t_test,
        "t_test_seeds": between_seeds(*means),
        "wilcoxon": comparison.wilcoxon,
        "spearman_p": comparison.spearman_p,
    }


def main(options):
    """Print the comparisons."""
    metrics = options.metrics.split(",")
    read = reader_of(options.judgements, metrics)
    values = {}
    for name, *paths in options.system:
        values[name] = [read(path) for path in paths if pathlib.Path(path).exists()]
    for names in options.pair:
        for name in names:
            check_choice("pair", name, values)
        for second in names[1:]:
            sides = [values[name] for name in (names[0], second)]
            if all(sides):
                rows = []
                for metric in metrics:
                    rows.append(row_of(metric, sides))
                seeds = " and ".join(str(len(side)) for side in sides)
                print(f"# {names[0]}; {second} ({seeds} seeds)\n{table(rows)}\n")


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("judgements")
    parser.add_argument("metrics")
    parser.add_argument("--system", nargs="+", action="append", required=True)
    parser.add_argument("--pair", nargs="+", action="append", required=True)
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main, arguments())
