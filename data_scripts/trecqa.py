#!/usr/bin/env python3
"""TREC-QA (Wang et al. 2007) to canonical JSONL.

    python data_scripts/trecqa.py --out data/trecqa
    python data_scripts/trecqa.py --out data/trecqa --archive FOLDER

The corpus is fetched from the repository of jacana (Yao et al. 2013), in whose data/ the splits lie
as Wang et al. and Heilman and Smith (2010) made them. FOLDER holds the same files, plain or .gz:
train2393.cleanup.xml (train-all), train.xml, dev.xml, test.xml; or train-all, train, dev and test
as .jsonl, with or without a copy "-filtered" of the questions that have both a correct and a wrong
candidate:

    {"question": "...", "candidates": [{"sentence": "...", "label": 1}, ...]}

Each split that is there is written as SPLIT.jsonl (all its questions) and SPLIT-clean.jsonl (those
with both kinds of candidate, as the papers report dev and test); a split of which only the filtered
copy is there gives the second alone. The corpus is tokenized text of newspapers: brackets are given
back their signs (-LRB- and the like), sacremoses joins the words, and <num>, which stands for a
number in most of the text, becomes ``--number``. A question that occurs twice stays twice, under
two ids.
"""

import gzip
import json
import pathlib
import sys
import zlib

from corpus import Statistics, counted, from_archive, make_parser, run, write_stats
from fetching import download
from sacremoses import MosesDetokenizer

from wqa.data import FILTERS, Candidate, Question, write_questions
from wqa.errors import DataError, shorten

URL = (
    "https://raw.githubusercontent.com/xuchen/jacana/8df0185f320d7a7399f787fea302ba48a63c0bb9/tree-edit-data/"
    "answerSelectionExperiments/"
)
#: Files of the repository, by split.
PSEUDO_XML = {
    "train-all": "answer/train2393.cleanup.xml.gz",
    "train": "data/train.xml",
    "dev": "data/dev.xml",
    "test": "data/test.xml",
}
SPLITS = tuple(PSEUDO_XML)
SIGNS = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}
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
        xml = pathlib.PurePath(PSEUDO_XML[split]).name.replace(".gz", "")
        names = [
            f"{name}{packed}"
            for name in (f"{split}.jsonl", xml, f"{split}-filtered.jsonl")
            for packed in ("", ".gz")
        ]
        found[split] = next((archive / name for name in names if (archive / name).exists()), None)
    found = {split: path for split, path in found.items() if path}
    if not found:
        raise DataError(
            archive,
            "holds none of " + ", ".join(f"{split}.jsonl" for split in SPLITS) + " nor their .xml",
            "a folder with TREC-QA, plain or .gz",
        )
    return found


def read(path, split, detokenize):
    """Questions of one file."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            lines = file.read().decode("utf-8").splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(
            path, f"cannot be read ({error})", "a whole file of UTF-8 text, plain or .gz"
        ) from None
    return (parse_json if ".jsonl" in path.name else parse_xml)(lines, path, split, detokenize)


def parse_xml(lines, path, split, detokenize):
    """Questions of the pseudo-XML: of each sentence the first line, its tokens; what follows are
    annotations."""
    number, question, candidates, tag, where = 0, None, [], None, f"{path}, line 1"
    for place, line in enumerate(lines, 1):
        where = f"{path}, line {place}"
        if line.startswith("<QApairs"):
            number, question, candidates, tag = number + 1, None, [], None
        elif line in ("<question>", "<positive>", "<negative>"):
            tag = line
        elif line.startswith("</QApairs"):
            if not question or not candidates:
                raise DataError(
                    where, "no question or no candidate", "at least one candidate a question"
                )
            yield Question(f"{split}-{number}", question, tuple(candidates))
            question = None
        elif tag and not line.startswith("</"):
            text = detokenize(line)
            if tag == "<question>":
                question = text
            else:
                candidates.append(Candidate(text, int(tag == "<positive>")))
            tag = None
    if question is not None or not number:
        raise DataError(
            where, "the file ends inside a question" if number else "no <QApairs>", "a whole file"
        )


def parse_json(lines, path, split, detokenize):
    """Questions of JSON lines."""
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        try:
            entry = json.loads(line)
            question, rows = (
                entry["question"],
                [(row["sentence"], row["label"]) for row in entry["candidates"]],
            )
            candidates = tuple(Candidate(detokenize(sentence), label) for sentence, label in rows)
            text = detokenize(question)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                where,
                f"{type(error).__name__}: {error}",
                "question, and candidates with sentence and label",
            ) from None
        for place, (_, label) in enumerate(rows, 1):
            if type(label) is not int or label not in (0, 1):
                raise DataError(f"{where}, candidate {place}", f"label {shorten(label)}", "0 or 1")
        if not candidates or not text:
            raise DataError(
                where, "no question or no candidate", "at least one candidate a question"
            )
        yield Question(f"{split}-{number}", text, candidates)


def convert(archive, out, number):
    """Write every split that is there, and the counts."""
    stats, detokenize = {}, Detokenizer(number)
    for split, path in find(archive).items():
        questions = list(read(path, split, detokenize))
        statistics = Statistics()
        clean = [
            question for question in counted(questions, statistics) if FILTERS["clean"](question)
        ]
        if "-filtered" not in path.name:
            write_questions(out / f"{split}.jsonl", questions)
        write_questions(out / f"{split}-clean.jsonl", clean)
        stats[split] = statistics.figures()
        stats[split]["all"]["distinct_questions"] = len(
            {question.question for question in questions}
        )
    write_stats(out, stats)
    return stats


def fetch(folder):
    """Fetch the four files."""
    for name in PSEUDO_XML.values():
        download(URL + name, folder / pathlib.PurePath(name).name)
    return folder


def main(arguments=None):
    """Run the command line."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--number", default="#", help="what <num> becomes; <num> itself keeps it (default: #)"
    )
    options = parser.parse_args(arguments)
    return run(
        lambda: from_archive(
            options, fetch, lambda archive, out: convert(archive, out, options.number)
        )
    )


if __name__ == "__main__":
    sys.exit(main())
