"""Cascade inference (Soldaini and Moschitti 2020, section 4.3.2), also of one-stage rankers.

Questions are ranked in groups. The pairs of a group are sorted by length and run in micro-batches
of similar lengths. At an exit that drops candidates, each question keeps its best, and the
survivors of all questions form new micro-batches, so that dropped candidates cost nothing more. At
an exit that drops none, a micro-batch continues with the next layers. A thread tokenizes and
encodes the next group meanwhile.

Nothing outlives a group: its pairs, scores and stored encodings belong to one `QuestionGroup`.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Type

import numpy as np
from tqdm import tqdm

from wqa.config import EngineConfig
from wqa.data import Question
from wqa.engines.choice import build_engine
from wqa.engines.mxnet import Engine
from wqa.engines.onednn.quantize import STRENGTH, QuantizedLayers
from wqa.errors import InputError, OptionError, check_choice, shorten
from wqa.inference.calibration import calibrate_stages
from wqa.inference.cost import FREE, Cost
from wqa.inference.dropping import DropRatio, Keep
from wqa.inference.lookahead import LookAhead
from wqa.inference.ranker import Capabilities, Ranker
from wqa.inference.ranking import Ranking, question_name, score_error
from wqa.models import Network
from wqa.text import PairEncoder

#: Candidates that an exit compares: all of a question, or a batch of them.
POOLS = ("question", "batch")


class EncodedQuestion(NamedTuple):
    """An encoded question, and what errors call it and its candidates."""

    pairs: List[Any]
    name: str
    document_ids: List[Optional[str]]
    originals: List[int]  # index of the first candidate with the text of each


class CascadeRanker(Ranker):
    """Ranks with the stages of a network, dropping candidates between them.

    Parameters
    ----------
    network : Network
        Network with its parameters on the engine's device.
    encoder : PairEncoder
        Encodes questions and candidates as pairs.
    drop_ratio : float, or sequence of float or None, optional
        alpha, as `Ranker.set_drops` takes it. Without drops the ranking is the full network's.
    keep : int, or sequence of int or None, optional
        k, as `Ranker.set_drops` takes it.
    engine : EngineConfig, optional
        Engine, precision, device and sizes. By default MXNet on the CPU, which reads the current
        parameters at each ranking; oneDNN reads them once.
    quantized : list of dict, optional
        `wqa.engines.onednn.Quantized` products of each layer, for int8.
    pool : {"question", "batch"}
        Drop among all candidates of a question, or, as the paper's inference does, inside batches
        of ``pool_size`` candidates.
    pool_size : int
        b, for ``pool="batch"``.
    group_tokens : int
        Most tokens of a group of questions; a longer question is a group of its own.
    progress : bool
        Show a bar on standard error while a group takes longer than two seconds.
    system : str
        Name of the system, for `Ranker.capabilities`.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option is out of range, or does not fit the network or this machine.
    """

    def __init__(
        self,
        network: Network,
        encoder: PairEncoder,
        drop_ratio: DropRatio = None,
        keep: Keep = None,
        engine: Optional[EngineConfig] = None,
        quantized: Optional[QuantizedLayers] = None,
        pool: str = "question",
        pool_size: int = 128,
        group_tokens: int = 65536,
        progress: bool = False,
        system: str = "cascade",
    ) -> None:
        check_choice("pool", pool, POOLS)
        if pool_size < 1:
            raise OptionError("pool_size", pool_size, "a whole number above 0")
        self.network, self.encoder, self._system = network, encoder, system
        self._stage_work = np.array(network.stage_work())
        self._pool_size = pool_size if pool == "batch" else 0
        self._group_tokens, self._progress = group_tokens, progress
        self.set_drops(drop_ratio, keep)
        self._config = engine or EngineConfig(engine="mxnet")
        self._engine = self._build_engine(quantized)

    def _build_engine(self, quantized: Optional[QuantizedLayers]) -> Engine:
        return build_engine(self.network, self.encoder.tokenizer, self._config, quantized)

    @property
    def _group_type(self) -> Type[QuestionGroup]:
        return QuestionGroup

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

    @staticmethod
    def calibrate(
        network: Network, pairs: Sequence[Any], strength: float = STRENGTH
    ) -> QuantizedLayers:
        """Quantize the products of all layers of a network.

        Parameters
        ----------
        network : Network
            Network of transformer layers, with its parameters on the CPU.
        pairs : sequence of Encoded
            Pairs to calibrate on, as the ranker's encoder makes them, none of them empty.
        strength : float
            SmoothQuant's alpha.

        Returns
        -------
        list of dict of str to Quantized
            Products of each layer, as the ranker of the network takes them.
        """
        return calibrate_stages(network, pairs, strength)

    def members(self) -> List[Tuple[str, Ranker]]:
        networks = self.network.members()
        if not networks:
            return super().members()
        if self._config.precision == "int8":
            raise OptionError(
                "precision",
                "int8 for each head by itself",
                "float32 or bfloat16",
                "8-bit weights are those of the whole network",
            )
        members: List[Tuple[str, Ranker]] = []
        for number, network in enumerate(networks, 1):
            ranker = CascadeRanker(network, self.encoder, engine=self._config, system=self._system)
            members.append((f"head {number}", ranker))
        return members

    def _rank_question(self, question: Question) -> Ranking:
        encoded, _ = self._encode(question)
        [ranking] = self._rank_group([encoded])
        return ranking

    def rank_all(self, questions: Iterable[Question]) -> Iterator[Ranking]:
        with LookAhead(questions, self._encode, self._group_tokens) as groups:
            for group in groups:
                yield from self._rank_group(group)

    def _rank_group(self, group: Sequence[EncodedQuestion]) -> List[Ranking]:
        pairs, names, document_ids, originals = zip(*group)
        return self.rank_pairs(pairs, names, document_ids, originals)

    def _encode(self, question: Question) -> Tuple[EncodedQuestion, int]:
        """Encode a question; returns its number of tokens too."""
        pairs = self._pairs(question)
        document_ids = [candidate.id for candidate in question.candidates]
        first_with: Dict[str, int] = {}
        originals = [first_with.setdefault(text, i) for i, text in enumerate(question.texts)]
        encoded = EncodedQuestion(pairs, question_name(question), document_ids, originals)
        return encoded, sum(pair.length for pair in pairs)

    def _pairs(self, question: Question) -> List[Any]:
        """Pairs of a question with each of its candidates."""
        return self.encoder.encode(question.question, question.texts, question.id)

    def rank_pairs(
        self,
        group: Sequence[Sequence[Any]],
        names: Sequence[str] = (),
        document_ids: Sequence[Sequence[Optional[str]]] = (),
        originals: Sequence[Sequence[int]] = (),
    ) -> List[Ranking]:
        """Rank encoded questions as one group.

        Parameters
        ----------
        group : sequence of sequence of Encoded or SplitPair
            Pairs of each question, as the ranker's encoder makes them.
        names : sequence of str
            Name of each question in errors; by default its number in the group.
        document_ids : sequence of sequence of str or None
            Id of each question's candidates in errors; by default their numbers, from 1.
        originals : sequence of sequence of int
            For each question's candidates the index of the first one with the same text, whose
            score they share; by default each has its own.

        Returns
        -------
        list of Ranking
            Ranking of each question.

        Raises
        ------
        InputError
            If a pair is longer than the network's positions, or holds a token id without a row in
            its word embeddings.
        ScoreError
            If a score is not finite.
        """
        return self._group_type(self, group, names, document_ids, originals).rank()


class QuestionGroup:
    """A group of questions on its way through the stages. Pairs are numbered over the group."""

    def __init__(
        self,
        ranker: CascadeRanker,
        group: Sequence[Sequence[Any]],
        names: Sequence[str],
        document_ids: Sequence[Sequence[Optional[str]]],
        originals: Sequence[Sequence[int]],
    ) -> None:
        self._ranker, self._drops = ranker, ranker.drops
        self._names, self._document_ids = names, document_ids
        self._pairs = [pair for pairs in group for pair in pairs]
        self._lengths = np.array([pair.length for pair in self._pairs])
        self._filled = np.array([not pair.empty for pair in self._pairs])
        self._starts = np.cumsum([0] + [len(pairs) for pairs in group])
        self._originals = np.arange(len(self._pairs))
        for start, indices in zip(self._starts, originals):
            self._originals[start : start + len(indices)] = start + np.array(indices)
        stages = len(ranker._stage_work)
        self._layers = np.array(ranker.network.exits or range(1, stages + 1))
        self._check_pairs()
        self._scores = np.full((stages, len(self._pairs)), np.nan)
        # Multiply-adds of each pair, padding included.
        self._padded = np.zeros(len(self._pairs))

    def rank(self) -> List[Ranking]:
        alive = np.flatnonzero(self._filled)
        alive = alive[np.argsort(self._lengths[alive], kind="stable")]
        pools = self._pools()
        store: Any = None
        for stages in self._runs():
            store = self._run(stages, alive, store)
            pools = [self._keep(pool, stages[-1]) for pool in pools]
            kept = np.zeros(len(self._pairs), dtype=bool)
            kept[np.concatenate(pools).astype(int)] = True
            alive = alive[kept[alive]]
        bounds = zip(self._starts, self._starts[1:])
        return [self._ranking(start, end) for start, end in bounds]

    def _pools(self) -> List[np.ndarray]:
        """Pools of candidates among which an exit drops, in their original order."""
        size, pools = self._ranker._pool_size, []
        for start, end in zip(self._starts, self._starts[1:]):
            pairs = start + np.flatnonzero(self._filled[start:end])
            step = size or max(len(pairs), 1)
            pools += [pairs[first : first + step] for first in range(0, max(len(pairs), 1), step)]
        return pools

    def _runs(self) -> List[List[int]]:
        """Runs of consecutive stages without a drop between them."""
        runs: List[List[int]] = [[]]
        for stage, drop in enumerate(self._drops):
            runs[-1].append(stage)
            if drop.discards:
                runs.append([])
        return runs

    def _run(self, stages: List[int], alive: np.ndarray, store: Any) -> Any:
        """Score candidates at consecutive stages; returns the store of their encodings."""
        ranker, engine = self._ranker, self._ranker._engine
        is_last = stages[-1] == len(self._drops) - 1
        following = None if is_last else engine.store()
        batches = engine.plan(self._lengths[alive])
        readings: List[List[np.ndarray]] = [[] for _ in stages]
        for indices in self._with_bar(batches, stages[-1]):
            batch = alive[indices]
            pairs = [self._pairs[pair] for pair in batch]
            done = engine.run(stages, batch, pairs, store, following)
            self._padded[batch] += ranker._stage_work[stages].sum() * done.positions
            for stage_readings, stage_rows in zip(readings, done.rows):
                stage_readings.append(stage_rows)
        if batches:
            order = alive[np.concatenate(batches)]
            # A head runs once for all micro-batches: reading its weights costs more than its rows.
            for stage, stage_readings in zip(stages, readings):
                rows = np.concatenate(stage_readings)
                scores = engine.scores(stage, rows)
                self._check(stage, order, scores)
                self._scores[stage, order] = scores
                self._share(stage, order)
        return following

    def _share(self, stage: int, pairs: np.ndarray) -> None:
        """Give candidates with the same text the score of the first, so that they tie.

        The last bits of a score may depend on its row in the micro-batch.
        """
        shared = self._scores[stage, self._originals[pairs]]
        is_scored = ~np.isnan(shared)  # the first may have been dropped in a pool of its own
        self._scores[stage, pairs[is_scored]] = shared[is_scored]

    def _with_bar(self, batches: List[np.ndarray], stage: int) -> Iterable[np.ndarray]:
        """Micro-batches up to a stage, with a bar if the ranker shows progress."""
        if not self._ranker._progress:
            return batches  # an interrupt inside tqdm can leave the lock that all bars share
        title = f"to exit {self._layers[stage]}"
        return tqdm(batches, desc=title, unit="batch", delay=2, leave=False, file=sys.stderr)

    def _check_pairs(self) -> None:
        """Check lengths and token ids, which the engines use as indices."""
        network = self._ranker.network
        self._check_lengths(self._lengths, network.max_positions)
        if network.config is not None:
            self._check_ids([pair.token_ids for pair in self._pairs])

    def _check_lengths(self, lengths: np.ndarray, limit: Optional[int]) -> None:
        """Check the lengths of the inputs of all pairs."""
        if limit is not None and lengths.max(initial=0) > limit:
            name, candidate = self._name(int(lengths.argmax()))
            found = f"{lengths.max()} tokens with {candidate}"
            raise InputError(name, found, f"at most {limit}, the positions of the network")

    def _check_ids(self, inputs: Sequence[np.ndarray]) -> None:
        """Check the token ids of an input of each pair."""
        if not inputs:
            return
        rows = self._ranker.network.config.vocab_size
        ids = np.concatenate(inputs)
        if ids.max(initial=0) >= rows or ids.min(initial=0) < 0:
            wrong = int(np.flatnonzero((ids < 0) | (ids >= rows))[0])
            ends = np.cumsum([len(input_ids) for input_ids in inputs])
            pair = int(np.searchsorted(ends, wrong, side="right"))
            name, candidate = self._name(pair)
            raise InputError(
                name,
                f"token id {ids[wrong]} with {candidate}",
                f"ids from 0 to {rows - 1}, the rows of the word embeddings",
                "encode with the tokenizer of the network's encoder",
            )

    def _name(self, pair: int) -> Tuple[str, str]:
        """Names of a pair's question and candidate.

        A candidate's number is that in the order in which it came, which its id does not depend on.
        """
        index = int(np.searchsorted(self._starts, pair, side="right")) - 1
        name = self._names[index] if self._names else f"question {index + 1} of the group"
        candidate = int(pair - self._starts[index])
        document_id = self._document_ids[index][candidate] if self._document_ids else None
        if document_id is None:
            return name, f"candidate {candidate + 1}"
        return name, f"document {shorten(document_id)}"

    def _check(self, stage: int, pairs: np.ndarray, scores: np.ndarray) -> None:
        """Check scores of pairs: NaN stands for a candidate that was not scored."""
        wrong = np.flatnonzero(~np.isfinite(scores))
        if len(wrong):
            first = wrong[pairs[wrong].argmin()]
            name, candidate = self._name(pairs[first])
            where = f"{name}, scores after layer {self._layers[stage]}"
            raise score_error(where, candidate, scores[first])

    def _keep(self, pool: np.ndarray, stage: int) -> np.ndarray:
        """Candidates of a pool that the stage keeps; ties keep the earlier candidate."""
        count = self._drops[stage].kept(len(pool))
        best = np.argsort(-self._scores[stage, pool], kind="stable")[:count]
        return pool[np.sort(best)]

    def _ranking(self, start: int, end: int) -> Ranking:
        pairs, exit_scores = self._pairs[start:end], self._scores[:, start:end]
        reached = (~np.isnan(exit_scores)).sum(axis=0)  # stages that scored each candidate
        last = np.maximum(reached - 1, 0)
        scores = np.where(reached > 0, exit_scores[last, np.arange(end - start)], -np.inf)
        layers = np.concatenate([[0], self._layers])[reached]
        return Ranking(
            # Survivors by the score of the last exit, then candidates that the exits before
            # dropped, last exit first; ties in the original order.
            order=np.lexsort((np.arange(end - start), -scores, -layers)),
            scores=scores,
            exits=layers,
            truncated=np.array([pair.truncated for pair in pairs]),
            blank=reached == 0,
            cost=self._cost(start, end, reached),
            exit_scores=exit_scores,
            probabilities=self._ranker.calibration.probabilities(exit_scores),
            threshold=self._ranker.threshold,
        )

    def _cost(self, start: int, end: int, reached: np.ndarray) -> Cost:
        """Cost of a question; ``reached`` is the number of stages that scored each candidate."""
        filled, lengths = reached > 0, self._lengths[start:end]
        if not filled.any():
            return FREE
        stage_work, full_work = self._ranker._stage_work, self._ranker.network.full_work()
        work = np.concatenate([[0], np.cumsum(stage_work)])[reached]
        candidates = left = int(filled.sum())
        planned = 0.0
        for step, drop in zip(stage_work, self._drops):
            planned += step * left
            left = drop.kept(left)
        full = full_work * candidates
        return Cost(
            planned / full if full else 0.0,
            float(work.sum()),
            full,
            float((work * lengths).sum()),
            float(self._padded[start:end].sum()),
            float(full_work * lengths[filled].sum()),
        )
