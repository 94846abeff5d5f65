#!/usr/bin/env python3
"""SQuAD Open (Chen et al. 2017): SQuAD's questions without their paragraphs, beside a collection of
documents to answer them from.

    python data_scripts/squad_open.py --out data/squad_open
    python data_scripts/squad_open.py --out data/squad_open --archive FOLDER --collection wikipedia
    python data_scripts/squad_open.py --out data/squad_open --archive FOLDER --articles 10,3,3

Writes documents.jsonl, {train,dev,test}.questions.jsonl with the answers, and stats.json with the
counts and SHA-256 digests. A document is a paragraph, with the title of its article. With
``--collection squad`` these are the paragraphs of SQuAD itself; with ``--collection wikipedia``
those of a dump of Wikipedia in DrQA's form, the file docs.db in the archive, a SQLite table
``documents`` of ``id`` and ``text``.

The file of development questions becomes test.questions.jsonl; of the training questions one in
ten, drawn by a fixed rule, becomes the dev split and the rest the training split. An archive of the
former alone has no training questions: take ``--articles``, which divides the questions by articles
in place of that: so many to train, to tune, to report. The order of the articles is that of the
SHA-256 of their titles. All paragraphs stay in the collection; those of the articles to train are
written to train.documents.jsonl as well, unless the collection is Wikipedia. Documents for training
questions should be retrieved from these: in a collection this small a ranker that meets the other
articles as negatives alone can learn to rank them last. ``--titles`` takes a file of titles, one a
line, and leaves the other articles out.

``--archive`` takes a folder of train-v1.1.json and dev-v1.1.json, plain or .gz, or those of SQuAD
2.0, of which questions without an answer are left out; or one such file under its own name.
"""

import contextlib
import hashlib
import itertools
import re
import sqlite3
import sys
from typing import List, NamedTuple

from corpus import divided, make_main, numbers, public_splits, write_open
from releases import find_files, note
from squad import DEV_SHARE, URL, read_articles, read_paragraph

from wqa.data import Question
from wqa.data.documents import Document
from wqa.errors import DataError, shorten
from wqa.io.lines import UniqueIds, filled_text, text_lines, text_of

SPLITS = ("train", "dev", "test")
#: SQuAD's files by version, the one of the corpus of the papers first.
NAMES = (r"(train|dev)-v1\.1.*\.json(?:\.gz)?", r"(train|dev)-v2\.0.*\.json(?:\.gz)?")
EXPECTED = "train-v1.1.json, dev-v1.1.json, train-v2.0.json or dev-v2.0.json, plain or .gz"
SHA256 = {
    "train-v1.1.json": "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
    "dev-v1.1.json": "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
}
DOWNLOADS = {name: (f"{URL}{name}", digest) for name, digest in SHA256.items()}
DUMP = "docs.db"
DUMP_URL = "https://dl.fbaipublicfiles.com/drqa/docs.db.gz"


class Article(NamedTuple):
    """An article of SQuAD."""

    title: str
    texts: List[str]  # of its paragraphs
    questions: List[Question]


def read(archive):
    """Return the articles of SQuAD's files in an archive by ``train`` and ``dev``."""
    names = [path.name for path in archive.iterdir()] if archive.is_dir() else [archive.name]
    has_first = any(re.fullmatch(NAMES[0], name) for name in names)
    files = find_files(archive, NAMES[0] if has_first else NAMES[1], EXPECTED)
    titles, ids, articles = set(), UniqueIds("question"), {}
    for split in sorted(files, reverse=True):  # train first
        articles[split] = []
        for number, (title, paragraphs) in enumerate(read_articles(files[split]), 1):
            where = f"{files[split]}, article {number}"
            title = title_of(title, where)
            if title in titles:
                raise DataError(where, f"title {shorten(title)} occurs twice", "each title once")
            titles.add(title)
            articles[split].append(_article(title, paragraphs, ids, where))
    return articles


def title_of(value, where):
    """Take a value as the title of an article."""
    return filled_text(value, "title", where).replace("_", " ").strip()


def _article(title, paragraphs, ids, where):
    texts, questions = [], []
    for number, paragraph in enumerate(paragraphs, 1):
        place = f"{where}, paragraph {number}"
        text, entries = read_paragraph(paragraph, place)
        texts.append(filled_text(text, "its text", place).strip())
        for entry in entries:
            ids.add(entry.id, place)
            answers = dict.fromkeys(answer.strip() for _, answer in entry.spans)
            answers.pop("", None)
            if entry.question and answers:
                questions.append(Question(entry.id, entry.question, (), tuple(answers)))
    return Article(title, texts, questions)


def chosen(articles, path):
    """Return the articles whose titles a file lists, one a line."""
    titles = {}
    for number, line in text_lines(path):
        if line.strip():
            titles.setdefault(line.replace("_", " ").strip(), f"{path}, line {number}")
    if not titles:
        raise DataError(path, "no title", "titles of the archive's articles, one a line")
    kept = {}
    for split, part in articles.items():
        kept[split] = [article for article in part if titles.pop(article.title, None)]
    for title, where in titles.items():
        found = f"the archive holds no article {shorten(title)}"
        raise DataError(where, found, "titles of its articles")
    return {split: part for split, part in kept.items() if part}


def divide(articles):
    """Return the questions of each split, as the files divide them."""
    splits = {split: [] for split in public_splits(articles)}
    questions = {name: _questions(part) for name, part in articles.items()}
    for split, question in divided(questions, DEV_SHARE):
        splits[split].append(question)
    return splits


def divide_articles(articles, sizes, archive):
    """Return the articles of each split."""
    known = [article for part in articles.values() for article in part]
    if sum(sizes) != len(known):
        expected = f"the {sum(sizes)} that --articles divides"
        raise DataError(archive, f"{len(known)} articles", expected)
    known.sort(key=lambda article: hashlib.sha256(article.title.encode("utf-8")).hexdigest())
    splits = {}
    for split, size in zip(SPLITS, sizes):
        splits[split], known = known[:size], known[size:]
    return splits


def _questions(articles):
    return [question for article in articles for question in article.questions]


def paragraphs_of(articles):
    """Yield the paragraphs of SQuAD's articles as documents."""
    for article in articles:
        name = re.sub(r"\s+", "_", article.title)
        for number, text in enumerate(article.texts):
            yield Document(f"{name}-{number}", text, article.title)


def paragraphs_of_dump(path):
    """Yield the paragraphs of a dump of Wikipedia as documents.

    A paragraph is a run of text between line ends, as DrQA splits articles. The one that repeats
    the title of its article, with which WikiExtractor begins, is left out: a document holds its
    title anyway. Ids are the number of the article's row and that of the paragraph.
    """
    if not path.is_file():
        hint = f"fetch {DUMP_URL}, unpack it, and pass its folder with --archive"
        raise DataError(path, "no such file", "DrQA's dump of Wikipedia", hint)
    query = "SELECT rowid, id, text FROM documents ORDER BY rowid"
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as dump:
            for row, title, text in dump.execute(query):
                where = f"{path}, row {row}"
                title = title_of(title, where)
                lines = [line.strip() for line in text_of(text, "text", where).split("\n")]
                kept = [line for line in lines if line not in ("", title)]
                for number, paragraph in enumerate(kept):
                    yield Document(f"{row}-{number}", paragraph, title)
    except (sqlite3.Error, UnicodeError) as error:
        found = f"cannot be read ({type(error).__name__}: {error})"
        raise DataError(path, found, "a SQLite table documents of id and text") from None


def convert(archive, out, collection="squad", articles=None, titles=None):
    """Write the collection and the splits of the files in the archive, and return the counts."""
    known = read(archive)
    if titles:
        known = chosen(known, titles)
    parts, splits = {}, divide(known)
    if articles:
        parts = divide_articles(known, articles, archive)
        splits = {split: _questions(part) for split, part in parts.items()}
    documents, own = paragraphs_of(itertools.chain(*known.values())), None
    if collection == "wikipedia":
        documents = paragraphs_of_dump(archive / DUMP)
    elif parts:
        own = paragraphs_of(parts["train"])
    stats = write_open(out, splits, documents, own)
    if "train" not in splits:
        note(
            "no file of training questions; only the test split is written; --articles "
            f"TRAIN,DEV,TEST makes three splits of the {len(known['dev'])} articles"
        )
    return stats


OPTIONS = {
    "--collection": {
        "choices": ("squad", "wikipedia"),
        "default": "squad",
        "help": "documents: SQuAD's own paragraphs (default), or those of a dump of Wikipedia",
    },
    "--articles": {
        "type": numbers(3),
        "metavar": "TRAIN,DEV,TEST",
        "help": "numbers of articles whose questions make each split",
    },
    "--titles": {"metavar": "FILE", "help": "titles of the articles to take (default: all)"},
}
main = make_main(__doc__, convert, DOWNLOADS, OPTIONS)

if __name__ == "__main__":
    sys.exit(main())
