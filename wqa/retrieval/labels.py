"""Distant labels: whether a document contains an answer exactly (DC-BERT, section 2).

An answer is contained where its tokens occur in the text one after another, without regard to case,
after Unicode normalization. That is the rule of DrQA's evaluation (Chen et al. 2017), in which P@N
is defined: the answer "art" is in "Art of war", not in "start".
"""

from __future__ import annotations

from typing import Iterable, Sequence

from wqa.retrieval.methods import tokenize


def contains_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether a text contains one of several answers.

    Parameters
    ----------
    text : str
        Text of a document.
    answers : iterable of str
        Texts that answer a question.

    Returns
    -------
    bool
        True if the tokens of an answer occur in the text in a row. An answer without a token is
        contained in no text.
    """
    return contains_spans(joined(text), [joined(answer) for answer in answers])


def joined(text: str) -> str:
    """Tokens of a text as one string, in which `contains_spans` finds spans."""
    tokens = tokenize(text)
    if not tokens:
        return ""
    return f" {' '.join(tokens)} "


def contains_spans(document: str, spans: Sequence[str]) -> bool:
    """Whether the tokens of a document contain one of several spans."""
    return any(span in document for span in spans if span)
