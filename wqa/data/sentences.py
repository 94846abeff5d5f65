"""Where the sentences of a document begin and end.

A document is divided into blocks, and a block into sentences by sentencex. Blocks end at blank
lines. In the light Markdown that documents of a folder have, a row of a table and an item of a list
are blocks of their own; headings, lines of code and rules are no sentences.
"""

from __future__ import annotations

import re
from typing import Iterator, List, Sequence, Tuple

from wqa.errors import not_installed

#: Greatest length of a text that is split into sentences at once, in characters. Longer sentences
#: are cut there.
LONGEST_PIECE = 4000

#: What may end a sentence: where a long text is cut.
_END = re.compile(r"[.!?…]['\"’”)\]]*\s")
_MARKS = "\"“”«»„‟‹›「」『』《》'‘’‚‛"
#: What is a space to the splitter: line ends, which it takes for ends of sentences, and quotation
#: marks, between which it finds none, however far apart they are.
_BLANK = re.compile(rf"[\s\\{_MARKS}]")
_LINE = re.compile(r"[^\n]*\n?")
_RULE = re.compile(r"\s*([-*_=])(?:\s*\1){2,}\s*$")
_FENCE = re.compile(r"\s*(`{3,}(?=[^`]*$)|~{3,})(.*)")
_HEADING = re.compile(r"\s*#{1,6}\s")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_ROW = re.compile(r"\s*\|(?P<cells>.*?)\|?$")
_WORD = re.compile(r"\w")
#: A text without the white space at its ends.
_CONTENT = re.compile(r"\S(?:.*\S)?", re.DOTALL)

#: Changes whenever the sentences of a text do, or the texts that folders give.
RULES = 5

Span = Tuple[int, int]


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
        If sentencex, the extra ``corpora``, is not installed.
    """

    def __init__(self) -> None:
        try:
            import sentencex
        except ImportError:
            raise not_installed("sentencex", "the sentence splitter", "corpora") from None
        from importlib.metadata import version

        self._segment = sentencex.segment
        self.name = f"sentencex {version('sentencex')}, rules {RULES}"

    def split(self, text: str) -> List[Span]:
        """Find the sentences of a text without blocks; together they hold all of it.

        Parameters
        ----------
        text : str
            Any text.

        Returns
        -------
        list of tuple of int
            Start and end of each sentence in characters, in order, with the white space behind it.
        """
        starts: List[int] = []
        offset = 0
        for piece in pieces(text):
            starts += [offset + start for start in self._starts(piece)]
            offset += len(piece)
        return list(zip(starts, [*starts[1:], len(text)]))

    def _starts(self, text: str) -> Iterator[int]:
        """Where the sentences of a piece begin, the first at 0."""
        yield 0
        blanked = _BLANK.sub(" ", text)
        end = 0  # of the words of the sentence before
        for sentence in filter(None, map(str.strip, self._segment("en", blanked))):
            start = blanked.index(sentence, end)
            # A sentence in quotation marks goes on: "Why?" she asked.
            if end and not text[start].islower():
                between = text[end:start]
                yield start - len(between.lstrip(_MARKS))
            end = start + len(sentence)

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
            inside = [(0, end - start)]
            if not is_row:
                inside = self.split(text[start:end])
            spans += [(start + first, start + last) for first, last in inside]
        contents = [_CONTENT.search(text, *span) for span in spans]
        return [content.span() for content in contents if content and _WORD.search(content[0])]


def _blocks(text: str) -> Iterator[Tuple[int, int, bool]]:
    """Start and end of each block, and whether it is a row of a table."""
    start = end = 0  # of the block that is being read; empty where there is none
    lines = [(line.start(), line.group()) for line in _LINE.finditer(text)]
    code = code_lines([content for _, content in lines])
    for (begin, content), is_code in zip(lines, code):
        row, item = _ROW.match(content.rstrip()), _ITEM.match(content)
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
            yield begin + row.start("cells"), begin + row.end("cells"), True
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
