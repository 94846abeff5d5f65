#!/usr/bin/env python3
"""Examples of Multi-Sentences in Paragraph Prediction (Di Liello et al. 2022, section 3.4).

    python data_scripts/mspp_examples.py --train data/squad_paragraphs/train.jsonl \\
        --dev data/squad_paragraphs/dev.jsonl --out data/squad_mspp

Reads documents as paragraphs of sentences, files or folders of paragraphs.py, and writes
train.jsonl, dev.jsonl and stats.json with the counts. A question is a premise, and its candidates
are spans of one or two sentences: one of the premise's paragraph (label 1), ``--hard`` of other
paragraphs of its document and ``--easy`` of other documents (label 0). The id of an example is its
document's, and its number there.

Where the paper leaves open how they are drawn, the released code of its authors decides:

- The positive comes after the premise, and each paragraph with two sentences gives ``--draws``
  examples.
- Hard negatives come from up to four other paragraphs of the document, drawn at random. A sentence
  is part of one of them at most. Those that the document does not have are easy ones.
- Sentences of fewer than 20 characters, paragraphs of fewer than 60 and documents of fewer than 200
  are left out.

A negative never shares the premise's paragraph, by the definition of the labels in section 3.4. The
authors' code may label a span before the premise as negative.

Easy negatives come from the 10,000 documents that are read together, so that memory is bounded.
"""

import collections
import itertools
import pathlib
import sys

import numpy as np
from corpus import make_parser, run, write_each
from paragraph_files import keep_long, note_left_out, paragraph_files, read_paragraphs

from wqa.data import Candidate, Question
from wqa.errors import DataError, check_range
from wqa.io.progress import with_bar

#: Documents that are in memory together.
DOCUMENTS = 10_000
#: Most other paragraphs of a document that hard negatives come from, and sentences of a candidate.
PARAGRAPHS, SENTENCES = 4, 2


def draw_example(documents, document, paragraph, hard, easy, rng):
    """Draw the premise of a paragraph with two sentences or more, and its labelled candidates."""
    own = documents[document].paragraphs
    premise, positive = premise_and_positive(own[paragraph], rng)
    negatives = hard_negatives(own, paragraph, hard, rng)
    negatives += easy_negatives(documents, document, hard + easy - len(negatives), rng)
    candidates = [Candidate(positive, 1)] + [Candidate(text, 0) for text in negatives]
    return premise, tuple(candidates[index] for index in rng.permutation(len(candidates)))


def premise_and_positive(sentences, rng):
    """A sentence, and a span that comes after it in its paragraph."""
    # The authors pass over paragraphs that are shorter than the lengths that they draw. Here
    # lengths are drawn among those that fit, so that every paragraph of two sentences is used.
    length = int(rng.integers(1, min(SENTENCES, len(sentences) - 1) + 1))
    first = int(rng.integers(len(sentences) - length))
    start = int(rng.integers(first + 1, len(sentences) - length + 1))
    return sentences[first], " ".join(sentences[start : start + length])


def hard_negatives(paragraphs, paragraph, count, rng):
    """Spans of other paragraphs of a document, which share no sentence; fewer in short ones."""
    places = []
    for other in others(len(paragraphs), paragraph, PARAGRAPHS, rng):
        places += [(other, index) for index in range(len(paragraphs[other]))]
    starts = rng.choice(len(places), min(count, len(places)), replace=False) if places else []
    starts = [places[start] for start in starts]
    spans = []
    for other, start in starts:
        ends = [index for number, index in starts if number == other and index > start]
        end = min(start + int(rng.integers(1, SENTENCES + 1)), *ends, len(paragraphs[other]))
        spans.append(" ".join(paragraphs[other][start:end]))
    return spans


def easy_negatives(documents, document, count, rng):
    """Spans of other documents, each of another one if there are as many."""
    chosen = others(len(documents), document, count, rng)
    if count and not len(chosen):
        found = "no other document for its easy negatives"
        raise DataError(f"document {documents[document].id}", found, "at least two documents")
    spans = []
    for index in range(count):
        paragraphs = documents[chosen[index % len(chosen)]].paragraphs
        sentences = paragraphs[rng.integers(len(paragraphs))]
        length = int(rng.integers(1, min(SENTENCES, len(sentences)) + 1))
        start = int(rng.integers(len(sentences) - length + 1))
        spans.append(" ".join(sentences[start : start + length]))
    return spans


def others(total, index, most, rng):
    """Different numbers below ``total`` but for ``index``, as many as there are up to ``most``."""
    drawn = rng.choice(total - 1, min(most, total - 1), replace=False)
    return drawn + (drawn >= index)


def examples_of(documents, count, options, rng):
    """Yield the examples of the first documents of those that are in memory together."""
    for index, document in enumerate(documents[:count]):
        number = 0
        for paragraph, sentences in enumerate(document.paragraphs):
            for _ in range(options.draws if len(sentences) > 1 else 0):
                number += 1
                drawn = draw_example(documents, index, paragraph, options.hard, options.easy, rng)
                yield Question(f"{document.id}-{number}", *drawn)


def examples(source, options):
    """Yield the examples of a source, a file or a folder of documents."""
    rng, counts = np.random.default_rng(options.seed), collections.Counter()
    whole = itertools.chain.from_iterable(map(read_paragraphs, paragraph_files(source)))
    documents = keep_long(whole, counts)
    before = []
    while True:
        new = list(itertools.islice(documents, DOCUMENTS))
        if not new:
            break
        together = new if len(new) > 1 else new + before  # which have the last one's negatives
        yield from with_bar(examples_of(together, len(new), options, rng), None, "examples", True)
        before = new
    note_left_out(counts, source)


def main(arguments=None):
    """Run the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--train", required=True, type=pathlib.Path, help="file or folder")
    parser.add_argument("--dev", type=pathlib.Path, help="file or folder of held-out documents")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write to")
    parser.add_argument("--hard", type=int, default=2, help="hard negatives, k_2 (default: 2)")
    parser.add_argument("--easy", type=int, default=2, help="easy negatives, k_3 (default: 2)")
    parser.add_argument("--draws", type=int, default=1, help="examples of a paragraph (default: 1)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    def work():
        for name, least in (("hard", 0), ("easy", 0), ("draws", 1), ("seed", 0)):
            check_range(f"--{name}", getattr(options, name), least)
        sources = {"train": options.train, "dev": options.dev}
        splits = {split: examples(path, options) for split, path in sources.items() if path}
        return write_each(options.out, splits)

    return run(work, options.out)


if __name__ == "__main__":
    sys.exit(main())
