#!/usr/bin/env python3
"""SelQA's answer sentence selection (Jurczyk et al. 2016) to canonical JSONL, and its sections as
an open collection.

    python data_scripts/selqa.py --out data/selqa
    python data_scripts/selqa.py --out data/selqa --archive FOLDER

Writes a file of questions for each split of the release that is at hand, such as dev.jsonl, whose
candidates are all sentences of the section that the question is about; the same questions with the
texts of their correct sentences as answers, dev.questions.jsonl; documents.jsonl, every section
with the title of its article; and stats.json with the counts.

``--archive`` takes a folder of selqa-ass-{train,dev,test}.json, plain or .gz, or one such file.
Candidates without a text stay, as the release has them.
"""

import interrupts  # noqa: F401 - first, so that an interrupt while the rest is imported is one line

# isort: split
import re
import sys
from typing import List, NamedTuple

from collection import open_questions, write_collection, write_open_questions
from corpus import from_archive, make_parser, run, show, write_split, write_stats
from fetching import download
from squad import read_json

from wqa.data import Candidate, Question
from wqa.data.documents import Document
from wqa.errors import DataError, shorten
from wqa.io.lines import text_of

URL = "https://raw.githubusercontent.com/emorynlp/selqa/master/ass/"
#: Digests of the splits that are downloaded; the training split is not.
SHA256 = {
    "selqa-ass-dev.json": "b4e6687e44a30b486e24d2b06aa3012ec07d61145f3521f35b7d49daae3e0ca4",
    "selqa-ass-test.json": "ca1184d94cc9030883723fab76ef8180b3cf5fb142549a5648d22f59fe7c6fc6",
}
PATTERN = "selqa-ass-*.json*"
_NAME = re.compile(r"selqa-ass-(train|dev|test)\.json(\.gz)?")
_KEYS = {"article", "section", "candidates"}
_SPACE = re.compile(r"\s+")


class Entry(NamedTuple):
    """A question of a file, with the sentences of its section."""

    where: str
    article: str
    section: str
    sentences: List[str]
    fields: dict


def find(archive):
    """Return the files of an archive, in the order of their names."""
    files = sorted(archive.glob(PATTERN)) if archive.is_dir() else [archive]
    if not files:
        raise DataError(archive, f"holds no file {PATTERN}", "SelQA's files, plain or .gz")
    return files


def read(path):
    """Yield the questions of a file, of which sections are checked."""
    for number, fields in enumerate(read_json(path, list, "a file of SelQA"), 1):
        where = f"{path}, question {number}"
        if not isinstance(fields, dict) or not set(fields) >= _KEYS:
            expected = "an object of article, section and candidates"
            raise DataError(where, shorten(fields), expected)
        candidates = fields["candidates"]
        if not isinstance(candidates, list):
            raise DataError(where, f"candidates is {shorten(candidates)}", "a list of sentences")
        sentences = [text_of(text, "candidate", where).strip() for text in candidates]
        article, section = (text_of(fields[key], key, where) for key in ("article", "section"))
        yield Entry(where, article, section, sentences, fields)


def questions_of(entries, split):
    """Yield the questions of a split; ids are their numbers."""
    for number, entry in enumerate(entries, 1):
        text = text_of(entry.fields.get("question"), "question", entry.where).strip()
        if not text or not entry.sentences:
            raise DataError(entry.where, "no question or no candidate", "both")
        correct = _correct(entry)
        candidates = []
        for index, sentence in enumerate(entry.sentences):
            candidates.append(Candidate(sentence, int(index in correct)))
        yield Question(f"{split}-{number}", text, tuple(candidates))


def _correct(entry):
    """Return the indices of a question's correct candidates."""
    indices, count = entry.fields.get("answers"), len(entry.sentences)
    if not isinstance(indices, list) or not all(
        type(index) is int and 0 <= index < count for index in indices
    ):
        expected = f"a list of indices below {count}, the number of candidates"
        raise DataError(entry.where, f"answers is {shorten(indices)}", expected)
    return set(indices)


def documents_of(splits):
    """Yield the sections of all splits as documents, each once."""
    texts = {}
    for entries in splits.values():
        for entry in entries:
            text = " ".join(filter(None, entry.sentences))
            if text:
                texts[entry.article, text] = None
    for number, (article, text) in enumerate(texts):
        yield Document(f"{_SPACE.sub('_', article)}-{number}", text, article)


def convert(archive, out):
    """Write the splits, the collection and the counts, and return the counts of the splits."""
    splits = {}
    for path in find(archive):
        name = _NAME.fullmatch(path.name)
        if name is None:
            raise DataError(path, "is not called selqa-ass-train.json or alike", "its own name")
        if name.group(1) in splits:
            raise DataError(path, f"a second file of split {name.group(1)}", "one", "delete it")
        splits[name.group(1)] = list(read(path))
    stats, collection = {}, {}
    for split, entries in splits.items():
        questions = list(questions_of(entries, split))
        stats[split] = write_split(out, split, questions)
        collection[split] = write_open_questions(out, split, open_questions(questions))
    collection["documents"] = write_collection(out, documents_of(splits))
    write_stats(out, {**stats, "collection": collection})
    return stats


def fetch(folder):
    """Download the release's files and return their folder."""
    for name, digest in SHA256.items():
        download(f"{URL}{name}", folder / name, digest)
    return folder


def main(arguments=None):
    """Run the command line."""
    options = make_parser(__doc__).parse_args(arguments)
    return run(lambda: from_archive(options, fetch, convert), options.out, show)


if __name__ == "__main__":
    sys.exit(main())
