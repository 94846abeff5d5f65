#!/usr/bin/env python3
"""WikiQA (Yang et al. 2015) to canonical JSONL, and its documents as an open collection.

    python data_scripts/wikiqa.py --out data/wikiqa
    python data_scripts/wikiqa.py --out data/wikiqa --archive WikiQACorpus.zip

Writes train.jsonl, dev.jsonl, test.jsonl and stats.json; the same questions with the texts of their
correct sentences as answers, such as test.questions.jsonl; and documents.jsonl, the paragraphs of
all splits that the candidates come from. ``--archive`` takes the official zip, or a folder of its
WikiQA-{train,dev,test}.tsv files, plain or .gz.
"""

import collections
import sys

from corpus import make_main, write_both
from releases import lines_of

from wqa.data import Candidate, Question
from wqa.data.documents import Document
from wqa.errors import DataError, shorten

DOWNLOADS = {
    "WikiQACorpus.zip": (
        "https://download.microsoft.com/download/E/5/F/E5FCFCEE-7005-4814-853D-DAA7C66507E0/"
        "WikiQACorpus.zip",
        "467c13f9e104552c0a9c16f41836ca8d89f9c0cc4b6e4355e104d5c3109ffa45",
    )
}
HEADER = ["QuestionID", "Question", "DocumentID", "DocumentTitle"]
HEADER += ["SentenceID", "Sentence", "Label"]
SPLITS = ("train", "dev", "test")


Row = collections.namedtuple("Row", ("where", *HEADER))


def rows_of(archive, split):
    """Yield the rows of a split's table."""
    for index, (where, line) in enumerate(lines_of(archive, f"WikiQA-{split}.tsv")):
        fields = line.rstrip("\r\n").split("\t")
        if index == 0:
            if fields != HEADER:
                raise DataError(where, shorten(fields), "the header " + " ".join(HEADER))
            continue
        if len(fields) != len(HEADER) or fields[-1] not in ("0", "1"):
            columns = f"{len(HEADER)} columns, the last 0 or 1"
            raise DataError(where, shorten(line), columns)
        row = Row(where, *fields)
        if not row.QuestionID.strip() or not row.Question.strip():
            raise DataError(where, "no question or no id of it", "text in both")
        yield row


def questions_of(rows):
    """Return the questions of a table, candidates in the order of their lines."""
    texts, candidates = {}, {}
    for row in rows:
        qid = row.QuestionID
        if texts.setdefault(qid, row.Question) != row.Question:
            found = f"another text for question {shorten(qid)}"
            raise DataError(row.where, found, shorten(texts[qid]))
        candidates.setdefault(qid, []).append(Candidate(row.Sentence, int(row.Label)))
    return [Question(qid, texts[qid], tuple(candidates[qid])) for qid in texts]


def documents_of(rows):
    """Yield the documents of tables, each once, with the sentences that its questions have."""
    titles = {row.DocumentID: row.DocumentTitle for row in rows}
    for document_id, texts in sentences_of(rows).items():
        yield Document(document_id, " ".join(texts), titles[document_id])


def sentences_of(rows):
    """Return the sentences of each document, those without text left out."""
    sentences = {}
    for row in rows:  # by their ids: every question of a document has all of its sentences
        sentences.setdefault(row.DocumentID, {}).setdefault(row.SentenceID, row.Sentence.strip())
    return {key: tuple(filter(None, texts.values())) for key, texts in sentences.items()}


def convert(archive, out):
    """Write the splits and the collection, and return the counts."""
    rows = {split: list(rows_of(archive, split)) for split in SPLITS}
    splits = {split: questions_of(rows[split]) for split in SPLITS}
    return write_both(out, splits, documents_of(sum(rows.values(), [])))


main = make_main(__doc__, convert, DOWNLOADS)

if __name__ == "__main__":
    sys.exit(main())
