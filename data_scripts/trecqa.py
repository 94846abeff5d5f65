#!/usr/bin/env python3
"""TREC-QA (Wang et al. 2007) to canonical JSONL.

    python data_scripts/trecqa.py --out data/trecqa
    python data_scripts/trecqa.py --out data/trecqa --archive FOLDER

The corpus is downloaded from the repository of jacana (Yao et al. 2013), which holds the splits of
Wang et al. and of Heilman and Smith (2010). FOLDER holds the same files, plain or .gz:
train2393.cleanup.xml (train-all), train.xml, dev.xml, dev-less-than-40.xml (dev-40) and
test-less-than-40.xml or a test.xml (test); or train-all, train, dev, dev-40 and test as .jsonl,
with or without a copy "-filtered" of the questions that have both a correct and a wrong candidate:

    {"question": "...", "candidates": [{"sentence": "...", "label": 1}, ...]}

Each split is written as SPLIT.jsonl (all its questions) and SPLIT-clean.jsonl (those with both
kinds of candidate, as the papers report dev and test). A split with a filtered copy alone gives
SPLIT-clean.jsonl alone. The corpus is tokenized text of newspapers. Bracket tokens (-LRB- and the
like) become brackets, sacremoses joins the words, and <num>, which stands for a number in most of
the text, becomes #. A question that occurs twice stays twice, with two ids.

dev-40 is dev without the sentences of more than 40 tokens, and test is published in that form
alone. So a question of these two may have no candidate left; it is skipped, counted and reported.
In train-all, train and dev such a question is an error. Where FOLDER has no file of dev-40, it is
made from dev.
"""

import pathlib
import re
import sys

from corpus import Counts, make_main
from releases import expecting, note, plain_or_packed
from sacremoses import MosesDetokenizer

from wqa.data import FILTERS, Candidate, Question, parse_json, write_questions
from wqa.errors import DataError, shorten
from wqa.io.lines import text_lines

URL = (
    "https://raw.githubusercontent.com/xuchen/jacana/8df0185f320d7a7399f787fea302ba48a63c0bb9/tree-edit-data/"
    "answerSelectionExperiments/"
)
#: Files of the repository, by split.
PSEUDO_XML = {
    "train-all": "answer/train2393.cleanup.xml.gz",
    "train": "data/train.xml",
    "dev": "data/dev.xml",
    "dev-40": "data/dev-less-than-40.xml",
    "test": "data/test-less-than-40.xml",  # data/test.xml holds one question
}
DOWNLOADS = {pathlib.PurePath(name).name: (URL + name, "") for name in PSEUDO_XML.values()}
SPLITS = tuple(PSEUDO_XML)
#: Splits without long sentences, so that a question may have no candidate left.
SHORTENED = ("dev-40", "test")
#: Greatest number of tokens of a sentence of dev-40.
LONGEST_SENTENCE = 40
#: Questions and candidates of the clean splits, as published.
PUBLISHED = {"dev": (69, 1343), "dev-40": (65, 1117), "test": (68, 1442)}
PAIRS = re.compile(r"<QApairs id='[^'<>]+'>")
#: Tags of sentences, and those that may follow each tag; a tag is a line.
SENTENCES = ("<question>", "<positive>", "<negative>")
FOLLOWING = {"</QApairs>": ("<QApairs>",), "<QApairs>": ("<question>",)}
for _tag in SENTENCES:
    FOLLOWING[_tag] = (f"</{_tag[1:]}",)
    FOLLOWING[f"</{_tag[1:]}"] = ("<positive>", "<negative>", "</QApairs>")
#: Characters by the tokens that stand for them.
CHARACTERS = dict(
    zip(["-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-", "``", "''"], '()[]{}""')
)
#: Tokens that belong to the word before, by the Penn Treebank's rules.
SUFFIXES = {"n't", "'s", "'re", "'ve", "'ll", "'d", "'m"}


def detokenizer():
    """Return a function that joins the tokens of a sentence to running text."""
    join = MosesDetokenizer(lang="en").detokenize

    def detokenize(sentence):
        for code, character in {**CHARACTERS, "<num>": "#"}.items():
            sentence = sentence.replace(code, character)
        tokens = []
        for token in sentence.split():
            if token in SUFFIXES and tokens:  # Moses does not join them
                tokens[-1] += token
            else:
                tokens.append("-" if token == "_" else token)  # the newspapers' dash
        return join(tokens, unescape=False)

    return detokenize


def find(archive):
    """Return the files by split, the unfiltered one where there are both."""
    files = {}
    for split in SPLITS:
        xml = pathlib.PurePath(PSEUDO_XML[split]).name.replace(".gz", "")
        names = [f"{split}.jsonl", xml, f"{split}-filtered.jsonl"]
        if split == "test":
            names.append("test.xml")  # the whole split in the copies that rename the files
        path = plain_or_packed(archive, *names)
        if path is None and split == "dev-40":
            path = files.get("dev")
        if path is not None:
            files[split] = path
    if not files:
        found = f"holds none of {'.jsonl, '.join(SPLITS)}.jsonl nor their .xml"
        raise DataError(archive, found, "a folder with TREC-QA, plain or .gz")
    return files


def parse_xml(path, split, detokenize):
    """Yield the questions of the pseudo-XML.

    A file is a sequence of <QApairs>. One of them holds a <question>, then any number of <positive>
    and <negative>. Each tag is a line. A sentence is a row of tokens and perhaps rows of
    annotations, of as many columns; those of train-all were edited by hand.
    """
    tag, rows, where, start = "</QApairs>", [], path, path
    number, question, candidates = 0, "", []
    for line_number, line in text_lines(path):
        where, line = f"{path}, line {line_number}", line.rstrip("\n").rstrip("\r")
        following = "<QApairs>" if PAIRS.fullmatch(line) else line
        if following in FOLLOWING[tag]:
            if tag in SENTENCES and not (rows and rows[0].strip()):
                raise DataError(start, f"{tag} without a sentence", "a row of tokens")
            if tag == "<question>":
                question, candidates = detokenize(rows[0]), []
            elif tag in SENTENCES and keeps(split, rows[0]):
                candidates.append(Candidate(detokenize(rows[0]), int(tag == "<positive>")))
            elif following == "</QApairs>":
                number += 1
                yield _question(split, number, question, candidates, where)
            tag, rows, start = following, [], where
        elif tag in SENTENCES and not (line in SENTENCES or line.startswith(("<QApairs", "</"))):
            rows.append(line)
        elif line or tag != "</QApairs>":  # lines between two questions may be empty
            expected = " or ".join(FOLLOWING[tag])
            raise DataError(where, shorten(line), expected, "fetch the file again")
    if start == path:
        raise DataError(where, "no <QApairs>", "a whole file")
    if tag != "</QApairs>":
        found = "the file ends inside a question"
        raise DataError(where, found, "a whole file", "fetch it again")


def parse_jsonl(path, split, detokenize):
    """Yield the questions of JSON lines."""
    for number, line in text_lines(path):
        where = f"{path}, line {number}"
        with expecting(where, "question, and candidates with sentence and label"):
            entry = parse_json(line)
            question = detokenize(entry["question"])
            candidates = []
            for rank, row in enumerate(entry["candidates"], 1):
                sentence, label = row["sentence"], row["label"]
                if type(label) is not int or label not in (0, 1):
                    place = f"{where}, candidate {rank}"
                    raise DataError(place, f"label {shorten(label)}", "0 or 1")
                if keeps(split, sentence):
                    candidates.append(Candidate(detokenize(sentence), label))
        yield _question(split, number, question, candidates, where)


def keeps(split, sentence):
    """Whether a split keeps a tokenized sentence: dev-40 keeps the short ones."""
    return split != "dev-40" or len(sentence.split()) <= LONGEST_SENTENCE


def _question(split, number, text, candidates, where):
    if not text or not (candidates or split in SHORTENED):
        raise DataError(where, "no question or no candidate", "at least one candidate a question")
    return Question(f"{split}-{number}", text, tuple(candidates))


def skip_empty(questions, path):
    """Return the questions that have a candidate, and the number of those that have none."""
    questions = list(questions)
    empty = [question for question in questions if not question.candidates]
    if empty:
        note(
            f"{path}: {len(empty)} of {len(questions)} questions have no candidate and are "
            f"skipped, the first of them {empty[0].id}: {shorten(empty[0].question)}"
        )
    return [question for question in questions if question.candidates], len(empty)


def compare_counts(stats):
    """Print a note on each clean split whose counts are not the published ones."""
    for split in stats:
        counts = stats[split]["clean"]
        own = counts["questions"], counts["candidates"]
        if own != PUBLISHED.get(split, own):
            text = "{}, clean: {:,} questions with {:,} candidates; published are {:,} with {:,}"
            note(text.format(split, *own, *PUBLISHED[split]))


def write_clean(path, questions):
    """Write the questions that have both a correct and a wrong candidate, if there is one."""
    clean = [question for question in questions if FILTERS["clean"](question)]
    if clean:
        write_questions(path, clean)
    else:
        path.unlink(missing_ok=True)  # of another archive
        note(f"{path} is not written: no question has both kinds of candidate")


def convert(archive, out):
    """Write the splits, and return their counts."""
    detokenize = detokenizer()
    files = find(archive)
    splits, stats = {}, {}
    for split, path in files.items():  # all are read before one is written
        parse = parse_jsonl if ".jsonl" in path.name else parse_xml
        splits[split], skipped = skip_empty(parse(path, split, detokenize), path)
        counts = Counts()
        for question in splits[split]:
            counts.add(question)
        stats[split] = counts.figures(split)
        texts = {question.question for question in splits[split]}
        stats[split]["all"]["distinct_questions"] = len(texts)
        stats[split]["all"]["without_candidates"] = skipped
    compare_counts(stats)
    for split, questions in splits.items():
        if "-filtered" not in files[split].name:
            write_questions(out / f"{split}.jsonl", questions)
        else:
            (out / f"{split}.jsonl").unlink(missing_ok=True)  # of another archive
        write_clean(out / f"{split}-clean.jsonl", questions)
    return stats


main = make_main(__doc__, convert, DOWNLOADS)

if __name__ == "__main__":
    sys.exit(main())
