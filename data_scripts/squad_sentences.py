#!/usr/bin/env python3
"""SQuAD 1.1's questions, each with the one sentence that holds its answer (Du et al. 2017), beside
a collection of all these sentences to find it in.

    python data_scripts/squad_sentences.py --out data/squad_sentences
    python data_scripts/squad_sentences.py --out data/squad_sentences --archive FOLDER

Writes documents.jsonl, a sentence a document; {train,dev,test}.questions.jsonl, whose only answer
is that sentence; train.documents.jsonl, the sentences of the training questions; and stats.json
with counts and SHA-256 digests. `wqa index` and `wqa retrieve` make candidates of them, of which
the question's own sentence is the correct one.

Without ``--archive`` the release's test and dev are fetched, of which the published figures are.
``--archive`` takes a folder of src-NAME.txt and tgt-NAME.txt, plain or .gz, for at least one of the
NAMEs train, test and dev of the release, which is lower-cased and tokenized: line n of tgt-NAME.txt
is a question, which line n of src-NAME.txt answers. Questions of SQuAD's training set are called
train and test there, all of its development set is called dev. The last questions of the last file,
whose articles follow one another, become the splits dev and test, as many as ``--held-out`` says;
all others train. A question whose sentence belongs to an earlier split joins that.
"""

import re
import sys

from corpus import make_main, numbers, write_open
from releases import lines_of, plain_or_packed
from trecqa import CHARACTERS

from wqa.data import Question
from wqa.data.documents import Document
from wqa.errors import DataError

URL = "https://raw.githubusercontent.com/xinyadu/nqg/master/data/processed/"
#: Names of the release's files, in the order in which their questions are divided.
NAMES = ("train", "test", "dev")
SHA256 = {
    "src-test.txt": "5714e36b9f3ef884f4e109e876f4e507d61f58a1241b4fb0403866dfdeef315d",
    "tgt-test.txt": "e75710df557c2432925c8f2ca17e9b490235ce3c647c857fceaea6c401203a76",
    "src-dev.txt": "d540a569619c0bd68b46f9eb3d59351206bcdd1d15eeed8dc5a4fd4815a0d872",
    "tgt-dev.txt": "68e293bd31cd223ac95ed3090726c8b83041f99984961bbc4164250dac304782",
}
DOWNLOADS = {name: (f"{URL}{name}", digest) for name, digest in SHA256.items()}
SPLITS = ("train", "dev", "test")
#: What CoreNLP writes for brackets and quotation marks.
MARKS = {code.lower(): character for code, character in CHARACTERS.items()}
MARK = re.compile("|".join(map(re.escape, MARKS)))


def read(archive):
    """Return id, question and sentence of each line of the parts of the release that are there."""
    files = {}
    for name in NAMES:
        if not plain_or_packed(archive, f"src-{name}.txt", f"tgt-{name}.txt"):
            continue
        sentences, questions = (_lines(archive, f"{side}-{name}.txt") for side in ("src", "tgt"))
        if len(sentences) != len(questions):
            where, found = archive / f"tgt-{name}.txt", f"{len(questions):,} lines"
            expected = f"{len(sentences):,}, as src-{name}.txt has"
            raise DataError(where, found, expected, "fetch both again")
        ids = [f"{name}-{number}" for number in range(1, len(questions) + 1)]
        files[name] = list(zip(ids, questions, sentences))
    if not files:
        found = "holds none of src-train.txt, src-test.txt and src-dev.txt"
        raise DataError(archive, found, "the release's files, plain or .gz")
    return files


def _lines(archive, name):
    lines = []
    for where, line in lines_of(archive, name):
        text = MARK.sub(lambda match: MARKS[match.group()], line).strip()
        if not text:
            raise DataError(where, "it is empty", "a sentence or a question")
        lines.append(text)
    return lines


def divide(files, sizes):
    """Return the questions of each split, by the rule that the head of this script gives."""
    pairs = [pair for part in files.values() for pair in part]
    last = list(files)[-1]
    if sum(sizes) >= len(files[last]):
        expected = f"more than the {sum(sizes):,} that --held-out takes"
        raise DataError(f"part {last}", f"{len(files[last]):,} questions", expected)
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


def convert(archive, out, held_out=(1500, 3000)):
    """Write the collection and the splits, and return the counts."""
    splits = divide(read(archive), held_out)
    every = [question for questions in splits.values() for question in questions]
    return write_open(out, splits, documents_of(every), documents_of(splits["train"]))


OPTIONS = {
    "--held-out": {
        "type": numbers(2),
        "default": "1500,3000",
        "metavar": "DEV,TEST",
        "help": "numbers of questions of the splits dev and test (default: 1500,3000)",
    }
}
main = make_main(__doc__, convert, DOWNLOADS, OPTIONS)

if __name__ == "__main__":
    sys.exit(main())
