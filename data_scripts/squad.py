#!/usr/bin/env python3
"""SQuAD 2.0 (Rajpurkar et al. 2018) as answer sentence selection: the SQuAD-sent of Bonadiman and
Moschitti 2020 (Cosinet, section 5.1).

    python data_scripts/squad.py --out data/squad
    python data_scripts/squad.py --out data/squad --archive FOLDER
    python data_scripts/squad.py --out data/squad --archive FOLDER --unanswered

A candidate is a sentence of the question's paragraph, and is correct if it holds a whole annotated
answer span. Questions without an answer are left out, or, with ``--unanswered``, have wrong
candidates only; the paper's Table 2 counts them, and evaluates without them.

SQuAD's test questions are not public. test.jsonl holds its development questions, dev-v2.0; of the
training questions one in ten, drawn by a fixed rule, becomes dev.jsonl and the rest train.jsonl.
Figures on test.jsonl are those that papers give for SQuAD's dev.

``--archive`` takes a folder of train-v2.0.json and dev-v2.0.json, plain or .gz, or one such file
under its own name. The papers split sentences with SpaCy, whose models are no package; this script
splits them with pysbd. Texts keep their case.
"""

import interrupts  # noqa: F401 - first, so that an interrupt while the rest is imported is one line

# isort: split
import functools
import hashlib
import itertools
import sys
from typing import List, NamedTuple, Tuple

from corpus import from_archive, make_parser, run, show, write_public
from fetching import download

from wqa.data import Candidate, Question, parse_json
from wqa.data.sentences import make_segmenter
from wqa.errors import DataError, shorten
from wqa.io.archives import DAMAGE
from wqa.io.lines import open_bytes

URL = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
NAMES = {"train": "train-v2.0", "dev": "dev-v2.0"}
#: Greatest size of a file in bytes, unpacked, and of a paragraph in characters.
LARGEST_FILE = 1 << 29
LONGEST_PARAGRAPH = 100_000


class Entry(NamedTuple):
    """A question of a paragraph."""

    id: str
    question: str
    #: Start and text of each annotated answer; none where the paragraph does not answer it.
    spans: List[Tuple[int, str]]


def find(archive):
    """Return the official files in an archive by ``train`` and ``dev``."""
    files = named(archive, NAMES)
    if not files or not all(path.exists() for path in files.values()):
        raise DataError(
            archive,
            "holds neither train-v2.0.json nor dev-v2.0.json",
            "SQuAD 2.0's files, plain or .gz",
        )
    return files


def named(archive, names):
    """Return the files of an archive whose names begin as those of the splits do, by split."""
    files = {}
    for path in sorted(archive.iterdir()) if archive.is_dir() else [archive]:
        for split, name in names.items():
            if path.name.startswith(name) and path.name.endswith((".json", ".json.gz")):
                files[split] = path
    return files


def read(path):
    """Return the paragraphs of a file as its JSON has them."""
    return list(itertools.chain(*[paragraphs for _, paragraphs in read_articles(path)]))


def read_articles(path):
    """Return the title and the paragraphs of each article of a file as its JSON has them.

    The title is None where an article has none.
    """

    def articles_of(content):
        articles = content["data"]
        return [(article.get("title"), list(article["paragraphs"])) for article in articles]

    return read_json(path, articles_of, "a file of SQuAD 2.0")


def read_json(path, parts_of, expected):
    """Return what ``parts_of`` makes of the JSON of a file, plain or .gz.

    Of any error in it the file is named, and what was ``expected``.
    """
    try:
        with open_bytes(path) as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise DataError(path, f"more than {LARGEST_FILE:,} bytes", expected)
        return parts_of(parse_json(content))
    except (*DAMAGE, ValueError, KeyError, TypeError, AttributeError) as error:
        found = f"cannot be read ({type(error).__name__}: {error})"
        raise DataError(path, found, expected) from None


def sentences(segmenter, paragraph, answers):
    """Return start and end of each sentence; sentences that share an answer are joined."""
    bounds = []
    for span in segmenter.segment(paragraph):
        inside = [begin < span.start < begin + len(text) for begin, text in answers]
        if bounds and any(inside):
            bounds[-1] = (bounds[-1][0], span.end)
        else:
            bounds.append((span.start, span.end))
    return bounds


def convert(path, unanswered=False):
    """Yield the questions of a file, those without an answer by option."""
    segmenter = make_segmenter()
    ids = set()
    for number, paragraph in enumerate(read(path), 1):
        where = f"{path}, paragraph {number}"
        text, entries = read_paragraph(paragraph, where, unanswered)
        spans = [span for entry in entries for span in entry.spans]
        bounds = sentences(segmenter, text, spans)
        for entry in entries:
            add_id(ids, entry, where)
            question = Question(entry.id, entry.question, _candidates(text, bounds, entry.spans))
            is_unanswered = unanswered and not entry.spans and question.candidates
            if question.question and (1 in question.labels or is_unanswered):
                yield question


def add_id(ids, entry, where):
    """Add the id of a question to a set, in which it may not be yet."""
    if entry.id in ids:
        raise DataError(where, f"id {shorten(entry.id)} occurs twice", "each id once")
    ids.add(entry.id)


def read_paragraph(paragraph, where, unanswered=False):
    """Return the text of a paragraph and its questions, those without an answer by option.

    Each answer stands in the text where the file says.
    """
    text, entries = _read_paragraph(paragraph, where, unanswered)
    for entry in entries:
        for begin, answer in entry.spans:
            if text[begin : begin + len(answer)] != answer:
                raise DataError(
                    where,
                    f"answer {shorten(answer)} does not stand at {begin}",
                    "the official file",
                )
    return text, entries


def _read_paragraph(paragraph, where, unanswered):
    try:
        text = _text(paragraph["context"])
        if len(text) > LONGEST_PARAGRAPH:
            raise ValueError(f"a paragraph of {len(text):,} characters")
        entries = paragraph["qas"]
        if not unanswered:
            entries = [entry for entry in entries if not entry.get("is_impossible")]
        return text, [_entry(entry) for entry in entries]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(
            where, f"{type(error).__name__}: {error}", "context and qas as in SQuAD 2.0"
        ) from None


def _entry(entry):
    spans = []
    answers = [] if entry.get("is_impossible") else entry["answers"]
    for answer in answers:
        start, text = answer["answer_start"], _text(answer["text"])
        if type(start) is not int or start < 0 or not text:
            raise ValueError(f"answer {shorten(text)} at {shorten(start)}")
        spans.append((start, text))
    if not _text(entry["id"]).strip():
        raise ValueError("an empty id")
    return Entry(entry["id"], _text(entry["question"]).strip(), spans)


def _text(value):
    if not isinstance(value, str):
        raise TypeError(f"{shorten(value)} is no string")
    value.encode("utf-8")  # raises a ValueError for half a surrogate pair
    return value


def _candidates(text, bounds, spans):
    """Sentences of a paragraph; those with a whole answer are correct."""
    candidates = []
    for start, end in bounds:
        held = [start <= begin and begin + len(answer) <= end for begin, answer in spans]
        sentence = text[start:end].strip()
        if sentence:
            candidates.append(Candidate(sentence, int(any(held))))
    return tuple(candidates)


def is_dev(question):
    """Whether a training question belongs to the dev split, one tenth of them."""
    return int(hashlib.sha256(question.id.encode("utf-8")).hexdigest(), 16) % 10 == 0


def write(archive, out, unanswered=False):
    """Write the splits of the files in the archive and their counts, and return the counts."""
    questions = {}
    for split, path in find(archive).items():
        questions[split] = convert(path, unanswered)
    return write_public(out, questions, is_dev)


def fetch(folder):
    """Download the official files and return their folder."""
    for name in NAMES.values():
        download(f"{URL}{name}.json", folder / f"{name}.json")
    return folder


def show_splits(stats):
    """Print the counts, and what the splits are of SQuAD."""
    show(stats)
    if "test" in stats:
        print("test: SQuAD's development questions, as its test questions are not public")


def main(arguments=None):
    """Run the command line."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--unanswered", action="store_true", help="keep the questions without an answer"
    )
    options = parser.parse_args(arguments)
    convert_all = functools.partial(write, unanswered=options.unanswered)
    return run(lambda: from_archive(options, fetch, convert_all), options.out, show_splits)


if __name__ == "__main__":
    sys.exit(main())
