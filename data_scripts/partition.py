"""Tables of pairs that are larger than memory, grouped by question.

The lines are first distributed to temporary files by their question. Each of these files fits in
memory and becomes a part of the result. Both steps resume: a table that is distributed is not read
again, and a part that is written is kept.

A process may be killed at any moment. What a step has done counts only when its record is written,
after all else, and the record of the distribution is the first file that is deleted.
"""

import contextlib
import json
import os
import pathlib
import shutil

from corpus import Statistics, counted, refuse_empty
from tqdm import tqdm

from wqa.data import Candidate, Question, read_json
from wqa.data.formats import to_line
from wqa.errors import DataError
from wqa.io.archives import require_space
from wqa.io.files import atomic_writer, storage_errors, sync

#: Questions of one temporary file.
QUESTIONS = 500
#: Greatest number of questions in a table; one temporary file in 500 questions is open.
MOST_QUESTIONS = 250_000
#: Greatest size of a temporary file, in bytes; it is read as a whole.
LARGEST_FILE = 1 << 30
#: Bytes that are left free on the disk, and how often that is checked.
RESERVE = 1 << 28
CHECK_EVERY = 1 << 26
_SEPARATOR = b"\t"


class Partition:
    """Converts one table to the JSON lines of its splits.

    Call `distribute`, then `write` for each split, then `close`. A conversion that was killed in
    any of them continues when the same calls are made again, and gives the same bytes.

    ``out`` is the folder of the result, and ``name`` distinguishes the table's temporary files.
    ``source`` identifies the table's content, so that the temporary files of another table are not
    used.
    """

    def __init__(self, out, name, source):
        self._out = out
        self._folder = out / f".{name}.partial"
        self._marker = self._folder / "shared.json"
        self._source = {**source, "questions a file": QUESTIONS}

    def distribute(self, lines, size):
        """Write every line to the temporary file of its question.

        ``lines`` yields ``(bytes read so far, split, question, sentence, label)``, with question
        and sentence as UTF-8 bytes; ``size`` is the table's size in bytes. Returns False, without
        reading, if an earlier run has distributed the table.
        """
        if self._is_distributed():
            return False
        self.close()
        require_space(self._out, size)
        with storage_errors(self._folder):
            self._folder.mkdir(parents=True)
        shares = _Shares(self._folder)
        bar = tqdm(total=size, unit="B", unit_scale=True, desc="distributing")
        with storage_errors(self._folder), bar, contextlib.closing(shares):
            for read, split, question, sentence, label in lines:
                shares.add(split, question, sentence, label)
                bar.update(read - bar.n)
            shares.flush()
        with atomic_writer(self._marker) as file:
            record = {"source": self._source, "questions": shares.totals, "bytes": shares.sizes}
            json.dump(record, file)
        return True

    def _is_distributed(self):
        """Whether an earlier run has distributed this table, and its files are whole."""
        record = _read_record(self._marker)
        if record.get("source") != self._source:
            return False
        return all(_size(self._folder / name) == size for name, size in record["bytes"].items())

    def write(self, split, prefix):
        """Write a split from its temporary files and return its counts.

        The ids of its questions start with ``prefix``.
        """
        questions = _read_record(self._marker)["questions"].get(split, 0)
        refuse_empty(split, questions)
        statistics = Statistics()
        parts = []
        files = [file_name(split, number) for number in range(-(-questions // QUESTIONS))]
        for name in tqdm(files, desc=f"writing {split}", unit="part", mininterval=2):
            bucket = self._folder / name
            part, counts = bucket.with_suffix(".jsonl"), bucket.with_suffix(".json")
            record = _read_record(counts)
            if record.get("bytes") != _size(part):
                record = self._write_part(bucket, part, prefix)
                # The counts are written last, so they show that the part is complete.
                with atomic_writer(counts) as file:
                    json.dump(record, file)
            statistics.merge(record["totals"])
            parts.append(part)
        with atomic_writer(self._out / f"{split}.jsonl", "wb") as whole:
            for part in parts:
                with open(part, "rb") as file:
                    shutil.copyfileobj(file, whole, 1 << 20)
        return statistics.figures()

    def close(self):
        """Delete the temporary files, the record of the distribution first.

        Without it those that a kill leaves are not used.
        """
        if self._folder.is_dir():
            with storage_errors(self._marker):
                with contextlib.suppress(FileNotFoundError):
                    self._marker.unlink()
                sync(self._folder)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _write_part(self, bucket, part, prefix):
        statistics = Statistics()
        questions = self._questions(bucket, prefix)
        with atomic_writer(part, "wb") as file:
            for question in counted(questions, statistics, bucket.stem):
                file.write((to_line(question) + "\n").encode("utf-8"))
        return {"totals": statistics.totals, "bytes": _size(part)}

    @staticmethod
    def _questions(path, prefix):
        """Yield a temporary file's questions by number, candidates in the order of their lines."""
        texts, candidates = {}, {}
        with open(path, "rb") as file:
            for line in file:
                number, label, question, sentence = line[:-1].split(_SEPARATOR, 3)
                texts[number] = question
                candidate = Candidate(sentence.decode("utf-8"), int(label))
                candidates.setdefault(number, []).append(candidate)
        for number in sorted(texts, key=int):
            qid = f"{prefix}-{number.decode()}"
            yield Question(qid, texts[number].decode("utf-8"), tuple(candidates[number]))


class _Shares:
    """The temporary files of a table, open for writing."""

    def __init__(self, folder):
        self._folder = folder
        self._numbers, self._files = {}, {}
        self._written = 0
        #: Questions by split, and bytes by name of the file.
        self.totals, self.sizes = {}, {}

    def add(self, split, question, sentence, label):
        """Write a line to the file of its question."""
        key = (split, question)
        number = self._numbers.get(key)
        if number is None:
            number = self._new_number(split, key)
        name = file_name(split, number // QUESTIONS)
        file = self._files.get(name)
        if file is None:
            file = open(self._folder / name, "wb", 1 << 16)  # noqa: SIM115 - `close` closes it
            self._files[name] = file
        text = question.replace(_SEPARATOR, b" ")
        size = file.write(b"%d\t%d\t%s\t%s\n" % (number, label, text, sentence))
        self.sizes[name] = self.sizes.get(name, 0) + size
        self._written += size
        if self._written >= CHECK_EVERY:
            self._check_sizes(split)

    def _new_number(self, split, key):
        if len(self._numbers) == MOST_QUESTIONS:
            raise DataError(
                f"split {split}", f"more than {MOST_QUESTIONS:,} questions", "a table of ASNQ"
            )
        number = self._numbers[key] = self.totals.get(split, 0)
        self.totals[split] = number + 1
        return number

    def _check_sizes(self, split):
        self._written = 0
        require_space(self._folder, RESERVE)
        if max(self.sizes.values()) > LARGEST_FILE:
            raise DataError(
                f"split {split}",
                f"{QUESTIONS} questions with more than {LARGEST_FILE:,} bytes of sentences",
                "a table of ASNQ",
            )

    def flush(self):
        """Write all that is still in memory, to the disk."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())

    def close(self):
        """Close the files; what they hold after an error does not count."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()


def file_name(split, number):
    """Return the name of a split's temporary file."""
    return f"{split}-{number:05}.tsv"


def identify(path, **more):
    """Describe a file so that another state of it, or another file, differs."""
    stat = os.stat(path)
    return {
        "name": pathlib.Path(path).name,
        "bytes": stat.st_size,
        "changed": stat.st_mtime_ns,
        **more,
    }


def _read_record(path):
    """Return an object of JSON, empty if the file is missing or damaged."""
    try:
        record = read_json(path)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _size(path):
    """Return the size of a file, -1 if there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
