#!/usr/bin/env python3
"""TREC-QA (Wang et al. 2007) to canonical JSONL.

    python data_scripts/trecqa.py --out data/trecqa
    python data_scripts/trecqa.py --out data/trecqa --archive FOLDER

The corpus is downloaded from the repository of jacana (Yao et al. 2013), which holds the splits of
Wang et al. and of Heilman and Smith (2010). FOLDER holds the same files, plain or .gz:
train2393.cleanup.xml (train-all), train.xml, dev.xml, test.xml; or train-all, train, dev and test
as .jsonl, with or without a copy "-filtered" of the questions that have both a correct and a wrong
candidate:

    {"question": "...", "candidates": [{"sentence": "...", "label": 1}, ...]}

Each split is written as SPLIT.jsonl (all its questions) and SPLIT-clean.jsonl (those with both
kinds of candidate, as the papers report dev and test). A split with a filtered copy alone gives
SPLIT-clean.jsonl alone. The corpus is tokenized text of newspapers. Bracket tokens (-LRB- and the
like) become brackets, sacremoses joins the words, and <num>, which stands for a number in most of
the text, becomes ``--number``. A question that occurs twice stays twice, with two ids.
"""

import pathlib
import sys
import zlib

from corpus import (
    Statistics,
    counted,
    from_archive,
    make_parser,
    open_bytes,
    run,
    write_stats,
)
from fetching import download
from sacremoses import MosesDetokenizer

from wqa.data import FILTERS, Candidate, Question, parse_json, write_questions
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
#: Characters by the tokens that stand for them.
CHARACTERS = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}
#: Tokens that belong to the word before, by the Penn Treebank's rules.
SUFFIXES = {"n't", "'s", "'re", "'ve", "'ll", "'d", "'m"}


class Detokenizer:
    """Joins tokens to running text."""

    def __init__(self, number):
        self._moses = MosesDetokenizer(lang="en")
        self._characters = {**CHARACTERS, "<num>": number}

    def __call__(self, sentence):
        tokens = []
        for token in sentence.split():
            for code, character in self._characters.items():
                token = token.replace(code, character)
            token = "-" if token == "_" else token  # the newspapers' dash
            if token in SUFFIXES and tokens:  # Moses does not join them
                tokens[-1] += token
            else:
                tokens.append(token)
        return self._moses.detokenize(tokens, unescape=False)


def find(archive):
    """Return the files by split, the unfiltered one where there are both."""
    files = {}
    for split in SPLITS:
        xml = pathlib.PurePath(PSEUDO_XML[split]).name.replace(".gz", "")
        for name in (f"{split}.jsonl", xml, f"{split}-filtered.jsonl"):
            for path in (archive / name, archive / f"{name}.gz"):
                if split not in files and path.exists():
                    files[split] = path
    if not files:
        raise DataError(
            archive,
            "holds none of " + ", ".join(f"{split}.jsonl" for split in SPLITS) + " nor their .xml",
            "a folder with TREC-QA, plain or .gz",
        )
    return files


def read(path, split, detokenize):
    """Yield the questions of a file."""
    try:
        with open_bytes(path) as file:
            lines = file.read().decode("utf-8").splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(
            path, f"cannot be read ({error})", "a whole file of UTF-8 text, plain or .gz"
        ) from None
    parse = parse_jsonl if ".jsonl" in path.name else parse_xml
    return parse(lines, path, split, detokenize)


def parse_xml(lines, path, split, detokenize):
    """Yield the questions of the pseudo-XML.

    The first line of a sentence holds its tokens; the other lines are annotations.
    """
    number, question, candidates, tag, where = 0, None, [], None, f"{path}, line 1"
    for line_number, line in enumerate(lines, 1):
        where = f"{path}, line {line_number}"
        if line.startswith("<QApairs"):
            number, question, candidates, tag = number + 1, None, [], None
        elif line in ("<question>", "<positive>", "<negative>"):
            tag = line
        elif line.startswith("</QApairs"):
            yield _question(f"{split}-{number}", question, candidates, where)
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


def parse_jsonl(lines, path, split, detokenize):
    """Yield the questions of JSON lines."""
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        try:
            entry = parse_json(line)
            question = detokenize(entry["question"])
            candidates = [
                Candidate(detokenize(row["sentence"]), row["label"]) for row in entry["candidates"]
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                where,
                f"{type(error).__name__}: {error}",
                "question, and candidates with sentence and label",
            ) from None
        for rank, candidate in enumerate(candidates, 1):
            label = candidate.label
            if type(label) is not int or label not in (0, 1):
                raise DataError(f"{where}, candidate {rank}", f"label {shorten(label)}", "0 or 1")
        yield _question(f"{split}-{number}", question, candidates, where)


def _question(qid, text, candidates, where):
    if not text or not candidates:
        raise DataError(where, "no question or no candidate", "at least one candidate a question")
    return Question(qid, text, tuple(candidates))


def convert(archive, out, number):
    """Write the splits and their counts, and return the counts."""
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
        texts = {question.question for question in questions}
        stats[split]["all"]["distinct_questions"] = len(texts)
    write_stats(out, stats)
    return stats


def fetch(folder):
    """Download the four files and return their folder."""
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

    def convert_numbers(archive, out):
        return convert(archive, out, options.number)

    return run(lambda: from_archive(options, fetch, convert_numbers))


if __name__ == "__main__":
    sys.exit(main())
