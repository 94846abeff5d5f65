#!/usr/bin/env python3
"""Natural Questions Open with the paragraphs that Min et al. 2019 (hard EM) retrieved for it, to
canonical JSONL.

    python data_scripts/nq_open.py --out data/nq_open
    python data_scripts/nq_open.py --out data/nq_open --archive preprocessed-open-domain-qa-data.zip

Writes train.jsonl, dev.jsonl and test.jsonl, whose candidates are the retrieved paragraphs in the
order of the release; documents.jsonl, all paragraphs, each once; and stats.json with counts and
SHA-256 digests. ``--archive`` takes the zip of the release, or a folder of nq-train0.json to
nq-train3.json, nq-dev.json and nq-test.json, plain or .gz.

A paragraph of the release is a list of tokens; its text joins them by spaces. Its label is 1 if the
release marks an answer in it (distant supervision). The spans that are marked join the answers of
their question, as "Seattle, Washington" stands in a text as "Seattle , Washington". The id of a
paragraph is a digest of its text.
"""

import hashlib
import sys

from corpus import make_main, write_collection, write_each
from releases import expecting, lines_of

from wqa.data import Candidate, Question, parse_json
from wqa.data.documents import Document
from wqa.errors import shorten
from wqa.io import files
from wqa.io.lines import filled_text, text_of

#: The release is one file of Google Drive.
RELEASE = "1FqTr6NzZf0CQ3FmA2dxF9R-2X0--CmBf"
URLS = (
    f"https://drive.usercontent.google.com/download?id={RELEASE}&export=download&confirm=t",
    f"https://drive.google.com/uc?export=download&id={RELEASE}&confirm=t",
)
DOWNLOADS = {"preprocessed-open-domain-qa-data.zip": (URLS, "")}
NAMES = {
    "train": tuple(f"nq-train{number}.json" for number in range(4)),
    "dev": ("nq-dev.json",),
    "test": ("nq-test.json",),
}
#: Bytes of a paragraph's digest; the release has some millions of paragraphs.
DIGEST = 8
KEYS = ("id", "question", "context", "answers", "final_answers")


def questions_of(archive, split):
    """Yield the questions of a split."""
    for name in NAMES[split]:
        for where, line in lines_of(archive, name):
            with expecting(where, "an object with " + ", ".join(KEYS)):
                yield _question(parse_json(line), where)


def _question(fields, where):
    """Return the question of a line, its candidates labelled."""
    key, question, context, spans, final = [fields[name] for name in KEYS]
    if len(context) != len(spans):
        raise ValueError(f"{len(context)} paragraphs, answers for {len(spans)}")
    answers = dict.fromkeys(text_of(answer, "an answer", where).strip() for answer in final)
    candidates = {}
    for tokens, marked in zip(context, spans):
        candidate = _candidate(tokens, marked, answers, where)
        known = candidates.setdefault(candidate.id, candidate)
        if candidate.label > known.label:  # the release may mark one of two equal paragraphs
            candidates[candidate.id] = candidate
    answers.pop("", None)
    if not answers or not candidates:
        raise ValueError("no answer or no paragraph")
    key, question = filled_text(key, "id", where), filled_text(question, "question", where)
    return Question(key, question.strip(), tuple(candidates.values()), tuple(answers))


def _candidate(tokens, marked, answers, where):
    """Return a paragraph as a candidate, and add the spans that are marked in it to the answers."""
    text = " ".join(text_of(token, "a token", where) for token in tokens).strip()
    if not text:
        raise ValueError("an empty paragraph")
    for answer in marked:
        first, last = answer["word_start"], answer["word_end"]
        if type(first) is not int or type(last) is not int or not 0 <= first <= last < len(tokens):
            raise ValueError(f"an answer from word {shorten(first)} to {shorten(last)}")
        answers.setdefault(" ".join(tokens[first : last + 1]).strip())
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=DIGEST).hexdigest()
    return Candidate(text, int(bool(marked)), digest)


def documents_of(archive):
    """Yield the paragraphs of all splits as documents, each once."""
    seen = set()
    for split in NAMES:
        for question in questions_of(archive, split):
            for candidate in question.candidates:
                if candidate.id not in seen:
                    seen.add(candidate.id)
                    yield Document(candidate.id, candidate.text)


def convert(archive, out):
    """Write the splits and the collection, and return the counts."""
    splits = write_each(out, {split: questions_of(archive, split) for split in NAMES})
    collection = write_collection(out, documents_of(archive))
    digests = {split: files.sha256(out / f"{split}.jsonl") for split in NAMES}
    return {"documents": collection, **splits, "sha256": digests}


main = make_main(__doc__, convert, DOWNLOADS)

if __name__ == "__main__":
    sys.exit(main())
