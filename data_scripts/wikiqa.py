#!/usr/bin/env python3
"""WikiQA (Yang et al. 2015) to canonical JSONL.

    python data_scripts/wikiqa.py --out data/wikiqa
    python data_scripts/wikiqa.py --out data/wikiqa --archive WikiQACorpus.zip

Writes train.jsonl, dev.jsonl, test.jsonl and stats.json. ``--archive`` takes the official zip, or a
folder of its WikiQA-{train,dev,test}.tsv files, plain or .gz.
"""

import io
import pathlib
import sys
import zipfile
import zlib

from corpus import from_archive, make_parser, open_bytes, run, write_split, write_stats
from fetching import download

from wqa.data import Candidate, Question
from wqa.errors import DataError, shorten

URL = "https://download.microsoft.com/download/E/5/F/E5FCFCEE-7005-4814-853D-DAA7C66507E0/WikiQACorpus.zip"
ZIP_SHA256 = "467c13f9e104552c0a9c16f41836ca8d89f9c0cc4b6e4355e104d5c3109ffa45"
HEADER = [
    "QuestionID",
    "Question",
    "DocumentID",
    "DocumentTitle",
    "SentenceID",
    "Sentence",
    "Label",
]
SPLITS = ("train", "dev", "test")


def read_split(archive, split):
    """Return the text of a split's table, and its name for messages."""
    name = f"WikiQA-{split}.tsv"
    try:
        raw, where = _from_folder(archive, name) if archive.is_dir() else _from_zip(archive, name)
        return raw.decode("utf-8"), where
    except UnicodeDecodeError as error:
        raise DataError(
            f"{archive}, {name}", f"byte {error.start} is not UTF-8", "UTF-8 text"
        ) from None
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            archive, f"cannot be read ({error})", "a zip, or a folder of .tsv or .tsv.gz"
        ) from None


def _from_folder(folder, name):
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            with open_bytes(path) as file:
                return file.read(), str(path)
    raise DataError(folder, f"holds neither {name} nor {name}.gz", "the three tables of WikiQA")


def _from_zip(archive, name):
    with zipfile.ZipFile(archive) as packed:
        for member in packed.namelist():
            if pathlib.PurePosixPath(member).name == name and "__MACOSX" not in member:
                return packed.read(member), f"{archive}, {member}"
    raise DataError(archive, f"holds no {name}", "the official WikiQACorpus.zip")


def parse(text, where):
    """Return the questions of a table, candidates in the order of their lines."""
    rows = io.StringIO(text, newline="\n")
    header = next(rows, "").rstrip("\r\n").split("\t")
    if header != HEADER:
        raise DataError(f"{where}, line 1", shorten(header), "the header " + " ".join(HEADER))
    texts, candidates = {}, {}
    for number, line in enumerate(rows, 2):
        fields = line.rstrip("\r\n").split("\t")
        if len(fields) != len(HEADER) or fields[-1] not in ("0", "1"):
            raise DataError(
                f"{where}, line {number}", shorten(line), f"{len(HEADER)} columns, the last 0 or 1"
            )
        qid, question, _, _, _, sentence, label = fields
        if texts.setdefault(qid, question) != question:
            raise DataError(
                f"{where}, line {number}", f"another text for question {qid}", shorten(texts[qid])
            )
        candidates.setdefault(qid, []).append(Candidate(sentence, int(label)))
    return [Question(qid, texts[qid], tuple(candidates[qid])) for qid in texts]


def convert(archive, out):
    """Write the three splits and their counts, and return the counts."""
    splits = {split: parse(*read_split(archive, split)) for split in SPLITS}
    stats = {split: write_split(out, split, questions) for split, questions in splits.items()}
    write_stats(out, stats)
    return stats


def fetch(folder):
    """Download the official zip and return its path."""
    download(URL, folder / "WikiQACorpus.zip", ZIP_SHA256)
    return folder / "WikiQACorpus.zip"


def main(arguments=None):
    """Run the command line."""
    options = make_parser(__doc__).parse_args(arguments)
    return run(lambda: from_archive(options, fetch, convert))


if __name__ == "__main__":
    sys.exit(main())
