"""Examples of Multi-Sentences in Paragraph Prediction (Di Liello et al. 2022, section 3.4).

A premise and k candidates, of which the model says whether they share the premise's paragraph: one
of that paragraph (the positive), some of other paragraphs of its document (hard negatives), and
some of other documents (easy negatives).

Where the paper leaves open how they are drawn, the released code of its authors decides:

- The positive comes after the premise, and each paragraph with two sentences gives one example.
- Candidates are spans of one or two sentences. A span of two is drawn only where it fits.
- Hard negatives come from up to four other paragraphs of the document, drawn at random. A sentence
  is part of one of them at most. Those that the document does not have are easy ones.

A negative never shares the premise's paragraph, by the definition of the labels in section 3.4. The
authors' code may label a span before the premise as negative.
"""

from __future__ import annotations

import dataclasses
from typing import List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.data.paragraphs import Paragraph, ParagraphDocument
from wqa.errors import DataError, OptionError

#: Kinds of candidates; `ParagraphExample.kinds` holds indices in this list.
KINDS = ("positive", "hard", "easy")
POSITIVE, HARD, EASY = range(3)


@dataclasses.dataclass(frozen=True)
class ExampleSettings:
    """Numbers and lengths of the candidates of an example.

    Parameters
    ----------
    hard, easy : int
        Numbers of hard and easy negatives, beside one positive: k_2 and k_3 of section 4.1.
    paragraphs : int
        Greatest number of other paragraphs of the document that hard negatives come from.
    premise_sentences, candidate_sentences : int
        Greatest number of sentences of the premise and of a candidate. Lengths are drawn uniformly
        from 1 up to it.

    Raises
    ------
    OptionError
        If a number is too small.
    """

    hard: int = 2
    easy: int = 2
    paragraphs: int = 4
    premise_sentences: int = 1
    candidate_sentences: int = 2

    def __post_init__(self) -> None:
        least = {"hard": 0, "easy": 0}
        for field in dataclasses.fields(self):
            value, lowest = getattr(self, field.name), least.get(field.name, 1)
            if value < lowest:
                raise OptionError(field.name, value, f"{lowest} or more")

    @property
    def candidates(self) -> int:
        """k, the number of candidates of an example."""
        return 1 + self.hard + self.easy


class ParagraphExample(NamedTuple):
    """A premise and its candidates, in a random order.

    Attributes
    ----------
    premise : str
        One or more sentences, joined by spaces.
    candidates : tuple of str
        k spans of one or more sentences.
    kinds : tuple of int
        Kind of each candidate, an index in `KINDS`.
    """

    premise: str
    candidates: Tuple[str, ...]
    kinds: Tuple[int, ...]

    @property
    def labels(self) -> Tuple[int, ...]:
        """1 for a candidate of the premise's paragraph, 0 for another, in candidate order."""
        return tuple(int(kind == POSITIVE) for kind in self.kinds)


def draw_example(
    documents: Sequence[ParagraphDocument],
    document: int,
    paragraph: int,
    settings: ExampleSettings,
    rng: np.random.Generator,
) -> ParagraphExample:
    """Draw the example of a paragraph.

    Parameters
    ----------
    documents : sequence of ParagraphDocument
        Documents among which the easy negatives are.
    document, paragraph : int
        Index of the document, and of the paragraph in it. The paragraph has two sentences or more.
    settings : ExampleSettings
        Numbers and lengths of the candidates.
    rng : numpy.random.Generator
        Generator of all draws.

    Returns
    -------
    ParagraphExample

    Raises
    ------
    DataError
        If an easy negative is needed and there is no other document.
    """
    own = documents[document]
    premise, positive = _premise_and_positive(own.paragraphs[paragraph], settings, rng)
    hard = _hard_negatives(own, paragraph, settings, rng)
    missing = settings.hard - len(hard)
    easy = _easy_negatives(documents, document, settings.easy + missing, settings, rng)
    spans = [positive, *hard, *easy]
    kinds = [POSITIVE] + [HARD] * len(hard) + [EASY] * len(easy)
    order = rng.permutation(len(spans))
    return ParagraphExample(
        premise, tuple(spans[index] for index in order), tuple(kinds[index] for index in order)
    )


def _premise_and_positive(
    sentences: Paragraph, settings: ExampleSettings, rng: np.random.Generator
) -> Tuple[str, str]:
    # The authors draw both lengths once a document and pass over paragraphs that are shorter than
    # their sum. Here they are drawn among those that fit, so that every paragraph of two sentences
    # gives an example in every epoch, and the number of examples is always the same.
    count = len(sentences)
    fitting = []
    for first in range(1, settings.premise_sentences + 1):
        for second in range(1, settings.candidate_sentences + 1):
            if first + second <= count:
                fitting.append((first, second))
    first, second = fitting[rng.integers(len(fitting))]
    start = int(rng.integers(count - first - second + 1))
    follows = int(rng.integers(start + first, count - second + 1))
    return _join(sentences[start : start + first]), _join(sentences[follows : follows + second])


def _hard_negatives(
    document: ParagraphDocument,
    paragraph: int,
    settings: ExampleSettings,
    rng: np.random.Generator,
) -> List[str]:
    """Spans of other paragraphs of a document; as many as there are sentences in short ones."""
    others = _others(len(document.paragraphs), paragraph, settings.paragraphs, rng)
    chosen = [document.paragraphs[other] for other in others]
    ends = np.cumsum([len(sentences) for sentences in chosen])
    total = int(ends[-1]) if chosen else 0
    count = min(settings.hard, total)
    if not count:
        return []
    # Spans begin at different sentences, and each ends before the next.
    starts = np.sort(rng.choice(total, count, replace=False))
    lengths = rng.integers(1, settings.candidate_sentences + 1, count)
    limits = np.append(starts[1:], total)
    spans = []
    for start, end in zip(starts, np.minimum(starts + lengths, limits)):
        index = int(np.searchsorted(ends, start, side="right"))
        first = int(ends[index]) - len(chosen[index])  # of all sentences, the paragraph's first
        spans.append(_join(chosen[index][start - first : end - first]))
    return spans


def _easy_negatives(
    documents: Sequence[ParagraphDocument],
    document: int,
    count: int,
    settings: ExampleSettings,
    rng: np.random.Generator,
) -> List[str]:
    """Spans of other documents, each of another one if there are as many."""
    if not count:
        return []
    others = _others(len(documents), document, count, rng)
    if not len(others):
        raise DataError(
            f"document {documents[document].id}",
            "no other document for its easy negatives",
            "at least two documents",
            "add documents to the source, or lower the minima",
        )
    spans = []
    for index in range(count):
        paragraphs = documents[others[index % len(others)]].paragraphs
        sentences = paragraphs[rng.integers(len(paragraphs))]
        length = min(int(rng.integers(1, settings.candidate_sentences + 1)), len(sentences))
        start = int(rng.integers(len(sentences) - length + 1))
        spans.append(_join(sentences[start : start + length]))
    return spans


def _others(total: int, index: int, most: int, rng: np.random.Generator) -> np.ndarray:
    """Different numbers below ``total`` but for ``index``, as many as there are up to ``most``."""
    drawn = rng.choice(total - 1, min(most, total - 1), replace=False)
    return drawn + (drawn >= index)


def _join(sentences: Sequence[str]) -> str:
    return " ".join(sentences)
