#!/usr/bin/env python3
"""ASNQ (Garg et al. 2020) to canonical JSONL, in bounded memory. An interrupted run resumes.

    python data_scripts/asnq.py --out data/asnq
    python data_scripts/asnq.py --out data/asnq --archive asnq.tar --splits FOLDER

Lines of the release are QUESTION, tab, SENTENCE, tab, LABEL. Of its labels 1 to 4 only 4 is an
answer: a sentence of the long answer that holds the short one. The released development set is
divided into dev and test by the lists of questions that Soldaini and Moschitti (2020) published
(unique.dev, unique.test). A third list, unique.train, is compared with train.

Quotes are text. A reader that takes them for CSV's joins lines. That is probably how some authors
count 20.4 million training pairs, where the release has 23.7 million.

``--archive`` takes asnq.tar, or a folder with train.tsv and dev.tsv, plain or .gz. ``--splits``
takes a folder with the lists, plain or .gz; without it they are taken from the folder of
``--archive`` if they are there, and otherwise downloaded.
"""

import interrupts  # noqa: F401 - first, so that an interrupt while the rest is imported is one line

# isort: split
import contextlib
import gzip
import hashlib
import io
import pathlib
import sys
from typing import IO, Any, Dict, NamedTuple

from corpus import make_parser, run, write_stats
from fetching import TANDA, download
from partition import MOST_QUESTIONS, Partition, identify

from wqa.errors import DataError, printable, shorten
from wqa.io.archives import checked_members, open_tar, tar_errors
from wqa.io.files import scratch_folder
from wqa.io.lines import bounded_lines, text_lines

URLS = [f"{store}/data/asnq.tar" for store in TANDA]
#: Folders of the lists. The repository has moved them, and has moved itself; an early commit has
#: the list of train under data/, beside another list of dev, which its digest tells apart.
_GITHUB = "https://raw.githubusercontent.com"
LISTS_URLS = (
    f"{_GITHUB}/amazon-science/wqa-cascade-transformers/"
    "f7b452e6c4846fb52cd13e5c3bc61c296900e3a7/acl2020cascade/data",
    f"{_GITHUB}/amazon-science/wqa-cascade-transformers/"
    "5e8519a67c872dad71960436dd66246329b84b33/data",
    f"{_GITHUB}/alexa/wqa-cascade-transformers/master/acl2020cascade/data",
    f"{_GITHUB}/alexa/wqa-cascade-transformers/master/data",
)
#: SHA-256 of the lists, unpacked.
LISTS = {
    "dev": "33a799713007907c3f758708426e5ad94eb2f5194896e4369eda33f2903c219f",
    "test": "cfb74811b4e294287401435f6b2232d4d7958b529408f71862254256a5055b01",
    "train": "7a31afb0f27e09cd8aeeae8ef2101cf634a11ef6f1ffd146028fb967c2767c01",
}
LABELS = {b"1": 0, b"2": 0, b"3": 0, b"4": 1}
#: Greatest sizes in bytes: of a table and of a list, unpacked, and of a question.
LARGEST_TABLE = 1 << 36
LARGEST_LIST = 1 << 26
LONGEST_QUESTION = 10_000


def read_list(path):
    """Return the questions of a published list, as UTF-8 bytes."""
    questions = set()
    for _, line in text_lines(path, largest=LARGEST_LIST):
        question = line.encode("utf-8").strip()
        if question:
            questions.add(question)
    return questions


class Table(NamedTuple):
    """An open table of the release."""

    #: The table as bytes.
    file: IO[bytes]
    #: The file under it, whose position shows the progress.
    raw: IO[bytes]
    #: Size of ``raw`` in bytes.
    size: int
    #: Identification of the content.
    source: Dict[str, Any]


@contextlib.contextmanager
def open_table(archive, name):
    """Open a table of the release, as a `Table`."""
    with contextlib.ExitStack() as stack:
        if archive.is_dir():
            yield _table_of_folder(stack, archive, f"{name}.tsv")
        else:
            with tar_errors(archive, "asnq.tar, or a folder of train.tsv and dev.tsv"):
                table = _table_of_tar(stack, archive, f"{name}.tsv")
            yield table


def _table_of_folder(stack, folder, name):
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            raw = file = stack.enter_context(path.open("rb"))
            if path.suffix == ".gz":
                file = stack.enter_context(gzip.GzipFile(fileobj=raw))
            return Table(file, raw, path.stat().st_size, identify(path))
    raise DataError(folder, f"holds neither {name} nor {name}.gz", "the two tables of ASNQ")


def _table_of_tar(stack, archive, name):
    tar = stack.enter_context(open_tar(archive, 3 * LARGEST_TABLE))
    for member in checked_members(tar, LARGEST_TABLE):
        if member.isfile() and pathlib.PurePosixPath(member.name).name == name:
            raw = stack.enter_context(tar.extractfile(member))
            file = stack.enter_context(io.BufferedReader(raw, 1 << 20))
            return Table(file, raw, member.size, identify(archive, member=member.name))
    raise DataError(archive, f"holds no {name}", "the official asnq.tar")


def parse(file, raw, where, split_of):
    """Yield bytes read so far, split, question, sentence and label of the lines of a table.

    ``split_of`` returns the split of a question, or None to leave it out.
    """
    for number, line in bounded_lines(file, where, largest=LARGEST_TABLE):
        question, sentence, label = parse_line(line, f"{where}, line {number}")
        split = split_of(question)
        if split:
            yield raw.tell(), split, question, sentence, label


def parse_line(line, where):
    """Return question, sentence and label of a line."""
    question, tab, rest = line.rstrip(b"\r\n").partition(b"\t")
    sentence, tab, label = rest.rpartition(b"\t")
    if not tab:
        start = line[:200].decode("utf-8", "replace").rstrip("\r\n")
        raise DataError(where, shorten(start), "question, tab, sentence, tab, label")
    if label not in LABELS:
        start = label[:40].decode("utf-8", "replace")
        raise DataError(where, f"label {shorten(start)}", "1, 2, 3 or 4")
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(where, f"byte {error.start} is not UTF-8", "UTF-8 text") from None
    if not 0 < len(question.strip()) <= LONGEST_QUESTION:
        raise DataError(
            where,
            f"a question of {len(question):,} bytes" if question.strip() else "an empty question",
            f"text of at most {LONGEST_QUESTION:,} bytes",
        )
    return question.strip(), sentence, LABELS[label]


def list_in(folder, split):
    """Return the published list of a split in a folder, None if there is none."""
    for name in (f"unique.{split}.gz", f"unique.{split}"):
        if (folder / name).exists():
            return folder / name
    return None


class Lists:
    """The published lists of dev and test questions, compared with the table's questions."""

    def __init__(self, folder):
        self._splits = {split: read_list(self._find(folder, split)) for split in ("dev", "test")}
        both = self._splits["dev"] & self._splits["test"]
        if both:
            raise DataError(
                folder,
                f"question {shorten(sorted(both)[0].decode('utf-8'))} stands in both lists",
                "lists without a question in common",
            )
        self._seen, self._left_out = set(), set()
        listed = (b"\n".join(sorted(questions)) for questions in self._splits.values())
        #: What identifies the lists: other lists divide the table in another way.
        self.source = {"lists": hashlib.sha256(b"\n\n".join(listed)).hexdigest()}

    @staticmethod
    def _find(folder, split):
        path = list_in(folder, split)
        if path:
            return path
        raise DataError(
            folder,
            f"holds neither unique.{split} nor unique.{split}.gz",
            "the published lists of questions",
            "pass them with --splits",
        )

    def split_of(self, question):
        """Return the split of a question of dev.tsv, None if it is in neither list."""
        for split, questions in self._splits.items():
            if question in questions:
                self._seen.add(question)
                return split
        self._left_out.add(question)
        if len(self._left_out) > MOST_QUESTIONS:
            raise DataError(
                "dev.tsv", f"more than {MOST_QUESTIONS:,} questions in neither list", "ASNQ's dev"
            )
        return None

    def report(self):
        """Print how the lists and dev.tsv differ."""
        for split, questions in self._splits.items():
            note(questions - self._seen, f"questions of unique.{split} are not in dev.tsv")
        note(self._left_out, "questions of dev.tsv are in neither list and left out")


class TrainList:
    """The published list of training questions, compared with the table's questions."""

    source = {}

    def __init__(self, folder):
        self._folder = folder
        self._seen = set()

    def split_of(self, question):
        """Return the split of a question of train.tsv."""
        self._seen.add(question)
        return "train"

    def report(self):
        """Print how the list, where there is one, and train.tsv differ."""
        path = list_in(self._folder, "train")
        if path:
            listed = read_list(path)
            note(listed - self._seen, "questions of unique.train are not in train.tsv")
            note(self._seen - listed, "questions of train.tsv are not in unique.train")


def note(questions, text):
    """Print a note on a set of questions, if there are any."""
    if questions:
        first = sorted(questions)[0].decode("utf-8")
        example = printable(shorten(first))
        print(f"note: {len(questions)} {text}, such as {example}", file=sys.stderr)


def convert(archive, splits, out):
    """Write the three splits and their counts, and return the counts."""
    held_out, dev = convert_table(archive, "dev", ("dev", "test"), Lists(splits), out)
    stats, train = convert_table(archive, "train", ("train",), TrainList(splits), out)
    stats.update(held_out)
    write_stats(out, stats)
    # Only now: an interrupted run finds all that it has done.
    dev.close()
    train.close()
    return stats


def convert_table(archive, name, splits, lists, out):
    """Write the splits of a table; return their counts and the temporary files."""
    with open_table(archive, name) as table:
        partition = Partition(out, f"asnq-{name}", {**table.source, **lists.source})
        lines = parse(table.file, table.raw, f"{archive}, {name}.tsv", lists.split_of)
        if partition.distribute(lines, table.size):
            lists.report()
    return {split: partition.write(split, split) for split in splits}, partition


def fetch_lists(folder):
    """Download the published lists and return their folder."""
    for split, digest in LISTS.items():
        name = f"unique.{split}"
        download([f"{url}/{name}" for url in LISTS_URLS], folder / name, digest, "--splits")
    return folder


def main(arguments=None):
    """Run the command line."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--splits",
        type=pathlib.Path,
        help="folder of unique.dev and unique.test, plain or .gz, instead of a download",
    )
    options = parser.parse_args(arguments)

    def work():
        archive = options.archive
        if archive is None:
            archive = options.out / "asnq.tar"
            if not archive.exists():
                download(URLS, archive)
        splits = options.splits
        if splits is None and archive.is_dir() and any(list_in(archive, name) for name in LISTS):
            splits = archive
        if splits:
            return convert(archive, splits, options.out)
        with scratch_folder("corpus") as folder:
            return convert(archive, fetch_lists(folder), options.out)

    return run(work, options.out)


if __name__ == "__main__":
    sys.exit(main())
