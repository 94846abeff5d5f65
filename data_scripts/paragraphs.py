#!/usr/bin/env python3
"""Corpora of text to documents as paragraphs of sentences, for pre-training (MSPP, section 3.4).

    python data_scripts/paragraphs.py wikipedia --out data/wikipedia --archive EXTRACTS --files 16
    python data_scripts/paragraphs.py bookcorpus --out data/books --archive books1.tar.gz
    python data_scripts/paragraphs.py openwebtext --out data/web --archive openwebtext.tar.xz
    python data_scripts/paragraphs.py ccnews --out data/ccnews --archive FOLDER
    python data_scripts/paragraphs.py squad --out data/squad --archive FOLDER --held-out 2
    python data_scripts/paragraphs.py wikitext --out data/wikitext --archive FOLDER
    python data_scripts/paragraphs.py selqa --out data/selqa --archive FOLDER
    python data_scripts/paragraphs.py wikiqa --out data/wikiqa_documents --archive WikiQACorpus.zip

Writes train.jsonl, or N files in the folder train with ``--files N``, and stats.json with the
counts. ``--held-out N`` writes N documents to dev.jsonl: those whose ids have the smallest SHA-256.

``--archive`` takes a file, a tar or a folder, also in one another. A text file (.txt) is one
document; a file of lines holds many: JSON objects with a text (.json, .jsonl), those of
WikiExtractor (wiki_00, which may have <doc> and </doc> instead) and of WikiText (wiki.test.raw).
Any of them may be packed (.gz, .bz2, .xz). Files of other kinds, blank documents and text files
that are not UTF-8 are counted and left out. Paragraphs of bookcorpus and openwebtext end at blank
lines, those of wikipedia, ccnews and wikitext at each line end; a line that repeats the title is
left out. The documents of squad are SQuAD's articles. Those of selqa are articles whose paragraphs
are the sections that SelQA asks about, those of wikiqa the documents of WikiQA's training
questions, a paragraph each.

Where the corpus does not have sentences apart, they are those of pysbd, at 200,000 characters a
second or so; a large corpus is best converted in parts, side by side, into folders of their own.
All lengths are kept: the minima are options of the training.
"""

import interrupts  # noqa: F401 - first, so that an interrupt while the rest is imported is one line

# isort: split
import collections
import contextlib
import dataclasses
import functools
import hashlib
import heapq
import re
import sys

from collection import write_counts
from corpus import from_archive, make_parser, run
from sections import documents_of_selqa, documents_of_wikiqa
from squad_open import fetch as fetch_squad
from squad_open import find
from squad_open import read as read_squad
from texts import read_texts
from wikiqa import fetch as fetch_wikiqa

from wqa.data import ParagraphDocument
from wqa.data.paragraphs import ParagraphCounts, to_line
from wqa.data.sentences import make_segmenter, pieces
from wqa.errors import DataError, OptionError, StorageError, printable
from wqa.io.files import atomic_writer
from wqa.io.progress import with_bar

#: What ends a paragraph, by corpus.
_LINE, _BLANK_LINE = re.compile(r"\n"), re.compile(r"\n[^\S\n]*\n")
SEPARATORS = {
    "wikipedia": _LINE,
    "bookcorpus": _BLANK_LINE,
    "openwebtext": _BLANK_LINE,
    "ccnews": _LINE,
    "wikitext": _LINE,
}
#: Corpora whose sentences are apart.
SECTIONS = {"selqa": documents_of_selqa, "wikiqa": documents_of_wikiqa}
CORPORA = (*SEPARATORS, "squad", *SECTIONS)
#: Downloads by corpus, of those that have one.
FETCH = {"squad": fetch_squad, "wikiqa": fetch_wikiqa}
_SPACE = re.compile(r"\s+")
#: Most documents that are held out: they are in memory until the end.
MOST_HELD_OUT = 100_000
MOST_FILES = 1000
_FIGURES = ("documents", "paragraphs", "sentences", "characters", "single_paragraphs", "examples")


def sentences(segmenter, text):
    """Return the sentences of a paragraph, each with single spaces."""
    text = _SPACE.sub(" ", text).strip()
    found = []
    for piece in pieces(text):
        found += [span.sent.strip() for span in segmenter.segment(piece)]
    return tuple(filter(None, found))


def documents_of_texts(corpus, archive, left_out):
    """Yield the documents of a corpus of texts; ids are their numbers."""
    segmenter = make_segmenter()
    number = 0
    for title, text in read_texts(archive, left_out):
        title = title.strip()
        paragraphs = []
        for part in SEPARATORS[corpus].split(text.replace("\r\n", "\n")):
            if part.strip() not in ("", title):
                paragraphs.append(sentences(segmenter, part))
        paragraphs = tuple(filter(None, paragraphs))
        if not paragraphs:
            left_out["without a paragraph"] += 1
            continue
        number += 1
        yield ParagraphDocument(f"{corpus}-{number}", paragraphs)


def documents_of_squad(archive):
    """Yield the articles of SQuAD; ids are their titles."""
    segmenter = make_segmenter()
    for part in read_squad(find(archive)).values():
        for article in part:
            name = _SPACE.sub("_", article.title)
            paragraphs = tuple(sentences(segmenter, text) for text in article.texts)
            yield ParagraphDocument(name, paragraphs)


class HeldOut:
    """Keeps the documents whose ids have the smallest SHA-256."""

    def __init__(self, count):
        self._count = count
        self._heap = []

    def exchange(self, document):
        """Take a document, and return those that are not held out: it, an earlier one, or none."""
        digest = int(hashlib.sha256(document.id.encode("utf-8")).hexdigest(), 16)
        # The root of the heap is the greatest digest, as digests are negated.
        entry = (-digest, document)
        if len(self._heap) < self._count:
            heapq.heappush(self._heap, entry)
            return []
        if not self._heap:
            return [document]
        return [heapq.heappushpop(self._heap, entry)[1]]

    def documents(self):
        """Return the documents that are held out, those of the smallest digests first."""
        return [document for _, document in sorted(self._heap, reverse=True)]


class Files:
    """Open files of a split, to which documents are dealt out in turn."""

    def __init__(self, stack, paths):
        self._files = [stack.enter_context(atomic_writer(path)) for path in paths]
        self.counts = ParagraphCounts()

    def write(self, document):
        """Write a document to the next file."""
        file = self._files[self.counts.documents % len(self._files)]
        file.write(to_line(document) + "\n")
        self.counts.add(document)

    def figures(self):
        """Return the counts."""
        counts = dataclasses.asdict(self.counts)
        return {name: counts[name] for name in _FIGURES}


def paths_of(out, count):
    """Return the files of the training documents: one, or several in a folder of their own."""
    if count == 1:
        return [out / "train.jsonl"]
    paths = [out / "train" / f"{number:05}.jsonl" for number in range(count)]
    others = {path.name for path in (out / "train").glob("[!.]*.jsonl*")} - {p.name for p in paths}
    if others:
        raise StorageError(
            out / "train",
            f"holds {min(others)} of another conversion",
            f"{count} files at most",
            "remove the folder, or choose another --out",
        )
    return paths


def write(documents, out, files, held_out, left_out):
    """Write the documents and their counts, and return the counts."""
    paths = paths_of(out, files)
    holder = HeldOut(held_out)
    with contextlib.ExitStack() as stack:
        train = Files(stack, paths)
        for document in with_bar(documents, None, "documents", True, "document"):
            for kept in holder.exchange(document):
                train.write(kept)
        if train.counts.documents < files:
            raise DataError(
                "the corpus",
                f"{train.counts.documents} documents beside {held_out} held-out ones",
                f"at least {files}, one for each file",
                "check the archive, or lower --files or --held-out",
            )
        stats = {"train": train.figures()}
        if held_out:
            dev = Files(stack, [out / "dev.jsonl"])
            for document in holder.documents():
                dev.write(document)
            stats["dev"] = dev.figures()
    stats["left_out"] = dict(left_out)
    write_counts(out, stats)
    note_left_out(left_out)
    return stats


def note_left_out(left_out):
    """Print a note on what is left out, if anything is."""
    if left_out:
        parts = [f"{count:,} {reason}" for reason, count in sorted(left_out.items())]
        print(printable("note: left out: " + ", ".join(parts)), file=sys.stderr)


def show(stats):
    """Print the counts of every split."""
    for split in ("train", "dev"):
        if split in stats:
            figures = [f"{value:,} {key}" for key, value in stats[split].items()]
            print(f"{split:6} " + ", ".join(figures).replace("_", " "))


def convert(archive, out, options):
    """Convert the archive of a corpus, and return the counts."""
    left_out = collections.Counter()
    if options.corpus == "squad":
        documents = documents_of_squad(archive)
    elif options.corpus in SECTIONS:
        documents = SECTIONS[options.corpus](archive)
    else:
        documents = documents_of_texts(options.corpus, archive, left_out)
    return write(documents, out, options.files, options.held_out, left_out)


def check(options):
    """Refuse numbers that are out of range, and a corpus that cannot be fetched."""
    if not 1 <= options.files <= MOST_FILES:
        raise OptionError("--files", options.files, f"a number from 1 to {MOST_FILES:,}")
    if not 0 <= options.held_out <= MOST_HELD_OUT:
        raise OptionError("--held-out", options.held_out, f"a number from 0 to {MOST_HELD_OUT:,}")
    if options.corpus not in FETCH and not options.archive:
        raise OptionError(
            "--archive", f"none for {options.corpus}", "a file, a tar or a folder of its texts"
        )


def main(arguments=None):
    """Run the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("corpus", choices=CORPORA)
    parser.add_argument(
        "--files", type=int, default=1, metavar="N", help="deal the documents out to N files"
    )
    parser.add_argument(
        "--held-out", type=int, default=0, metavar="N", help="write N documents to dev.jsonl"
    )
    options = parser.parse_args(arguments)

    def work():
        check(options)
        return from_archive(
            options, FETCH.get(options.corpus), functools.partial(convert, options=options)
        )

    return run(work, options.out, show)


if __name__ == "__main__":
    sys.exit(main())
