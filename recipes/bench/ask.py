#!/usr/bin/env python3
"""Quality and time of the first sentence of a collection, by drop ratio and number of documents.

    wqa index documents.jsonl --sentences --method tfidf --out INDEX
    python recipes/bench/ask.py INDEX QUESTIONS.jsonl RUN [RUN ...] [--top 10 --top 80]
        [--drop-ratio 0 --drop-ratio tuned] [--precision int8] [--questions 100] [--rounds 3]
        [--out TABLE.tsv]

The questions have their answers, as `wqa ask --data` takes them; those without a known answer are
left out. Every RUN, number of documents and drop ratio takes its turn with all questions in each
round, one question at a time, as a user asks them; seconds are medians over the questions of all
rounds, and the split of their mean. Runs of one stage are asked once, without a drop ratio, and
sequences without the ratios that are tuned.
"""

import argparse
import itertools
import pathlib
import statistics
import time

from wqa import load_ranker
from wqa.cli.runs import add_drops, settings_by_name
from wqa.data import read_questions
from wqa.errors import WqaError
from wqa.evaluation.report import table, write_rows
from wqa.inference.pipeline import Pipeline
from wqa.retrieval import Index, contains_answer


class Setting:
    """A ranker with its drops, behind so many documents, and what was measured of it."""

    def __init__(self, index, ranker, run, top, drops):
        self.pipeline = Pipeline(index, ranker=ranker, top=top)
        self.ranker, self.run, self.top = ranker, run, top
        self.name, self.drops = drops
        self.seconds, self.ranks, self.sentences = [], [], []

    def ask(self, questions):
        """Ask all questions once."""
        self.ranker.set_drops(**self.drops)
        for question in questions:
            begin = time.perf_counter()
            answers = self.pipeline.ask(question.question)
            self.seconds.append(time.perf_counter() - begin)
            self.sentences.append(len(answers.sentences))
            texts = enumerate((sentence.text for sentence in answers.sentences), 1)
            answered = (rank for rank, text in texts if contains_answer(text, question.answers))
            self.ranks.append(next(answered, float("inf")))

    def row(self):
        """Its row of the table."""
        count = len(self.seconds)
        split = {name: seconds / count for name, seconds in self.pipeline.seconds.items()}
        return {
            "ranker": self.run,
            "drop_ratio": self.name,
            "documents": self.top,
            "sentences": round(statistics.mean(self.sentences)),
            "hit@1": sum(rank == 1 for rank in self.ranks) / count,
            "mrr": sum(1 / rank for rank in self.ranks) / count,
            "seconds": f"{statistics.median(self.seconds):.3f}",
            "retrieve": f"{split['retrieve']:.3f}",
            "rank": f"{split['rank']:.3f}",
        }


def drops_of(ranker, run, given):
    """Names and drops of the settings of a ranker."""
    if ranker.capabilities.stages < 2:
        return [("-", {})]
    if not pathlib.Path(run).is_dir():
        given = [drop for drop in given if drop[1] != "tuned"]
    return list(settings_by_name(given, run).items())


def main(arguments):
    """Print the table, and write it."""
    index = Index(arguments.index)
    questions = read_questions(arguments.data, with_candidates=False)
    answered = (question for question in questions if question.answers)
    questions = list(itertools.islice(answered, arguments.questions))
    settings = []
    for run in arguments.runs:
        ranker = load_ranker(run, precision=arguments.precision, long_questions="truncate")
        drops = drops_of(ranker, run, arguments.drops)
        for setting in itertools.product(arguments.top, drops):
            Setting(index, ranker, run, *setting).ask(questions[:2])  # compiles kernels
            settings.append(Setting(index, ranker, run, *setting))
    for _ in range(arguments.rounds):
        for setting in settings:
            setting.ask(questions)
    print(f"{len(questions)} questions, {arguments.precision}, {arguments.rounds} rounds")
    rows = [setting.row() for setting in settings]
    print(table(rows))
    if arguments.out:
        write_rows(arguments.out, [{name: str(cell) for name, cell in row.items()} for row in rows])


def parse():
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("index", "data"):
        parser.add_argument(name)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--top", type=int, action="append")
    add_drops(parser)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", help="file for the table")
    arguments = parser.parse_args()
    arguments.top = arguments.top or [10, 80]
    arguments.drops = arguments.drops or [("drop_ratio", "0"), ("drop_ratio", "0.3")]
    return arguments


if __name__ == "__main__":
    try:
        main(parse())
    except WqaError as error:
        raise SystemExit(f"error: {error}") from None
