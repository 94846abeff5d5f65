"""Tables of pairs that are larger than memory, one question at a time, whatever the order of their
lines.

Lines are first shared out over temporary files by their question, then each of these, which fits in
memory, becomes a part of the result. Both steps are resumed: a table that is shared out already is
not read again, and a part that is written stays.
"""

import json
import os
import pathlib
import shutil

from corpus import Statistics
from tqdm import tqdm

from wqa.data import Candidate, Question, atomic_writer, storage_errors
from wqa.data.formats import to_line

#: Questions of one temporary file.
QUESTIONS = 500
_SEPARATOR = b"\t"


class Partition:
    """Questions of one table on their way into JSON lines.

    ``lines`` gives ``(bytes read so far, split, question, sentence, label)`` with question and
    sentence as UTF-8 bytes, and is called only if the table is not shared out yet; ``source``
    identifies the table, so that what was left of another one is never gone on with.
    """

    def __init__(self, out, name, source):
        self._out, self._folder = out, out / f".{name}.partial"
        self._source = source

    def share_out(self, lines, size):
        """Write every line to the temporary file of its question; False if an earlier run has done
        it."""
        marker = self._folder / "shared.json"
        if self._read(marker).get("source") == self._source:
            return False
        with storage_errors(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
        numbers, files, totals = {}, {}, {}
        try:
            with storage_errors(self._folder), tqdm(
                total=size, unit="B", unit_scale=True, desc="sharing out"
            ) as bar:
                for read, split, question, sentence, label in lines:
                    key = (split, question)
                    number = numbers.get(key)
                    if number is None:
                        number = numbers[key] = totals.get(split, 0)
                        totals[split] = number + 1
                    place = (split, number // QUESTIONS)
                    file = files.get(place)
                    if file is None:
                        file = files[place] = open(self._bucket(*place), "wb", 1 << 16)  # noqa: SIM115 - closed below
                    file.write(
                        b"%d\t%d\t%s\t%s\n"
                        % (number, label, question.replace(_SEPARATOR, b" "), sentence)
                    )
                    bar.update(read - bar.n)
        finally:
            for file in files.values():
                file.close()
        with atomic_writer(marker) as file:
            json.dump({"source": self._source, "questions": totals}, file)
        return True

    def write(self, split, prefix):
        """Write one split from its temporary files; gives its counts."""
        questions = self._read(self._folder / "shared.json")["questions"].get(split, 0)
        buckets = range(-(-questions // QUESTIONS))
        statistics = Statistics()
        parts = [self._folder / f"{split}-{bucket:05}.jsonl" for bucket in buckets]
        for bucket, part in tqdm(
            list(zip(buckets, parts)), desc=f"writing {split}", unit="part", mininterval=2
        ):
            counts = part.with_suffix(".json")
            if not counts.exists():
                found = Statistics()
                with atomic_writer(part, "wb") as file:
                    for question in self._questions(self._bucket(split, bucket), prefix):
                        found.add(question)
                        file.write((to_line(question) + "\n").encode("utf-8"))
                with atomic_writer(counts) as file:  # last: it stands for the part being whole
                    json.dump(found.totals, file)
            statistics.merge(json.loads(counts.read_text(encoding="utf-8")))
        with atomic_writer(self._out / f"{split}.jsonl", "wb") as whole:
            for part in parts:
                with open(part, "rb") as file:
                    shutil.copyfileobj(file, whole, 1 << 20)
        return statistics.figures()

    def close(self):
        """Delete the temporary files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _bucket(self, split, bucket):
        return self._folder / f"{split}-{bucket:05}.tsv"

    @staticmethod
    def _read(path):
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    @staticmethod
    def _questions(path, prefix):
        """Questions of a temporary file, in the order of their numbers, candidates in the order of
        their lines."""
        found = {}
        with open(path, "rb") as file:
            for line in file:
                number, label, question, sentence = line[:-1].split(_SEPARATOR, 3)
                entry = found.get(number)
                if entry is None:
                    entry = found[number] = (question, [])
                entry[1].append((sentence, label))
        for number in sorted(found, key=int):
            question, rows = found[number]
            yield Question(
                f"{prefix}-{number.decode()}",
                question.decode("utf-8"),
                tuple(Candidate(sentence.decode("utf-8"), int(label)) for sentence, label in rows),
            )


def identify(path, **more):
    """What tells one state of a file from another."""
    stat = os.stat(path)
    return {
        "name": pathlib.Path(path).name,
        "bytes": stat.st_size,
        "changed": stat.st_mtime_ns,
        **more,
    }
