#!/usr/bin/env python3
"""Write a corpus in ASNQ's format: as many pairs as asked, 413 a question as in Table 1, sentences
of 3 to 60 words.

    python recipes/tanda/synthetic_asnq.py OUT PAIRS

OUT gets train.tsv, dev.tsv (20 questions) and the lists unique.dev.gz and unique.test.gz. The words
are those of the built-in corpus, some in capitals, some with quotes or a tab between them, and
numbers; about one pair in 350 is an answer.
"""

import gzip
import pathlib
import sys

import numpy as np

from wqa.data import builtin_path, read_questions

CANDIDATES = 413


def words():
    """Words of the built-in corpus, with some that are harder to tokenize."""
    texts = [text for question in read_questions(builtin_path("train")) for text in question.texts]
    found = sorted({word for text in texts for word in text.split()})
    return np.array(
        [
            *found,
            *(word.upper() for word in found[::7]),
            *(f'"{word}"' for word in found[::31]),
            *map(str, range(1700, 2020, 3)),
            "naïve",
            "Zürich",
            "東京",
        ],
        dtype=object,
    )


def write_table(path, pairs, vocabulary, seed):
    """Write a table, and give its questions."""
    rng, questions = np.random.default_rng(seed), []
    with open(path, "w", encoding="utf-8") as file:
        for start in range(0, pairs, CANDIDATES):
            question = f"{' '.join(rng.choice(vocabulary, rng.integers(4, 13)))} {start}".lower()
            questions.append(question)
            for _ in range(min(CANDIDATES, pairs - start)):
                sentence = " ".join(rng.choice(vocabulary, rng.integers(3, 45)))
                label = 4 if rng.random() < 1 / 350 else rng.integers(1, 4)
                file.write(f"{question}\t{sentence}\t{label}\n")
    return questions


def main(out, pairs):
    """Write everything."""
    out.mkdir(parents=True, exist_ok=True)
    vocabulary = words()
    write_table(out / "train.tsv", pairs, vocabulary, 0)
    questions = write_table(out / "dev.tsv", 20 * CANDIDATES, vocabulary, 1)
    for split, some in (("dev", questions[::2]), ("test", questions[1::2])):
        with gzip.open(out / f"unique.{split}.gz", "wt", encoding="utf-8") as file:
            file.writelines(question + "\n" for question in some)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
