#!/usr/bin/env python3
"""Read the answers of questions from the documents that a ranker puts first.

    python recipes/dcbert/read.py QUESTIONS.jsonl READER OUT.json [--run RUN.trec] [--read 10]

It reads what a ranking that is there already puts first, so that no document is ranked twice, and
the documents that come with a corpus. `wqa ask --reader` retrieves, ranks and reads in one command.
Without --run the order of the candidates is taken. OUT has em and f1 by SQuAD's rule, over --total
questions: those that retrieved no document count as 0.
"""

import argparse

from wqa.data import read_questions
from wqa.errors import run_script
from wqa.evaluation import read_run, score_answers
from wqa.evaluation.trec import trec_order
from wqa.io.files import write_json
from wqa.io.progress import with_bar
from wqa.systems.run_directory import load_reader


def cut(question, scores, count):
    """Return a question with its first candidates alone, by the scores where there are any."""
    candidates = question.candidates
    if scores is not None:
        by_id = dict(zip(question.document_ids, candidates))
        candidates = [by_id[key] for key in trec_order(scores)]
    return question._replace(candidates=tuple(candidates[:count]))


def main(options):
    """Write the figures."""
    questions = list(read_questions(options.questions))
    run = read_run(options.run) if options.run else {}
    first = [cut(question, run.get(question.id), options.read) for question in questions]
    reader = load_reader(
        options.reader, ctx=options.ctx, precision=options.precision, long_questions="truncate"
    )
    prepared = reader.prepare(first).questions
    predictions = {}
    for question, answers in zip(
        prepared, with_bar(reader.read_all(prepared), len(prepared), "reading", True)
    ):
        predictions[question.id] = answers[0].text if answers else ""
    figures = score_answers(predictions, questions)
    share = len(questions) / max(options.total, len(questions))
    for name in ("em", "f1"):
        figures[name] *= share
    write_json(options.out, figures)


def arguments():
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("questions", "reader", "out"):
        parser.add_argument(name)
    parser.add_argument("--run")
    parser.add_argument("--read", type=int, default=10)
    parser.add_argument("--total", type=int, default=0)
    parser.add_argument("--ctx", default="cpu")
    parser.add_argument("--precision", default="float32")
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main, arguments())
