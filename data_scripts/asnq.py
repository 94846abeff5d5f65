#!/usr/bin/env python3
"""ASNQ (Garg et al. 2020) to canonical JSONL, in bounded memory; a run that was stopped goes on.

    python data_scripts/asnq.py --out data/asnq
    python data_scripts/asnq.py --out data/asnq --archive asnq.tar --splits FOLDER

Lines of the release are QUESTION, tab, SENTENCE, tab, LABEL. Of its labels 1 to 4 only 4 is an
answer: a sentence of the long answer that holds the short one. The released development set is
divided into dev and test by the lists of questions that Soldaini and Moschitti (2020) published
(unique.dev.gz, unique.test.gz); a third list, unique.train.gz, is compared with train.

Quotes are text. A reader that takes them as those of CSV joins lines: the 20.4 million training
pairs that some count are what it leaves of 23.7 million, by all appearances.

``--archive`` takes asnq.tar, or a folder with train.tsv and dev.tsv, plain or .gz; ``--splits`` a
folder with the lists.
"""

import gzip
import io
import pathlib
import sys
import tarfile
import tempfile
import zlib

from corpus import make_parser, run, write_stats
from fetching import download
from partition import Partition, identify

from wqa.errors import DataError, shorten

URL = "https://wqa-public.s3.amazonaws.com/tanda-aaai-2020/data/asnq.tar"
LISTS_URL = "https://raw.githubusercontent.com/alexa/wqa-cascade-transformers/master/data/asnq/"
LISTS = {
    "dev": "a8cb0b9832a47074c03b30ad20d8aa10ace3893c60c34473a19008eca8b11cb9",
    "test": "fcd2beb1c3ae304640976509dbce3d62076f37abfefc2dec14b26346883aa92e",
    "train": "ba364dcb39a6ecc5ca805db7cf17b6647e1e9e9f496920b2efcc47585b047ee2",
}
LABELS = {b"1": 0, b"2": 0, b"3": 0, b"4": 1}


def read_list(path):
    """Questions of a published list, as UTF-8 bytes."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            return {
                line.strip()
                for line in file.read().decode("utf-8").encode("utf-8").splitlines()
                if line.strip()
            }
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(
            path, f"cannot be read ({error})", "a list of questions, one a line, plain or .gz"
        ) from None


def open_table(archive, name):
    """A table of the release as a binary file, its size where it is known, and what identifies
    it."""
    table = f"{name}.tsv"
    if archive.is_dir():
        for path in (archive / table, archive / f"{table}.gz"):
            if path.exists():
                file = open(path, "rb")  # noqa: SIM115 - the caller closes it
                return (
                    (gzip.open(file) if path.suffix == ".gz" else file),
                    file,
                    path.stat().st_size,
                    identify(path),
                )
        raise DataError(archive, f"holds neither {table} nor {table}.gz", "the two tables of ASNQ")
    try:
        packed = tarfile.open(archive)  # noqa: SIM115 - its members are read later
        for member in packed:
            if pathlib.PurePosixPath(member.name).name == table and member.isfile():
                file = packed.extractfile(member)
                return (
                    io.BufferedReader(file, 1 << 20),
                    file,
                    member.size,
                    identify(archive, member=member.name),
                )
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(
            archive, f"cannot be read ({error})", "asnq.tar, or a folder of train.tsv and dev.tsv"
        ) from None
    raise DataError(archive, f"holds no {table}", "the official asnq.tar")


def parse(file, raw, where, split_of):
    """Lines of a table: bytes read so far, split, question, sentence, label."""
    number = 0
    try:
        for number, line in enumerate(file, 1):
            question, tab, rest = line.rstrip(b"\r\n").partition(b"\t")
            sentence, tab, label = rest.rpartition(b"\t")
            if not tab:
                raise DataError(
                    f"{where}, line {number}",
                    shorten(line[:200].decode("utf-8", "replace").rstrip("\r\n")),
                    "question, tab, sentence, tab, label",
                )
            if label not in LABELS:
                raise DataError(
                    f"{where}, line {number}",
                    f"label {shorten(label[:40].decode('utf-8', 'replace'))}",
                    "1, 2, 3 or 4",
                )
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{where}, line {number}", f"byte {error.start} is not UTF-8", "UTF-8 text"
                ) from None
            if not question.strip():
                raise DataError(f"{where}, line {number}", "an empty question", "text")
            split = split_of(question.strip())
            if split:
                yield raw.tell(), split, question.strip(), sentence, LABELS[label]
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{where}, after line {number}",
            f"cannot be read ({error})",
            "a whole file",
            "fetch it again",
        ) from None


class Lists:
    """The published lists, and what of the table they do not name or name in vain."""

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

    @staticmethod
    def _find(folder, split):
        for name in (f"unique.{split}.gz", f"unique.{split}"):
            if (folder / name).exists():
                return folder / name
        raise DataError(
            folder,
            f"holds no unique.{split}.gz",
            "the published lists of questions",
            "pass them with --splits",
        )

    def split_of(self, question):
        """The split of a question of the released development set, None where no list names it."""
        for split, questions in self._splits.items():
            if question in questions:
                self._seen.add(question)
                return split
        self._left_out.add(question)
        return None

    def report(self):
        """Say what did not fit."""
        for split, questions in self._splits.items():
            unknown = sorted(questions - self._seen)
            if unknown:
                print(
                    f"note: {len(unknown)} questions of unique.{split} are not in dev.tsv, such as "
                    f"{shorten(unknown[0].decode('utf-8'))}",
                    file=sys.stderr,
                )
        if self._left_out:
            print(
                f"note: {len(self._left_out)} questions of dev.tsv are in neither list and "
                "left out, such as "
                f"{shorten(sorted(self._left_out)[0].decode('utf-8'))}",
                file=sys.stderr,
            )


def compare_train(folder, questions):
    """Say how the list of training questions differs from those found."""
    listed = next(
        (folder / name for name in ("unique.train.gz", "unique.train") if (folder / name).exists()),
        None,
    )
    if listed is not None:
        known = read_list(listed)
        for text, some in (
            ("questions of unique.train are not in train.tsv", known - questions),
            ("questions of train.tsv are not in unique.train", questions - known),
        ):
            if some:
                print(
                    f"note: {len(some)} {text}, such as {shorten(sorted(some)[0].decode('utf-8'))}",
                    file=sys.stderr,
                )


def convert(archive, splits, out):
    """Write the three splits and their counts."""
    stats, lists, trained = {}, Lists(splits), set()

    def train_of(question):
        trained.add(question)
        return "train"

    for name, split_of, written in (
        ("dev", lists.split_of, ("dev", "test")),
        ("train", train_of, ("train",)),
    ):
        file, raw, size, source = open_table(archive, name)
        partition = Partition(out, f"asnq-{name}", source)
        with file:
            if partition.share_out(parse(file, raw, f"{archive}, {name}.tsv", split_of), size):
                lists.report() if name == "dev" else compare_train(splits, trained)
        for split in written:
            stats[split] = partition.write(split, split)
        partition.close()
    stats = {split: stats[split] for split in ("train", "dev", "test")}
    write_stats(out, stats)
    return stats


def fetch_lists(folder):
    """Fetch the published lists."""
    for split, digest in LISTS.items():
        download(f"{LISTS_URL}unique.{split}.gz", folder / f"unique.{split}.gz", digest)
    return folder


def main(arguments=None):
    """Run the command line."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--splits",
        type=pathlib.Path,
        help="folder of unique.dev.gz and unique.test.gz, instead of a download",
    )
    options = parser.parse_args(arguments)

    def work():
        archive = options.archive
        if archive is None:
            archive = options.out / "asnq.tar"
            if not archive.exists():
                download(URL, archive)
        if options.splits:
            return convert(archive, options.splits, options.out)
        with tempfile.TemporaryDirectory() as folder:
            return convert(archive, fetch_lists(pathlib.Path(folder)), options.out)

    return run(work)


if __name__ == "__main__":
    sys.exit(main())
