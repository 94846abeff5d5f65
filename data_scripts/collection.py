"""Parts of the scripts of open collections: documents, questions without candidates, counts."""

import json

from wqa.data import write_questions
from wqa.data.documents import write_documents
from wqa.io import files
from wqa.io.files import atomic_writer

DOCUMENTS = "documents.jsonl"


class Counter:
    """Counts what passes.

    ``size`` gives a number for each item, of which the sum is kept.
    """

    def __init__(self, items, size):
        self._items = items
        self._size = size
        self.count = self.total = 0

    def __iter__(self):
        for item in self._items:
            self.count += 1
            self.total += self._size(item)
            yield item

    @property
    def mean(self):
        """Mean size of an item."""
        return round(self.total / max(self.count, 1), 2)


def write_collection(out, documents, name=DOCUMENTS):
    """Write a file of documents and return its counts."""
    counter = Counter(documents, lambda document: len(document.text))
    write_documents(out / name, counter)
    return {
        "documents": counter.count,
        "characters_per_document": counter.mean,
        "sha256": files.sha256(out / name),
    }


def open_questions(questions):
    """Yield questions without candidates; their answers are the texts of the correct ones."""
    for question in questions:
        texts = [candidate.text for candidate in question.candidates if candidate.label]
        answers = dict.fromkeys(filter(None, texts))
        yield question._replace(candidates=(), answers=tuple(answers))


def write_open_questions(out, split, questions):
    """Write the questions of a split, which have answers but no candidates, and return counts."""
    path = out / f"{split}.questions.jsonl"
    counter = Counter(questions, lambda question: len(question.answers))
    write_questions(path, counter)
    return {
        "questions": counter.count,
        "answers_per_question": counter.mean,
        "sha256": files.sha256(path),
    }


def write_counts(out, stats):
    """Write ``stats.json``."""
    with atomic_writer(out / "stats.json") as file:
        file.write(json.dumps(stats, indent=2) + "\n")


def show(stats):
    """Print the counts of the collection and of every split."""
    for name, counts in stats.items():
        figures = [f"{value:,} {key}" for key, value in counts.items() if key != "sha256"]
        print(f"{name:15} " + ", ".join(figures).replace("_", " "))
