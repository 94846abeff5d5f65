#!/usr/bin/env python3
"""Count where the heads of a student agree with teachers (Matsubara et al. 2022, Figure 4).

    python recipes/mhs/agreement.py STUDENT TEACHER... --data TEST.jsonl --out FOLDER

Each head answers a question by its top candidate. Its agreement with a teacher is the number of its
correct answers that the teacher gives too, over the number of its correct answers. A row is a head
of a student with several heads, a ranker of an ensemble, or any other run itself. Writes
agreement.tsv.
"""

import argparse
import itertools
import pathlib

from wqa.data import FILTERS, read_questions
from wqa.errors import run_script
from wqa.evaluation.comparison import NamedRanker, prepared_alike
from wqa.evaluation.rankers import questions_that_count, rank_questions
from wqa.evaluation.report import table, write_rows
from wqa.evaluation.trec import break_ties
from wqa.systems.load import load_ranker


def correct_answers(rankings, questions):
    """Index of each question's top candidate, by trec_eval's rule of ties; None if it is wrong."""
    answers = []
    for ranking, question in zip(rankings, questions):
        top = break_ties(ranking, question)[0]
        answers.append(top if (question.labels[top] or 0) > 0 else None)
    return answers


def answers_of(rankers, questions):
    """Correct answers by name of a ranker, all of which rank the same questions."""
    answers = {}
    for entry, prepared in prepared_alike(rankers, questions):
        rankings = rank_questions(entry.ranker, prepared.questions, entry.name, True)
        answers[entry.name] = correct_answers(rankings, prepared.questions)
    return answers


def agreement_rows(members, teachers, answers):
    """A row for each member of the student and each teacher."""
    correct = {name: sum(top is not None for top in tops) for name, tops in answers.items()}
    rows = []
    for member in members:
        for teacher in teachers:
            pairs = zip(answers[member], answers[teacher])
            agreed = sum(top is not None and top == taught for top, taught in pairs)
            row = {"member": member, "teacher": teacher, "agreed": agreed}
            row.update(member_correct=correct[member], teacher_correct=correct[teacher])
            row["agreement"] = agreed / correct[member] if correct[member] else None
            rows.append(row)
    return rows


def main(options):
    """Rank by all of them, and write the table."""
    student = load_ranker(options.student, ctx=options.ctx)
    if student.capabilities.rankers:
        names, rankers = student.names, student.rankers
    else:
        rankers = student.members()
        names = [f"head {number}" for number in range(1, len(rankers) + 1)]
    if len(rankers) == 1:
        names = [options.student]
    heads = map(NamedRanker, names, rankers)
    teachers = (NamedRanker(run, load_ranker(run, ctx=options.ctx)) for run in options.teachers)
    questions = questions_that_count(read_questions(options.data), options.filter)
    rows = agreement_rows(
        names, options.teachers, answers_of(itertools.chain(heads, teachers), questions)
    )
    print(table(rows))
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    for row in rows:
        share = row["agreement"]
        row["agreement"] = "-" if share is None else f"{share:.6f}"
    write_rows(out / "agreement.tsv", [{key: str(row[key]) for key in row} for row in rows])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("student", metavar="STUDENT")
    parser.add_argument("teachers", nargs="+", metavar="TEACHER")
    parser.add_argument("--data", required=True, metavar="FILE")
    parser.add_argument("--out", required=True, metavar="FOLDER")
    parser.add_argument("--filter", choices=tuple(FILTERS), default="no-all-negative")
    parser.add_argument("--ctx", default="cpu")
    run_script(main, parser.parse_args())
