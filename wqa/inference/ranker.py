"""The interface of rankers: a question and its candidates in, a `Ranking` out."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

from wqa.data import Candidate, Question
from wqa.data.records import check_document_ids
from wqa.errors import InputError, check_range, shorten
from wqa.inference.calibrated import Calibration
from wqa.inference.dropping import Drop, DropBelow, DropRatio, Keep, check_drops
from wqa.inference.loop import read_ahead
from wqa.inference.ranking import Ranking
from wqa.text import PairInputs, PreparedQuestions, prepare_questions


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """Description of a ranker, so that no caller depends on its type.

    Attributes
    ----------
    system : str
        Name of the system, such as ``"cascade"``; ``"sequence"`` for several in sequence,
        ``"ensemble"`` for several that rank the same candidates.
    stages : int
        N, the number of rows of ``exit_scores``. Candidates can be dropped after each stage but the
        last.
    exits : tuple of int
        Layer after which each stage scores; empty where the stages are not layers of one encoder.
    num_layers : int
        Number of layers of the full encoder; 0 where there is none.
    rankers : tuple of Ranker
        Rankers inside this one, in the order in which they run.
    stage_layers : tuple of float
        Number of layers that each stage runs, for costs. A head may have several layers after one
        exit; by default they are the layers between the exits.
    joint : bool
        Whether the score of a candidate depends on the other candidates of its question, though
        nothing is dropped.
    """

    system: str
    stages: int = 1
    exits: Tuple[int, ...] = ()
    num_layers: int = 0
    rankers: Tuple[Ranker, ...] = ()
    stage_layers: Tuple[float, ...] = ()
    joint: bool = False

    def __post_init__(self) -> None:
        if not self.stage_layers:
            layers = np.diff(self.exits, prepend=0).astype(float)
            object.__setattr__(self, "stage_layers", tuple(layers.tolist()))

    @property
    def has_exits(self) -> bool:
        """Whether candidates may leave at several places, so that the cost depends on them."""
        return len(self.exits) > 1 or bool(self.rankers)


class Ranker:
    """Base class of rankers. A system implements `rank_all` and `capabilities`.

    Several threads may rank by one ranker, by rankers that share a network, and by rankers of both
    engines at once; `set_drops` in one thread applies to groups of questions that begin later in
    any. An engine computes one micro-batch at a time. Training, and other use of MXNet, must not
    run beside rankings in other threads.

    A ranker breaks ties by the order in which it gets the candidates, and otherwise does not depend
    on it: evaluation gives them by trec_eval's rule for ties, not in the order in which they were
    retrieved. A ranker to which that order tells something takes it from
    `wqa.data.Question.original_order` or ``ranks``.

    An exception or an interrupt, at any moment, leaves a ranker as it was. A child that is forked
    from a process with a ranker cannot rank: start it by ``multiprocessing.get_context("spawn")``.
    """

    #: Network that the ranker ranks with, where it is a single one.
    network: Any = None
    #: Token ids of questions and candidates, where one network reads them.
    inputs: Any = None
    #: Rule by which evaluation orders candidates that tie, a name of `wqa.evaluation.trec.TIES`. It
    #: is pessimistic where a ranker has few distinct scores by its nature.
    ties = "trec"
    #: How the ranker's probabilities follow from its scores; that of its run once it is loaded. A
    #: ranker gives its rankings ``calibration.probabilities(exit_scores)`` and its `threshold`.
    calibration = Calibration()
    #: Whether rankers of the type read the encodings of documents from a cache, keyword ``cache``.
    takes_cache = False

    _drops: Tuple[Drop, ...] = (Drop(),)

    @property
    def capabilities(self) -> Capabilities:
        """System, stages and exits of the ranker."""
        return Capabilities(type(self).__name__)

    @property
    def drops(self) -> Tuple[Drop, ...]:
        """Rule by which each stage drops candidates; the last stage drops none."""
        return self._drops

    def with_inner(self) -> Iterator[Ranker]:
        """The ranker and all rankers inside it."""
        yield self
        for ranker in self.capabilities.rankers:
            yield from ranker.with_inner()

    def set_drops(
        self, drop_ratio: DropRatio = None, keep: Keep = None, drop_below: DropBelow = None
    ) -> None:
        """Set how each stage drops candidates, from the next ranking on.

        Parameters
        ----------
        drop_ratio : float, or sequence of float or None, optional
            alpha, the share of candidates that a stage drops: one for all stages, or one a stage.
        keep : int, or sequence of int or None, optional
            k, the number of candidates that a stage keeps: one for all stages, or one a stage.
        drop_below : float, or sequence of float or None, optional
            Least relevance, as `wqa calibrate` calibrates it, of a candidate that a stage keeps.
            The best candidate is always kept. Without any of the three, nothing is dropped.

        Raises
        ------
        OptionError
            If the values do not fit the stages.
        """
        stages = self.capabilities.stages
        self._drops = check_drops(stages, drop_ratio, keep, drop_below)

    def restore_drops(self, drops: Tuple[Drop, ...]) -> None:
        """Set the rules back to those of an earlier moment. This cannot fail.

        Parameters
        ----------
        drops : tuple of Drop
            What `drops` of this ranker was.
        """
        self._drops = drops

    @property
    def drop_ratio(self) -> List[float]:
        """Drop ratio of each stage; 0 for the last stage and for one that keeps k."""
        return [drop.ratio for drop in self.drops]

    @property
    def threshold(self) -> Optional[float]:
        """Threshold of the ranker's rankings; None where none was fitted."""
        return self.calibration.threshold

    def prepare(self, questions: Iterable[Question]) -> PreparedQuestions:
        """Apply the ranker's rule for over-long questions, before they are ranked.

        `rank_all` gives one ranking a question, so that questions to skip are left out here.

        Parameters
        ----------
        questions : iterable of Question
            Questions with their candidates.

        Returns
        -------
        PreparedQuestions
            The questions to rank, and the number of those that are truncated and skipped. A
            question that is too long for one ranker of a sequence is too long for the sequence.

        Raises
        ------
        InputError
            If a question has no token.
        QuestionTooLong
            If a question leaves too few tokens for its candidates, and the ranker's
            ``long_questions`` is ``"error"``.
        DataError
            If all questions are skipped.
        """
        return prepare_questions(questions, self._all_inputs())

    def _all_inputs(self) -> List[PairInputs]:
        """Inputs of the ranker and of those inside it."""
        rankers = self.with_inner()
        return [ranker.inputs for ranker in rankers if ranker.inputs is not None]

    def rank(
        self,
        question: str,
        candidates: Iterable[Union[str, Candidate]],
        top_k: Optional[int] = None,
        return_documents: bool = False,
    ) -> Ranking:
        """Rank the candidates of one question.

        Parameters
        ----------
        question : str
            Text of the question.
        candidates : iterable of str or Candidate
            The candidates, at least one: their texts, or records, whose ids a document cache knows.
        top_k : int, optional
            Number of candidates in the ranking's order; by default all. Fewer candidates are all
            returned.
        return_documents : bool
            Whether the ranking holds the candidates, so that `Ranking.to_dicts` has their texts.

        Returns
        -------
        Ranking
            Order and scores of the candidates.

        Raises
        ------
        InputError
            If the question or the candidate list is empty, a candidate is neither a text nor a
            record, or the question is too long and not truncated.
        DataError
            If two candidates have the same id.
        OptionError
            If ``top_k`` is not a whole number from 1.
        ScoreError
            If a score is not finite.
        """
        if top_k is not None:
            check_range("top_k", top_k, 1)
        record = as_question(question, candidates)
        ranking = self._rank_question(record).top(top_k)
        if return_documents:
            ranking = dataclasses.replace(ranking, documents=record.candidates)
        return ranking

    def _rank_question(self, question: Question) -> Ranking:
        """Rank one question; a ranker that can do so without a thread of its own overrides it."""
        return next(iter(self.rank_all([question])))

    def predict(self, pairs: Iterable[Tuple[str, str]], probabilities: bool = False) -> np.ndarray:
        """Score pairs of a question and a text, each by itself.

        Nothing is dropped, and a ranker whose scores depend on the other candidates of a question
        sees one candidate at a time.

        Parameters
        ----------
        pairs : iterable of (str, str)
            Questions and texts.
        probabilities : bool
            Whether to return probabilities, from 0 to 1, in place of log-odds; calibrated ones
            where the run was calibrated.

        Returns
        -------
        numpy.ndarray
            (N,) log-odds of the texts being answers, minus infinity for a blank one.

        Raises
        ------
        InputError
            If a text is none, a question is empty, or is too long and not truncated.
        ScoreError
            If a score is not finite.
        """
        values = []
        for ranking in self.rank_all(as_question(question, [text]) for question, text in pairs):
            values.append(ranking.probabilities[0] if probabilities else ranking.scores[0])
        return np.array(values)

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        """Rank many questions, several at a time.

        Parameters
        ----------
        questions : iterable of Question
            Questions with their candidates, read in another thread, some groups of questions ahead.
            Labels are not read.

        Yields
        ------
        Ranking
            Ranking of each question, in order.

        Raises
        ------
        ScoreError
            If a score is not finite.
        InputError
            If a question cannot be ranked, also one to skip, which `prepare` leaves out. This
            error, and any of the source, comes after the rankings of the questions before it.
        """
        raise NotImplementedError


class GroupRanker(Ranker):
    """A ranker that ranks questions in groups; the next group is encoded meanwhile."""

    #: Greatest size of a group; a larger question is a group of its own.
    _group_size = 4096

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        for group in read_ahead(questions, self._encode, self._group_size):
            yield from self._rank_group(group)

    def _rank_question(self, question: Question) -> Ranking:
        encoded, _ = self._encode(question)
        [ranking] = self._rank_group([encoded])
        return ranking

    def _encode(self, question: Question) -> Tuple[Any, int]:
        """What is ranked of a question, and its size: by default its number of candidates."""
        return question, len(question.candidates)

    def _rank_group(self, group: Sequence[Any]) -> Iterable[Ranking]:
        """Rank encoded questions as one group."""
        raise NotImplementedError


def as_question(question: str, candidates: Iterable[Union[str, Candidate]]) -> Question:
    """Make the record of a question without an id."""
    name = f"question {shorten(question)}"
    if isinstance(candidates, (str, bytes)) or not isinstance(question, str):
        expected = "one question and its candidates"
        raise InputError(name, "not a string and a list of strings", expected)
    records = []
    for number, candidate in enumerate(candidates, 1):
        if isinstance(candidate, str):
            candidate = Candidate(candidate)
        if not isinstance(candidate, Candidate):
            raise InputError(
                f"{name}, candidate {number}", shorten(candidate), "a text or a Candidate"
            )
        records.append(candidate)
    record = Question("", question, tuple(records))
    check_document_ids(record, name)
    return record
