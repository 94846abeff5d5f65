"""Training of networks on lists (Bonadiman and Moschitti 2020, sections 4.2 and 5.2).

Pointwise, a row of a batch is a pair, as a list of one candidate, and the loss is binary
cross-entropy. Listwise, a row is a question with all its candidates, and the loss is the divergence
of the softmax over them from their labels. The word vectors come from a folder, or from the run
that the training starts from, and do not change.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, Dict, List, Optional, Sequence, Tuple

import wqa.models.runtime  # noqa: F401 - before MXNet is imported

import mxnet as mx
import numpy as np

from wqa.config import from_dict
from wqa.data.word_vectors import read_word_vectors
from wqa.errors import DataError, OptionError
from wqa.io.progress import note_counts
from wqa.models import Network
from wqa.systems.cosinet.inputs import plan_lists
from wqa.text import Tokenizer, WordTokenizer, embedding_matrix
from wqa.text.words import BUCKETS
from wqa.training.losses import listwise_divergence
from wqa.training.start import Start
from wqa.training.task import Arrays, PairTask, Setup

#: Fields of `wqa.systems.cosinet.lists.ListConfig` that the word vectors determine.
FROM_WORDS = ("rows", "width", "words_sha256", "buckets")

_HINT = "give words=FOLDER, a table that `wqa embed-words` wrote"

#: Pairs whose words are looked up in the table before a training.
_LOOKED_UP = 10_000


class WordStart(Start):
    """Word vectors from a folder, and random parameters on them.

    Shapes: `vectors` (rows, D).
    """

    def __init__(self, path: str, buckets: int) -> None:
        table = read_word_vectors(path)
        self._tokenizer = WordTokenizer.of_table(table, buckets)
        self.vectors = embedding_matrix(table, buckets)

    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def sizes(self) -> Dict[str, Any]:
        """What the configuration of a network records of its word embeddings."""
        content = hashlib.sha256(self._tokenizer.fingerprint.encode("ascii"))
        content.update(self.vectors.tobytes())
        rows, width = self.vectors.shape
        return {"rows": rows, "width": width, "words_sha256": content.hexdigest()}

    def fill(self, network: Network, devices: Sequence[mx.Context]) -> str:
        super().fill(network, devices)
        network.vectors.set_data(mx.nd.array(self.vectors))
        return ""


class ListTask(PairTask):
    """Labelled questions for a `wqa.systems.cosinet.lists.ListNetwork`.

    It takes the parameters of `PairTask`. Listwise, questions without a positive candidate are left
    out, as their labels are no distribution.
    """

    network: Any
    inputs: Any

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.without_positive = 0
        self._is_listwise = self.network.own_config.loss == "listwise"
        self._start: Optional[Start] = None
        if not self._is_listwise:
            return
        # The pairs of each question with a positive, and the sizes of its list.
        pairs = self.pairs
        starts = np.flatnonzero(np.diff(pairs.questions, prepend=-1))
        counts = np.diff(starts, append=len(pairs))
        positives = np.add.reduceat(pairs.labels.astype(np.int64), starts)
        has_positive = positives > 0
        self.without_positive = int((~has_positive).sum())
        if not has_positive.any():
            problem = f"none of the {len(starts):,} has a positive candidate"
            raise DataError("training questions", problem, "at least one", "check the labels")
        longest = np.maximum.reduceat(pairs.lengths, starts, axis=0)  # (questions, 2)
        self._starts, self._counts = starts[has_positive], counts[has_positive]
        self._longest = longest[has_positive]

    @classmethod
    def create(cls, setup: Setup) -> ListTask:
        chosen, own_config = _open(setup.system.name, setup.start, setup.own_config)
        task: Any = super().create(setup._replace(start=chosen, own_config=own_config))
        task._start = chosen
        task._check_words(setup.train_file)
        cut = (task.pairs.truncated, "candidate", f"cut to {task.inputs.max_length} words")
        left_out = (task.without_positive, "question", "without a positive left out")
        note_counts(setup.train_file, (cut, left_out))
        return task

    @classmethod
    def make_network(cls, setup: Setup) -> Network:
        if setup.own_config.loss == "listwise" and setup.config.shuffle != "pair":
            raise OptionError("shuffle", setup.config.shuffle, "pair: whole lists are shuffled")
        return setup.system.network_type()(None, setup.own_config)

    def _check_words(self, train_file: str) -> None:
        """Refuse word vectors of none of the corpus's words."""
        known = len(self.inputs.tokenizer.words)
        first = self.pairs.assemble(np.arange(min(len(self.pairs), _LOOKED_UP)))
        # Unknown words share the ids of the buckets.
        ids = np.concatenate([ids for pair in first for ids in pair[:2]])
        if not np.any(ids <= known):
            problem = f"word vectors of none of the words of its first {len(first):,} pairs"
            raise DataError(train_file, problem, "a table that has some of them", _HINT)

    def initialize(self, start: Start, devices: Sequence[mx.Context]) -> str:
        return (self._start or start).fill(self.network, devices)

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> List[np.ndarray]:
        if not self._is_listwise:
            return list(super().plan(tokens, rng))
        return plan_lists(self._counts, self._longest, tokens, rng)

    def batch(self, key: np.ndarray) -> Dict[str, np.ndarray]:
        if not self._is_listwise:
            return super().batch(key)
        lists = []
        labels = np.zeros((len(key), self._counts[key].max()), dtype=np.float32)
        for row, index in enumerate(key):
            pairs = np.arange(self._starts[index], self._starts[index] + self._counts[index])
            lists.append(self.pairs.assemble(pairs))
            labels[row, : len(pairs)] = self.pairs.labels[pairs]
        batch = dict(zip(self.inputs.names, self.inputs.pad_lists(lists)))
        return {**batch, "labels": labels}

    def pairs_of(self, batch: Dict[str, np.ndarray]) -> int:
        return int(batch["list_valid"].sum())

    def losses(self, batch: Arrays, update: int) -> Arrays:
        if not self._is_listwise:
            return super().losses(batch, update)
        scores = self.network(*self.network_inputs(batch))  # (Q, n)
        return {"loss": listwise_divergence(scores, batch["labels"], batch["list_valid"])}

    def scores(self, batch: Arrays, update: int) -> mx.nd.NDArray:
        return super().scores(batch, update).reshape((-1,))  # lists of one


def _open(system: str, start: Start, own_config: Any) -> Tuple[Start, Any]:
    """Open the word vectors; returns the start, and the configuration with what it determines."""
    run = start.run_config()
    if run is None and start.name:
        problem = f"{start.name}, and {system} reads word vectors"
        raise OptionError("encoder", problem, "no encoder", _HINT)
    if run is None:
        if not own_config.words:
            raise OptionError("words", "none", "a table of word vectors", _HINT)
        words = WordStart(own_config.words, own_config.buckets)
        return words, dataclasses.replace(own_config, **words.sizes())
    if own_config.words:
        raise OptionError("words and init", "both", "one of the two, as a run holds its words")
    if run.system != system:
        raise OptionError("init", f"a run of the system {run.system}", f"a run of {system}")
    stored = from_dict(type(own_config), run.network, f"{start.name}, field network")
    if own_config.buckets not in (BUCKETS, stored.buckets):
        expected = f"{stored.buckets}, those of the run's words"
        raise OptionError("buckets", own_config.buckets, expected, "leave buckets out")
    sizes = {name: getattr(stored, name) for name in FROM_WORDS}
    return start, dataclasses.replace(own_config, **sizes)
