#!/usr/bin/env python3
"""Corpora of text to documents as paragraphs of sentences, for pre-training (MSPP, section 3.4).

    python data_scripts/paragraphs.py wikipedia --out data/wikipedia --archive EXTRACTS
    python data_scripts/paragraphs.py bookcorpus --out data/books --archive books1.tar.gz
    python data_scripts/paragraphs.py openwebtext --out data/web --archive openwebtext.tar.xz
    python data_scripts/paragraphs.py ccnews --out data/ccnews --archive FOLDER
    python data_scripts/paragraphs.py squad --out data/squad --archive FOLDER --held-out 2
    python data_scripts/paragraphs.py wikitext --out data/wikitext --archive FOLDER
    python data_scripts/paragraphs.py selqa --out data/selqa --archive FOLDER
    python data_scripts/paragraphs.py wikiqa --out data/wikiqa_documents --archive WikiQACorpus.zip

Writes train.jsonl and stats.json with the counts. ``--held-out N`` writes N documents to dev.jsonl:
those whose ids have the smallest SHA-256.

``--archive`` takes a file, a tar or a folder, also in one another. A text file (.txt) is one
document; a file of lines holds many: JSON objects with a text (.json, .jsonl), those of
WikiExtractor (wiki_00, by its option --json) and of WikiText (wiki.test.raw).
Any of them may be packed (.gz, .bz2, .xz). Files of other kinds, blank documents and text files
that are not UTF-8 are counted and left out. Paragraphs of bookcorpus and openwebtext end at blank
lines, those of wikipedia, ccnews and wikitext at each line end; a line that repeats the title is
left out. The documents of squad are SQuAD's articles. Those of selqa are articles whose paragraphs
are the sections that SelQA asks about, those of wikiqa the documents of WikiQA's training
questions, a paragraph each.

Where the corpus does not have sentences apart, they are those of sentencex. A large corpus is best
converted in parts, side by side, into folders of their own.
All lengths are kept: mspp_examples.py leaves short ones out.
"""

import collections
import hashlib
import heapq
import re
import sys

from corpus import make_main, open_splits, opened
from paragraph_files import FIGURES, ParagraphDocument, count, to_line
from releases import note
from selqa import read as read_selqa
from squad_open import DOWNLOADS as SQUAD
from squad_open import read as read_squad
from texts import read_texts
from wikiqa import DOWNLOADS as WIKIQA
from wikiqa import rows_of, sentences_of

from wqa.data.sentences import SentenceSplitter
from wqa.errors import DataError, OptionError, check_range
from wqa.io.progress import with_bar

#: What ends a paragraph, by corpus.
SEPARATORS = {
    **dict.fromkeys(("wikipedia", "ccnews", "wikitext"), re.compile(r"\n")),
    **dict.fromkeys(("bookcorpus", "openwebtext"), re.compile(r"\n[^\S\n]*\n")),
}
#: Downloads by corpus, of those that have one.
DOWNLOADS = {"squad": SQUAD, "wikiqa": WIKIQA}
_SPACE = re.compile(r"\s+")
#: Most documents that are held out: they are in memory until the end.
MOST_HELD_OUT = 100_000


def sentences(splitter, text):
    """Return the sentences of a paragraph, each with single spaces."""
    text = _SPACE.sub(" ", text).strip()
    found = [text[start:end].strip() for start, end in splitter.split(text)]
    return tuple(filter(None, found))


def documents_of_texts(corpus, archive, left_out):
    """Yield the documents of a corpus of texts; ids are their numbers and the text's digests."""
    splitter = SentenceSplitter()
    number = 0
    for title, text in read_texts(archive, left_out):
        title = title.strip()
        parts = SEPARATORS[corpus].split(text.replace("\r\n", "\n"))
        kept = (sentences(splitter, part) for part in parts if part.strip() not in ("", title))
        paragraphs = tuple(filter(None, kept))
        if not paragraphs:
            left_out["without a paragraph"] += 1
            continue
        number += 1
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()[:8]  # parts number from 1 each
        yield ParagraphDocument(f"{corpus}-{number}-{digest}", paragraphs)


def documents_of_squad(archive):
    """Yield the articles of SQuAD; ids are their titles."""
    splitter = SentenceSplitter()
    for part in read_squad(archive).values():
        for article in part:
            name = _SPACE.sub("_", article.title)
            paragraphs = tuple(sentences(splitter, text) for text in article.texts)
            yield ParagraphDocument(name, paragraphs)


def documents_of_wikiqa(archive):
    """Yield the documents of WikiQA's training questions, each of one paragraph."""
    for name, paragraph in sentences_of(rows_of(archive, "train")).items():
        if paragraph:
            yield ParagraphDocument(_SPACE.sub("_", name), (paragraph,))


def documents_of_selqa(archive):
    """Yield the articles of SelQA; ids are their titles, paragraphs the sections with questions.

    ``archive`` is a folder of selqa-ass-{train,dev,test}.json, plain or .gz, or one such file.
    """
    articles = {}
    for entries in read_selqa(archive).values():
        for entry in entries:
            sentences = tuple(filter(None, entry.sentences))
            if sentences:
                articles.setdefault(entry.article, {})[entry.section] = sentences
    for title, sections in articles.items():
        yield ParagraphDocument(_SPACE.sub("_", title), tuple(sections.values()))


#: Corpora that have their paragraphs apart.
WITH_PARAGRAPHS = {
    "squad": documents_of_squad,
    "selqa": documents_of_selqa,
    "wikiqa": documents_of_wikiqa,
}


def divided(documents, held_out):
    """Yield a split and a document: those of the smallest SHA-256 of ids come last, and are dev."""
    heap = []
    for document in documents:
        digest = int(hashlib.sha256(document.id.encode("utf-8")).hexdigest(), 16)
        heapq.heappush(heap, (-digest, document))
        if len(heap) > held_out:
            yield "train", heapq.heappop(heap)[1]
    for _, document in sorted(heap, reverse=True):
        yield "dev", document


def convert(archive, out, corpus, held_out):
    """Write the splits of a corpus, and return the counts."""
    check_range("--held-out", held_out, 0, MOST_HELD_OUT)
    if corpus not in DOWNLOADS and not archive:
        expected = "a file, a tar or a folder of its texts"
        raise OptionError("--archive", f"none for {corpus}", expected)
    left_out = collections.Counter()
    splits = ["train", "dev"] if held_out else ["train"]
    counts = {split: collections.Counter() for split in splits}
    with opened(archive, DOWNLOADS.get(corpus)) as source, open_splits(out, splits) as files:
        if corpus in WITH_PARAGRAPHS:
            documents = WITH_PARAGRAPHS[corpus](source)
        else:
            documents = documents_of_texts(corpus, source, left_out)
        documents = with_bar(documents, None, "documents", True, "document")
        for split, document in divided(documents, held_out):
            files[split].write(to_line(document) + "\n")
            count(document, counts[split])
        if not counts["train"]["documents"]:
            found = f"no document beside {held_out} held-out ones"
            raise DataError("the corpus", found, hint="check the archive, or lower --held-out")
    stats = {split: {name: counts[split][name] for name in FIGURES} for split in splits}
    stats["left_out"] = dict(left_out)
    if left_out:
        parts = [f"{number:,} {reason}" for reason, number in sorted(left_out.items())]
        note("left out: " + ", ".join(parts))
    return stats


HELD_OUT_HELP = "write N documents to dev.jsonl"
OPTIONS = {
    "corpus": {"choices": (*SEPARATORS, *WITH_PARAGRAPHS)},
    "--held-out": {"type": int, "default": 0, "metavar": "N", "help": HELD_OUT_HELP},
}
main = make_main(__doc__, convert, options=OPTIONS)

if __name__ == "__main__":
    sys.exit(main())
