#!/usr/bin/env python3
"""TREC-QA (Wang et al. 2007) to canonical JSONL.

    python data_scripts/trecqa.py --out data/trecqa --archive FOLDER

FOLDER holds train-all, train, dev and test as JSON lines, each plain or .gz, with or without a copy "-filtered" of the
questions that have both a correct and a wrong candidate:

    {"question": "...", "candidates": [{"sentence": "...", "label": 1}, ...]}

Each split that is there is written as SPLIT.jsonl (all its questions) and SPLIT-clean.jsonl (those with both kinds of
candidate, as the papers report dev and test); a split of which only the filtered copy is there gives the second alone. The
corpus is tokenized text of newspapers: brackets are given back their signs (-LRB- and the like), sacremoses joins the words,
and <num>, which stands for a number in most of the text, becomes ``--number``. A question that occurs twice stays twice,
under two ids.
"""
import argparse
import gzip
import json
import pathlib
import sys
import zlib

from corpus import Statistics, counted, run, write_stats
from sacremoses import MosesDetokenizer

from wqa.data import FILTERS, Candidate, Question, write_questions
from wqa.errors import DataError, shorten

SPLITS = ("train-all", "train", "dev", "test")
SIGNS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}", "``": '"', "''": '"'}
JOINED = {"n't", "'s", "'re", "'ve", "'ll", "'d", "'m"}


class Detokenizer:
    """Tokens to running text."""

    def __init__(self, number):
        self._moses, self._signs = MosesDetokenizer(lang="en"), {**SIGNS, "<num>": number}

    def __call__(self, sentence):
        tokens = []
        for token in sentence.split():
            for sign, text in self._signs.items():
                token = token.replace(sign, text)
            token = "-" if token == "_" else token  # the newspapers' dash
            if token in JOINED and tokens:  # Penn Treebank's way to cut, which Moses does not have
                tokens[-1] += token
            else:
                tokens.append(token)
        return self._moses.detokenize(tokens, unescape=False)


def find(archive):
    """The file of each split, the unfiltered one where both are there."""
    found = {}
    for split in SPLITS:
        names = [f"{split}{kind}.jsonl{packed}" for kind in ("", "-filtered") for packed in ("", ".gz")]
        found[split] = next((archive / name for name in names if (archive / name).exists()), None)
    found = {split: path for split, path in found.items() if path}
    if not found:
        raise DataError(archive, "holds none of " + ", ".join(f"{split}.jsonl" for split in SPLITS),
                        "a folder with TREC-QA as JSON lines, plain or .gz", "pass it with --archive")
    return found


def read(path, split, detokenize):
    """Questions of one file."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            lines = file.read().decode("utf-8").splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(path, f"cannot be read ({error})", "a whole file of UTF-8 text, plain or .gz") from None
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        try:
            entry = json.loads(line)
            question, rows = entry["question"], [(row["sentence"], row["label"]) for row in entry["candidates"]]
            candidates = tuple(Candidate(detokenize(sentence), label) for sentence, label in rows)
            text = detokenize(question)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(where, f"{type(error).__name__}: {error}",
                            "question, and candidates with sentence and label") from None
        for place, (_, label) in enumerate(rows, 1):
            if type(label) is not int or label not in (0, 1):
                raise DataError(f"{where}, candidate {place}", f"label {shorten(label)}", "0 or 1")
        if not candidates or not text:
            raise DataError(where, "no question or no candidate", "at least one candidate a question")
        yield Question(f"{split}-{number}", text, candidates)


def convert(archive, out, number):
    """Write every split that is there, and the counts."""
    stats, detokenize = {}, Detokenizer(number)
    for split, path in find(archive).items():
        questions = list(read(path, split, detokenize))
        statistics = Statistics()
        clean = [question for question in counted(questions, statistics) if FILTERS["clean"](question)]
        if "-filtered" not in path.name:
            write_questions(out / f"{split}.jsonl", questions)
        write_questions(out / f"{split}-clean.jsonl", clean)
        stats[split] = statistics.figures()
        stats[split]["all"]["distinct_questions"] = len({question.question for question in questions})
    write_stats(out, stats)
    return stats


def main(arguments=None):
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write to")
    parser.add_argument("--archive", required=True, type=pathlib.Path, help="folder of the corpus; it has no official server")
    parser.add_argument("--number", default="#", help="what <num> becomes; <num> itself keeps it (default: #)")
    options = parser.parse_args(arguments)
    return run(lambda: convert(options.archive, options.out, options.number))


if __name__ == "__main__":
    sys.exit(main())
