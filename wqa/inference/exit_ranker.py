"""Cascade inference (Soldaini and Moschitti 2020, section 4.3.2), also of one-stage rankers.

Questions are ranked in groups. The pairs of a group are sorted by length and run in micro-batches
of similar lengths. At an exit that drops candidates, each question keeps its best, and the
survivors of all questions form new micro-batches, so that dropped candidates cost nothing more. At
an exit that drops none, a micro-batch continues with the next layers. A thread tokenizes and
encodes the next group meanwhile.

Nothing outlives a group: its pairs, scores and stored encodings belong to one `QuestionGroup`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from wqa.config import EngineConfig
from wqa.data import Candidate, Question
from wqa.engines.engine import Encodings, MicroBatch
from wqa.engines.inputs import EngineInputs
from wqa.errors import check_choice, check_range
from wqa.inference.dropping import FREE, Cost, DropRatio, Keep
from wqa.inference.loop import GroupPairs, build_engine, check_finite, check_ids
from wqa.inference.ranker import Capabilities, GroupRanker
from wqa.inference.ranking import Ranking, candidate_name, question_name, ranking_of
from wqa.text import PairInputs

if TYPE_CHECKING:
    from wqa.engines.onednn.quantize import QuantizedLayers
    from wqa.models import Network

#: Candidates that an exit compares: all of a question, or a batch of them.
POOLS = ("question", "batch")


class QuestionPairs(NamedTuple):
    """Pairs of a question."""

    pairs: Sequence[Any]
    question: Question
    originals: Sequence[int]  # index of the first candidate with the text of each


class StageInputs(NamedTuple):
    """A question as a network of one stage reads it."""

    inputs: Any
    indices: np.ndarray  # candidates that are scored, in the order of their scores
    truncated: np.ndarray  # of all candidates
    tokens: int  # that the stage reads for all of them
    question: Question


class InputsRanker(GroupRanker):
    """A ranker of one network: it tokenizes questions, and its engine ranks groups of them.

    Parameters
    ----------
    network : Network
        Network with its parameters on the engine's device.
    inputs : PairInputs
        Token ids of questions and candidates, as the network reads them.
    drop_ratio : float, or sequence of float or None, optional
        alpha, as `Ranker.set_drops` takes it. Without drops the ranking is the full network's.
    keep : int, or sequence of int or None, optional
        k, as `Ranker.set_drops` takes it.
    engine : EngineConfig, optional
        Engine, precision, device and sizes. By default MXNet on the CPU, which reads the current
        parameters at each ranking; other engines read them once.
    quantized : list of dict, optional
        `wqa.engines.onednn.operations.Quantized` products of each layer, for int8.
    pool : {"question", "batch"}
        Drop among all candidates of a question, or, as the cascade paper's inference does, inside
        batches of ``pool_size`` candidates.
    pool_size : int
        b, for ``pool="batch"``.
    system : str
        Name of the system, for `Ranker.capabilities`; by default that of the network's class.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option is out of range, or does not fit the network or this machine.
    """

    #: How the engines read the inputs.
    engine_inputs = EngineInputs
    _group_size = 65536  # tokens

    def __init__(
        self,
        network: Any,
        inputs: Any,
        drop_ratio: DropRatio = None,
        keep: Keep = None,
        engine: Optional[EngineConfig] = None,
        quantized: Optional[QuantizedLayers] = None,
        pool: str = "question",
        pool_size: int = 128,
        system: str = "",
    ) -> None:
        check_choice("pool", pool, POOLS)
        check_range("pool_size", pool_size, 1)
        self.network, self.inputs = network, inputs
        self._system = system or type(network).__name__
        self._pool_size = pool_size if pool == "batch" else 0
        self._config = engine or EngineConfig(engine="mxnet")
        self._full_work, self._list_work = network.full_work(), network.list_work()
        self.set_drops(drop_ratio, keep)
        self._engine = self._build_engine(quantized)

    def _build_engine(self, quantized: Optional[QuantizedLayers]) -> Any:
        return build_engine(self.engine_inputs(self.network, self.inputs), self._config, quantized)

    def rank_pairs(self, group: Sequence[Sequence[Any]]) -> List[Ranking]:
        """Rank tokenized questions as one group.

        Parameters
        ----------
        group : sequence of sequence of TextInput or SplitPair
            Pairs of each question, as the ranker's `inputs` make them. Errors call the questions
            by their numbers in the group.

        Returns
        -------
        list of Ranking
            Ranking of each question.

        Raises
        ------
        InputError
            If an input is longer than the network's positions, or holds a token id without a row in
            its word embeddings.
        ScoreError
            If a score is not finite.
        """
        encoded = []
        for number, pairs in enumerate(group, 1):
            question = Question(str(number), "", (Candidate(""),) * len(pairs))
            encoded.append(self._of_pairs(pairs, question))
        return list(self._rank_group(encoded))

    def _of_pairs(self, pairs: Sequence[Any], question: Question) -> Any:
        """A tokenized question of its pairs."""
        raise NotImplementedError

    def _ranking_of_stage(self, encoded: StageInputs, scores: np.ndarray, layer: int) -> Ranking:
        """Ranking by one stage, which scored some of the candidates, (n,); the others are blank."""
        _, indices, truncated, tokens, question = encoded
        cost = FREE
        if len(indices):
            one_token = float(len(indices) * self._full_work)
            multiply_adds = float(tokens * self._full_work + len(indices) * self._list_work)
            cost = Cost(1.0, one_token, one_token, multiply_adds, multiply_adds)
        where = f"{question_name(question)}, scores"
        check_finite(scores, lambda index: (where, candidate_name(question, int(indices[index]))))
        exit_scores = np.full((1, len(truncated)), np.nan)
        exit_scores[0, indices] = scores
        return ranking_of(exit_scores, [layer], truncated, cost, self.calibration)


class CascadeRanker(InputsRanker):
    """Ranks with the stages of a network, dropping candidates between them.

    It takes the parameters of `InputsRanker`.
    """

    def __init__(self, network: Network, inputs: PairInputs, *drops: Any, **options: Any) -> None:
        self._stage_work = np.array(network.stage_work())
        self._longest = network.max_positions
        super().__init__(network, inputs, *drops, **options)

    @property
    def capabilities(self) -> Capabilities:
        """System, stages and exits of the network."""
        network, stage_layers = self.network, np.zeros(0)
        if network.exits:
            stage_layers = self._stage_work * network.num_layers / network.full_work()
        return Capabilities(
            self._system,
            len(self._stage_work),
            network.exits,
            network.num_layers,
            stage_layers=tuple(stage_layers.tolist()),
        )

    def members(self) -> List[CascadeRanker]:
        """Rankers of the heads of a network with several; itself where there is one."""
        options = {"engine": self._config, "system": self._system}
        networks = self.network.members()
        return [CascadeRanker(network, self.inputs, **options) for network in networks] or [self]

    def _rank_group(self, group: Sequence[QuestionPairs]) -> List[Ranking]:
        return QuestionGroup(self, group).rank()

    def _encode(self, question: Question) -> Tuple[QuestionPairs, int]:
        """Tokenize a question; returns its number of tokens too."""
        pairs = self._pairs(question)
        encoded = QuestionPairs(pairs, question, _originals(question.texts))
        return encoded, sum(pair.length for pair in pairs)

    def _pairs(self, question: Question) -> List[Any]:
        """Pairs of a question with each of its candidates."""
        return self.inputs.encode(question.question, question.texts, question.id)

    def _of_pairs(self, pairs: Sequence[Any], question: Question) -> QuestionPairs:
        return QuestionPairs(pairs, question, _originals(map(id, pairs)))

    def _network_inputs(self, pairs: GroupPairs) -> Tuple[List[Any], List[Tuple[int, int]]]:
        """What the engine runs for the pairs of a group, after a check of their ids and lengths.

        Where texts are encoded for it, also their number and tokens for each question.
        """
        pairs.check_lengths(pairs.lengths, self._longest)
        if self.network.config is not None:
            rows = self.network.config.vocab_size
            check_ids([pair.token_ids for pair in pairs.all], rows, pairs.name)
        return pairs.all, []


def _originals(keys: Iterable[Any]) -> List[int]:
    """Index of the first key that equals each."""
    first_with: Dict[Any, int] = {}
    return [first_with.setdefault(key, index) for index, key in enumerate(keys)]


class QuestionGroup:
    """A group of questions on its way through the stages. Pairs are numbered over the group."""

    def __init__(self, ranker: CascadeRanker, group: Sequence[QuestionPairs]) -> None:
        self._ranker, self._drops = ranker, ranker.drops
        self._group = pairs = GroupPairs(group)
        self._truncated = np.array([pair.truncated for pair in pairs.all], dtype=bool)
        self._pairs, self._encoded = ranker._network_inputs(pairs)
        self._lengths = np.array([pair.length for pair in self._pairs], dtype=int)
        self._originals = np.arange(len(self._pairs))
        for start, encoded in zip(pairs.starts, group):
            indices = start + np.array(encoded.originals, dtype=int)
            self._originals[start : start + len(indices)] = indices
        stages = len(ranker._stage_work)
        self._layers = ranker.network.exits or range(1, stages + 1)
        self._scores = np.full((stages, len(self._pairs)), np.nan)

    def rank(self) -> List[Ranking]:
        surviving = np.flatnonzero(self._group.non_blank)
        surviving = surviving[np.argsort(self._lengths[surviving], kind="stable")]
        pools = self._pools()
        store: Any = None
        for stages in self._runs():
            store = self._run(stages, surviving, store)
            pools = [self._keep(pool, stages[-1]) for pool in pools]
            surviving = surviving[np.isin(surviving, np.concatenate(pools))]
        return [self._ranking(index, *ends) for index, ends in enumerate(self._group.questions())]

    def _pools(self) -> List[np.ndarray]:
        """Pools of candidates among which an exit drops, in their original order."""
        pools = []
        for start, end in self._group.questions():
            pairs = start + np.flatnonzero(self._group.non_blank[start:end])
            count = max(len(pairs), 1)
            size = self._ranker._pool_size or count
            for first in range(0, count, size):
                pools.append(pairs[first : first + size])
        return pools

    def _runs(self) -> List[List[int]]:
        """Runs of consecutive stages without a drop between them."""
        runs: List[List[int]] = [[]]
        for stage, drop in enumerate(self._drops):
            runs[-1].append(stage)
            if drop.discards:
                runs.append([])
        return runs

    def _run(self, stages: List[int], surviving: np.ndarray, store: Any) -> Any:
        """Score candidates at consecutive stages; returns the store of their encodings."""
        engine = self._ranker._engine
        is_last = stages[-1] == len(self._drops) - 1
        next_store: Optional[Encodings] = None if is_last else {}
        batches = engine.plan(self._lengths[surviving])
        readings: List[List[np.ndarray]] = [[] for _ in stages]
        works = []
        for indices in batches:
            batch = surviving[indices]
            pairs = [self._pairs[pair] for pair in batch]
            works.append(MicroBatch(stages, batch, pairs, store, next_store))
        for done in engine.run_all(works):
            for stage_readings, stage_rows in zip(readings, done.rows):
                stage_readings.append(stage_rows)
        if batches:
            order = surviving[np.concatenate(batches)]
            # A head runs once for all micro-batches: reading its weights costs more than its rows.
            for stage, stage_readings in zip(stages, readings):
                rows = np.concatenate(stage_readings)
                self._scores[stage, order] = engine.scores(stage, rows)
                self._check(stage, np.sort(order))
                self._share(stage, order)
        return next_store

    def _share(self, stage: int, pairs: np.ndarray) -> None:
        """Give candidates with the same text the score of the first, so that they tie.

        The last bits of a score may depend on its row in the micro-batch.
        """
        shared = self._scores[stage, self._originals[pairs]]
        is_scored = ~np.isnan(shared)  # the first may have been dropped in a pool of its own
        self._scores[stage, pairs[is_scored]] = shared[is_scored]

    def _check(self, stage: int, pairs: np.ndarray) -> None:
        """Refuse scores that are not finite: NaN stands for a candidate that was not scored."""

        def name_of(index: int) -> Tuple[str, str]:
            name, candidate = self._group.name(int(pairs[index]))
            return f"{name}, scores after layer {self._layers[stage]}", candidate

        check_finite(self._scores[stage, pairs], name_of)

    def _keep(self, pool: np.ndarray, stage: int) -> np.ndarray:
        """Candidates of a pool that the stage keeps; ties keep the earlier candidate."""
        scores = self._scores[stage, pool]
        drop, relevances = self._drops[stage], None
        if drop.below:
            relevances = self._ranker.calibration.of_stage(stage, scores)
        count = drop.kept(len(pool), relevances)
        best = np.argsort(-scores, kind="stable")[:count]
        return pool[np.sort(best)]

    def _ranking(self, index: int, start: int, end: int) -> Ranking:
        exit_scores, truncated = self._scores[:, start:end], self._truncated[start:end]
        cost = self._cost(index, start, end)
        return ranking_of(exit_scores, self._layers, truncated, cost, self._ranker.calibration)

    def _cost(self, index: int, start: int, end: int) -> Cost:
        # Stages that scored each candidate.
        reached = np.count_nonzero(~np.isnan(self._scores[:, start:end]), axis=0)
        non_blank, lengths = reached > 0, self._lengths[start:end]
        if not non_blank.any():
            return FREE
        stage_work, full_work = self._ranker._stage_work, self._ranker._full_work
        work = np.concatenate([[0], np.cumsum(stage_work)])[reached]
        full = full_work * int(non_blank.sum())
        texts, tokens = self._encoded[index] if self._encoded else (0, 0)
        return Cost(
            (work.sum() + texts * full_work) / full if full else 0.0,
            float(work.sum()) + texts * full_work,
            full,
            float((work * lengths).sum()) + tokens * full_work,
            float(full_work * lengths[non_blank].sum()),
        )
