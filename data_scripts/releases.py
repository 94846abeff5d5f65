"""Releases of corpora: their download, and their files in folders, zips and tars."""

import contextlib
import http.client
import pathlib
import re
import sys
import tarfile
import urllib.request
import zipfile

from tqdm import tqdm

from wqa.data import parse_json
from wqa.data.records import check_id
from wqa.errors import DataError, printable, shorten
from wqa.io.files import BLOCK, TAR_DAMAGE, atomic_writer, checked_members, sha256
from wqa.io.lines import bounded_lines, decoded_lines, open_bytes

#: Addresses of TANDA's release, of its corpus and its encoders, the present one first.
TANDA = (
    "https://d3t7erp6ge410c.cloudfront.net/tanda-aaai-2020",
    "https://wqa-public.s3.amazonaws.com/tanda-aaai-2020",
)
#: Raised while a damaged file, tar or zip is read; a zip that is encrypted is a RuntimeError.
DAMAGE = (*TAR_DAMAGE, zipfile.BadZipFile, RuntimeError)
#: Raised by a record of another form.
MISFITS = (ValueError, KeyError, TypeError, IndexError, AttributeError)
#: Greatest size of a tar, unpacked, in bytes.
LARGEST_TAR = 1 << 40


def note(text):
    """Print a note on standard error."""
    print(printable(f"note: {text}"), file=sys.stderr)


class AddressError(DataError):
    """An address that cannot be reached, or that does not hold the file."""


def check_digest(path, published, where, hint="run the command again"):
    """Compare a file with its published SHA-256, if there is one; return its own."""
    digest = sha256(path)
    if published and digest != published:
        raise DataError(where, f"SHA-256 {digest}", published, hint)
    return digest


def download(urls, target, published="", hint="pass it with --archive"):
    """Download a file from the first address that gives it, and return its SHA-256.

    ``published``, a SHA-256 where given, is checked before the file gets its name. ``hint`` says
    what to do with a local copy, for messages.
    """
    failures = []
    for url in [urls] if isinstance(urls, str) else urls:
        try:
            return _fetch(url, target, published)
        except AddressError as error:
            failures.append(f"{error.where}: {error.found}")
            note(failures[-1])
    found = "no address gives it: " + ", ".join(failures)
    raise DataError(target.name, found, hint=f"fetch it elsewhere and {hint}")


def _fetch(url, target, published):
    with atomic_writer(target, "wb") as file:
        file.writelines(_blocks(url))
        file.flush()
        digest = sha256(file.name)
        if published and digest != published:
            raise AddressError(url, f"SHA-256 {digest} in place of {published}")
    return digest


def _blocks(url):
    """Yield the blocks of a file of a server, behind a progress bar."""
    try:
        with urllib.request.urlopen(url, timeout=60) as source:
            if source.headers.get_content_type() == "text/html":
                raise OSError("a page in place of the file")
            with tqdm.wrapattr(source, "read", total=source.length, delay=1) as reader:
                yield from iter(lambda: reader.read(BLOCK), b"")
            if source.length:
                raise OSError(f"{source.length} bytes are missing")
    except (OSError, http.client.HTTPException) as error:
        raise AddressError(url, f"cannot be fetched ({error})") from None


def plain_or_packed(folder, *names):
    """Return the first of some files of a folder, each plain or .gz, or None."""
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.exists():
                return path
    return None


def find_files(archive, pattern, expected):
    """Return the files of a folder, or the only one, by the group that a pattern of names has."""
    files = {}
    for path in sorted(archive.iterdir()) if archive.is_dir() else [archive]:
        match = re.fullmatch(pattern, path.name)
        if match and path.exists():
            if match[1] in files:
                raise DataError(path, f"a second file of {match[1]}", "one", "delete it")
            files[match[1]] = path
    if not files:
        raise DataError(archive, "holds no such file", expected)
    return files


def lines_of(archive, name):
    """Yield where each line of a file of a release stands, and the line.

    The archive is a folder with the file, plain or .gz, or a zip or a tar with it in any folder.
    """
    with open_member(archive, name) as (file, where), damage_errors(where):
        for number, line in decoded_lines(bounded_lines(file, where), where):
            yield f"{where}, line {number}", line


@contextlib.contextmanager
def open_member(archive, name):
    """Open a file of a release for reading bytes; yields it and where it stands."""
    with contextlib.ExitStack() as stack:
        if archive.is_dir():
            path = plain_or_packed(archive, name)
            if path is None:
                raise DataError(archive, f"holds no {name}", "it, or it as .gz")
            yield stack.enter_context(open_bytes(path)), path
            return
        with damage_errors(archive):
            opener = _from_zip if zipfile.is_zipfile(archive) else _from_tar
            file, member = opener(archive, name, stack)
        yield file, f"{archive}, {shorten(member)}"


def _from_zip(archive, name, stack):
    packed = stack.enter_context(zipfile.ZipFile(archive))
    for member in packed.infolist():
        if _is(member.filename, name):
            return stack.enter_context(packed.open(member)), member.filename
    raise DataError(archive, f"holds no {name}", "the zip of the release")


def _from_tar(archive, name, stack):
    tar = stack.enter_context(tarfile.open(archive))  # noqa: SIM115
    for member in checked_members(tar, LARGEST_TAR):
        if member.isfile() and _is(member.name, name):
            return stack.enter_context(tar.extractfile(member)), member.name
    raise DataError(archive, f"holds no {name}", "the tar of the release")


def _is(member, name):
    """Whether a member is a file of a name; __MACOSX holds files of macOS's own."""
    return pathlib.PurePosixPath(member).name == name and "__MACOSX" not in member


@contextlib.contextmanager
def damage_errors(where):
    """Convert what a damaged archive raises while it is read into a `DataError`."""
    try:
        yield
    except DAMAGE as error:
        reason = str(error) or type(error).__name__
        raise DataError(
            where, f"cannot be read ({reason})", "a whole file of the release", "fetch it again"
        ) from None


@contextlib.contextmanager
def expecting(where, expected):
    """Convert what a record of another form raises into a `DataError`."""
    try:
        yield
    except MISFITS as error:
        raise DataError(where, f"{type(error).__name__}: {error}", expected) from None


def id_of(value, where):
    """Take a number, or a text without white space, as an id."""
    if type(value) is not int:
        check_id(value, where)
    return str(value)


def json_of(path):
    """Return the JSON of a file, plain or .gz."""
    with damage_errors(path), open_bytes(path) as file:
        return parse_json(file.read())
