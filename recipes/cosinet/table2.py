#!/usr/bin/env python3
"""Put the statistics of a corpus, and the figures of baselines on it, into Table 2 of the results.

    python recipes/cosinet/table2.py TABLE.tsv CORPUS TEST.jsonl --random FILE.json ... \
        --baselines NAME=FILE.json ...

The files are those of `wqa evaluate --json`; those of --random are draws, of which the means count.
Statistics are over all questions of TEST.jsonl. Words are those of `wqa.text.words.split_words`,
punctuation among them. The column of CORPUS is written anew; others stay.
"""

import argparse
import pathlib

from wqa.data import read_json, read_questions
from wqa.errors import run_script
from wqa.evaluation.report import read_rows, write_rows
from wqa.text.words import split_words


def statistics(questions):
    """The first rows of the table."""
    count = len(questions)
    texts = [text for question in questions for text in question.texts]
    answered = sum(1 in question.labels for question in questions)
    in_questions = sum(len(split_words(question.question)) for question in questions)
    return {
        "questions": str(count),
        "sentences": str(len(texts)),
        "% of questions answered": f"{100 * answered / count:.2f}",
        "candidates a question": f"{len(texts) / count:.2f}",
        "words a question": f"{in_questions / count:.2f}",
        "words a candidate": f"{sum(map(len, map(split_words, texts))) / len(texts):.2f}",
    }


def figures(name, rows):
    """P@1 and MAP, means over the rows."""
    shown = {}
    for title, metric in (("P@1", "p@1"), ("MAP", "map")):
        mean = sum(row[metric] for row in rows) / len(rows)
        shown[f"{name} {title}"] = f"{100 * mean:.2f}"
    return shown


def main(options):
    """Write the column."""
    values = statistics(list(read_questions(options.data)))
    values.update(figures("random", [read_json(path) for path in options.random]))
    for baseline in options.baselines:
        name, _, path = baseline.partition("=")
        values.update(figures(name, [read_json(path)]))
    rows = read_rows(options.table) if pathlib.Path(options.table).exists() else []
    by_name = {row["row"]: row for row in rows}
    for name, value in values.items():
        entry = by_name.setdefault(name, {"row": name, "drop_ratio": "0"})
        entry[f"{options.corpus}_test"] = value
    write_rows(options.table, list(by_name.values()))


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("table", "corpus", "data"):
        parser.add_argument(name)
    parser.add_argument("--random", nargs="+", required=True)
    parser.add_argument("--baselines", nargs="+", required=True)
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main, arguments())
