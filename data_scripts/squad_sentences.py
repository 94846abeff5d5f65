#!/usr/bin/env python3
"""SQuAD 1.1's questions, each with the one sentence that holds its answer (Du et al. 2017), beside
a collection of all these sentences to find it in.

    python data_scripts/squad_sentences.py --out data/squad_sentences
    python data_scripts/squad_sentences.py --out data/squad_sentences --archive FOLDER

Writes documents.jsonl, a sentence a document; {train,dev,test}.questions.jsonl, whose only answer
is that sentence; train.documents.jsonl, the sentences of the training questions; and stats.json
with counts and SHA-256 digests. `wqa index` and `wqa retrieve` make candidates of them, of which
the question's own sentence is the correct one.

``--archive`` takes a folder of src-NAME.txt and tgt-NAME.txt, plain or .gz, for at least one of the
NAMEs train, test and dev of the release, which is lower-cased and tokenized: line n of tgt-NAME.txt
is a question, which line n of src-NAME.txt answers. Questions of SQuAD's training set are called
train and test there, all of its development set is called dev. The last questions of the last file,
whose articles follow one another, become the splits dev and test, as many as ``--held-out`` says;
all others train. A question whose sentence belongs to an earlier split joins that.
"""

import interrupts  # noqa: F401 - first, so that an interrupt while the rest is imported is one line

# isort: split
import argparse
import re
import sys

from collection import show, write_collection, write_counts, write_open_questions
from corpus import from_archive, make_parser, refuse_empty, run
from fetching import download

from wqa.data import Question
from wqa.data.documents import Document
from wqa.errors import DataError, shorten
from wqa.io.lines import text_lines

URL = "https://raw.githubusercontent.com/xinyadu/nqg/master/data/processed/"
#: Names of the release's files, in the order in which their questions are divided.
NAMES = ("train", "test", "dev")
SHA256 = {
    "src-dev.txt": "d540a569619c0bd68b46f9eb3d59351206bcdd1d15eeed8dc5a4fd4815a0d872",
    "tgt-dev.txt": "68e293bd31cd223ac95ed3090726c8b83041f99984961bbc4164250dac304782",
    "src-test.txt": "5714e36b9f3ef884f4e109e876f4e507d61f58a1241b4fb0403866dfdeef315d",
    "tgt-test.txt": "e75710df557c2432925c8f2ca17e9b490235ce3c647c857fceaea6c401203a76",
}
SPLITS = ("train", "dev", "test")
#: What CoreNLP writes for brackets and quotation marks.
MARKS = {
    "-lrb-": "(",
    "-rrb-": ")",
    "-lsb-": "[",
    "-rsb-": "]",
    "-lcb-": "{",
    "-rcb-": "}",
    "``": '"',
    "''": '"',
}
MARK = re.compile("|".join(map(re.escape, MARKS)))


def read(archive):
    """Return the questions of each file of the release that is there, with their sentences."""
    files = {}
    for name in NAMES:
        sides = [_file(archive, f"{side}-{name}.txt") for side in ("src", "tgt")]
        if any(sides):
            files[name] = _pairs(archive, name, *sides)
    if not files:
        raise DataError(
            archive,
            "holds none of src-train.txt, src-test.txt and src-dev.txt",
            "the release's files, plain or .gz, beside tgt-train.txt and so on",
        )
    return files


def _file(archive, name):
    for path in (archive / name, archive / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def _pairs(archive, name, source, target):
    """Return the id, question and sentence of each line of two files."""
    for side, path in (("src", source), ("tgt", target)):
        if path is None:
            raise DataError(archive, f"holds no {side}-{name}.txt", "both files of a part")
    sentences, questions = [_lines(path) for path in (source, target)]
    if len(sentences) != len(questions):
        raise DataError(
            target,
            f"{len(questions):,} lines",
            f"{len(sentences):,}, as {source.name} has",
            "fetch both again",
        )
    numbers = range(1, len(questions) + 1)
    return [(f"{name}-{n}", *texts) for n, texts in zip(numbers, zip(questions, sentences))]


def _lines(path):
    lines = []
    for number, line in text_lines(path):
        text = MARK.sub(lambda match: MARKS[match.group()], line).strip()
        if not text:
            raise DataError(f"{path}, line {number}", "it is empty", "a sentence or a question")
        lines.append(text)
    return lines


def divide(files, sizes):
    """Return the questions of each split, by the rule that the head of this script gives."""
    pairs = [pair for part in files.values() for pair in part]
    last = list(files)[-1]
    if sum(sizes) >= len(files[last]):
        raise DataError(
            f"part {last}",
            f"{len(files[last]):,} questions",
            f"more than the {sum(sizes):,} that --held-out takes",
            "give --held-out smaller numbers",
        )
    starts = {"train": 0, "dev": len(pairs) - sum(sizes), "test": len(pairs) - sizes[1]}
    splits = {split: [] for split in SPLITS}
    split_of = {}
    for index, (key, question, sentence) in enumerate(pairs):
        split = [name for name in SPLITS if starts[name] <= index][-1]
        split = split_of.setdefault(sentence, split)
        splits[split].append(Question(key, question, (), (sentence,)))
    return splits


def documents_of(questions):
    """Yield the sentences of questions, each once, as documents with the first question's id."""
    seen = set()
    for question in questions:
        [sentence] = question.answers
        if sentence not in seen:
            seen.add(sentence)
            yield Document(question.id, sentence)


def write(archive, out, sizes):
    """Write the collection, the splits and the counts, and return the counts."""
    splits = divide(read(archive), sizes)
    for split, questions in splits.items():  # all are read before one is written
        refuse_empty(split, len(questions))
    every = [question for questions in splits.values() for question in questions]
    stats = {
        "documents": write_collection(out, documents_of(every)),
        "train documents": write_collection(
            out, documents_of(splits["train"]), "train.documents.jsonl"
        ),
    }
    for split, questions in splits.items():
        stats[split] = write_open_questions(out, split, questions)
    write_counts(out, stats)
    return stats


def fetch(folder):
    """Download the release's files and return their folder."""
    for name in NAMES:
        for side in ("src", "tgt"):
            file = f"{side}-{name}.txt"
            download(f"{URL}{file}", folder / file, SHA256.get(file, ""))
    return folder


def numbers_of_questions(text):
    """Return the numbers of questions of dev and test."""
    sizes = [int(part) for part in text.split(",") if part.strip().isdigit()]
    if len(sizes) != 2 or text.count(",") != 1 or not all(sizes):
        raise argparse.ArgumentTypeError(f"{shorten(text)}; expected two numbers, as in 1500,3000")
    return sizes


def main(arguments=None):
    """Run the command line."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--held-out",
        type=numbers_of_questions,
        default=[1500, 3000],
        metavar="DEV,TEST",
        help="numbers of questions of the splits dev and test (default: 1500,3000)",
    )
    options = parser.parse_args(arguments)

    def convert(archive, out):
        return write(archive, out, options.held_out)

    return run(lambda: from_archive(options, fetch, convert), options.out, show)


if __name__ == "__main__":
    sys.exit(main())
