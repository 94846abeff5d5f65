#!/usr/bin/env python3
"""ASNQ (Garg et al. 2020) to canonical JSONL, in bounded memory.

    python data_scripts/asnq.py --out data/asnq
    python data_scripts/asnq.py --out data/asnq --archive asnq.tar --splits FOLDER

Lines of the release are QUESTION, tab, SENTENCE, tab, LABEL. Of its labels 1 to 4 only 4 is an
answer: a sentence of the long answer that holds the short one. The released development set is
divided into dev and test by the lists of questions that Soldaini and Moschitti (2020) published
(unique.dev, unique.test).

Quotes are text. A reader that takes them for CSV's joins lines. That is probably how some authors
count 20.4 million training pairs, where the release has 23.7 million.

``--archive`` takes asnq.tar, or a folder with train.tsv and dev.tsv, plain or .gz. ``--splits``
takes a folder with the lists, plain or .gz; without it they are taken from the folder of
``--archive`` if they are there, and otherwise downloaded. A download of asnq.tar stays in the
folder of the result.
"""

import collections
import contextlib
import pathlib
import shutil
import string
import sys

from corpus import make_main, write_each
from releases import TANDA, download, lines_of, note, plain_or_packed

from wqa.data import Candidate, Question
from wqa.errors import DataError, shorten
from wqa.io.files import scratch_folder, storage_errors
from wqa.io.lines import text_lines
from wqa.io.progress import with_bar

URLS = [f"{store}/data/asnq.tar" for store in TANDA]
#: Folders of the lists. The repository has moved them, and has moved itself; another list of dev
#: lies under data/ of an early commit, which its digest tells apart.
_LISTS = "https://raw.githubusercontent.com/{}/wqa-cascade-transformers/{}/data"
LISTS_URLS = (
    _LISTS.format("amazon-science", "f7b452e6c4846fb52cd13e5c3bc61c296900e3a7/acl2020cascade"),
    _LISTS.format("amazon-science", "5e8519a67c872dad71960436dd66246329b84b33"),
    _LISTS.format("alexa", "master/acl2020cascade"),
)
#: SHA-256 of the lists, unpacked.
LISTS = {
    "dev": "33a799713007907c3f758708426e5ad94eb2f5194896e4369eda33f2903c219f",
    "test": "cfb74811b4e294287401435f6b2232d4d7958b529408f71862254256a5055b01",
}
LABELS = {"1": 0, "2": 0, "3": 0, "4": 1}
#: Questions whose lines are in memory together.
QUESTIONS = 500


def rows_of(archive, name):
    """Yield question, sentence and label of each line of a table."""
    lines = lines_of(archive, f"{name}.tsv")
    for where, line in with_bar(lines, None, f"{name}.tsv", True, "line"):
        question, _, rest = line.rstrip("\r\n").partition("\t")
        sentence, tab, label = rest.rpartition("\t")
        if not tab:
            found = shorten(line.rstrip("\r\n"))
            raise DataError(where, found, "question, tab, sentence, tab, label")
        if label not in LABELS:
            raise DataError(where, f"label {shorten(label)}", "1, 2, 3 or 4")
        question = question.strip(string.whitespace)
        if not question:
            raise DataError(where, "an empty question", "text")
        yield question, sentence, LABELS[label]


def read_lists(folder):
    """Return the published lists of dev and test."""
    lists = {}
    for split in ("dev", "test"):
        path = plain_or_packed(folder, f"unique.{split}")
        if path is None:
            found = f"holds neither unique.{split} nor unique.{split}.gz"
            raise DataError(folder, found, "the published lists", "pass them with --splits")
        lists[split] = {line.strip(string.whitespace) for _, line in text_lines(path)} - {""}
    for question in sorted(lists["dev"] & lists["test"]):
        found = f"question {shorten(question)} stands in both lists"
        raise DataError(folder, found, "lists without a question in common")
    return lists


def held_out_rows(archive, lists):
    """Yield the rows of dev.tsv with their splits, and print how it differs from the lists."""
    seen = collections.defaultdict(set)
    for question, *row in rows_of(archive, "dev"):
        split = next((split for split, listed in lists.items() if question in listed), "")
        seen[split].add(question)
        if split:
            yield (split, question, *row)
    for split, listed in lists.items():
        note_difference(listed - seen[split], f"questions of unique.{split} are not in dev.tsv")
    note_difference(seen[""], "questions of dev.tsv are in neither list and left out")


def note_difference(questions, text):
    """Print a note on a set of questions, if there are any."""
    if questions:
        note(f"{len(questions)} {text}, such as {shorten(min(questions))}")


def write_grouped(out, splits, rows):
    """Write the splits of a table that is larger than memory, and return their counts.

    The lines of a question need not follow one another. So all are distributed to temporary files
    first, each of a few questions.
    """
    folder = out / ".asnq.partial"
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
    try:
        files = distribute(rows, folder)
        return write_each(out, {split: grouped(files.get(split, []), split) for split in splits})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def distribute(rows, folder):
    """Write each row to the temporary file of its question; returns the paths by split."""
    numbers, files = collections.defaultdict(dict), collections.defaultdict(list)
    with contextlib.ExitStack() as stack, storage_errors(folder):
        folder.mkdir(parents=True)
        for split, question, sentence, label in rows:
            number = numbers[split].setdefault(question, len(numbers[split]))
            part = number // QUESTIONS
            if part == len(files[split]):
                path = folder / f"{split}-{part:05}.tsv"
                file = stack.enter_context(open(path, "w", encoding="utf-8", newline="\n"))
                files[split].append(file)
            files[split][part].write(f"{number}\t{label}\t{question}\t{sentence}\n")
    return {split: [file.name for file in opened] for split, opened in files.items()}


def grouped(paths, split):
    """Yield the questions of temporary files by number, candidates in the order of their lines."""
    for path in paths:
        questions = collections.defaultdict(list)
        for _, line in text_lines(path):
            number, label, text, sentence = line[:-1].split("\t", 3)
            questions[int(number), text].append(Candidate(sentence, int(label)))
        for (number, text), candidates in sorted(questions.items()):
            yield Question(f"{split}-{number}", text, tuple(candidates))


def convert(archive, out, splits=None):
    """Fetch what is not at hand, write the three splits, and return their counts."""
    if not archive:
        archive = out / "asnq.tar"
        if not archive.exists():
            download(URLS, archive)
    if archive.is_dir() and plain_or_packed(archive, "unique.dev", "unique.test"):
        splits = splits or archive
    with scratch_folder("corpus") as folder:
        if not splits:
            for split, digest in LISTS.items():
                urls = [f"{url}/unique.{split}" for url in LISTS_URLS]
                download(urls, folder / f"unique.{split}", digest, "pass it with --splits")
        lists = read_lists(splits or folder)
    held_out = write_grouped(out, ("dev", "test"), held_out_rows(archive, lists))
    train_rows = (("train", *row) for row in rows_of(archive, "train"))
    return {**write_grouped(out, ("train",), train_rows), **held_out}


SPLITS_HELP = "folder of unique.dev and unique.test, plain or .gz, instead of a download"
OPTIONS = {"--splits": {"type": pathlib.Path, "help": SPLITS_HELP}}
main = make_main(__doc__, convert, options=OPTIONS)

if __name__ == "__main__":
    sys.exit(main())
