"""Documents of the corpora that have their sentences apart: those of WikiQA's training questions,
and the sections of SelQA's articles."""

import re

from selqa import read
from wikiqa import rows_of

from wqa.data import ParagraphDocument

_SPACE = re.compile(r"\s+")


def documents_of_wikiqa(archive):
    """Yield the documents of WikiQA's training questions, each of one paragraph.

    A document of several questions is read once.
    """
    sentences = {}
    for row in rows_of(archive, "train"):
        if row.sentence.strip():
            # By their ids, as several questions may name a document.
            sentences.setdefault(row.document_id, {})[row.sentence_id] = row.sentence.strip()
    for name, found in sentences.items():
        yield ParagraphDocument(_SPACE.sub("_", name), (tuple(found.values()),))


def documents_of_selqa(archive):
    """Yield the articles of SelQA; ids are their titles, paragraphs the sections with questions.

    ``archive`` is a folder of selqa-ass-{train,dev,test}.json, plain or .gz, or one such file.
    """
    articles = {}
    for entries in read(archive).values():
        for entry in entries:
            sentences = tuple(filter(None, entry.sentences))
            if sentences:
                articles.setdefault(entry.article, {})[entry.section] = sentences
    for title, sections in articles.items():
        yield ParagraphDocument(_SPACE.sub("_", title), tuple(sections.values()))
