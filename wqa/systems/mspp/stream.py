"""Examples of many documents at bounded memory, in a random order that can be resumed.

An epoch reads the files of a source in a random order, each from its start. Documents fill a
buffer; when it is full, the examples of the new ones are drawn in a random order, and then new
documents replace old ones, one for one. At the end of the source, old documents remain in the
buffer for the easy negatives of the last examples. An example thus comes at most a buffer's length
from where its document stands, so that corpora are mixed only if the documents of a file are, and
`--files` of `data_scripts/paragraphs.py` deals them out to several.

The generator of each example depends on the seed, the epoch, the number of its buffer and its index
in it. To resume, the documents before are read and counted, but nothing is drawn, and no state is
saved.
"""

from __future__ import annotations

import itertools
from typing import Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.data.paragraphs import (
    Minima,
    ParagraphCounts,
    ParagraphDocument,
    keep_long,
    paragraph_files,
    read_paragraphs,
)
from wqa.errors import DataError, OptionError
from wqa.io.files import PathLike
from wqa.systems.mspp.examples import ExampleSettings, ParagraphExample, draw_example

#: Number of characters of new documents at which a buffer is full, so that one of books has fewer
#: documents than one of news.
MOST_CHARACTERS = 1 << 28

#: Second numbers of the seeds of generators, so that they are different ones.
_FILES, _ORDER, _EXAMPLE = range(100, 103)


class _Buffer(NamedTuple):
    """Documents in memory."""

    documents: List[ParagraphDocument]
    new: int

    def indices(self) -> List[Tuple[int, int]]:
        """Indices of the new documents and their paragraphs with two sentences or more."""
        indices = []
        for index, document in enumerate(self.documents[: self.new]):
            for number, sentences in enumerate(document.paragraphs):
                if len(sentences) > 1:
                    indices.append((index, number))
        return indices


class ParagraphStream:
    """Examples of a source of documents.

    Parameters
    ----------
    sources : sequence of path-like
        Files, and folders of files, as `paragraph_files` takes them.
    settings : ExampleSettings
        Numbers and lengths of the candidates.
    minima : Minima
        Least lengths of sentences, paragraphs and documents.
    buffer_size : int
        Greatest number of documents in memory, 2 or more, beside the one that is read.

    Attributes
    ----------
    files : list of pathlib.Path
        All files of the sources.

    Raises
    ------
    DataError
        If a source does not exist, or is a folder without files of documents.
    OptionError
        If the buffer holds fewer than two documents, or there is no source.
    """

    def __init__(
        self,
        sources: Sequence[PathLike],
        settings: ExampleSettings = ExampleSettings(),  # noqa: B008 - it is immutable
        minima: Minima = Minima(),  # noqa: B008 - it is immutable
        buffer_size: int = 10_000,
    ) -> None:
        if buffer_size < 2:
            raise OptionError("buffer_size", buffer_size, "2 or more documents")
        if not sources:
            raise OptionError("sources", "none", "at least one file or folder of documents")
        self.files = [path for source in sources for path in paragraph_files(source)]
        self.settings, self.minima, self.buffer_size = settings, minima, buffer_size
        #: Seed, epoch and number of the example that `_upcoming` yields next.
        self._position = (0, 0, 0)
        self._upcoming: Iterator[ParagraphExample] = iter(())

    def count(self) -> ParagraphCounts:
        """Read all documents, and count what is kept and left out.

        Returns
        -------
        ParagraphCounts
            The counts; ``examples`` is the number of examples of an epoch.

        Raises
        ------
        DataError
            If a file cannot be read.
        """
        counts = ParagraphCounts()
        for _ in self._documents(range(len(self.files)), counts):
            pass
        return counts

    def examples(self, seed: int, epoch: int = 0, start: int = 0) -> Iterator[ParagraphExample]:
        """Draw the examples of an epoch, one for each paragraph of two sentences or more.

        Parameters
        ----------
        seed, epoch : int
            Seed and number of the epoch, which determine all draws.
        start : int
            Number of examples that were drawn before; the others are the same as without it.

        Yields
        ------
        ParagraphExample
            The examples in a random order.

        Raises
        ------
        DataError
            If a file cannot be read, or the source has no paragraph of two sentences, or a single
            document, where easy negatives are needed.
        """
        passed = 0  # examples of the buffers before
        for number, buffer in enumerate(self._buffers(seed, epoch)):
            indices = buffer.indices()
            if start < passed + len(indices):
                order = _generator(seed, _ORDER, epoch, number).permutation(len(indices))
                for index in order[max(start - passed, 0) :]:
                    rng = _generator(seed, _EXAMPLE, epoch, number, int(index))
                    document, paragraph = indices[index]
                    yield draw_example(buffer.documents, document, paragraph, self.settings, rng)
            passed += len(indices)
        if not passed:
            raise DataError(
                ", ".join(map(str, self.files[:3])),
                "no paragraph with two sentences is left",
                "documents whose paragraphs have several sentences",
                "lower the minima, or check how the documents were split",
            )

    def take(self, seed: int, epoch: int, start: int, count: int) -> List[ParagraphExample]:
        """Take some examples of an epoch, such as those of a batch.

        The next examples of the same epoch are read on; for others the epoch is begun again.

        Parameters
        ----------
        seed, epoch, start : int
            As `examples` takes them.
        count : int
            Number of examples.

        Returns
        -------
        list of ParagraphExample
            Fewer than ``count`` only at the end of the epoch.

        Raises
        ------
        DataError
            As by `examples`.
        """
        if (seed, epoch, start) != self._position or not start:
            self._upcoming = self.examples(seed, epoch, start)
        self._position = (0, 0, 0)  # after an error nothing is read on
        taken = list(itertools.islice(self._upcoming, count))
        self._position = (seed, epoch, start + len(taken))
        return taken

    def _buffers(self, seed: int, epoch: int) -> Iterator[_Buffer]:
        order = _generator(seed, _FILES, epoch).permutation(len(self.files))
        documents: List[ParagraphDocument] = []
        counts = ParagraphCounts()
        new = characters = 0
        for document in self._documents(order, counts):
            documents[new : new + 1] = [document]
            new += 1
            is_large = counts.characters - characters >= MOST_CHARACTERS and new > 1
            if is_large:
                del documents[new:]
            if is_large or new == self.buffer_size:
                yield _Buffer(documents, new)
                new, characters = 0, counts.characters
        if new:
            yield _Buffer(documents, new)

    def _documents(
        self, order: Iterable[int], counts: ParagraphCounts
    ) -> Iterator[ParagraphDocument]:
        for index in order:
            yield from keep_long(read_paragraphs(self.files[index]), self.minima, counts)


def _generator(*numbers: int) -> np.random.Generator:
    return np.random.default_rng(list(numbers))
