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
        [token_ids] = encoder.tokenizer.encode([text], encoder.max_length + 1)
        if not token_ids:
            raise InputError(f"question {shorten(name or text)}", "the question is empty", "text")
        fitting = encoder.fit_question(token_ids, name or text)
        return fitting, len(fitting) < len(token_ids)

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
        room = self.encoder.max_length - self.encoder.form.specials - len(question_ids)
        step = min(self._stride or max(room // 2, 1), room)
        bounds = []
        start = 0
        while start < tokens:
            end = min(start + room, tokens)
            bounds.append((start, end))
            if end == tokens:
                break
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
            for start, end in self.bounds(question_ids, len(document.token_ids)):
                pair = self.encoder.assemble(question_ids, document.token_ids[start:end])
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
        patterns.append(r"\s+".join(map(re.escape, answer.split())))
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
    inside = (document.ends > start) & (document.starts < end) & (document.ends > document.starts)
    indices = np.flatnonzero(inside)
    if not len(indices):
        return -1, -1
    return int(indices[0]), int(indices[-1])
