"""Documents of the corpora that have their sentences apart: those of WikiQA's training questions,
and the sections of SelQA's articles."""

import re

from squad import read_json
from wikiqa import parse_rows, read_split

from wqa.data import ParagraphDocument
from wqa.errors import DataError, shorten
from wqa.io.lines import text_of

_KEYS = {"article", "section", "candidates"}
_SPACE = re.compile(r"\s+")


def documents_of_wikiqa(archive):
    """Yield the documents of WikiQA's training questions, each of one paragraph.

    A document of several questions is read once.
    """
    sentences = {}
    for row in parse_rows(*read_split(archive, "train")):
        if row.sentence.strip():
            # By their ids, as several questions may name a document.
            sentences.setdefault(row.document_id, {})[row.sentence_id] = row.sentence.strip()
    for name, found in sentences.items():
        yield ParagraphDocument(_SPACE.sub("_", name), (tuple(found.values()),))


def documents_of_selqa(archive):
    """Yield the articles of SelQA; ids are their titles, paragraphs the sections with questions.

    ``archive`` is a folder of selqa-ass-{train,dev,test}.json, plain or .gz, or one such file.
    """
    pattern = "selqa-ass-*.json*"
    files = sorted(archive.glob(pattern)) if archive.is_dir() else [archive]
    if not files:
        raise DataError(archive, f"holds no file {pattern}", "SelQA's files, plain or .gz")
    articles = {}
    for path in files:
        for title, section, sentences in _read_selqa(path):
            articles.setdefault(title, {})[section] = sentences
    for title, sections in articles.items():
        yield ParagraphDocument(_SPACE.sub("_", title), tuple(sections.values()))


def _read_selqa(path):
    """Yield title, section and sentences of each question of a file."""
    questions = read_json(path, list, "a file of SelQA")
    for number, question in enumerate(questions, 1):
        where = f"{path}, question {number}"
        if not isinstance(question, dict) or not set(question) >= _KEYS:
            expected = "an object of article, section and candidates"
            raise DataError(where, shorten(question), expected)
        candidates = question["candidates"]
        if not isinstance(candidates, list):
            raise DataError(where, f"candidates is {shorten(candidates)}", "a list of sentences")
        texts = [text_of(text, "candidate", where).strip() for text in candidates]
        sentences = tuple(filter(None, texts))
        if sentences:
            title, section = (text_of(question[key], key, where) for key in ("article", "section"))
            yield title, section, sentences
