"""Documents of any length as pairs of a question and overlapping windows of the document."""

from __future__ import annotations

import re
from typing import Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.errors import InputError, OptionError, shorten
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
        if stride < 0:
            raise OptionError("stride", stride, "a whole number from 0")
        self.inputs = inputs
        self._stride = stride

    def question(self, text: str, name: str = "") -> Tuple[List[int], bool]:
        """Tokenize a question by the rule for over-long questions."""
        inputs = self.inputs
        needed = inputs.max_length + 1
        [token_ids] = inputs.tokenizer.encode([text], needed)
        if not token_ids:
            where = f"question {shorten(name or text)}"
            raise InputError(where, "the question is empty", "text")
        fitting = inputs.fit_question(token_ids, name or text)
        truncated = len(fitting) < len(token_ids)
        return fitting, truncated

    def bounds(self, question_ids: Sequence[int], tokens: int) -> List[Tuple[int, int]]:
        """Divide the tokens of a document into windows."""
        inputs = self.inputs
        room = inputs.max_length - inputs.form.specials - len(question_ids)
        return token_windows(tokens, room, self._stride)

    def windows(self, question_ids: Sequence[int], documents: Sequence[Located]) -> List[Window]:
        """Pair a question with all windows of documents."""
        windows = []
        for index, document in enumerate(documents):
            token_ids = document.token_ids
            for start, end in self.bounds(question_ids, len(token_ids)):
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
    begins_before = starts < end
    ends_behind = ends > start
    visible = ends > starts
    indices = np.flatnonzero(begins_before & ends_behind & visible).tolist()
    if not indices:
        return -1, -1
    return indices[0], indices[-1]
