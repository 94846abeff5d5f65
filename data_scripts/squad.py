#!/usr/bin/env python3
"""SQuAD 2.0 (Rajpurkar et al. 2018) to sentences: the SQuAD-sent of Bonadiman and Moschitti 2020
(Cosinet, section 5.1).

    python data_scripts/squad.py --out data/squad
    python data_scripts/squad.py --out data/squad --archive FOLDER

A candidate is a sentence of the question's paragraph, and is correct if it holds a whole annotated
answer span. Questions without an answer are left out. The file of development questions becomes
test.jsonl; of the training questions one in ten, drawn by a fixed rule, becomes dev.jsonl and the
rest train.jsonl.

``--archive`` takes a folder of train-v2.0.json and dev-v2.0.json, plain or .gz, or a single such
file, whose name tells which of the two it is. The papers split sentences with SpaCy, whose models
are no package: pysbd stands in here. Texts keep their case; the encoders' own tokenizers follow.
"""

import gzip
import hashlib
import json
import sys
import zlib

from corpus import from_archive, make_parser, run, write_split, write_stats
from fetching import download

from wqa.data import Candidate, Question
from wqa.errors import DataError, MissingDependency, shorten

URL = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
NAMES = {"train": "train-v2.0", "dev": "dev-v2.0"}


def find(archive):
    """Files of the official sets in an archive, by ``train`` and ``dev``."""
    files = sorted(archive.iterdir()) if archive.is_dir() else [archive]
    found = {
        kind: file
        for kind, name in NAMES.items()
        for file in files
        if file.name.startswith(name) and file.name.endswith((".json", ".json.gz"))
    }
    if not found or not all(file.exists() for file in found.values()):
        raise DataError(
            archive,
            "holds neither train-v2.0.json nor dev-v2.0.json",
            "SQuAD 2.0's files, plain or .gz",
        )
    return found


def read(path):
    """Paragraphs of a file, as its JSON has them."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            articles = json.load(file)["data"]
        return [paragraph for article in articles for paragraph in article["paragraphs"]]
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise DataError(
            path, f"cannot be read ({type(error).__name__}: {error})", "a file of SQuAD 2.0"
        ) from None


def sentences(segmenter, paragraph, answers):
    """Start and end of each sentence; one that would cut an answer in two stays joined to the
    next."""
    joined = []
    for span in segmenter.segment(paragraph):
        start, end = span.start, span.end
        cut = joined and any(begin < start < begin + len(text) for begin, text in answers)
        if cut:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def make_segmenter():
    """The sentence splitter, which an extra brings."""
    try:
        import pysbd
    except ImportError:
        raise MissingDependency(
            "pysbd", "is not installed", "the sentence splitter", "pip install 'wqa[corpora]'"
        ) from None
    return pysbd.Segmenter(language="en", clean=False, char_span=True)


def convert(path):
    """Questions of one file."""
    segmenter = make_segmenter()
    for number, paragraph in enumerate(read(path), 1):
        where = f"{path}, paragraph {number}"
        try:
            text, asked = (
                paragraph["context"],
                [entry for entry in paragraph["qas"] if not entry.get("is_impossible")],
            )
            answers = {
                entry["id"]: [
                    (answer["answer_start"], answer["text"]) for answer in entry["answers"]
                ]
                for entry in asked
            }
        except (KeyError, TypeError) as error:
            raise DataError(
                where, f"{type(error).__name__}: {error}", "context and qas as in SQuAD 2.0"
            ) from None
        for spans in answers.values():
            for begin, answer in spans:
                if text[begin : begin + len(answer)] != answer:
                    raise DataError(
                        where,
                        f"answer {shorten(answer)} does not stand at {begin}",
                        "the official file",
                    )
        bounds = sentences(segmenter, text, [span for spans in answers.values() for span in spans])
        for entry in asked:
            labels = [
                int(
                    any(
                        start <= begin and begin + len(answer) <= end
                        for begin, answer in answers[entry["id"]]
                    )
                )
                for start, end in bounds
            ]
            candidates = [
                Candidate(text[start:end].strip(), label)
                for (start, end), label in zip(bounds, labels)
            ]
            kept = tuple(candidate for candidate in candidates if candidate.text)
            if 1 in labels and entry["question"].strip():
                yield Question(entry["id"], entry["question"].strip(), kept)


def is_dev(question):
    """Whether a training question belongs to the tenth that validates."""
    return int(hashlib.sha256(question.id.encode("utf-8")).hexdigest(), 16) % 10 == 0


def write(archive, out):
    """Write the splits that the archive has files for, and their counts."""
    found, stats = find(archive), {}
    if "train" in found:
        questions = list(convert(found["train"]))
        stats["train"] = write_split(
            out, "train", (question for question in questions if not is_dev(question))
        )
        stats["dev"] = write_split(
            out, "dev", (question for question in questions if is_dev(question))
        )
    if "dev" in found:
        stats["test"] = write_split(out, "test", convert(found["dev"]))
    write_stats(out, stats)
    return stats


def fetch(folder):
    """Fetch the official files."""
    for name in NAMES.values():
        download(f"{URL}{name}.json", folder / f"{name}.json")
    return folder


def main(arguments=None):
    """Run the command line."""
    options = make_parser(__doc__).parse_args(arguments)
    return run(lambda: from_archive(options, fetch, write))


if __name__ == "__main__":
    sys.exit(main())
