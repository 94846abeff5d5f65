"""Documents of large text corpora, one at a time: folders and tars, also inside one another, of
text files, JSON lines, and the files of WikiExtractor and of WikiText."""

import bz2
import gzip
import lzma
import pathlib
import re
import shutil
import tarfile
import tempfile

from releases import LARGEST_TAR, damage_errors
from sacremoses import MosesDetokenizer

from wqa.errors import DataError, shorten
from wqa.io.files import checked_members
from wqa.io.lines import LONGEST_LINE, bounded_lines, decoded_lines, json_value, text_of

#: Greatest size in bytes, unpacked, of a tar in a tar.
LARGEST_INNER = 1 << 33

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


def read_texts(archive, left_out):
    """Yield title and text of the documents of a corpus, files in the order of their names.

    ``archive`` is a folder, a tar or one file. ``left_out`` counts what is left out: blank
    documents, text files that are not UTF-8, and files that are neither text nor lines of
    documents. The title is empty where the corpus has none.
    """
    for name, where, file in _files(archive):
        for title, text in _documents(name, where, file, left_out):
            if text.strip():
                yield title, text
            else:
                left_out["blank"] += 1


def _files(path):
    """Yield the files of a folder, a tar or a file itself, as `_unpacked` does."""
    if path.is_dir():
        for entry in sorted(path.iterdir()):
            # A link to a folder may lead back to where it stands.
            if not entry.name.startswith(".") and not (entry.is_symlink() and entry.is_dir()):
                yield from _files(entry)
    else:
        with damage_errors(path), path.open("rb") as raw:
            yield from _unpacked(path.name, str(path), raw, LARGEST_TAR)


def _is_tar(name):
    """Whether the name of a file is that of a tar; .xz alone is one, as in OpenWebText."""
    is_plain = any(form.search(name) for form in (_TEXT, _LINES, _WIKITEXT))
    return bool(_TAR.search(name)) or (name.endswith(".xz") and not is_plain)


def _unpacked(name, where, raw, largest):
    """Yield a file, or the files of a tar and of the tars in it, open one at a time.

    Each comes with its name without folders, and with all that leads to it, for messages.
    """
    if not _is_tar(name):
        opener = _PACKED.get(pathlib.PurePosixPath(name).suffix)
        yield name, where, opener(raw, "rb") if opener else raw
        return
    with damage_errors(where), tarfile.open(fileobj=raw) as tar:
        for member in checked_members(tar, largest):
            base = pathlib.PurePosixPath(member.name).name
            if not member.isfile() or base.startswith("."):
                continue
            with tar.extractfile(member) as file, tempfile.TemporaryFile() as copy:
                if _is_tar(base):  # going back in it would unpack the outer one again
                    shutil.copyfileobj(file, copy)
                    copy.seek(0)
                place = f"{where}, {shorten(member.name, 200)}"
                yield from _unpacked(base, place, copy if _is_tar(base) else file, LARGEST_INNER)


def _documents(name, where, file, left_out):
    """Yield title and text of the documents of a file."""
    if _TEXT.search(name):
        yield from _whole(where, file, left_out)
    elif _LINES.search(name):
        yield from _of_lines(where, file)
    elif _WIKITEXT.search(name):
        yield from _of_wikitext(where, file)
    else:
        left_out["files of other kinds"] += 1


def _whole(where, file, left_out):
    with damage_errors(where):
        content = file.read(LONGEST_LINE + 1)
    if len(content) > LONGEST_LINE:
        raise DataError(where, f"more than {LONGEST_LINE:,} bytes", "one document")
    try:
        yield "", content.decode("utf-8")
    except UnicodeDecodeError:
        left_out["not UTF-8"] += 1


def _of_lines(where, file):
    """Yield the documents of JSON lines, as `wikiextractor --json` writes them too."""
    for number, line in decoded_lines(bounded_lines(file, where), where):
        if line.strip():
            place = f"{where}, line {number}"
            fields = json_value(line, place)
            if not isinstance(fields, dict) or "text" not in fields:
                raise DataError(place, shorten(fields), "a JSON object with text")
            title = fields.get("title")
            yield title if isinstance(title, str) else "", text_of(fields["text"], "text", place)


def _of_wikitext(where, file):
    """Yield the articles of a file of WikiText, a paragraph a line.

    Headings within an article, and ``<unk>`` for rare words, are left out. Words are joined as they
    stood before they were set apart.
    """
    detokenize = MosesDetokenizer(lang="en").detokenize
    title, parts = "", []
    for _, line in decoded_lines(bounded_lines(file, where), where):
        heading = _HEADING.match(line.strip())
        if heading and heading[1] == "=":
            if parts:
                yield title, "\n".join(parts)
            title, parts = heading[2], []
        elif not heading and line.strip():
            words = [word for word in _JOINED.sub(r"\1", line).split() if word != _RARE]
            parts.append(detokenize(words, unescape=False))
    if parts:
        yield title, "\n".join(parts)
