#!/usr/bin/env python3
"""Any retrieval collection, such as GPD or IAS2, to canonical JSONL, one split at a time,
candidates as the engine ranked them.

    python data_scripts/retrieval.py --out data/gpd --split dev --questions questions.tsv
    --sentences sentences.tsv \\
        --run run.txt --qrels qrels.txt --top-k 100

It takes two tables of ID, tab, TEXT, a TREC run, whose order and document ids the candidates keep,
and TREC judgements; a sentence without a judgement counts as wrong, or stays without a label with
``--unjudged unlabelled``. The tables may be .gz. The splits written so far are counted together in
stats.json. A table of questions and candidates needs no script: `wqa.data.read_questions` reads it.
"""

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


def read_texts(path):
    """Return the texts of a table by id."""
    texts = {}
    for number, line in text_lines(path):
        where, fields = f"{path}, line {number}", line.rstrip("\r\n").split("\t")
        if len(fields) != 2:
            raise DataError(where, f"{len(fields)} columns", "ID, tab, TEXT")
        text_id, text = fields
        if text_id in texts:
            raise DataError(where, f"id {shorten(text_id)} stands twice", "each id once")
        texts[text_id] = text
    return texts


def questions_of(options):
    """Yield the questions of a TREC run."""
    texts, sentences = read_texts(options.questions), read_texts(options.sentences)
    judged = read_qrels(options.qrels) if options.qrels else {}
    unjudged = 0 if options.qrels and options.unjudged == "wrong" else None
    for qid, documents in read_run(options.run).items():
        if not texts.get(qid, "").strip():
            found = f"no text for question {shorten(qid)} of the run"
            raise DataError(options.questions, found, "every question of the run")
        candidates = []
        for document in trec_order(documents)[: options.top_k or None]:
            if document not in sentences:
                found = f"no text for sentence {shorten(document)}"
                raise DataError(options.sentences, found, "every sentence of the run")
            grade = judged.get(qid, {}).get(document, unjudged)
            label = None if grade is None else int(grade > 0)
            candidates.append(Candidate(sentences[document], label, document))
        yield Question(qid, texts[qid], tuple(candidates))


def convert(options):
    """Write the split and the counts of all splits so far, and return the split's counts."""
    if options.top_k < 0:
        raise OptionError("--top-k", options.top_k, "0 (all) or a number of candidates")
    figures = write_split(options.out, options.split, questions_of(options))
    path = options.out / "stats.json"
    stats = {**(read_json(path) if path.exists() else {}), options.split: figures}
    write_stats(options.out, {split: stats[split] for split in SPLITS if split in stats})
    return {options.split: figures}


def main(arguments=None):
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write to")
    parser.add_argument("--split", required=True, choices=SPLITS)
    parser.add_argument("--questions", required=True, help="ID, tab, TEXT of each question")
    parser.add_argument("--sentences", required=True, help="ID, tab, TEXT of each sentence")
    parser.add_argument("--run", required=True, help="TREC run")
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
