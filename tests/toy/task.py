"""How the toy trains: triples of a question, an answer and a wrong candidate, and two losses."""

from __future__ import annotations

import dataclasses
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

import mxnet as mx
import numpy as np
import tokenizers

from toy.network import ToyNetwork
from wqa.data import Question, filter_questions, read_questions
from wqa.errors import DataError, OptionError
from wqa.io.files import sha256
from wqa.text import PairInputs, TextInput, Tokenizer, bucketed, pad_pairs
from wqa.training import Setup, Task
from wqa.training.losses import cross_entropy

#: Inputs of the network.
INPUTS = ("token_ids", "token_types", "valid_length")


class Triple(NamedTuple):
    """A question with an answer, and with a wrong candidate."""

    positive: TextInput
    negative: TextInput


class ToyTask(Task):
    """A hinge loss between the two scores of a triple, and cross-entropy of both.

    Parameters
    ----------
    network : ToyNetwork
        The network to train.
    inputs : PairInputs
        Token ids of its texts.
    triples : list of Triple
        What to train on.
    digest : str
        SHA-256 of the training data.
    """

    metric = "mrr"

    def __init__(
        self, network: ToyNetwork, inputs: PairInputs, triples: List[Triple], digest: str = ""
    ) -> None:
        self.network, self.inputs, self.triples = network, inputs, triples
        self.max_length, self.digest = inputs.max_length, digest

    @classmethod
    def create(cls, setup: Setup) -> ToyTask:
        start, own_config, train_file = setup.start, setup.own_config, setup.train_file
        if start.name:
            raise OptionError("encoder and init", start.name, "neither: the toy has no encoder")
        questions = filter_questions(read_questions(train_file), setup.config.train_filter)
        tokenizer = word_tokenizer(questions, own_config.vocab_size)
        inputs = PairInputs(tokenizer, setup.max_length)
        triples = triples_of(questions, inputs)
        if not triples:
            raise DataError(train_file, "no answer beside a wrong candidate", "at least one")
        network = ToyNetwork(None, dataclasses.replace(own_config, vocab_size=tokenizer.vocab_size))
        return cls(network, inputs, triples, sha256(train_file))

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> Iterable[np.ndarray]:
        size = max(1, tokens // (2 * self.max_length))
        if self.network.own_config.stream:
            return self._draw(size, rng or np.random.default_rng(0))
        order = np.arange(len(self.triples))
        if rng is not None:
            rng.shuffle(order)
        return [order[start : start + size] for start in range(0, len(order), size)]

    def _draw(self, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        for _ in range(0, len(self.triples), size):
            yield rng.integers(len(self.triples), size=size)

    def batch(self, key: np.ndarray) -> Dict[str, np.ndarray]:
        arrays = {}
        for side in Triple._fields:
            pairs = [getattr(self.triples[index], side) for index in key]
            length = bucketed(max(len(pair.token_ids) for pair in pairs))
            padded = pad_pairs(pairs, length, self.inputs.tokenizer.padding_id, typed=True)
            for name, array in zip(INPUTS, padded):
                arrays[f"{side}_{name}"] = array
        return arrays

    def losses(self, batch: Dict[str, mx.nd.NDArray], update: int) -> Dict[str, mx.nd.NDArray]:
        positive, negative = (self._scores(batch, side) for side in Triple._fields)
        ones = mx.nd.ones_like(positive)
        return {
            "hinge": mx.nd.relu(self.network.own_config.margin - positive + negative),
            "cross_entropy": cross_entropy(positive, ones) + cross_entropy(negative, 1 - ones),
        }

    def _scores(self, batch: Dict[str, mx.nd.NDArray], side: str) -> mx.nd.NDArray:
        return self.network(*[batch[f"{side}_{name}"] for name in INPUTS])


def word_tokenizer(questions: Sequence[Question], vocab_size: int) -> Tokenizer:
    """A tokenizer of the words of questions and their candidates.

    Parameters
    ----------
    questions : sequence of Question
        Where the words come from.
    vocab_size : int
        Greatest number of words, special tokens included; the rarest are left out.

    Returns
    -------
    Tokenizer
    """
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
    inner.normalizer = tokenizers.normalizers.BertNormalizer()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordLevelTrainer(
        vocab_size=vocab_size,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
        show_progress=False,
    )
    texts: List[str] = []
    for question in questions:
        texts += [question.question, *question.texts]
    inner.train_from_iterator(texts, trainer)
    return Tokenizer(inner)


def triples_of(questions: Sequence[Question], inputs: PairInputs) -> List[Triple]:
    """Every answer with every wrong candidate of its question.

    Parameters
    ----------
    questions : sequence of Question
        Labelled questions.
    inputs : PairInputs
        Token ids of their pairs.

    Returns
    -------
    list of Triple
    """
    triples = []
    for question in questions:
        pairs = inputs.encode(question.question, question.texts, question.id)
        by_label: Dict[Optional[int], List[TextInput]] = {0: [], 1: []}
        for pair, label in zip(pairs, question.labels):
            if not pair.empty:
                by_label[label].append(pair)
        for positive in by_label[1]:
            triples += [Triple(positive, negative) for negative in by_label[0]]
    return triples
