#!/usr/bin/env python3
"""TREC-QA (Wang et al. 2007) to canonical JSONL.

    python data_scripts/trecqa.py --out data/trecqa
    python data_scripts/trecqa.py --out data/trecqa --archive FOLDER

The corpus is downloaded from the repository of jacana (Yao et al. 2013), which holds the splits of
Wang et al. and of Heilman and Smith (2010). FOLDER holds the same files, plain or .gz:
train2393.cleanup.xml (train-all), train.xml, dev.xml, dev-less-than-40.xml (dev-40) and
test-less-than-40.xml or a test.xml (test); or train-all, train, dev, dev-40 and test as .jsonl,
with or without a copy "-filtered" of the questions that have both a correct and a wrong candidate:

    {"question": "...", "candidates": [{"sentence": "...", "label": 1}, ...]}

Each split is written as SPLIT.jsonl (all its questions) and SPLIT-clean.jsonl (those with both
kinds of candidate, as the papers report dev and test). A split with a filtered copy alone gives
SPLIT-clean.jsonl alone. The corpus is tokenized text of newspapers. Bracket tokens (-LRB- and the
like) become brackets, sacremoses joins the words, and <num>, which stands for a number in most of
the text, becomes ``--number``. A question that occurs twice stays twice, with two ids.

dev-40 is dev without the sentences of more than 40 tokens, and test is published in that form
alone. So a question of these two may have no candidate left; it is skipped, counted and reported.
In train-all, train and dev such a question is an error. Where FOLDER has no file of dev-40, it is
made from dev.
"""

import interrupts  # noqa: F401 - first, so that an interrupt while the rest is imported is one line

# isort: split
import pathlib
import re
import sys

from corpus import Statistics, counted, from_archive, make_parser, run, write_stats
from fetching import download
from sacremoses import MosesDetokenizer

from wqa.data import FILTERS, Candidate, Question, parse_json, write_questions
from wqa.errors import DataError, printable, shorten
from wqa.io.files import storage_errors
from wqa.io.lines import text_lines

URL = (
    "https://raw.githubusercontent.com/xuchen/jacana/8df0185f320d7a7399f787fea302ba48a63c0bb9/tree-edit-data/"
    "answerSelectionExperiments/"
)
#: Files of the repository, by split.
PSEUDO_XML = {
    "train-all": "answer/train2393.cleanup.xml.gz",
    "train": "data/train.xml",
    "dev": "data/dev.xml",
    "dev-40": "data/dev-less-than-40.xml",
    "test": "data/test-less-than-40.xml",  # data/test.xml holds one question
}
SPLITS = tuple(PSEUDO_XML)
#: Splits without long sentences, so that a question may have no candidate left.
SHORTENED = ("dev-40", "test")
#: Greatest number of tokens of a sentence of dev-40.
LONGEST_SENTENCE = 40
#: Questions and candidates of the clean splits, as published.
PUBLISHED = {"dev": (69, 1343), "dev-40": (65, 1117), "test": (68, 1442)}
#: Greatest size of a file in bytes, unpacked.
LARGEST_FILE = 1 << 29
PAIRS = re.compile(r"<QApairs id='[^'<>]+'>")
#: Tags of a line of their own, inside <QApairs> and </QApairs>.
TAGS = ("<question>", "<positive>", "<negative>")
#: Rows that a sentence may have: its tokens alone; with some of the annotations, which are parts of
#: speech, relations, heads and entities; with the answer and its offset besides.
ROWS = (1, 2, 3, 4, 5, 7)
#: Characters by the tokens that stand for them.
CHARACTERS = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}
#: Tokens that belong to the word before, by the Penn Treebank's rules.
SUFFIXES = {"n't", "'s", "'re", "'ve", "'ll", "'d", "'m"}


class Detokenizer:
    """Joins tokens to running text."""

    def __init__(self, number):
        self._moses = MosesDetokenizer(lang="en")
        self._characters = {**CHARACTERS, "<num>": number}

    def __call__(self, sentence):
        tokens = []
        for token in sentence.split():
            for code, character in self._characters.items():
                token = token.replace(code, character)
            token = "-" if token == "_" else token  # the newspapers' dash
            if token in SUFFIXES and tokens:  # Moses does not join them
                tokens[-1] += token
            else:
                tokens.append(token)
        return self._moses.detokenize(tokens, unescape=False)


def find(archive):
    """Return the files by split, the unfiltered one where there are both."""
    files = {}
    for split in SPLITS:
        xml = pathlib.PurePath(PSEUDO_XML[split]).name.replace(".gz", "")
        # test.xml holds the whole split in the copies that rename the files.
        names = (f"{split}.jsonl", xml, f"{split}-filtered.jsonl", "test.xml")
        for name in names if split == "test" else names[:3]:
            for path in (archive / name, archive / f"{name}.gz"):
                if split not in files and path.exists():
                    files[split] = path
        if split == "dev-40" and split not in files and "dev" in files:
            files[split] = files["dev"]
    if not files:
        raise DataError(
            archive,
            "holds none of " + ", ".join(f"{split}.jsonl" for split in SPLITS) + " nor their .xml",
            "a folder with TREC-QA, plain or .gz",
        )
    return files


def read(path, split, detokenize):
    """Yield the questions of a file."""
    lines = text_lines(path, largest=LARGEST_FILE)
    parse = parse_jsonl if ".jsonl" in path.name else parse_xml
    return parse(lines, path, split, detokenize)


class PseudoXml:
    """The lines of a file of pseudo-XML, read by its grammar.

    A file is a sequence of <QApairs>. One of them holds a <question>, then any number of <positive>
    and <negative>. Each tag is a line. A sentence is a row of tokens and perhaps rows of
    annotations, of as many columns.
    """

    def __init__(self, lines, path):
        self._lines = iter(lines)
        self._path = path
        self.where = f"{path}, line 1"
        #: Sentences whose rows are not those of the original files, and the first of them.
        self.irregular, self.first_irregular = 0, ""

    def _next(self):
        """Return the next line, None at the end of the file."""
        for number, line in self._lines:
            self.where = f"{self._path}, line {number}"
            return line.rstrip("\n").rstrip("\r")
        return None

    def expect(self, *tags):
        """Return the next line, which is one of the tags."""
        line = self._next()
        if line is None:
            self._end()
        if line not in tags:
            raise DataError(self.where, shorten(line), " or ".join(tags), "fetch the file again")
        return line

    def opens(self):
        """Whether a further <QApairs> opens, the file being at its end otherwise."""
        line = self._next()
        while line == "":
            line = self._next()
        if line is None:
            return False
        if not PAIRS.fullmatch(line):
            raise DataError(self.where, shorten(line), "<QApairs id='...'>", "fetch the file again")
        return True

    def sentence(self, tag):
        """Return the tokens between a tag and its end."""
        close = f"</{tag[1:]}"
        start, rows = self.where, []
        line = self._next()
        while line != close:
            if line is None:
                self._end()
            if line in TAGS or line.startswith(("<QApairs", "</")):
                raise DataError(self.where, f"{shorten(line)} inside {tag}", close)
            rows.append(line)
            line = self._next()
        if not rows or not rows[0].strip():
            raise DataError(start, f"{tag} without a sentence", "a row of tokens")
        if not _is_regular(rows):
            self.irregular += 1
            self.first_irregular = self.first_irregular or start
        return rows[0]

    def _end(self):
        raise DataError(
            self.where, "the file ends inside a question", "a whole file", "fetch it again"
        )


def _is_regular(rows):
    """Whether the rows of a sentence are those that its annotators wrote."""
    annotated = [row.split("\t") for row in rows[:5]]
    heads = annotated[3] if len(rows) > 3 else []
    return (
        len(rows) in ROWS
        and len({len(columns) for columns in annotated}) == 1
        and all(re.fullmatch("[0-9]+", head) for head in heads)
    )


def parse_xml(lines, path, split, detokenize):
    """Yield the questions of the pseudo-XML.

    The first row of a sentence holds its tokens; the other rows are annotations. A sentence that
    lost a row has the wrong number of rows. That is an error, but in train-all, whose rows were
    edited by hand, it is counted and said.
    """
    reader = PseudoXml(lines, path)
    number = 0
    while reader.opens():
        number += 1
        question = detokenize(reader.sentence(reader.expect("<question>")))
        candidates = []
        tag = reader.expect("<positive>", "<negative>", "</QApairs>")
        while tag != "</QApairs>":
            sentence = reader.sentence(tag)
            if keeps(split, sentence):
                candidates.append(Candidate(detokenize(sentence), int(tag == "<positive>")))
            tag = reader.expect("<positive>", "<negative>", "</QApairs>")
        if reader.irregular and split != "train-all":
            raise DataError(
                reader.first_irregular,
                "a sentence whose rows do not fit one another",
                "a row of tokens, then rows of annotations of as many columns",
                "fetch the file again",
            )
        yield _question(split, number, question, candidates, reader.where)
    if not number:
        raise DataError(reader.where, "no <QApairs>", "a whole file")
    if reader.irregular:
        print(
            f"note: {printable(reader.first_irregular)}: the rows of this sentence, and of "
            f"{reader.irregular} in all, do not fit one another; their first row is taken",
            file=sys.stderr,
        )


def parse_jsonl(lines, path, split, detokenize):
    """Yield the questions of JSON lines."""
    for number, line in lines:
        where = f"{path}, line {number}"
        try:
            entry = parse_json(line)
            question = detokenize(entry["question"])
            candidates = [
                Candidate(detokenize(row["sentence"]), row["label"])
                for row in entry["candidates"]
                if keeps(split, row["sentence"])
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                where,
                f"{type(error).__name__}: {error}",
                "question, and candidates with sentence and label",
            ) from None
        for rank, candidate in enumerate(candidates, 1):
            label = candidate.label
            if type(label) is not int or label not in (0, 1):
                raise DataError(f"{where}, candidate {rank}", f"label {shorten(label)}", "0 or 1")
        yield _question(split, number, question, candidates, where)


def keeps(split, sentence):
    """Whether a split keeps a tokenized sentence: dev-40 keeps the short ones."""
    return split != "dev-40" or len(sentence.split()) <= LONGEST_SENTENCE


def _question(split, number, text, candidates, where):
    if not text or not (candidates or split in SHORTENED):
        raise DataError(where, "no question or no candidate", "at least one candidate a question")
    return Question(f"{split}-{number}", text, tuple(candidates))


def skip_empty(questions, path):
    """Return the questions that have a candidate, and the number of those that have none."""
    questions = list(questions)
    kept = [question for question in questions if question.candidates]
    skipped = len(questions) - len(kept)
    if skipped:
        first = next(question for question in questions if not question.candidates)
        print(
            f"note: {printable(str(path))}: {skipped} of {len(questions)} questions have no "
            f"candidate and are skipped, the first of them {first.id}: "
            f"{printable(shorten(first.question))}",
            file=sys.stderr,
        )
    return kept, skipped


def compare_counts(stats):
    """Print a note on each clean split whose counts are not the published ones."""
    for split, published in PUBLISHED.items():
        counts = stats[split]["clean"] if split in stats else {}
        counted_here = (counts.get("questions"), counts.get("candidates"))
        if counts and counted_here != published:
            print(
                "note: {}, clean: {:,} questions with {:,} candidates; published are "
                "{:,} with {:,}".format(split, *counted_here, *published),
                file=sys.stderr,
            )


def write_clean(path, questions):
    """Write the questions that have both a correct and a wrong candidate, if there is one."""
    clean = [question for question in questions if FILTERS["clean"](question)]
    if clean:
        write_questions(path, clean)
        return
    with storage_errors(path):
        if path.exists():  # of another archive
            path.unlink()
    print(
        f"note: {printable(str(path))} is not written: no question has both kinds of candidate",
        file=sys.stderr,
    )


def convert(archive, out, number):
    """Write the splits and their counts, and return the counts."""
    detokenize = Detokenizer(number)
    files = find(archive)
    splits, stats = {}, {}
    for split, path in files.items():  # all are read before one is written
        statistics = Statistics()
        questions, skipped = skip_empty(read(path, split, detokenize), path)
        splits[split] = list(counted(questions, statistics, split))
        stats[split] = statistics.figures()
        texts = {question.question for question in questions}
        stats[split]["all"]["distinct_questions"] = len(texts)
        stats[split]["all"]["without_candidates"] = skipped
    compare_counts(stats)
    for split, questions in splits.items():
        if "-filtered" not in files[split].name:
            write_questions(out / f"{split}.jsonl", questions)
        write_clean(out / f"{split}-clean.jsonl", questions)
    write_stats(out, stats)
    return stats


def fetch(folder):
    """Download the files and return their folder."""
    for name in PSEUDO_XML.values():
        download(URL + name, folder / pathlib.PurePath(name).name)
    return folder


def main(arguments=None):
    """Run the command line."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--number", default="#", help="what <num> becomes; <num> itself keeps it (default: #)"
    )
    options = parser.parse_args(arguments)

    def convert_numbers(archive, out):
        return convert(archive, out, options.number)

    return run(lambda: from_archive(options, fetch, convert_numbers), options.out)


if __name__ == "__main__":
    sys.exit(main())
