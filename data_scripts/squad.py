#!/usr/bin/env python3
"""SQuAD 2.0 (Rajpurkar et al. 2018) as answer sentence selection: the SQuAD-sent of Bonadiman and
Moschitti 2020 (Cosinet, section 5.1).

    python data_scripts/squad.py --out data/squad
    python data_scripts/squad.py --out data/squad --archive FOLDER
    python data_scripts/squad.py --out data/squad --archive FOLDER --unanswered

A candidate is a sentence of the question's paragraph, and is correct if it holds a whole annotated
answer span. Questions without an answer are left out, or, with ``--unanswered``, have wrong
candidates only; the paper's Table 2 counts them, and evaluates without them.

SQuAD's test questions are not public. test.jsonl holds its development questions, dev-v2.0; of the
training questions one in ten, drawn by a fixed rule, becomes dev.jsonl and the rest train.jsonl.
Figures on test.jsonl are those that papers give for SQuAD's dev.

``--archive`` takes a folder of train-v2.0.json and dev-v2.0.json, plain or .gz, or one such file
under its own name. The papers split sentences with SpaCy, whose models are no package; this script
splits them with sentencex. Texts keep their case.
"""

import sys
from typing import List, NamedTuple, Tuple

from corpus import make_main, write_public
from releases import expecting, find_files, json_of

from wqa.data import Candidate, Question
from wqa.data.sentences import SentenceSplitter
from wqa.errors import DataError, shorten
from wqa.io.lines import UniqueIds, filled_text, text_of

URL = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
DOWNLOADS = {f"{name}.json": (f"{URL}{name}.json", "") for name in ("train-v2.0", "dev-v2.0")}
NAMES = r"(train|dev)-v2\.0.*\.json(?:\.gz)?"
#: One in so many training questions is a development question.
DEV_SHARE = 10


class Entry(NamedTuple):
    """A question of a paragraph."""

    id: str
    question: str
    #: Start and text of each annotated answer; none where the paragraph does not answer it.
    spans: List[Tuple[int, str]]


def read_articles(path):
    """Return the title and the paragraphs of each article of a file, as its JSON has them."""
    with expecting(path, "a file of SQuAD"):
        articles = json_of(path)["data"]
        if articles and "paragraphs" not in articles[0] and "context" in articles[0]:
            raise ValueError("questions one a record, as Hugging Face's datasets have them")
        return [(article.get("title"), list(article["paragraphs"])) for article in articles]


def read_paragraph(paragraph, where, unanswered=False):
    """Return the text of a paragraph and its questions, those without an answer by option."""
    with expecting(where, "context and qas as in SQuAD"):
        text = text_of(paragraph["context"], "context", where)
        entries = []
        for entry in paragraph["qas"]:
            if unanswered or not entry.get("is_impossible"):
                entries.append(_entry(entry, text, where))
        return text, entries


def _entry(entry, text, where):
    spans = []
    for answer in [] if entry.get("is_impossible") else entry["answers"]:
        start, span = answer["answer_start"], text_of(answer["text"], "an answer", where)
        if type(start) is not int or start < 0 or not span or not text.startswith(span, start):
            found = f"answer {shorten(span)} does not stand at {shorten(start)}"
            raise DataError(where, found, "the official file")
        spans.append((start, span))
    key = filled_text(entry["id"], "id", where)
    return Entry(key, text_of(entry["question"], "question", where).strip(), spans)


def sentences(splitter, paragraph, answers):
    """Return start and end of each sentence; sentences that share an answer are joined."""
    bounds = []
    for start, end in splitter.split(paragraph):
        inside = [begin < start < begin + len(text) for begin, text in answers]
        if bounds and any(inside):
            bounds[-1] = (bounds[-1][0], end)
        else:
            bounds.append((start, end))
    return bounds


def questions_of(path, unanswered=False):
    """Yield the questions of a file, those without an answer by option."""
    splitter, ids = SentenceSplitter(), UniqueIds("question")
    paragraphs = [paragraph for _, part in read_articles(path) for paragraph in part]
    for number, paragraph in enumerate(paragraphs, 1):
        where = f"{path}, paragraph {number}"
        text, entries = read_paragraph(paragraph, where, unanswered)
        bounds = sentences(splitter, text, [span for entry in entries for span in entry.spans])
        for entry in entries:
            ids.add(entry.id, where)
            question = Question(entry.id, entry.question, _candidates(text, bounds, entry.spans))
            is_unanswered = unanswered and not entry.spans and question.candidates
            if question.question and (1 in question.labels or is_unanswered):
                yield question


def _candidates(text, bounds, spans):
    """Sentences of a paragraph; those with a whole answer are correct."""
    candidates = []
    for start, end in bounds:
        held = [start <= begin and begin + len(answer) <= end for begin, answer in spans]
        sentence = text[start:end].strip()
        if sentence:
            candidates.append(Candidate(sentence, int(any(held))))
    return tuple(candidates)


def convert(archive, out, unanswered=False):
    """Write the splits of the files in the archive, and return their counts."""
    files = find_files(archive, NAMES, "train-v2.0.json or dev-v2.0.json, plain or .gz")
    questions = {split: questions_of(path, unanswered) for split, path in files.items()}
    return write_public(out, questions, DEV_SHARE)


OPTIONS = {"--unanswered": {"action": "store_true", "help": "keep the questions without an answer"}}
main = make_main(__doc__, convert, DOWNLOADS, OPTIONS)

if __name__ == "__main__":
    sys.exit(main())
