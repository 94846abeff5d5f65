"""The frame of the corpus scripts: the command line, splits with their counts, and errors."""

import argparse
import collections
import contextlib
import hashlib
import itertools
import pathlib
import re
import sys

from releases import download

from wqa.data import FILTERS, count, read_json, write_questions
from wqa.data.documents import write_documents
from wqa.data.formats import to_line
from wqa.errors import DataError, WqaError, check_choice, printable, shorten
from wqa.io.files import atomic_writer, lock_output, refuse, scratch_folder, sha256, write_json
from wqa.io.lines import UniqueIds
from wqa.io.progress import messages_on_stderr

INTERRUPTED = 130
#: Documents of the questions to train on.
TRAIN_DOCUMENTS = "train.documents.jsonl"


class Counts:
    """Counts of a split under each filter."""

    def __init__(self):
        self._totals = {name: collections.Counter(count([])) for name in FILTERS}

    def add(self, question):
        """Count a question."""
        for name, keeps in FILTERS.items():
            if keeps(question):
                self._totals[name].update(count([question]))

    def figures(self, split):
        """Counts by filter, with the averages that the papers' tables give."""
        refuse_empty(split, self._totals["all"]["questions"])
        figures = {}
        for name, totals in self._totals.items():
            figures[name] = dict(totals)
            for key in ("candidates", "correct"):
                figures[name][f"{key}_per_question"] = mean(totals[key], totals["questions"])
        return figures


def refuse_empty(split, number, name="question"):
    """Raise an error if the number of a split's questions, or of what ``name`` says, is zero."""
    if not number:
        hint = "its file is not whole, or too small to divide"
        raise DataError(f"split {split}", f"it holds no {name}", "at least one", hint)


@contextlib.contextmanager
def open_splits(out, splits):
    """Open a file of each split; no file has its name before all are whole."""
    with contextlib.ExitStack() as stack:
        paths = {split: out / f"{split}.jsonl" for split in splits}
        yield {split: stack.enter_context(atomic_writer(path)) for split, path in paths.items()}


def write_splits(out, splits, questions):
    """Write the questions of splits as they come, and return the counts of each split.

    ``questions`` yields the name of a split and a question. No file has its name before all are
    whole.
    """
    counts = {split: Counts() for split in splits}
    ids = {split: UniqueIds("question") for split in splits}
    with open_splits(out, splits) as files:
        for split, question in questions:
            ids[split].add(question.id, f"split {split}")
            files[split].write(to_line(question) + "\n")
            counts[split].add(question)
        return {split: counts[split].figures(split) for split in splits}


def write_each(out, splits):
    """Write splits, whose questions come one at a time, and return the counts of each."""
    questions = (zip(itertools.repeat(split), source) for split, source in splits.items())
    return write_splits(out, list(splits), itertools.chain.from_iterable(questions))


def write_public(out, questions, share):
    """Write the splits of a corpus whose test questions are not public, and return their counts.

    ``questions`` has the official training and development questions, by ``train`` and ``dev``, or
    one of the two. Development questions become the split test, and one in ``share`` training
    questions becomes the split dev.
    """
    return write_splits(out, public_splits(questions), divided(questions, share))


def public_splits(questions):
    """Return the splits of `write_public`."""
    return ["train", "dev"] * ("train" in questions) + ["test"] * ("dev" in questions)


def divided(questions, share):
    """Yield the split of each question of `write_public`, and the question."""
    for question in questions.get("train", ()):
        yield "dev" if is_dev(question, share) else "train", question
    yield from zip(itertools.repeat("test"), questions.get("dev", ()))


def is_dev(question, share):
    """Whether a training question belongs to the dev split, by the digest of its id."""
    return int(hashlib.sha256(question.id.encode("utf-8")).hexdigest(), 16) % share == 0


def write_collection(out, documents, name="documents.jsonl"):
    """Write a file of documents one at a time, and return its counts."""
    sizes = []

    def counted():
        for document in documents:
            sizes.append(len(document.text))
            yield document

    write_documents(out / name, counted())
    counts = {"documents": len(sizes), "characters_per_document": mean(sum(sizes), len(sizes))}
    return {**counts, "sha256": sha256(out / name)}


def write_open_questions(out, split, questions):
    """Write the questions of a split, which have answers but no candidates, and return counts."""
    path, number = out / f"{split}.questions.jsonl", len(questions)
    write_questions(path, questions)
    answers = mean(sum(len(question.answers) for question in questions), number)
    return {"questions": number, "answers_per_question": answers, "sha256": sha256(path)}


def mean(total, number):
    """Return a mean with two digits behind the point; of nothing it is 0."""
    return round(total / max(number, 1), 2)


def open_question(question):
    """Return a question without candidates; its answers are the texts of the correct ones."""
    texts = [candidate.text for candidate in question.candidates if candidate.label]
    return question._replace(candidates=(), answers=tuple(dict.fromkeys(filter(None, texts))))


def write_both(out, splits, documents):
    """Write splits, and the same questions beside the documents of their candidates."""
    opened = {split: list(map(open_question, questions)) for split, questions in splits.items()}
    collection = write_open(out, opened, documents)
    return {**write_each(out, splits), "collection": collection}


def write_open(out, splits, documents, train_documents=None):
    """Write the documents of a collection, those to train on, and its questions by split."""
    for split, questions in splits.items():  # all are there before one is written
        refuse_empty(split, len(questions))
    stats = {"documents": write_collection(out, documents)}
    (out / TRAIN_DOCUMENTS).unlink(missing_ok=True)  # of another conversion
    if train_documents is not None:
        stats["train documents"] = write_collection(out, train_documents, TRAIN_DOCUMENTS)
    for split, questions in splits.items():
        stats[split] = write_open_questions(out, split, questions)
    return stats


def numbers(count):
    """Return a parser of an option of so many positive numbers, with commas between them."""

    def parse(text):
        parts = text.split(",")
        if len(parts) != count or not all(re.fullmatch("[1-9][0-9]*", part) for part in parts):
            raise argparse.ArgumentTypeError(f"{shorten(text)}; expected {count} positive numbers")
        return [int(part) for part in parts]

    return parse


def show(stats):
    """Print the counts of every split, by filter where it has them."""
    for split, counts in stats.items():
        parts = counts if all(isinstance(part, dict) for part in counts.values()) else {"": counts}
        for name, figures in parts.items():
            print(f"{split:15} {name:15} {_line(figures)}")


def _line(figures):
    parts = []
    for key, value in figures.items():
        if isinstance(value, dict):
            parts.append(f"{key} ({_line(value)})")
        elif isinstance(value, (int, float)):
            parts.append(f"{value:,} {key}")
    return ", ".join(parts).replace("_", " ")


def make_parser(doc):
    """Return a parser that prints the documentation of a script as it stands."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def archive_parser(doc):
    """Return a parser with the options of every script that reads an archive."""
    parser = make_parser(doc)
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write to")
    parser.add_argument("--archive", type=pathlib.Path, help="local copy instead of a download")
    return parser


def make_main(doc, convert, downloads=None, options=None):
    """Return the command line of a script.

    Parameters
    ----------
    doc : str
        Documentation of the script.
    convert : callable
        Takes an archive, the folder to write to and the options by name; returns the counts.
    downloads : dict of str to (str or list of str, str), optional
        Addresses and SHA-256 of the files of the corpus, by their names. Without them the archive
        is None where no option names one.
    options : dict of str to dict, optional
        Further arguments by name, with their settings of `argparse`.
    """

    def main(arguments=None):
        """Run the command line."""
        parser = archive_parser(doc)
        for name, settings in (options or {}).items():
            parser.add_argument(name, **settings)
        given = vars(parser.parse_args(arguments))
        archive, out = given.pop("archive"), given.pop("out")

        def work():
            with opened(archive, downloads) as source:
                return convert(source, out, **given)

        return run(work, out)

    return main


def make_named_main(doc, sources, folder, fetch):
    """Return the command line of a script that downloads what has a name.

    Parameters
    ----------
    doc : str
        Documentation of the script.
    sources : dict of str to str
        What --list says of each name.
    folder : str
        Folder to write to, where --out does not name another one.
    fetch : callable
        Takes a name and the folder.
    """

    def main(arguments=None):
        """Run the command line."""
        parser = make_parser(doc)
        parser.add_argument("names", nargs="*", metavar="NAME", help="what to fetch, see --list")
        parser.add_argument("--list", action="store_true", help="print the names and their uses")
        parser.add_argument("--out", type=pathlib.Path, default=folder, help=f"folder ({folder})")
        options = parser.parse_args(arguments)

        def work():
            if options.list:
                for name, use in sources.items():
                    print(f"{name:26} {use}")
                return
            for name in options.names or ["none given"]:
                check_choice("NAME", name, sources)
            for name in options.names:
                fetch(name, options.out)

        return exit_status(work)

    return main


@contextlib.contextmanager
def opened(archive, downloads):
    """Yield the local copy of a corpus, or the folder of its downloads, or the only one of them."""
    if archive or downloads is None:
        yield archive
        return
    with scratch_folder("corpus") as folder:
        for name, (urls, digest) in downloads.items():
            download(urls, folder / name, digest)
        yield folder / name if len(downloads) == 1 else folder


def _has_counts(path):
    """Whether a file has what the scripts write to ``stats.json``: counts of each split."""
    try:
        counts = list(read_json(path).values())
        named = [{*value, *value.get("all", ())} for value in counts]
    except (OSError, ValueError, AttributeError, TypeError):
        return False
    return any(names & {"questions", "documents", "claims", "examples"} for names in named)


def run(work, out):
    """Call ``work``, write and print the counts that it returns, and return the exit status.

    The folder ``out`` is locked meanwhile, and marked by a hidden file, which a killed script
    leaves. Without the mark and ``stats.json``, files in it are those of somebody else.
    """
    mark = out / ".wqa_data"

    def locked():
        with lock_output(out):
            path = out / "stats.json"
            others = sorted([*out.glob("*.jsonl"), *out.glob(path.name)])
            if others and not mark.exists() and not _has_counts(path):
                raise refuse(out, others[0].name, "corpus, which has the stats.json of a script")
            out.mkdir(parents=True, exist_ok=True)
            mark.touch()
            before = read_json(path) if _has_counts(path) else {}
            stats = work()
            for split in before.keys() - stats.keys():  # of another archive
                questions = out / f"{split}.questions.jsonl"
                is_open = questions.exists() and split not in before.get("collection", ())
                for kind in ("-clean", ".questions", "")[: 3 - is_open]:
                    (out / f"{split}{kind}.jsonl").unlink(missing_ok=True)
            write_json(path, stats)
            mark.unlink()
        show(stats)

    return exit_status(locked)


def exit_status(work):
    """Call ``work`` and return the exit status of the script.

    An error becomes one line and the status 2, an interrupt one line and the status 130.
    """
    try:
        with messages_on_stderr():
            work()
    except KeyboardInterrupt:
        print("interrupted; run the same command again", file=sys.stderr)
        return INTERRUPTED
    except WqaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(printable(f"error: {error.filename or 'standard output'}: {error}"), file=sys.stderr)
        return 2
    return 0
