"""Ranking by a joint model, k candidates of a question at once (Di Liello et al. 2022, section 3).

A longer list is divided into groups of k and one of what remains, so that every candidate has
exactly one score, that of the group it is in. The authors shuffle the candidates at test time too,
with seed 0, since neighbours in a list are near one another in their document. Here the candidates
are put in the order in which they were retrieved, blank ones are left out, and a permutation of
their number by seed 0 is applied: the groups of a question depend on nothing but its own list.
Behind another ranker in a sequence, with ``keep`` of k, a question is one group.
"""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Sequence, Tuple

import numpy as np

from wqa.data import Question
from wqa.errors import InputError, check_choice
from wqa.inference.exit_ranker import InputsRanker, StageInputs
from wqa.inference.loop import check_ids, score_inputs
from wqa.inference.ranker import Capabilities
from wqa.inference.ranking import Ranking, question_name
from wqa.systems.mspp.config import ORDERS
from wqa.systems.mspp.inputs import JointEngineInputs, JointInput
from wqa.text import SplitPair


def check_input(network: Any, joint: JointInput, where: str) -> None:
    """Check positions and token ids, which the engines use as indices; errors name the question."""
    limit = network.config.max_positions
    length = joint.length
    if joint.positions is not None:
        length = max(length, int(joint.positions.max()) + 1)
    if length > limit:
        expected = f"at most {limit}, the positions of the network"
        raise InputError(where, f"{length} positions with candidates", expected)
    check_ids([joint.token_ids], network.config.vocab_size, lambda _: (where, ""))


#: Seed of the shuffle of a question's candidates.
SHUFFLE_SEED = 0


class JointRanker(InputsRanker):
    """Ranks by a joint model. Its only stage drops nothing.

    Parameters
    ----------
    network : JointTransformer
        Network that scores candidates, with its parameters on the engine's device.
    inputs : JointInputs
        Token ids of questions with groups of candidates.
    *drops
        ``drop_ratio`` and ``keep`` of `wqa.inference.exit_ranker.InputsRanker`.
    order : {"shuffled", "original"}, optional
        Order in which candidates are divided into groups; by default that of the network's
        configuration.
    **options
        Further parameters of `wqa.inference.exit_ranker.InputsRanker`.

    Raises
    ------
    OptionError, DeviceError, PrecisionError, MissingDependency
        If an option is out of range, or does not fit the network or this machine.
    """

    engine_inputs = JointEngineInputs

    def __init__(
        self, network: Any, inputs: Any, *drops: Any, order: Optional[str] = None, **options: Any
    ) -> None:
        self._order = order or network.own_config.order
        check_choice("order", self._order, ORDERS)
        super().__init__(network, inputs, *drops, **options)

    @property
    def capabilities(self) -> Capabilities:
        """One stage, which reads the candidates together."""
        network = self.network
        return Capabilities(
            self._system, exits=network.exits, num_layers=network.num_layers, joint=True
        )

    def _of_pairs(self, pairs: Sequence[SplitPair], question: Question) -> StageInputs:
        return self._grouped(pairs, range(len(pairs)), question)

    def _encode(self, question: Question) -> Tuple[StageInputs, int]:
        """Tokenize a question; returns its number of tokens too."""
        pairs = self.inputs.split(question.question, question.texts, question.id)
        encoded = self._grouped(pairs, question.original_order, question)
        return encoded, encoded.tokens

    def _grouped(
        self, pairs: Sequence[SplitPair], retrieved: Iterable[int], question: Question
    ) -> StageInputs:
        """Divide the candidates of a question, in their order of retrieval, into groups."""
        order = np.array([index for index in retrieved if not pairs[index].empty], dtype=int)
        if self._order == "shuffled":
            rng = np.random.default_rng(SHUFFLE_SEED)
            order = order[rng.permutation(len(order))]
        joints = self.inputs.network_inputs([pairs[index] for index in order])
        for joint in joints:
            check_input(self.network, joint, question_name(question))
        truncated = np.array([pair.truncated for pair in pairs])
        # Tokens of a question count once in each of its groups.
        tokens = sum(joint.length for joint in joints)
        return StageInputs(joints, order, truncated, tokens, question)

    def _rank_group(self, group: Sequence[StageInputs]) -> List[Ranking]:
        joints: List[JointInput] = []
        for encoded in group:
            joints += encoded.inputs
        scores = score_inputs(self._engine, joints, self.inputs.k)
        rankings = []
        start = 0
        for encoded in group:
            own = slice(start, start + len(encoded.inputs))
            # The last of a question's inputs alone may have fewer than k candidates.
            values = scores[own].ravel()[: len(encoded.indices)]
            rankings.append(self._ranking_of_stage(encoded, values, self.network.num_layers))
            start = own.stop
        return rankings
