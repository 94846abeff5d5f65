#!/usr/bin/env python3
"""Write the built-in corpus as documents for pre-training, for recipes in smoke mode.

    python recipes/mspp/builtin_paragraphs.py OUT

Writes train.jsonl and dev.jsonl as data_scripts/paragraphs.py does. A document is three consecutive
questions, each a paragraph of its candidates.
"""

import pathlib
import sys

from wqa.data import ParagraphDocument, builtin_path, read_questions
from wqa.data.paragraphs import write_paragraphs
from wqa.errors import WqaError

#: Paragraphs of a document, and questions of a file.
PARAGRAPHS, QUESTIONS = 3, 12


def documents_of(split):
    """Yield the documents of a split."""
    questions = list(read_questions(builtin_path(split)))[:QUESTIONS]
    for start in range(0, len(questions), PARAGRAPHS):
        group = questions[start : start + PARAGRAPHS]
        yield ParagraphDocument(group[0].id, tuple(tuple(question.texts) for question in group))


def main(out):
    """Write the files."""
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev"):
        write_paragraphs(folder / f"{split}.jsonl", documents_of(split))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
