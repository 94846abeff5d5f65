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

import interrupts  # noqa: F401 - first, so that an interrupt while the rest is imported is one line

# isort: split
import argparse
import contextlib
import hashlib
import itertools
import re
import sqlite3
import sys
from typing import List, NamedTuple

from collection import show, write_collection, write_counts, write_open_questions
from corpus import from_archive, make_parser, refuse_empty, run
from fetching import download
from squad import URL, add_id, is_dev, named, read_articles, read_paragraph

from wqa.data import Question
from wqa.data.documents import Document
from wqa.errors import DataError, OptionError, shorten
from wqa.io.lines import text_lines

SPLITS = ("train", "dev", "test")
#: Paragraphs of the articles whose questions train.
TRAIN_DOCUMENTS = "train.documents.jsonl"
#: Names of SQuAD's files by version, the one of the corpus of the papers first.
VERSIONS = {
    "1.1": {"train": "train-v1.1", "dev": "dev-v1.1"},
    "2.0": {"train": "train-v2.0", "dev": "dev-v2.0"},
}
SHA256 = {
    "train-v1.1.json": "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
    "dev-v1.1.json": "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
}
DUMP = "docs.db"
DUMP_URL = "https://dl.fbaipublicfiles.com/drqa/docs.db.gz"
#: Greatest length of an article of Wikipedia, in characters.
LONGEST_ARTICLE = 1 << 24


class Article(NamedTuple):
    """An article of SQuAD."""

    title: str
    texts: List[str]  # of its paragraphs
    questions: List[Question]


def find(archive):
    """Return SQuAD's files in an archive by ``train`` and ``dev``, all of one version."""
    for names in VERSIONS.values():
        files = named(archive, names) if archive.exists() else {}
        if files:
            return {split: files[split] for split in names if split in files}
    raise DataError(
        archive,
        "holds none of train-v1.1.json, dev-v1.1.json, train-v2.0.json and dev-v2.0.json",
        "SQuAD's files, plain or .gz",
    )


def read(files):
    """Return the articles of the files, by ``train`` and ``dev``."""
    titles, ids, articles = set(), set(), {}
    for split, path in files.items():
        articles[split] = []
        for number, (title, paragraphs) in enumerate(read_articles(path), 1):
            where = f"{path}, article {number}"
            title = _title(title, where)
            if title in titles:
                raise DataError(where, f"title {shorten(title)} occurs twice", "each title once")
            titles.add(title)
            articles[split].append(_article(title, paragraphs, ids, where))
    return articles


def _title(value, where):
    try:
        title = value.replace("_", " ").strip()
        title.encode("utf-8")  # raises a ValueError for half a surrogate pair
    except (AttributeError, ValueError):
        title = ""
    if not title:
        raise DataError(where, f"title is {shorten(value)}", "text")
    return title


def _article(title, paragraphs, ids, where):
    texts, questions = [], []
    for number, paragraph in enumerate(paragraphs, 1):
        text, entries = read_paragraph(paragraph, f"{where}, paragraph {number}")
        if not text.strip():
            raise DataError(f"{where}, paragraph {number}", "its text is empty", "text")
        texts.append(text.strip())
        for entry in entries:
            add_id(ids, entry, f"{where}, paragraph {number}")
            answers = dict.fromkeys(answer.strip() for _, answer in entry.spans)
            answers.pop("", None)
            if entry.question and answers:
                questions.append(Question(entry.id, entry.question, (), tuple(answers)))
    return Article(title, texts, questions)


def chosen(articles, path):
    """Return the articles whose titles a file lists, one a line."""
    lines = {}
    for number, line in text_lines(path):
        if line.strip():
            lines.setdefault(line.replace("_", " ").strip(), number)
    if not lines:
        raise DataError(path, "no title", "titles of the archive's articles, one a line")
    kept = {}
    for split, part in articles.items():
        kept[split] = [article for article in part if article.title in lines]
        for article in kept[split]:
            del lines[article.title]
    for title, number in lines.items():
        raise DataError(
            f"{path}, line {number}",
            f"the archive holds no article {shorten(title)}",
            "titles of its articles",
        )
    return {split: part for split, part in kept.items() if part}


def divide(articles):
    """Return the questions of each split, as the files divide them."""
    splits = {}
    if "train" in articles:
        splits = {"train": [], "dev": []}
        for question in _questions(articles["train"]):
            splits["dev" if is_dev(question) else "train"].append(question)
    if "dev" in articles:
        splits["test"] = _questions(articles["dev"])
    return splits


def divide_articles(articles, sizes, archive):
    """Return the articles of each split."""
    known = [article for part in articles.values() for article in part]
    if sum(sizes) != len(known):
        raise DataError(
            archive, f"{len(known)} articles", f"the {sum(sizes)} that --articles divides"
        )
    known.sort(key=_digest_of_title)
    splits = {}
    for split, size in zip(SPLITS, sizes):
        splits[split], known = known[:size], known[size:]
    return splits


def _questions(articles):
    return [question for article in articles for question in article.questions]


def _digest_of_title(article):
    return hashlib.sha256(article.title.encode("utf-8")).hexdigest()


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
        raise DataError(
            path, "no such file", "DrQA's dump of Wikipedia", f"fetch {DUMP_URL} and unpack it"
        )
    query = "SELECT rowid, id, substr(text, 1, ?) FROM documents ORDER BY rowid"
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as dump:
            for row, title, text in dump.execute(query, (LONGEST_ARTICLE + 1,)):
                where = f"{path}, row {row}"
                title = _title(title, where)
                for number, paragraph in enumerate(_split(title, text, where)):
                    yield Document(f"{row}-{number}", paragraph, title)
    except (sqlite3.Error, UnicodeError) as error:
        raise DataError(
            path,
            f"cannot be read ({type(error).__name__}: {error})",
            "a SQLite table documents of id and text",
        ) from None


def _split(title, text, where):
    if not isinstance(text, str):
        raise DataError(where, f"text is {shorten(text)}", "text")
    if len(text) > LONGEST_ARTICLE:
        raise DataError(
            where, f"more than {LONGEST_ARTICLE:,} characters", "an article of Wikipedia"
        )
    paragraphs = [paragraph.strip() for paragraph in text.split("\n")]
    return [paragraph for paragraph in paragraphs if paragraph not in ("", title)]


def write(archive, out, collection, sizes, titles=None):
    """Write the collection, the splits of the files in the archive and the counts."""
    articles = read(find(archive))
    if titles:
        articles = chosen(articles, titles)
    if sizes is None:
        divided, splits = {}, divide(articles)
    else:
        divided = divide_articles(articles, sizes, archive)
        splits = {split: _questions(part) for split, part in divided.items()}
    for split, questions in splits.items():  # all are read before one is written
        refuse_empty(split, len(questions))
    if collection == "wikipedia":
        documents = paragraphs_of_dump(archive / DUMP)
    else:
        documents = paragraphs_of(itertools.chain(*articles.values()))
    stats = {"documents": write_collection(out, documents)}
    (out / TRAIN_DOCUMENTS).unlink(missing_ok=True)  # of a conversion by articles
    if divided and collection == "squad":
        stats["train documents"] = write_collection(
            out, paragraphs_of(divided["train"]), TRAIN_DOCUMENTS
        )
    for split, questions in splits.items():
        stats[split] = write_open_questions(out, split, questions)
    write_counts(out, stats)
    if "train" not in splits:
        print(
            f"note: no file of training questions; only the test split is written; --articles "
            f"TRAIN,DEV,TEST makes three splits of the {len(articles['dev'])} articles",
            file=sys.stderr,
        )
    return stats


def fetch(folder):
    """Download SQuAD 1.1's files and return their folder."""
    for name, digest in SHA256.items():
        download(f"{URL}{name}", folder / name, digest)
    return folder


def numbers_of_articles(text):
    """Return the numbers of articles of train, dev and test."""
    sizes = [int(part) for part in text.split(",") if part.strip().isdigit()]
    if len(sizes) != len(SPLITS) or text.count(",") != 2 or not all(sizes):
        raise argparse.ArgumentTypeError(f"{shorten(text)}; expected three numbers, such as 10,3,3")
    return sizes


def main(arguments=None):
    """Run the command line."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--collection",
        choices=("squad", "wikipedia"),
        default="squad",
        help="documents: SQuAD's own paragraphs, or those of a dump of Wikipedia (default: squad)",
    )
    parser.add_argument(
        "--articles",
        type=numbers_of_articles,
        metavar="TRAIN,DEV,TEST",
        help="numbers of articles whose questions make each split",
    )
    parser.add_argument(
        "--titles", metavar="FILE", help="titles of the articles to take, one a line (default: all)"
    )
    options = parser.parse_args(arguments)

    def convert(archive, out):
        return write(archive, out, options.collection, options.articles, options.titles)

    def work():
        if options.collection == "wikipedia" and not options.archive:
            raise OptionError(
                "--collection",
                "wikipedia without --archive",
                f"a folder of SQuAD's files and {DUMP}",
                f"fetch {DUMP_URL}, unpack it there, and pass the folder with --archive",
            )
        return from_archive(options, fetch, convert)

    return run(work, options.out, show)


if __name__ == "__main__":
    sys.exit(main())
