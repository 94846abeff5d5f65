"""Documents of any length as pairs of a question and overlapping windows of the document."""

from __future__ import annotations

import re
from typing import Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.errors import InputError, OptionError, shorten
from wqa.text.encoding import Encoded, PairEncoder
from wqa.text.tokenizers import Located


class Window(NamedTuple):
    """Neighbouring tokens of a document, paired with a question.

    Attributes
    ----------
    document : int
        Index of the document.
    start, end : int
        First token of the document in the window, and the one behind its last.
    pair : Encoded
        The question and these tokens. Token ``start`` is at position ``pair.boundary``.
    """

    document: int
    start: int
    end: int
    pair: Encoded


class WindowEncoder:
    """Pairs a question with windows of documents, so that all tokens are read.

    Parameters
    ----------
    encoder : PairEncoder
        Assembles pairs, and has the length limit and the rule for over-long questions.
    stride : int
        Tokens between the starts of neighbouring windows of a document; 0 for half of the room
        that the question leaves. A greater stride than that room is the room, so that no token is
        left out.

    Raises
    ------
    OptionError
        If the stride is below 0.
    """

    def __init__(self, encoder: PairEncoder, stride: int = 0) -> None:
        if stride < 0:
            raise OptionError("stride", stride, "a whole number from 0")
        self.encoder = encoder
        self._stride = stride

    def question(self, text: str, name: str = "") -> Tuple[List[int], bool]:
        """Tokenize a question by the rule for over-long questions.

        Parameters
        ----------
        text : str
            The question's text.
        name : str
            Name of the question in errors; its text by default.

        Returns
        -------
        token_ids : list of int
            Token ids, without special tokens.
        truncated : bool
            Whether the question was cut.

        Raises
        ------
        InputError
            If the question is empty.
        QuestionTooLong
            If it leaves fewer than 16 tokens for a document, and is not truncated.
        """
        encoder = self.encoder
        needed = encoder.max_length + 1
        [token_ids] = encoder.tokenizer.encode([text], needed)
        if not token_ids:
            where = f"question {shorten(name or text)}"
            raise InputError(where, "the question is empty", "text")
        fitting = encoder.fit_question(token_ids, name or text)
        truncated = len(fitting) < len(token_ids)
        return fitting, truncated

    def bounds(self, question_ids: Sequence[int], tokens: int) -> List[Tuple[int, int]]:
        """Divide the tokens of a document into windows.

        Parameters
        ----------
        question_ids : sequence of int
            Token ids of the question.
        tokens : int
            Number of tokens of the document.

        Returns
        -------
        list of (int, int)
            First token of each window, and the one behind its last; empty without a token.
        """
        encoder = self.encoder
        room = encoder.max_length - encoder.form.specials - len(question_ids)
        step = self._stride
        if not step:
            step = max(room // 2, 1)
        step = min(step, room)
        bounds = []
        start = 0
        end = 0
        while end < tokens:
            end = min(start + room, tokens)
            bounds.append((start, end))
            start += step
        return bounds

    def windows(self, question_ids: Sequence[int], documents: Sequence[Located]) -> List[Window]:
        """Pair a question with all windows of documents.

        Parameters
        ----------
        question_ids : sequence of int
            Token ids of the question.
        documents : sequence of Located
            The documents. One without a token has no window.

        Returns
        -------
        list of Window
            Windows in the order of the documents.
        """
        windows = []
        for index, document in enumerate(documents):
            token_ids = document.token_ids
            for start, end in self.bounds(question_ids, len(token_ids)):
                pair = self.encoder.assemble(question_ids, token_ids[start:end])
                windows.append(Window(index, start, end, pair))
        return windows


def occurrences(text: str, answers: Sequence[str]) -> Iterator[Tuple[int, int]]:
    """Find where answers occur in a text: as whole words, in any case, over any white space.

    Parameters
    ----------
    text : str
        A document's text.
    answers : sequence of str
        Texts of the answers, at least one.

    Yields
    ------
    (int, int)
        First character of an occurrence, and the one behind its last, ascending. They do not
        overlap; of answers that start at one character the longest counts.
    """
    patterns = []
    for answer in sorted(set(answers), key=len, reverse=True):
        words = map(re.escape, answer.split())
        patterns.append(r"\s+".join(words))
    pattern = rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)"
    for match in re.finditer(pattern, text, re.IGNORECASE):
        yield match.span()


def tokens_of(document: Located, start: int, end: int) -> Tuple[int, int]:
    """Tokens of a document that cover characters of it.

    Parameters
    ----------
    document : Located
        The document.
    start, end : int
        First character, and the one behind the last.

    Returns
    -------
    (int, int)
        First and last token; (-1, -1) if no token covers a character of them.
    """
    _, starts, ends = document
    begins_before = starts < end
    ends_behind = ends > start
    visible = ends > starts
    indices = np.flatnonzero(begins_before & ends_behind & visible).tolist()
    if not indices:
        return -1, -1
    return indices[0], indices[-1]
