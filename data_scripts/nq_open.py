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

import interrupts  # noqa: F401 - first, so that an interrupt while the rest is imported is one line

# isort: split
import hashlib
import sys

from collection import show as show_collection
from collection import write_collection, write_counts
from corpus import from_archive, make_parser, run, write_split
from corpus import show as show_splits
from fetching import download
from releases import Release

from wqa.data import Candidate, Question, parse_json
from wqa.data.documents import Document
from wqa.errors import DataError, shorten
from wqa.io import files

#: The release is one file of Google Drive.
RELEASE = "1FqTr6NzZf0CQ3FmA2dxF9R-2X0--CmBf"
URLS = (
    f"https://drive.usercontent.google.com/download?id={RELEASE}&export=download&confirm=t",
    f"https://drive.google.com/uc?export=download&id={RELEASE}&confirm=t",
)
ZIP = "preprocessed-open-domain-qa-data.zip"
NAMES = {
    "train": tuple(f"nq-train{number}.json" for number in range(4)),
    "dev": ("nq-dev.json",),
    "test": ("nq-test.json",),
}
#: Greatest size of a file in bytes, unpacked.
LARGEST_FILE = 16 << 30
#: Bytes of a paragraph's digest; the release has some millions of paragraphs.
DIGEST = 8
KEYS = ("id", "question", "context", "answers", "final_answers")


def examples(release, split):
    """Yield the questions of a split."""
    for name in NAMES[split]:
        for line, where in release.lines(name, LARGEST_FILE):
            yield _example(line, where)


def _example(line, where):
    """Return the question of a line, its candidates labelled."""
    try:
        fields = parse_json(line)
        key, question, context, spans, final = [fields[name] for name in KEYS]
        if len(context) != len(spans):
            raise ValueError(f"{len(context)} paragraphs, answers for {len(spans)}")
        answers = dict.fromkeys(_text(answer).strip() for answer in final)
        candidates = {}
        for tokens, marked in zip(context, spans):
            candidate = _candidate(tokens, marked, answers)
            known = candidates.setdefault(candidate.id, candidate)
            if candidate.label > known.label:  # the release may mark one of two equal paragraphs
                candidates[candidate.id] = candidate
        answers.pop("", None)
        if not _text(key).strip() or not _text(question).strip() or not answers or not candidates:
            raise ValueError("no id, question, answer or paragraph")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError(
            where, f"{type(error).__name__}: {error}", "an object with " + ", ".join(KEYS)
        ) from None
    return Question(key, question.strip(), tuple(candidates.values()), tuple(answers))


def _candidate(tokens, marked, answers):
    """Return a paragraph as a candidate, and add the spans that are marked in it to the answers."""
    text = " ".join(_text(token) for token in tokens).strip()
    if not text:
        raise ValueError("an empty paragraph")
    for answer in marked:
        first, last = answer["word_start"], answer["word_end"]
        if type(first) is not int or type(last) is not int or not 0 <= first <= last < len(tokens):
            raise ValueError(f"an answer from word {shorten(first)} to {shorten(last)}")
        answers.setdefault(" ".join(tokens[first : last + 1]).strip())
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=DIGEST).hexdigest()
    return Candidate(text, int(bool(marked)), digest)


def _text(value):
    if not isinstance(value, str):
        raise TypeError(f"{shorten(value)} is no string")
    value.encode("utf-8")  # raises a ValueError for half a surrogate pair
    return value


def documents(release):
    """Yield the paragraphs of all splits as documents, each once."""
    seen = set()
    for split in NAMES:
        for question in examples(release, split):
            for candidate in question.candidates:
                if candidate.id not in seen:
                    seen.add(candidate.id)
                    yield Document(candidate.id, candidate.text)


def write(archive, out):
    """Write the splits, the collection and the counts, and return the counts."""
    splits = {}
    with Release(archive, "Natural Questions") as release:
        for split in NAMES:
            splits[split] = write_split(out, split, examples(release, split))
        collection = write_collection(out, documents(release))
    digests = {split: files.sha256(out / f"{split}.jsonl") for split in NAMES}
    write_counts(out, {"documents": collection, **splits, "sha256": digests})
    return {"documents": collection}, splits


def show(stats):
    """Print the counts."""
    collection, splits = stats
    show_collection(collection)
    show_splits(splits)


def fetch(folder):
    """Download the release and return its path."""
    download(URLS, folder / ZIP)
    return folder / ZIP


def main(arguments=None):
    """Run the command line."""
    options = make_parser(__doc__).parse_args(arguments)
    return run(lambda: from_archive(options, fetch, write), options.out, show)


if __name__ == "__main__":
    sys.exit(main())
