"""Count where the heads of a student agree with teachers, as a table and a picture.

examples:
  wqa agreement runs/mhs runs/albert runs/roberta runs/electra --data data/wikiqa/test.jsonl
  wqa agreement runs/mhs runs/albert runs/roberta --data data/wikiqa/test.jsonl --out agreement

Each head answers a question by its top candidate. Its agreement with a teacher is the number of its
correct answers that the teacher gives too, over the number of its correct answers. A row is a head
of a student with several heads, a ranker of an ensemble, or any other run itself.

--out writes agreement.tsv, with a line for each head and teacher, and agreement.png.
"""

from __future__ import annotations

import argparse
import pathlib
from typing import TYPE_CHECKING, Any, Iterator, List

from wqa.cli.options import add_data, add_filter, add_ranking, ranking_options
from wqa.cli.output import add_json, show
from wqa.cli.runs import options_of
from wqa.data.records import DEFAULT_FILTER

if TYPE_CHECKING:
    from wqa.evaluation.agreement import Agreement
    from wqa.evaluation.comparison import NamedRanker


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa agreement`` to its parser."""
    parser.add_argument("student", metavar="STUDENT", help="run directory, or file of an ensemble")
    parser.add_argument(
        "teachers", nargs="+", metavar="TEACHER", help="run directory, or another ranker"
    )
    add_data(parser, "labelled questions, JSONL, .csv or .tsv")
    parser.add_argument(
        "--out", default="", metavar="PATH", help="folder of the table and the picture to write"
    )
    parser.add_argument(
        "--no-picture", dest="picture", action="store_false", help="leave the picture out"
    )
    add_filter(parser, "--filter", DEFAULT_FILTER, "questions to score")
    add_json(parser)
    add_ranking(parser)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa agreement`` and print the agreement of each head with each teacher."""
    from wqa.data import read_questions
    from wqa.evaluation.agreement import measure_agreement
    from wqa.evaluation.picture import check_matplotlib
    from wqa.text import note_long_questions

    if options.out and options.picture:
        check_matplotlib()
    questions = list(read_questions(options.data))
    agreement = measure_agreement(
        _members(options), _teachers(options), questions, options.filter, progress=True
    )
    note_long_questions(agreement.truncated_questions, agreement.skipped_questions, options.data)
    if options.out:
        _write(pathlib.Path(options.out), agreement, options.picture)
    title = f"{agreement.questions} questions, filter {options.filter}"
    value = {"questions": agreement.questions, "filter": options.filter, "rows": agreement.rows()}
    show(f"{title}\n{agreement.table()}", value, options.json)


def _load(options: argparse.Namespace, run: str) -> Any:
    from wqa.systems.load import load_ranker

    own = options_of(run, [options.student, *options.teachers], ranking_options(options))
    return load_ranker(run, **own)


def _members(options: argparse.Namespace) -> List[NamedRanker]:
    from wqa.evaluation.comparison import NamedRanker

    members = _load(options, options.student).members()
    if len(members) == 1:
        return [NamedRanker(options.student, members[0][1])]
    return [NamedRanker(name, member) for name, member in members]


def _teachers(options: argparse.Namespace) -> Iterator[NamedRanker]:
    from wqa.evaluation.comparison import NamedRanker

    for run in options.teachers:
        yield NamedRanker(run, _load(options, run))


def _write(folder: pathlib.Path, agreement: Agreement, picture: bool) -> None:
    from wqa.evaluation.picture import draw_agreement
    from wqa.evaluation.report import write_rows
    from wqa.io.locks import lock_output

    rows = []
    for row in agreement.rows():
        share = row["agreement"]
        text = "-" if share is None else f"{share:.6f}"
        rows.append({**{name: str(value) for name, value in row.items()}, "agreement": text})
    with lock_output(folder):
        write_rows(folder / "agreement.tsv", rows)
        if picture:
            draw_agreement(
                folder / "agreement.png", agreement.members, agreement.teachers, agreement.shares
            )
