"""Documents of large text corpora, one at a time: folders and tars, also inside one another, of
text files, JSON lines, and the files of WikiExtractor and of WikiText."""

import bz2
import gzip
import lzma
import pathlib
import re
import shutil
import tarfile
from typing import IO, NamedTuple

from releases import damage_errors
from sacremoses import MosesDetokenizer

from wqa.errors import DataError, shorten
from wqa.io.files import checked_members, scratch_folder
from wqa.io.lines import LONGEST_LINE, bounded_lines, decoded_lines, json_value, text_of

#: Greatest size in bytes, unpacked, of a tar, and of a tar in it.
LARGEST_TAR, LARGEST_INNER = 1 << 40, 1 << 33
#: Greatest size of a document, in bytes.
LARGEST_TEXT = LONGEST_LINE

#: Why documents and files are left out.
BLANK, NOT_UTF8, OTHER_FILE = "blank", "not UTF-8", "files of other kinds"

_PACKED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_TAR = re.compile(r"\.(tar(\.(gz|bz2|xz))?|tgz|tbz2|txz)$")
_TEXT = re.compile(r"\.txt(\.(gz|bz2|xz))?$")
_LINES = re.compile(r"(\.jsonl?|^wiki_\d+)(\.(gz|bz2|xz))?$")
_WIKITEXT = re.compile(r"^wiki\.\w+\.(raw|tokens)(\.(gz|bz2|xz))?$")

#: A heading of WikiText, whose level is the number of its signs; level 1 begins an article.
_HEADING = re.compile(r"^(=(?: =)*) (.+) \1$")
#: Punctuation within a number or a word, which WikiText sets apart.
_JOINED = re.compile(r" @([-,.])@ ")
_RARE = "<unk>"


class Text(NamedTuple):
    """A document of a corpus."""

    #: Its title, empty where the corpus has none.
    title: str
    text: str


class _File(NamedTuple):
    """A file of a corpus, open for reading what it is packed from."""

    #: Its name without folders, and with all that leads to it, for messages.
    name: str
    where: str
    file: IO[bytes]


def read_texts(archive, left_out):
    """Yield the documents of a corpus, files in the order of their names.

    ``archive`` is a folder, a tar or one file. ``left_out`` counts what is left out: blank
    documents, text files that are not UTF-8, and files that are neither text nor lines of
    documents.
    """
    with scratch_folder("texts") as scratch:
        for file in _files(archive, scratch):
            for text in _documents(file, left_out):
                if text.text.strip():
                    yield text
                else:
                    left_out[BLANK] += 1


def _files(path, scratch):
    """Yield the files of a folder, a tar or a file itself, open one at a time."""
    if path.is_dir():
        for entry in sorted(path.iterdir()):
            # A link to a folder may lead back to where it stands.
            if not entry.name.startswith(".") and not (entry.is_symlink() and entry.is_dir()):
                yield from _files(entry, scratch)
    elif is_tar(path.name):
        yield from _members(path, str(path), LARGEST_TAR, scratch)
    else:
        with damage_errors(path), path.open("rb") as raw:
            yield _File(path.name, str(path), _unpacked(path.name, raw))


def is_tar(name):
    """Whether the name of a file is that of a tar; .xz alone is one, as in OpenWebText."""
    if _TAR.search(name):
        return True
    return name.endswith(".xz") and not (_TEXT.search(name) or _LINES.search(name))


def _members(path, name, largest, scratch):
    """Yield the files of a tar, and of the tars in it, by way of a scratch file."""
    with damage_errors(name), tarfile.open(path) as tar:
        for member in checked_members(tar, largest):
            base = pathlib.PurePosixPath(member.name).name
            where = f"{name}, {shorten(member.name, 200)}"
            if not member.isfile() or base.startswith("."):
                continue
            if is_tar(base):
                inner = scratch / f"in-{path.name}"
                with inner.open("wb") as target:
                    shutil.copyfileobj(tar.extractfile(member), target)
                yield from _members(inner, where, LARGEST_INNER, scratch)
                continue
            with tar.extractfile(member) as raw:
                yield _File(base, where, _unpacked(base, raw))


def _unpacked(name, raw):
    opener = _PACKED.get(pathlib.PurePosixPath(name).suffix)
    return opener(raw, "rb") if opener else raw


def _documents(file, left_out):
    """Yield the documents of a file."""
    if _TEXT.search(file.name):
        yield from _whole(file, left_out)
    elif _LINES.search(file.name):
        yield from _of_lines(file)
    elif _WIKITEXT.search(file.name):
        yield from _of_wikitext(file)
    else:
        left_out[OTHER_FILE] += 1


def _whole(file, left_out):
    with damage_errors(file.where):
        content = file.file.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise DataError(file.where, f"more than {LARGEST_TEXT:,} bytes", "one document")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        left_out[NOT_UTF8] += 1
        return
    yield Text("", text)


def _of_lines(file):
    """Yield the documents of JSON lines, as `wikiextractor --json` writes them too."""
    for number, line in decoded_lines(bounded_lines(file.file, file.where), file.where):
        if line.strip():
            yield _of_json(line, f"{file.where}, line {number}")


def _of_wikitext(file):
    """Yield the articles of a file of WikiText, a paragraph a line.

    Headings within an article, and ``<unk>`` for rare words, are left out. Words are joined as they
    stood before they were set apart.
    """
    detokenize = MosesDetokenizer(lang="en").detokenize
    title, parts = "", []
    for _, line in decoded_lines(bounded_lines(file.file, file.where), file.where):
        heading = _HEADING.match(line.strip())
        if heading and heading[1] == "=":
            if parts:
                yield Text(title, "\n".join(parts))
            title, parts = heading[2], []
        elif not heading and line.strip():
            words = [word for word in _JOINED.sub(r"\1", line).split() if word != _RARE]
            parts.append(detokenize(words, unescape=False))
    if parts:
        yield Text(title, "\n".join(parts))


def _of_json(line, where):
    fields = json_value(line, where)
    if not isinstance(fields, dict) or "text" not in fields:
        raise DataError(where, shorten(fields), "a JSON object with text")
    title = fields.get("title")
    return Text(title if isinstance(title, str) else "", text_of(fields["text"], "text", where))
