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

Batches of examples are joint inputs with masked tokens. Masks are drawn when a batch is assembled,
so that a text has other ones each time (Devlin et al. 2019, section 3.1; Liu et al. 2019, section
4.1).
"""

from __future__ import annotations

import dataclasses
from typing import Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.data.paragraphs import Paragraph, ParagraphDocument
from wqa.errors import DataError, OptionError
from wqa.systems.mspp.inputs import JointInput, JointInputs
from wqa.text.batching import bucketed
from wqa.text.tokenizers import Tokenizer

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


class Masked(NamedTuple):
    """Token ids to train on."""

    token_ids: np.ndarray
    chosen: np.ndarray


class Masking:
    """Chooses tokens to predict, and replaces most of them.

    Each token that is not special is chosen with the same probability, independently of the others,
    so that a short text may have none. Of the chosen ones the network reads the mask, a random
    token, or the token itself.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        rate: float = 0.15,
        masked: float = 0.8,
        random: float = 0.1,
    ) -> None:
        for name, share in (("rate", rate), ("masked", masked), ("random", random)):
            if not 0 <= share <= 1:
                raise OptionError(name, share, "a number from 0 to 1")
        if masked + random > 1 + 1e-9:
            raise OptionError("masked and random", masked + random, "a sum of 1 or less")
        self.mask_id = tokenizer.mask_id
        self._text_ids = tokenizer.text_ids()
        self._special_ids = tokenizer.special_ids()
        self._rate, self._masked, self._random = rate, masked, random

    def __call__(self, token_ids: np.ndarray, rng: np.random.Generator) -> Masked:
        """Mask the token ids of a batch."""
        drawn = rng.random(token_ids.shape)
        drawn[np.isin(token_ids, self._special_ids)] = 1
        # One number decides both: below the rate a token is chosen, and how far below says what the
        # network reads. No draw is 1.
        chosen = drawn < self._rate
        masked = drawn < self._rate * self._masked
        replaced = chosen & ~masked & (drawn < self._rate * (self._masked + self._random))
        result = token_ids.copy()
        result[masked] = self.mask_id
        result[replaced] = rng.choice(self._text_ids, int(replaced.sum()))
        return Masked(result, chosen)


#: Second number of the seeds of masks, another than those of `wqa.systems.mspp.stream`.
_MASKS = 103


class ParagraphInputs:
    """Token ids of examples of paragraphs.

    Texts are cut to the length of a segment, premises too. A text without a token becomes a segment
    of its special tokens alone.
    """

    def __init__(self, joint: JointInputs, masking: Masking) -> None:
        self.joint, self._masking = joint, masking
        #: Names of the arrays that a network takes, in its order.
        self.names = (*joint.names, "masked")

    def batch(
        self, examples: Sequence[ParagraphExample], seed: int, first: int = 0
    ) -> Dict[str, np.ndarray]:
        """Assemble a batch."""
        joints = self._joints(examples)
        positions: List[np.ndarray] = []
        ids: List[np.ndarray] = []
        for row, joint in enumerate(joints):
            rng = np.random.default_rng([seed, _MASKS, first + row])
            token_ids, chosen = self._masking(joint.token_ids, rng)
            joints[row] = joint._replace(token_ids=token_ids)
            positions.append(np.flatnonzero(chosen))
            ids.append(joint.token_ids[chosen])
        counts = [len(of_row) for of_row in positions]
        shape = (len(joints), bucketed(max(*counts, 1)))
        masked, masked_ids, weights = (np.zeros(shape, dtype=np.float32) for _ in range(3))
        for row, count in enumerate(counts):
            masked[row, :count] = positions[row]
            masked_ids[row, :count] = ids[row]
            weights[row, :count] = len(joints) / max(sum(counts), 1)
        return {
            **dict(zip(self.joint.names, self.joint.pad(joints))),
            "masked": masked,
            "masked_ids": masked_ids,
            "mask_weights": weights,
            "kinds": np.array([example.kinds for example in examples], dtype=np.float32),
        }

    def _joints(self, examples: Sequence[ParagraphExample]) -> List[JointInput]:
        texts: List[str] = []
        for example in examples:
            texts += [example.premise, *example.candidates]
        room = self.joint.document.room
        token_ids = [ids[:room] for ids in self.joint.tokenizer.encode(texts, self.joint.needed)]
        joints = []
        start = 0
        for example in examples:
            end = start + 1 + len(example.candidates)
            premise, *candidates = token_ids[start:end]
            joints.append(
                self.joint.join([self.joint.assemble(premise, ids) for ids in candidates])
            )
            start = end
        return joints
