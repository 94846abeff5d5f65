#!/usr/bin/env python3
"""WikiQA (Yang et al. 2015) to canonical JSONL, and its documents as an open collection.

    python data_scripts/wikiqa.py --out data/wikiqa
    python data_scripts/wikiqa.py --out data/wikiqa --archive WikiQACorpus.zip

Writes train.jsonl, dev.jsonl, test.jsonl and stats.json; the same questions with the texts of their
correct sentences as answers, such as test.questions.jsonl; and documents.jsonl, the paragraphs of
all splits that the candidates come from. ``--archive`` takes the official zip, or a folder of its
WikiQA-{train,dev,test}.tsv files, plain or .gz.
"""

import interrupts  # noqa: F401 - first, so that an interrupt while the rest is imported is one line

# isort: split
import io
import pathlib
import struct
import sys
import zipfile
from typing import NamedTuple

from collection import open_questions, write_collection, write_open_questions
from corpus import from_archive, make_parser, run, write_split, write_stats
from fetching import download

from wqa.data import Candidate, Question
from wqa.data.documents import Document
from wqa.errors import DataError, shorten
from wqa.io.archives import DAMAGE
from wqa.io.lines import bounded_lines, decoded_lines, text_lines

URL = "https://download.microsoft.com/download/E/5/F/E5FCFCEE-7005-4814-853D-DAA7C66507E0/WikiQACorpus.zip"
ZIP_SHA256 = "467c13f9e104552c0a9c16f41836ca8d89f9c0cc4b6e4355e104d5c3109ffa45"
HEADER = [
    "QuestionID",
    "Question",
    "DocumentID",
    "DocumentTitle",
    "SentenceID",
    "Sentence",
    "Label",
]
SPLITS = ("train", "dev", "test")
#: Greatest size of a table in bytes, unpacked.
LARGEST_TABLE = 1 << 28
#: Raised while a damaged zip is read.
ZIP_DAMAGE = (*DAMAGE, zipfile.BadZipFile, RuntimeError, ValueError, OverflowError, struct.error)


def read_split(archive, split):
    """Return the numbered lines of a split's table, and its name for messages."""
    name = f"WikiQA-{split}.tsv"
    if archive.is_dir():
        for path in (archive / name, archive / f"{name}.gz"):
            if path.exists():
                return text_lines(path, largest=LARGEST_TABLE), path
        raise DataError(
            archive, f"holds neither {name} nor {name}.gz", "the three tables of WikiQA"
        )
    try:
        raw, where = _from_zip(archive, name)
    except ZIP_DAMAGE as error:
        raise DataError(
            archive,
            f"cannot be read ({error})",
            "a zip, or a folder of .tsv or .tsv.gz",
            "fetch it again",
        ) from None
    return decoded_lines(bounded_lines(io.BytesIO(raw), where), where), where


def _from_zip(archive, name):
    """Return a table's bytes, of which there are no more than it declares."""
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            if pathlib.PurePosixPath(member.filename).name != name or "__MACOSX" in member.filename:
                continue
            where = f"{archive}, {shorten(member.filename)}"
            if member.flag_bits & 1:
                raise DataError(where, "is encrypted", "the official zip, which is not")
            if member.file_size > LARGEST_TABLE:
                raise DataError(
                    where,
                    f"unpacks to {member.file_size:,} bytes",
                    f"a table of at most {LARGEST_TABLE:,}",
                )
            return packed.read(member), where
    raise DataError(archive, f"holds no {name}", "the official WikiQACorpus.zip")


class Row(NamedTuple):
    """A row of a table."""

    question_id: str
    question: str
    document_id: str
    title: str
    sentence_id: str
    sentence: str
    label: str


def parse_rows(lines, where):
    """Yield the rows of a table."""
    _, first = next(lines, (1, ""))
    header = first.rstrip("\r\n").split("\t")
    if header != HEADER:
        raise DataError(f"{where}, line 1", shorten(header), "the header " + " ".join(HEADER))
    number = 1
    for number, line in lines:
        fields = line.rstrip("\r\n").split("\t")
        if len(fields) != len(HEADER) or fields[-1] not in ("0", "1"):
            raise DataError(
                f"{where}, line {number}", shorten(line), f"{len(HEADER)} columns, the last 0 or 1"
            )
        row = Row(*fields)
        if not row.question_id.strip() or not row.question.strip():
            raise DataError(f"{where}, line {number}", "no question or no id of it", "text in both")
        yield row
    if number == 1:
        raise DataError(where, "it holds no question", "rows after the header")


def parse(rows, where):
    """Return the questions of a table, candidates in the order of their lines."""
    texts, candidates = {}, {}
    for number, row in enumerate(rows, 2):
        qid = row.question_id
        if texts.setdefault(qid, row.question) != row.question:
            raise DataError(
                f"{where}, line {number}",
                f"another text for question {shorten(qid)}",
                shorten(texts[qid]),
            )
        candidates.setdefault(qid, []).append(Candidate(row.sentence, int(row.label)))
    return [Question(qid, texts[qid], tuple(candidates[qid])) for qid in texts]


def documents_of(rows):
    """Yield the documents of tables, each once, with the sentences that its questions have."""
    titles, sentences = {}, {}
    for row in rows:
        titles.setdefault(row.document_id, row.title)
        # By their ids: every question of a document has all of its sentences.
        sentences.setdefault(row.document_id, {}).setdefault(row.sentence_id, row.sentence.strip())
    for document_id, texts in sentences.items():
        text = " ".join(filter(None, texts.values()))
        yield Document(document_id, text, titles[document_id])


def convert(archive, out):
    """Write the splits, the collection and the counts, and return the counts of the splits."""
    splits, all_rows = {}, []
    for split in SPLITS:
        lines, where = read_split(archive, split)
        rows = list(parse_rows(lines, where))
        splits[split] = parse(rows, where)
        all_rows += rows
    stats, collection = {}, {}
    for split, questions in splits.items():
        stats[split] = write_split(out, split, questions)
        collection[split] = write_open_questions(out, split, open_questions(questions))
    collection["documents"] = write_collection(out, documents_of(all_rows))
    write_stats(out, {**stats, "collection": collection})
    return stats


def fetch(folder):
    """Download the official zip and return its path."""
    download(URL, folder / "WikiQACorpus.zip", ZIP_SHA256)
    return folder / "WikiQACorpus.zip"


def main(arguments=None):
    """Run the command line."""
    options = make_parser(__doc__).parse_args(arguments)
    return run(lambda: from_archive(options, fetch, convert), options.out)


if __name__ == "__main__":
    sys.exit(main())
