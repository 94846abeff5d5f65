"""Releases of several files of lines: a zip, or a folder of the same files, plain or .gz."""

import contextlib
import pathlib
import zipfile

from wikiqa import ZIP_DAMAGE

from wqa.errors import DataError, shorten
from wqa.io.lines import bounded_lines, decoded_lines, open_bytes


class Release:
    """The files of a release, by their names without folders.

    ``corpus`` names what the files are, for messages.
    """

    def __init__(self, archive, corpus):
        self.archive = archive
        self._corpus = corpus
        self._stack = contextlib.ExitStack()
        self._members = {}
        self._zip = None
        if not archive.is_dir():
            self._open_zip()

    def _open_zip(self):
        try:
            self._zip = self._stack.enter_context(zipfile.ZipFile(self.archive))
        except ZIP_DAMAGE as error:
            raise DataError(
                self.archive,
                f"cannot be read ({error})",
                "the zip of the release, or its folder",
                "fetch it again, or unpack it and pass the folder",
            ) from None
        for member in self._zip.infolist():
            if "__MACOSX" not in member.filename:
                self._members[pathlib.PurePosixPath(member.filename).name] = member

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._stack.close()

    def holds(self, name):
        """Whether the release has a file."""
        return name in self._members or any(path.exists() for path in self._paths(name))

    def lines(self, name, largest):
        """Yield the lines of a file, and where each stands; ``largest`` is its size in bytes."""
        with self._opened(name) as (file, where):
            lines = decoded_lines(bounded_lines(file, where, largest=largest), where)
            for number, line in _guarded(lines, where):
                yield line, f"{where}, line {number}"

    def _paths(self, name):
        if self._zip is None:
            return [self.archive / name, self.archive / f"{name}.gz"]
        return []

    @contextlib.contextmanager
    def _opened(self, name):
        for path in self._paths(name):
            if path.exists():
                with open_bytes(path) as file:
                    yield file, path
                return
        if name not in self._members:
            raise DataError(self.archive, f"holds no {name}", f"all files of {self._corpus}")
        member = self._members[name]
        where = f"{self.archive}, {shorten(member.filename)}"
        if member.flag_bits & 1:
            raise DataError(where, "is encrypted", "the zip of the release, which is not")
        with self._zip.open(member) as file:
            yield file, where


def _guarded(lines, where):
    """Yield lines, and convert what a damaged zip raises while they are read."""
    try:
        yield from lines
    except DataError:
        raise
    except ZIP_DAMAGE as error:
        raise DataError(
            where, f"cannot be read ({error})", "a whole file", "fetch it again"
        ) from None
