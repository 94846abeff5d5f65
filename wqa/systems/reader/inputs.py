"""Documents of any length as pairs of a question and overlapping windows of the document."""

from __future__ import annotations

import re
from typing import Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.errors import check_range
from wqa.text.inputs import PairInputs, TextInput
from wqa.text.tokenizers import Located
from wqa.text.windows import token_windows


class Window(NamedTuple):
    """Neighbouring tokens of a document, paired with a question."""

    document: int
    start: int
    end: int
    pair: TextInput


class WindowInputs:
    """Pairs a question with windows of documents, so that all tokens are read."""

    def __init__(self, inputs: PairInputs, stride: int = 0) -> None:
        check_range("stride", stride, 0)
        self.inputs = inputs
        self._stride = stride

    def windows(self, question_ids: Sequence[int], documents: Sequence[Located]) -> List[Window]:
        """Pair a question with all windows of documents."""
        room = self.inputs.max_length - self.inputs.form.specials - len(question_ids)
        windows = []
        for index, document in enumerate(documents):
            token_ids = document.token_ids
            for start, end in token_windows(len(token_ids), room, self._stride):
                pair = self.inputs.assemble(question_ids, token_ids[start:end])
                windows.append(Window(index, start, end, pair))
        return windows


def occurrences(text: str, answers: Sequence[str]) -> Iterator[Tuple[int, int]]:
    """Find where answers occur in a text: as whole words, in any case, over any white space."""
    patterns = []
    for answer in sorted(set(answers), key=len, reverse=True):
        words = map(re.escape, answer.split())
        patterns.append(r"\s+".join(words))
    pattern = rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)"
    for match in re.finditer(pattern, text, re.IGNORECASE):
        yield match.span()


def tokens_of(document: Located, start: int, end: int) -> Tuple[int, int]:
    """Tokens of a document that cover characters of it."""
    _, starts, ends = document
    covering = np.flatnonzero((starts < end) & (ends > start) & (ends > starts)).tolist()
    return (covering[0], covering[-1]) if covering else (-1, -1)
