#!/usr/bin/env python3
"""Natural Questions (Kwiatkowski et al. 2019) as paragraph selection: the NQ-LA of Bonadiman and
Moschitti 2020 (Cosinet, section 5.1).

    python data_scripts/nq_la.py --out data/nq_la
    python data_scripts/nq_la.py --out data/nq_la --archive FOLDER

A candidate is a top-level paragraph of the question's page, in the order of the page; tables and
lists are left out. It is correct if an annotator chose it as the long answer: one annotator of a
training question, any of the five of a development question. Questions that no annotator answered
stay, with wrong candidates only. Questions whose long answers are all tables or lists are left out,
and so are pages without a paragraph; a note counts both.

The official development questions become test.jsonl; of the training questions one in fifty, by a
digest of its id, becomes dev.jsonl and the rest train.jsonl. Memory holds one question at a time.

``--archive`` takes a folder of simplified-nq-train.jsonl and nq-dev-all.jsonl, plain or .gz, or one
such file under its own name. The simplified form and the original one, in which the development
questions are published, are told apart line by line. The texts of a paragraph are its tokens,
joined by spaces.
"""

import collections
import re
import sys

from corpus import make_main, write_public
from releases import expecting, find_files, id_of, note

from wqa.data import Candidate, Question, parse_json
from wqa.errors import shorten
from wqa.io.lines import UniqueIds, text_lines, text_of
from wqa.io.progress import with_bar

URL = "https://storage.googleapis.com/natural_questions/v1.0-simplified/"
FILES = {"train": "simplified-nq-train.jsonl", "dev": "nq-dev-all.jsonl"}
DOWNLOADS = {f"{name}.gz": (f"{URL}{name}.gz", "") for name in FILES.values()}
#: Google's browser page puts the folder before the name: v1.0-simplified_...
NAMES = r".*(simplified-nq-train\.jsonl|nq-dev-all\.jsonl)(?:\.gz)?"
#: One in so many training questions is a development question.
DEV_SHARE = 50
#: A tag among the tokens of the simplified form, where blanks are underscores.
_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9]*(_[^>]*)?>")
_PARAGRAPH = "<p>"
#: Why questions are left out, as the notes say.
ELSEWHERE, NO_PARAGRAPH = "whose long answer is no paragraph", "on pages without a paragraph"
NO_QUESTION = "without text"


def questions_of(path, left_out):
    """Yield the questions of a file, and count those that are left out."""
    ids = UniqueIds("question")
    for number, line in with_bar(text_lines(path), None, path.name, True, "line"):
        where = f"{path}, line {number}"
        question, reason = read_example(line, where)
        ids.add(question.id, where, number)
        if reason:
            left_out[reason] += 1
        else:
            yield question


def read_example(line, where):
    """Return the question of a line, and why it is left out, empty where it is not."""
    with expecting(where, "an example of Natural Questions, simplified or original"):
        fields = parse_json(line)
        key = id_of(fields["example_id"], where)
        text = text_of(fields["question_text"], "question_text", where).strip()
        tokens, are_tags = _tokens(fields)
        spans = [_span(span, len(tokens)) for span in fields["long_answer_candidates"]]
        answers = _answers(fields["annotations"], spans)
        candidates = []
        for index, (start, end) in enumerate(spans):
            is_top = fields["long_answer_candidates"][index]["top_level"]
            if type(is_top) is not bool:
                raise TypeError(f"top_level is {shorten(is_top)}")
            if is_top and tokens[start].lower() == _PARAGRAPH:
                words = zip(tokens[start:end], are_tags[start:end])
                paragraph = " ".join(word for word, is_tag in words if not is_tag).strip()
                if paragraph:
                    text_of(paragraph, "a paragraph", where)
                    candidates.append(Candidate(paragraph, int(index in answers)))
    question = Question(key, text, tuple(candidates))
    return question, _reason(question, answers)


def _reason(question, answers):
    """Why a question is left out, empty where it is not."""
    if not question.question:
        return NO_QUESTION
    if answers and 1 not in question.labels:
        return ELSEWHERE
    return "" if question.candidates else NO_PARAGRAPH


def _tokens(fields):
    """Return the tokens of a page, and which of them are tags."""
    if "document_text" in fields:
        tokens = fields["document_text"].split(" ")
        return tokens, [_TAG.fullmatch(token) is not None for token in tokens]
    tokens, are_tags = [], []
    for entry in fields["document_tokens"]:
        if not isinstance(entry["token"], str) or type(entry["html_token"]) is not bool:
            raise TypeError(f"a token is {shorten(entry)}")
        tokens.append(entry["token"])
        are_tags.append(entry["html_token"])
    return tokens, are_tags


def _span(span, count):
    start, end = span["start_token"], span["end_token"]
    if type(start) is not int or type(end) is not int or not 0 <= start < end <= count:
        raise ValueError(f"a span from token {shorten(start)} to {shorten(end)} of {count}")
    return start, end


def _answers(annotations, spans):
    """Return the indices of the candidates that annotators chose."""
    if not annotations:
        raise ValueError("no annotation")
    answers = set()
    for annotation in annotations:
        answer = annotation["long_answer"]
        index = answer["candidate_index"]
        if type(index) is not int or not -1 <= index < len(spans):
            raise ValueError(f"candidate {shorten(index)} of {len(spans)}")
        if index >= 0:
            if (answer["start_token"], answer["end_token"]) != spans[index]:
                raise ValueError(f"the long answer is not the span of candidate {index}")
            answers.add(index)
    return answers


def convert(archive, out):
    """Write the splits of the files in the archive, and return their counts."""
    found = find_files(archive, NAMES, " or ".join(FILES.values()) + ", plain or .gz")
    files = {split: found[name] for split, name in FILES.items() if name in found}
    left_out = {split: collections.Counter() for split in files}
    questions = {split: questions_of(path, left_out[split]) for split, path in files.items()}
    stats = write_public(out, questions, DEV_SHARE)
    for split, counts in left_out.items():
        for reason, count in sorted(counts.items()):
            note(f"{files[split].name}: {count:,} questions {reason} are left out")
    return stats


main = make_main(__doc__, convert, DOWNLOADS)

if __name__ == "__main__":
    sys.exit(main())
