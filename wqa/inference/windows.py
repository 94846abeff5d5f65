"""Candidates that do not fit, read in windows.

A ranker reads the first tokens of a candidate, as many as its question leaves. Here a longer
candidate is divided into overlapping windows, which are ranked as candidates are: an exit may drop
some of them, and the candidate has the scores of those that remain. Its score is the greatest of
its windows after the last exit that read one (Dai and Callan 2019, "MaxP", for documents).
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import Deque, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.data import Candidate, Question
from wqa.inference.dropping import Drop, DropBelow, DropRatio, Keep
from wqa.inference.ranker import Capabilities, Ranker
from wqa.inference.ranking import Ranking, check_candidates
from wqa.text import PairInputs
from wqa.text.windows import character_windows, exceeding

#: First and last character of a window, the last excluded.
Span = Tuple[int, int]


class _Divided(NamedTuple):
    """A question whose candidates are windows.

    ``owners`` (w,) is the index of each window's candidate, which does not decrease; ``spans`` are
    the characters of the candidate that each window is.
    """

    question: Question
    owners: np.ndarray
    spans: List[Span]


class WindowRanker(Ranker):
    """A ranker that reads candidates of any length, by windows that another one ranks.

    Neighbouring windows share half of their tokens. Numbers of candidates to keep, and the costs of
    rankings, count windows.

    Parameters
    ----------
    ranker : Ranker
        Ranks the windows. Where it is made of several rankers, a window fits each of them. It reads
        no document cache, which holds the first tokens of documents.
    """

    def __init__(self, ranker: Ranker) -> None:
        self._ranker = ranker
        self._window_inputs = ranker._all_inputs()
        self.network, self.inputs, self.ties = ranker.network, ranker.inputs, ranker.ties
        self.calibration = ranker.calibration

    @property
    def capabilities(self) -> Capabilities:
        return self._ranker.capabilities

    @property
    def drops(self) -> Tuple[Drop, ...]:
        return self._ranker.drops

    def set_drops(
        self, drop_ratio: DropRatio = None, keep: Keep = None, drop_below: DropBelow = None
    ) -> None:
        self._ranker.set_drops(drop_ratio, keep, drop_below)

    def restore_drops(self, drops: Tuple[Drop, ...]) -> None:
        self._ranker.restore_drops(drops)

    def _rank_question(self, question: Question) -> Ranking:
        divided = self._divide(question)
        return _join(divided, self._ranker._rank_question(divided.question))

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        # The ranker reads questions in another thread, ahead of the rankings.
        waiting: Deque[_Divided] = collections.deque()

        def divide_all() -> Iterator[Question]:
            for question in questions:
                divided = self._divide(question)
                waiting.append(divided)
                yield divided.question

        for ranking in self._ranker.rank_all(divide_all()):
            yield _join(waiting.popleft(), ranking)

    def _divide(self, question: Question) -> _Divided:
        """The question with the windows of its candidates."""
        check_candidates(question)
        spans_of: List[List[Span]] = [[(0, len(text))] for text in question.texts]
        for inputs in self._window_inputs:
            _divide_spans(question, spans_of, inputs)
        owners = np.repeat(np.arange(len(spans_of)), list(map(len, spans_of)))
        spans = list(itertools.chain(*spans_of))
        windows: List[Candidate] = []
        for index, (start, end) in zip(owners, spans):
            candidate = question.candidates[index]
            begin = _with_space(candidate.text, start)
            text, rank = candidate.text[begin:end], question.ranks[index]
            windows.append(candidate._replace(text=text, rank=rank))
        return _Divided(question._replace(candidates=tuple(windows)), owners, spans)


def _with_space(text: str, start: int) -> int:
    """Start of what a window reads: byte-level BPE divides a word otherwise without its space."""
    return start - int(start > 0 and text[start - 1].isspace())


def _divide_spans(question: Question, spans_of: List[List[Span]], inputs: PairInputs) -> None:
    """Divide the spans of candidates that one inputs would cut."""
    room = inputs.room_of(question.question, question.id)
    texts, places = [], []
    for index, spans in enumerate(spans_of):
        text = question.candidates[index].text
        for start, end in spans:
            begin = _with_space(text, start)
            texts.append(text[begin:end])
            places.append((index, start, begin))
    longer = exceeding(inputs.tokenizer, texts, room)
    divided = dict(zip(longer, character_windows(inputs.tokenizer, texts, longer, room)))
    for spans in spans_of:
        spans.clear()
    for number, (index, start, begin) in enumerate(places):
        own = divided.get(number, [(start - begin, len(texts[number]))])
        spans_of[index] += [(begin + first, begin + last) for first, last in own]


def _join(divided: _Divided, ranking: Ranking) -> Ranking:
    """The ranking of candidates by that of their windows."""
    owners = divided.owners
    count = int(owners[-1]) + 1
    if len(owners) == count:
        return ranking
    order_of_owners = owners[ranking.order]
    _, first = np.unique(order_of_owners, return_index=True)
    best = ranking.order[first]  # the window of each candidate that is ranked first
    exit_scores = np.full((len(ranking.exit_scores), count), -np.inf)
    for scores, of_windows in zip(exit_scores, ranking.exit_scores):
        np.maximum.at(scores, owners, np.nan_to_num(of_windows, nan=-np.inf))
    truncated = np.zeros(count, dtype=bool)
    np.logical_or.at(truncated, owners, ranking.truncated)
    windows = np.array([divided.spans[window] for window in best])
    sizes = np.bincount(owners)
    windows[sizes == 1] = -1
    return dataclasses.replace(
        ranking,
        order=order_of_owners[np.sort(first)],
        scores=ranking.scores[best],
        exits=ranking.exits[best],
        truncated=truncated,
        blank=ranking.blank[best],
        exit_scores=np.where(np.isinf(exit_scores), np.nan, exit_scores),
        dropped=ranking.dropped[best],
        probabilities=ranking.probabilities[best],
        windows=windows,
    )


def first_tokens(ranker: Ranker, texts: Sequence[str], most: int) -> List[str]:
    """Texts without what is behind their first tokens, as the tokenizer of a ranker counts them.

    A ranker without a tokenizer leaves them whole.
    """
    shortened = list(texts)
    for inputs in ranker._all_inputs()[:1]:
        longer = exceeding(inputs.tokenizer, texts, most)
        located = inputs.tokenizer.locate([texts[index] for index in longer])
        for index, tokens in zip(longer, located):
            shortened[index] = texts[index][: tokens.ends[most - 1]]
    return shortened
