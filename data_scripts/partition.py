"""Tables of pairs that are larger than memory, grouped by question.

The lines are first distributed to temporary files by their question. Each of these files fits in
memory and becomes a part of the result. Both steps resume: a table that is distributed is not read
again, and a part that is written is kept.
"""

import json
import os
import pathlib
import shutil

from corpus import Statistics, counted
from tqdm import tqdm

from wqa.data import Candidate, Question, atomic_writer, read_json, storage_errors
from wqa.data.formats import to_line

#: Questions of one temporary file.
QUESTIONS = 500
_SEPARATOR = b"\t"


class Partition:
    """Converts one table to the JSON lines of its splits.

    ``out`` is the folder of the result, and ``name`` distinguishes the table's temporary files.
    ``source`` identifies the table's content, so that the temporary files of another table are not
    used.
    """

    def __init__(self, out, name, source):
        self._out = out
        self._folder = out / f".{name}.partial"
        self._source = source

    def distribute(self, lines, size):
        """Write every line to the temporary file of its question.

        ``lines`` yields ``(bytes read so far, split, question, sentence, label)``, with question
        and sentence as UTF-8 bytes; ``size`` is the table's size in bytes. Returns False, without
        reading, if an earlier run has distributed the table.
        """
        marker = self._folder / "shared.json"
        if self._read(marker).get("source") == self._source:
            return False
        with storage_errors(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
        numbers, files, totals = {}, {}, {}
        bar = tqdm(total=size, unit="B", unit_scale=True, desc="distributing")
        try:
            with storage_errors(self._folder), bar:
                for read, split, question, sentence, label in lines:
                    key = (split, question)
                    number = numbers.get(key)
                    if number is None:
                        number = numbers[key] = totals.get(split, 0)
                        totals[split] = number + 1
                    path = self._bucket(split, number // QUESTIONS)
                    file = files.get(path)
                    if file is None:
                        file = files[path] = open(path, "wb", 1 << 16)  # noqa: SIM115 - closed below
                    text = question.replace(_SEPARATOR, b" ")
                    file.write(b"%d\t%d\t%s\t%s\n" % (number, label, text, sentence))
                    bar.update(read - bar.n)
        finally:
            for file in files.values():
                file.close()
        with atomic_writer(marker) as file:
            json.dump({"source": self._source, "questions": totals}, file)
        return True

    def write(self, split, prefix):
        """Write a split from its temporary files and return its counts.

        The ids of its questions start with ``prefix``.
        """
        questions = self._read(self._folder / "shared.json")["questions"].get(split, 0)
        statistics = Statistics()
        parts = []
        buckets = [self._bucket(split, number) for number in range(-(-questions // QUESTIONS))]
        for bucket in tqdm(buckets, desc=f"writing {split}", unit="part", mininterval=2):
            part, counts = bucket.with_suffix(".jsonl"), bucket.with_suffix(".json")
            # The counts are written last, so they show that the part is complete.
            if not counts.exists():
                totals = self._write_part(bucket, part, prefix)
                with atomic_writer(counts) as file:
                    json.dump(totals, file)
            statistics.merge(read_json(counts))
            parts.append(part)
        with atomic_writer(self._out / f"{split}.jsonl", "wb") as whole:
            for part in parts:
                with open(part, "rb") as file:
                    shutil.copyfileobj(file, whole, 1 << 20)
        return statistics.figures()

    def close(self):
        """Delete the temporary files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write_part(self, bucket, part, prefix):
        statistics = Statistics()
        with atomic_writer(part, "wb") as file:
            for question in counted(self._questions(bucket, prefix), statistics):
                file.write((to_line(question) + "\n").encode("utf-8"))
        return statistics.totals

    def _bucket(self, split, number):
        return self._folder / f"{split}-{number:05}.tsv"

    @staticmethod
    def _read(path):
        try:
            return read_json(path)
        except (OSError, ValueError):
            return {}

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


def identify(path, **more):
    """Describe a file so that another state of it, or another file, differs."""
    stat = os.stat(path)
    return {
        "name": pathlib.Path(path).name,
        "bytes": stat.st_size,
        "changed": stat.st_mtime_ns,
        **more,
    }
