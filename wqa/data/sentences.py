"""Where the sentences of a document begin and end.

A document is divided into blocks, and a block into sentences by pysbd. Blocks end at blank lines.
In the light Markdown that documents of a folder have, a row of a table and an item of a list are
blocks of their own; headings, lines of code and rules are no sentences.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, List, Sequence, Tuple

from wqa.errors import MissingDependency, how_to_install

#: Greatest length of a text that is split into sentences at once, in characters. The splitter's
#: time grows with the square of it. Longer sentences are cut there.
LONGEST_PIECE = 4000

#: What may end a sentence: where a long text is cut.
_END = re.compile(r"[.!?…]['\"’”)\]]*\s")
_LINE = re.compile(r"[^\n]*\n?")
_RULE = re.compile(r"\s*([-*_=])(?:\s*\1){2,}\s*$")
_FENCE = re.compile(r"\s*(`{3,}(?=[^`]*$)|~{3,})(.*)")
_HEADING = re.compile(r"\s*#{1,6}\s")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_ROW = re.compile(r"\s*\|(?P<cells>.*?)\|?\s*$")
_WORD = re.compile(r"\w")
#: White space, which pysbd takes for the end of a sentence where it is the end of a line.
_BREAKS = str.maketrans("\n\r\t\v\f\x1c\x1d\x1e\x85\u2028\u2029", " " * 11)

#: Changes whenever the sentences of a text do, or the texts that folders give.
RULES = 2

Span = Tuple[int, int]


def make_segmenter() -> Any:
    """Return pysbd's splitter of English sentences, which the extra ``corpora`` installs."""
    try:
        import pysbd
    except ImportError:
        raise MissingDependency(
            "pysbd", "is not installed", "the sentence splitter", how_to_install("corpora")
        ) from None
    return pysbd.Segmenter(language="en", clean=False, char_span=True)


def pieces(text: str) -> Iterator[str]:
    """Yield parts of a text of at most `LONGEST_PIECE` characters, cut where a sentence may end.

    A part without such a place is cut at its last space, and without a space at its end.
    """
    start = 0
    while len(text) - start > LONGEST_PIECE:
        part = text[start : start + LONGEST_PIECE]
        ends = [match.end() for match in _END.finditer(part)]
        cut = (ends or [part.rfind(" ") + 1])[-1] or LONGEST_PIECE
        yield part[:cut]
        start += cut
    yield text[start:]


class SentenceSplitter:
    """Finds the sentences of documents.

    Attributes
    ----------
    name : str
        Library, version and our rules, which indexes record.

    Raises
    ------
    MissingDependency
        If pysbd is not installed.
    """

    def __init__(self) -> None:
        self._segmenter = make_segmenter()
        from importlib.metadata import version

        self.name = f"pysbd {version('pysbd')}, rules {RULES}"

    def spans(self, text: str) -> List[Span]:
        """Find the sentences of a text.

        Parameters
        ----------
        text : str
            Text of a document.

        Returns
        -------
        list of tuple of int
            Start and end of each sentence in characters, in order, without white space at either
            end. Each holds a letter or a digit.
        """
        spans = []
        for start, end, is_row in _blocks(text):
            if is_row:
                spans.append((start, end))
                continue
            for piece in pieces(text[start:end].translate(_BREAKS)):
                spans += [(start + first, start + last) for first, last in self._split(piece)]
                start += len(piece)
        stripped = [_strip(text, *span) for span in spans]
        return [span for span in stripped if _WORD.search(text, *span)]

    def _split(self, piece: str) -> List[Span]:
        """Sentences of a piece of a block; together they hold all of it."""
        starts = {0}
        for sentence in self._segmenter.segment(piece):
            starts.add(sentence.start)
        bounds = [*sorted(starts), len(piece)]
        return list(zip(bounds, bounds[1:]))


def _blocks(text: str) -> Iterator[Tuple[int, int, bool]]:
    """Start and end of each block, and whether it is a row of a table."""
    start = end = 0  # of the block that is being read; empty where there is none
    lines = [(line.start(), line.group()) for line in _LINE.finditer(text)]
    code = code_lines([content for _, content in lines])
    for (begin, content), is_code in zip(lines, code):
        row, item = _ROW.match(content), _ITEM.match(content)
        is_other = not content.strip() or _HEADING.match(content) or _RULE.match(content)
        is_text = not (is_code or row or is_other)
        if (item or not is_text) and end > start:
            yield start, end, False
            start = end
        if is_text:
            if end == start:
                start = begin + (item.end() if item else 0)
            end = begin + len(content)
        elif row and not is_code:
            yield (*_span_of(begin, row), True)
    if end > start:
        yield start, end, False


def code_lines(lines: Sequence[str]) -> List[bool]:
    """Whether each line is in a block of code or a fence of it; a fence that none ends is text."""
    is_code = [False] * len(lines)
    first, opening = 0, ""  # line and mark of the fence of a block
    for number, line in enumerate(lines):
        fence = _FENCE.match(line.rstrip())
        if fence is None:
            continue
        mark, rest = fence.groups()
        if not opening:
            first, opening = number, mark
        elif mark[0] == opening[0] and len(mark) >= len(opening) and not rest.strip():
            is_code[first : number + 1] = [True] * (number + 1 - first)
            opening = ""
    return is_code


def _span_of(offset: int, row: re.Match[str]) -> Span:
    start, end = row.span("cells")
    return offset + start, offset + end


def _strip(text: str, start: int, end: int) -> Span:
    """A span without the white space at its ends."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - (len(part) - len(part.rstrip()))
