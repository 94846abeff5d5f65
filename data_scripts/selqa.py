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

import re
import sys
from typing import List, NamedTuple

from corpus import make_main, write_both
from releases import expecting, find_files, json_of

from wqa.data import Candidate, Question
from wqa.data.documents import Document
from wqa.errors import DataError, shorten
from wqa.io.lines import text_of

URL = "https://raw.githubusercontent.com/emorynlp/selqa/master/ass/"
#: The training split is not downloaded.
SHA256 = {
    "selqa-ass-dev.json": "b4e6687e44a30b486e24d2b06aa3012ec07d61145f3521f35b7d49daae3e0ca4",
    "selqa-ass-test.json": "ca1184d94cc9030883723fab76ef8180b3cf5fb142549a5648d22f59fe7c6fc6",
}
DOWNLOADS = {name: (f"{URL}{name}", digest) for name, digest in SHA256.items()}
NAMES = r"selqa-ass-(train|dev|test)\.json(?:\.gz)?"
_SPACE = re.compile(r"\s+")


class Entry(NamedTuple):
    """A question of a file, with the sentences of its section."""

    where: str
    article: str
    section: str
    sentences: List[str]
    fields: dict


def read(archive):
    """Return the questions of each split of an archive."""
    files = find_files(archive, NAMES, "selqa-ass-train.json and alike, plain or .gz")
    return {split: list(_entries(path)) for split, path in files.items()}


def _entries(path):
    with expecting(path, "a list of questions"):
        entries = list(enumerate(json_of(path), 1))
    for number, fields in entries:
        where = f"{path}, question {number}"
        with expecting(where, "article, section and candidates"):
            sentences = [text_of(text, "candidate", where).strip() for text in fields["candidates"]]
            article, section = (text_of(fields[key], key, where) for key in ("article", "section"))
        yield Entry(where, article, section, sentences, fields)


def questions_of(entries, split):
    """Yield the questions of a split; ids are their numbers."""
    for number, entry in enumerate(entries, 1):
        text = text_of(entry.fields.get("question"), "question", entry.where).strip()
        if not text or not entry.sentences:
            raise DataError(entry.where, "no question or no candidate", "both")
        answers, count = entry.fields.get("answers"), len(entry.sentences)
        if not isinstance(answers, list) or not all(
            type(index) is int and 0 <= index < count for index in answers
        ):
            expected = f"a list of indices below {count}, the number of candidates"
            raise DataError(entry.where, f"answers is {shorten(answers)}", expected)
        candidates = []
        for index, sentence in enumerate(entry.sentences):
            candidates.append(Candidate(sentence, int(index in answers)))
        yield Question(f"{split}-{number}", text, tuple(candidates))


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
    """Write the splits and the collection, and return the counts."""
    entries = read(archive)
    splits = {split: list(questions_of(part, split)) for split, part in entries.items()}
    return write_both(out, splits, documents_of(entries))


main = make_main(__doc__, convert, DOWNLOADS)

if __name__ == "__main__":
    sys.exit(main())
