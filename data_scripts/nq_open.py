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
import contextlib
import hashlib
import pathlib
import sys
import zipfile

from collection import show as show_collection
from collection import write_collection, write_counts
from corpus import from_archive, make_parser, run, write_split
from corpus import show as show_splits
from fetching import download
from wikiqa import ZIP_DAMAGE

from wqa.data import Candidate, Question, files, parse_json
from wqa.data.documents import Document
from wqa.data.lines import bounded_lines, decoded_lines, open_bytes
from wqa.errors import DataError, shorten

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


class Release:
    """The files of the release, in a folder or a zip."""

    def __init__(self, archive):
        self.archive = archive
        self._stack = contextlib.ExitStack()
        self._members = {}
        self._zip = None
        if not archive.is_dir():
            self._open_zip()

    def _open_zip(self):
        try:
            self._zip = self._stack.enter_context(zipfile.ZipFile(self.archive))
        except ZIP_DAMAGE as error:
            raise DataError(
                self.archive,
                f"cannot be read ({error})",
                "the zip of the release, or its folder",
                "fetch it again, or unpack it and pass the folder",
            ) from None
        for member in self._zip.infolist():
            if "__MACOSX" not in member.filename:
                self._members[pathlib.PurePosixPath(member.filename).name] = member

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._stack.close()

    def examples(self, split):
        """Yield the questions of a split, and where each of them stands."""
        for name in NAMES[split]:
            with self._opened(name) as (file, where):
                lines = bounded_lines(file, where, largest=LARGEST_FILE)
                for number, line in _guarded(decoded_lines(lines, where), where):
                    yield _example(line, f"{where}, line {number}")

    @contextlib.contextmanager
    def _opened(self, name):
        if self._zip is None:
            for path in (self.archive / name, self.archive / f"{name}.gz"):
                if path.exists():
                    with open_bytes(path) as file:
                        yield file, path
                    return
        elif name in self._members:
            where = f"{self.archive}, {shorten(self._members[name].filename)}"
            if self._members[name].flag_bits & 1:
                raise DataError(where, "is encrypted", "the zip of the release, which is not")
            with self._zip.open(self._members[name]) as file:
                yield file, where
            return
        raise DataError(self.archive, f"holds no {name}", "all files of Natural Questions")


def _guarded(lines, where):
    """Yield lines, and convert what a damaged zip raises while they are read."""
    try:
        yield from lines
    except DataError:
        raise
    except ZIP_DAMAGE as error:
        raise DataError(
            where, f"cannot be read ({error})", "a whole file", "fetch it again"
        ) from None


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
            candidates.setdefault(candidate.id, candidate)
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
        for question in release.examples(split):
            for candidate in question.candidates:
                if candidate.id not in seen:
                    seen.add(candidate.id)
                    yield Document(candidate.id, candidate.text)


def write(archive, out):
    """Write the splits, the collection and the counts, and return the counts."""
    splits = {}
    with Release(archive) as release:
        for split in NAMES:
            splits[split] = write_split(out, split, release.examples(split))
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
