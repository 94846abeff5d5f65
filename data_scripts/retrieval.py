#!/usr/bin/env python3
"""Any retrieval collection, such as GPD or IAS2, to canonical JSONL, one split at a time,
candidates as the engine ranked them.

    python data_scripts/retrieval.py --out data/gpd --split dev --questions questions.tsv
    --sentences sentences.tsv \\
        --run run.txt --qrels qrels.txt --top-k 100
    python data_scripts/retrieval.py --out data/gpd --split train --table pairs.tsv

The first form takes two tables of ID, tab, TEXT, a TREC run, whose order and document ids the
candidates keep, and TREC judgements; a sentence without a judgement counts as wrong, or stays
without a label with ``--unjudged unlabelled``. The second takes lines of QUESTION, tab, SENTENCE,
or QUESTION, tab, SENTENCE, tab, LABEL (0 or 1), in the order of retrieval; lines of a question may
stand apart. The tables may be .gz. The splits written so far are counted together in stats.json.
"""

import interrupts  # noqa: F401 - first, so that an interrupt while the rest is imported is one line

# isort: split
import argparse
import pathlib
import sys

from corpus import run, write_split, write_stats

from wqa.data import Candidate, Question, read_json
from wqa.errors import DataError, OptionError, shorten
from wqa.evaluation import read_qrels, read_run
from wqa.evaluation.trec import trec_order
from wqa.io.lines import text_lines

SPLITS = ("train", "dev", "test")
#: Greatest size of a table in bytes, unpacked; its texts are held in memory.
LARGEST_TABLE = 1 << 34


def lines(path, counts, form):
    """Yield the name of each line, for messages, and its columns.

    ``counts`` are the allowed numbers of columns, and ``form`` describes a line.
    """
    for number, line in text_lines(path, largest=LARGEST_TABLE):
        fields = line.rstrip("\r\n").split("\t")
        if len(fields) not in counts:
            raise DataError(f"{path}, line {number}", f"{len(fields)} columns", form)
        yield f"{path}, line {number}", fields


def read_texts(path):
    """Return the texts of a table by id."""
    texts = {}
    for where, (text_id, text) in lines(path, (2,), "ID, tab, TEXT"):
        if text_id in texts:
            raise DataError(where, f"id {shorten(text_id)} stands twice", "each id once")
        texts[text_id] = text
    return texts


def from_run(options):
    """Yield the questions of a TREC run."""
    texts, sentences = read_texts(options.questions), read_texts(options.sentences)
    judged = read_qrels(options.qrels) if options.qrels else {}
    for qid, documents in read_run(options.run).items():
        if not texts.get(qid, "").strip():
            raise DataError(
                options.questions,
                f"no text for question {shorten(qid)} of the run",
                "every question of the run",
            )
        candidates = []
        for document in trec_order(documents)[: options.top_k or None]:
            if document not in sentences:
                raise DataError(
                    options.sentences,
                    f"no text for sentence {shorten(document)}",
                    "every sentence of the run",
                )
            grade = judged.get(qid, {}).get(
                document, 0 if options.qrels and options.unjudged == "wrong" else None
            )
            label = None if grade is None else int(grade > 0)
            candidates.append(Candidate(sentences[document], label, document))
        yield Question(qid, texts[qid], tuple(candidates))


def from_table(options):
    """Yield the questions of a table of pairs."""
    form = "QUESTION, tab, SENTENCE, and perhaps tab, LABEL"
    candidates = {}
    for where, (question, sentence, *labels) in lines(options.table, (2, 3), form):
        if not question.strip():
            raise DataError(where, "an empty question", "text")
        if labels not in ([], ["0"], ["1"]):
            raise DataError(where, f"label {shorten(labels[0])}", "0 or 1")
        label = int(labels[0]) if labels else None
        candidates.setdefault(question, []).append(Candidate(sentence, label))
    for number, question in enumerate(candidates, 1):
        kept = candidates[question][: options.top_k or None]
        yield Question(f"{options.split}-{number}", question, tuple(kept))


def check_inputs(options):
    """Refuse options that name neither a table alone nor a whole collection."""
    names = ("table", "questions", "sentences", "run", "qrels")
    inputs = [name for name in names if getattr(options, name)]
    is_collection = {"questions", "sentences", "run"} <= set(inputs) and not options.table
    if inputs != ["table"] and not is_collection:
        raise OptionError(
            "arguments",
            ", ".join(f"--{name}" for name in inputs) or "nothing to read",
            "--table, or --questions, --sentences and --run",
        )


def convert(options):
    """Write the split and the counts of all splits so far, and return the split's counts."""
    check_inputs(options)
    if options.top_k < 0:
        raise OptionError("--top-k", options.top_k, "0 (all) or a number of candidates")
    questions = from_table(options) if options.table else from_run(options)
    figures = write_split(options.out, options.split, questions)
    try:
        stats = read_json(options.out / "stats.json")
    except (OSError, ValueError):
        stats = {}
    if not isinstance(stats, dict):
        stats = {}
    stats[options.split] = figures
    write_stats(options.out, {split: stats[split] for split in SPLITS if split in stats})
    return {options.split: figures}


def main(arguments=None):
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write to")
    parser.add_argument("--split", required=True, choices=SPLITS)
    parser.add_argument("--table", help="pairs, one a line")
    parser.add_argument("--questions", help="ID, tab, TEXT of each question")
    parser.add_argument("--sentences", help="ID, tab, TEXT of each sentence")
    parser.add_argument("--run", help="TREC run")
    parser.add_argument("--qrels", help="TREC judgements")
    parser.add_argument(
        "--unjudged", default="wrong", choices=("wrong", "unlabelled"), help="(default: wrong)"
    )
    parser.add_argument(
        "--top-k", type=int, default=0, metavar="K", help="candidates to keep a question, 0: all"
    )
    options = parser.parse_args(arguments)
    return run(lambda: convert(options), options.out)


if __name__ == "__main__":
    sys.exit(main())
