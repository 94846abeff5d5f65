#!/usr/bin/env python3
"""Compare the variants that recipes/cascade/last_exit.sh trained with their monolithic twin.

    python recipes/cascade/last_exit.py RUNS --split dev --variants mono uniform --seeds 0 1 2

The average precision of a question is the mean over the seeds. Paired tests over the questions
compare each variant with the first one, at drop ratio 0, the last exit, and at 0.3. Figures are in
per cent; the deviation is that of the MAP over the seeds.
"""

import argparse
import json
import pathlib
import statistics
import sys

from wqa.errors import WqaError
from wqa.evaluation import read_qrels, read_run
from wqa.evaluation.significance import compare, per_question_of_run

CORPORA = ("wikiqa", "trecqa")
COLUMNS = ("variant", "drop ratio", "cost", "MAP", "deviation", "difference", "interval", "t-test")


def average_precisions(folder, split, ratio):
    """Average precision of each question, as one trained run ranks them."""
    values = per_question_of_run(
        read_run(folder / f"{split}.json.{ratio}.trec"),
        read_qrels(folder / f"{split}.json.qrels"),
        ("map",),
        complete=True,
    )
    return values["map"]


def cost_at(folder, split, ratio):
    """Relative cost of one trained run at a drop ratio."""
    rows = json.loads((folder / f"{split}.json").read_text(encoding="utf-8"))
    for row in rows if isinstance(rows, list) else [rows]:
        if str(row["drop_ratio"]) == ratio:
            return row["cost"]
    raise SystemExit(f"error: {folder / split}.json has no row with drop ratio {ratio}")


def over_seeds(runs):
    """Mean over the seeds of each question's average precision."""
    return {qid: statistics.mean(run[qid] for run in runs) for qid in runs[0]}


def row_of(variant, ratio, folders, split, reference):
    """A row of the table, and the average precision of each question."""
    runs = [average_precisions(folder, split, ratio) for folder in folders]
    maps = [100 * statistics.mean(run.values()) for run in runs]
    deviation = f"{statistics.stdev(maps):.2f}" if len(maps) > 1 else "-"
    cost = statistics.mean(cost_at(folder, split, ratio) for folder in folders)
    values = over_seeds(runs)
    row = [variant, ratio, f"{cost:.2f}", f"{statistics.mean(maps):.2f}", deviation]
    if reference is None:
        return [*row, "", "", ""], values
    found = compare(reference, values, "map")
    interval = f"{100 * found.low:+.2f} to {100 * found.high:+.2f}"
    return [*row, f"{100 * found.difference:+.2f}", interval, f"{found.t_test:.3f}"], values


def table_of(corpus, options):
    """Rows of one corpus; a variant without all its runs is left out.

    Without the first variant there is no difference to show.
    """
    rows, reference = [], None
    for variant in options.variants:
        folders = [options.runs / f"{variant}_{corpus}_seed{seed}" for seed in options.seeds]
        if not all((folder / f"{options.split}.json").exists() for folder in folders):
            continue
        for ratio in ("0", "0.3"):
            if not (folders[0] / f"{options.split}.json.{ratio}.trec").exists():
                continue  # a monolithic ranker drops nothing
            row, values = row_of(variant, ratio, folders, options.split, reference)
            rows.append(row)
            if reference is None and variant == options.variants[0]:
                reference = values
    return rows


def main():
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=pathlib.Path, help="folder of the runs")
    parser.add_argument("--split", default="dev", help="questions of WikiQA: dev or test")
    parser.add_argument("--variants", nargs="+", required=True, help="the twin first")
    parser.add_argument("--seeds", nargs="+", required=True)
    options = parser.parse_args()
    for corpus in CORPORA:
        print(f"# {corpus}, {options.split}, {len(options.seeds)} seeds\n")
        print(
            "| "
            + " | ".join(COLUMNS)
            + " |\n| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |"
        )
        for row in table_of(corpus, options):
            print("| " + " | ".join(row) + " |")
        print()


if __name__ == "__main__":
    try:
        main()
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
