"""Baselines by a rule (Bonadiman and Moschitti 2020, section 2.1 and Table 2), random, and BM25.

They read the texts of a question and its candidates, and the order in which the candidates were
retrieved. They have no network, parameters or files: `load_ranker` takes their names.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Callable, Iterable, Iterator, List, Sequence

import numpy as np

from wqa.data import Question
from wqa.errors import InputError
from wqa.inference.dropping import FREE
from wqa.inference.ranker import Capabilities, Ranker
from wqa.inference.ranking import Ranking, check_candidates, question_name, ranking_of
from wqa.retrieval.methods import BM25, ngrams, tokenize
from wqa.text.words import split_words


class Baseline(Ranker):
    """Ranks the candidates of a question by a rule. It costs no multiply-add.

    Parameters
    ----------
    seed : int
        Seed of a random rule; other rules do not read it.
    """

    #: Name of the rule.
    rule = ""
    #: Whether a candidate's score depends on the other candidates of its question.
    joint = False

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    @property
    def capabilities(self) -> Capabilities:
        """The rule, as one stage."""
        return Capabilities(self.rule, joint=self.joint)

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        for question in questions:
            yield self._rank(question)

    def _rank(self, question: Question) -> Ranking:
        check_candidates(question)
        if not question.question.strip():
            raise InputError(question_name(question), "the question is empty", "text")
        non_blank = np.array([bool(text.strip()) for text in question.texts])
        ranked = zip(question.candidates, question.ranks)
        candidates = [candidate._replace(rank=rank) for candidate, rank in ranked]
        left = tuple(itertools.compress(candidates, non_blank))
        scores = np.full(len(non_blank), np.nan)
        if left:
            scores[non_blank] = self.scores(question._replace(candidates=left))
        is_whole = np.zeros(len(non_blank), dtype=bool)
        return ranking_of(scores[None], [1], is_whole, FREE, self.calibration)

    def scores(self, question: Question) -> Sequence[float]:
        """Score the candidates of a question.

        Parameters
        ----------
        question : Question
            Question with at least one candidate, all of which have text and a rank.

        Returns
        -------
        sequence of float
            A finite score of each candidate.
        """
        raise NotImplementedError


class OriginalRank(Baseline):
    """RR: the order in which the candidates were retrieved, or stand in their document.

    A score is the logarithm of the reciprocal rank, the log-odds of ``1 / (rank + 1)``, so that an
    ensemble can weigh it.
    """

    rule = "rr"

    def scores(self, question: Question) -> Sequence[float]:
        """Scores by rank, as `Baseline.scores`."""
        return [-math.log(1 + rank) for rank in question.ranks]


class WordOverlap(Baseline):
    """WO: the number of unique words that a candidate shares with its question.

    Many candidates tie. The published figures are approached where ties count against the correct
    candidates, so evaluation counts them in this way, and says so.

    Parameters
    ----------
    seed : int
        Not read.
    split : callable
        Splits a text into words. The figures depend on it.
    """

    rule = "wo"
    ties = "pessimistic"

    def __init__(self, seed: int = 0, split: Callable[[str], List[str]] = split_words) -> None:
        super().__init__(seed)
        self._split = split

    def scores(self, question: Question) -> Sequence[float]:
        """Numbers of words, as `Baseline.scores`."""
        words = set(self._split(question.question))
        return [float(len(words.intersection(self._split(text)))) for text in question.texts]


class WordOverlapByRank(WordOverlap):
    """WO+RR: candidates by word overlap, and those with the same overlap in their original order.

    A score is the number of words, plus ``1 / (rank + 1)`` of the rank from 1.
    """

    rule = "wo+rr"
    ties = "trec"

    def scores(self, question: Question) -> Sequence[float]:
        """Numbers of words and parts of one by rank, as `Baseline.scores`."""
        overlaps = super().scores(question)
        return [overlap + 1 / (2 + rank) for overlap, rank in zip(overlaps, question.ranks)]


class RandomScores(Baseline):
    """Random scores, by a digest of the seed and the texts of question and candidate.

    So a score does not depend on the other candidates, their order, or the questions before. The
    probability that belongs to a score, its sigmoid, is uniform.
    """

    rule = "random"

    def scores(self, question: Question) -> Sequence[float]:
        """Log-odds of uniform numbers, as `Baseline.scores`."""
        of_question = hashlib.blake2b(_bytes_of(question.question)).digest()
        scores = []
        for text in question.texts:
            content = b"%d " % self._seed + of_question + _bytes_of(text)
            digest = hashlib.blake2b(content, digest_size=8).digest()
            number = int.from_bytes(digest, "big") >> 12  # 52 bits: half a step is a float too
            uniform = (number + 0.5) / 2**52
            scores.append(math.log(uniform / (1 - uniform)))
        return scores


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class CandidateBM25(Baseline):
    """BM25 whose collection is the candidates of the question, with the terms of `wqa.retrieval`.

    Frequencies of terms, their inverse document frequencies and the mean length are those of the
    candidates that the ranker gets, so that no index is needed. A term of every candidate still
    counts a little, as in Lucene.
    """

    rule = "bm25"
    joint = True

    def scores(self, question: Question) -> Sequence[float]:
        """Scores by BM25, as `Baseline.scores`."""
        method = BM25()
        queries = _terms(question.question, method)
        terms = {term: index for index, term in enumerate(dict.fromkeys(queries))}
        counts = np.zeros((len(question.candidates), len(terms)))
        lengths = np.zeros(len(question.candidates))
        for row, text in enumerate(question.texts):
            held = _terms(text, method)
            lengths[row] = len(held)
            for term in held:
                if term in terms:
                    counts[row, terms[term]] += 1
        idf = method.idf(np.count_nonzero(counts, axis=0), len(lengths))
        in_question = np.array([queries.count(term) for term in terms])
        mean = lengths.mean() or 1.0  # candidates of stop words alone
        # A term that a candidate lacks has no weight, also where k1 and b leave no divisor.
        weights = np.zeros_like(counts)
        rows, columns = np.nonzero(counts)
        weights[rows, columns] = method.in_documents(counts[rows, columns], lengths[rows] / mean)
        return weights @ (idf * method.in_question(in_question, idf))


def _terms(text: str, method: BM25) -> List[str]:
    return ngrams(tokenize(text), method.longest)
