#!/usr/bin/env python3
"""Check the number of questions that a checkpoint is evaluated on, and lay its figures beside those
of its paper.

    python recipes/checkpoints/released.py count QUESTIONS.jsonl CORPUS
    python recipes/checkpoints/released.py row RESULTS.tsv FIGURES.json FILE CORPUS PUBLISHED ROW

FIGURES.json is what `wqa evaluate --json` wrote, with the run and the judgements beside it.
PUBLISHED is a table in the folder of all recipes, ROW one of its rows; dashes for none. The rows of
FILE in RESULTS.tsv are written anew. There are three, as papers do not all say which questions and
which MAP they count:

    no-all-negative   questions with a correct candidate: 243 of WikiQA (Cascade Transformer; MHS)
    clean             those that have a wrong one too: 237 (MSPP; TANDA's authors' function)
    classes           clean, of the two predicted classes in place of scores. Candidates of a class
                      tie, and that function ranks the correct ones first: such figures are too high
"""

import pathlib
import sys

from wqa.data import filter_questions, read_questions
from wqa.errors import DataError, run_script
from wqa.evaluation import read_qrels, read_run, score_run
from wqa.evaluation.report import read_rows, write_rows

HERE = pathlib.Path(__file__).resolve().parent
METRICS = ("p@1", "map", "mrr")
FILTERS = ("no-all-negative", "clean")


def count(data, corpus):
    """Refuse test questions that are not as many as those that the papers count."""
    questions = list(read_questions(data))
    for row in read_rows(HERE / "counts.tsv", ("corpus", "filter", "questions")):
        if row["corpus"] != corpus:
            continue
        counted = len(filter_questions(questions, row["filter"]))
        if counted != int(row["questions"]):
            found = f"{counted} questions by the filter {row['filter']}"
            expected = f"{row['questions']}, as {row['source']} counts those of {corpus}"
            hint = "make the split anew with the script of the corpus in data_scripts/"
            raise DataError(data, found, expected, hint)


def classes_of(run, qrels):
    """The predicted classes in place of scores; among equal ones the correct candidates first."""
    classes = {}
    for qid, scores in run.items():
        grades = qrels.get(qid, {})
        classes[qid] = {doc: 2 * (score > 0) + grades.get(doc, 0) for doc, score in scores.items()}
    return classes


def published_figures(corpus, published, name):
    """Figures of a row of a paper by metric, as printed; a dash where it has none."""
    if published == "-":
        return dict.fromkeys(METRICS, "-")
    path = HERE.parent / published
    for row in read_rows(path):
        if row["row"] == name and row["drop_ratio"] in ("0", "-"):
            return {metric: row.get(f"{corpus}_{metric}", "-") for metric in METRICS}
    raise DataError(path, f"no row {name}", "a row that recipes/checkpoints/files.tsv names")


def row(table, figures, file, corpus, published, name):
    """Write the rows of a checkpoint."""
    run, qrels = read_run(f"{figures}.0.trec"), read_qrels(f"{figures}.qrels")
    readings = {filter: score_run(run, qrels, filter, METRICS) for filter in FILTERS}
    readings["classes"] = score_run(classes_of(run, qrels), qrels, "clean", METRICS)
    rows = []
    if pathlib.Path(table).exists():
        rows = [entry for entry in read_rows(table, ("file",)) if entry["file"] != file]
    printed = published_figures(corpus, published, name)
    for reading, scored in readings.items():
        entry = {"file": file, "corpus": corpus, "counted": reading}
        entry["questions"] = str(scored["questions"])
        entry.update({metric: f"{100 * scored[metric]:.2f}" for metric in METRICS})
        entry.update({f"published_{metric}": printed[metric] for metric in METRICS})
        rows.append(entry)
    write_rows(table, rows)


if __name__ == "__main__":
    _, command, *arguments = sys.argv
    run_script({"count": count, "row": row}[command], *arguments)
