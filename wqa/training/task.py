"""What a system brings to training: its batches, its losses, and what it starts from.

The trainer (`wqa.training.trainer`) brings everything else: devices, seeds, accumulation, clipping,
weight decay, schedule, checkpoints, evaluation and progress.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Optional, Sequence

import mxnet as mx
import numpy as np

from wqa.config import TrainingConfig
from wqa.data import filter_questions, read_questions
from wqa.data.files import sha256
from wqa.errors import OptionError
from wqa.models import Network, NetworkConfig, network_type
from wqa.text import PairEncoder, PairStore, Tokenizer, is_store
from wqa.training.losses import cross_entropy
from wqa.training.pairs import Pairs, StoredPairs, TrainingPairs
from wqa.training.start import Start


class Task:
    """Base of the systems' tasks.

    Attributes
    ----------
    network : Network
        The network to train.
    encoder : PairEncoder
        Encodes the network's inputs; its tokenizer is saved in the run.
    max_length : int
        Greatest length of an input in tokens.
    digest : str
        SHA-256 of the training data.
    """

    #: Figure on the development questions by which the best parameters are chosen; higher is
    #: better.
    metric = "map"

    network: Network
    encoder: PairEncoder
    max_length: int
    digest: str

    @classmethod
    def create(
        cls,
        system: str,
        start: Start,
        own_config: NetworkConfig,
        train_file: str,
        config: TrainingConfig,
        max_length: int,
    ) -> Task:
        """Build the task of a training; nothing is written, and no parameter is initialised.

        Parameters
        ----------
        system : str
            Name of the system.
        start : Start
            What the training starts from.
        own_config : NetworkConfig
            The system's own configuration.
        train_file : str
            Training data.
        config : TrainingConfig
            Settings of the training.
        max_length : int
            Greatest length of an input in tokens.

        Returns
        -------
        Task

        Raises
        ------
        WqaError
            Of the type that fits what is wrong.
        """
        raise NotImplementedError

    def initialize(self, start: Start, devices: Sequence[mx.Context]) -> str:
        """Initialise the network's parameters.

        Parameters
        ----------
        start : Start
            What the training starts from.
        devices : sequence of mxnet.Context
            Devices that hold the parameters.

        Returns
        -------
        str
            What was taken from a run, in words, for the log; empty where there is nothing to say.
        """
        return start.fill(self.network, devices)

    def hybridize(self, active: bool) -> None:
        """Compile what `losses` calls, or leave it to run as it is.

        Parameters
        ----------
        active : bool
            False where an engine is attached, which computes only what is not compiled.
        """
        self.network.hybridize(active)

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> Iterable[Any]:
        """The batches of an epoch.

        Parameters
        ----------
        tokens : int
            Budget of a batch in tokens, padding included.
        rng : numpy.random.Generator, optional
            Shuffles. The number of batches does not depend on it.

        Returns
        -------
        iterable
            One key a batch, for `batch`. A sequence, or a stream for an epoch that does not fit in
            memory.
        """
        raise NotImplementedError

    def batch(self, key: Any) -> Dict[str, np.ndarray]:
        """Arrays of a batch.

        Parameters
        ----------
        key : Any
            What `plan` gave.

        Returns
        -------
        dict of str to numpy.ndarray
            Rows first, the same number in each.
        """
        raise NotImplementedError

    def losses(self, batch: Dict[str, mx.nd.NDArray], update: int) -> Dict[str, mx.nd.NDArray]:
        """Losses of the network on a batch; an update follows the gradient of their sum.

        Parameters
        ----------
        batch : dict of str to mxnet.nd.NDArray
            Rows of a batch on one device.
        update : int
            Number of the update, from 1. What is drawn depends on it and the seed alone, so that it
            is the same on every device and after a resumption.

        Returns
        -------
        dict of str to mxnet.nd.NDArray
            (rows,) each. The names stand in the log where there are several.
        """
        raise NotImplementedError


class PairTask(Task):
    """Labelled pairs and binary cross-entropy (Soldaini and Moschitti 2020, section 3.1).

    Parameters
    ----------
    network : Network
        Network that scores pairs.
    encoder : PairEncoder
        Encodes them.
    pairs : Pairs
        The pairs to train on.
    config : TrainingConfig
        Settings of the training.
    digest : str
        SHA-256 of the training data.
    """

    def __init__(
        self,
        network: Network,
        encoder: PairEncoder,
        pairs: Pairs,
        config: TrainingConfig,
        digest: str = "",
    ) -> None:
        self.network, self.encoder, self.pairs, self.config = network, encoder, pairs, config
        self.max_length, self.digest = encoder.max_length, digest

    @classmethod
    def create(
        cls,
        system: str,
        start: Start,
        own_config: NetworkConfig,
        train_file: str,
        config: TrainingConfig,
        max_length: int,
    ) -> PairTask:
        tokenizer = cls.make_tokenizer(start, train_file)
        network = cls.make_network(system, start, own_config, tokenizer)
        limit = network.max_positions
        if limit is not None and max_length > limit:
            raise OptionError(
                "max_length", max_length, f"at most {limit}, the positions of the encoder"
            )
        encoder = PairEncoder(tokenizer, max_length)
        if is_store(train_file):
            store = PairStore(train_file)
            pairs: Pairs = StoredPairs(store, encoder, config.train_filter, config.shuffle)
            return cls(network, encoder, pairs, config, store.meta["source_sha256"])
        questions = filter_questions(read_questions(train_file), config.train_filter)
        pairs = TrainingPairs(questions, encoder, config.shuffle, config.train_filter)
        return cls(network, encoder, pairs, config, sha256(train_file))

    @classmethod
    def make_tokenizer(cls, start: Start, train_file: str) -> Tokenizer:
        """The tokenizer of the training; that of the encoder or run by default.

        Parameters
        ----------
        start : Start
            What the training starts from.
        train_file : str
            Training data.

        Returns
        -------
        Tokenizer
        """
        return start.tokenizer()

    @classmethod
    def make_network(
        cls, system: str, start: Start, own_config: NetworkConfig, tokenizer: Tokenizer
    ) -> Network:
        """The network to train; that of the system on the encoder's sizes by default.

        Parameters
        ----------
        system : str
            Name of the system.
        start : Start
            What the training starts from.
        own_config : NetworkConfig
            The system's own configuration.
        tokenizer : Tokenizer
            The tokenizer of the training.

        Returns
        -------
        Network
        """
        return network_type(system)(start.backbone(), own_config)

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> Sequence[np.ndarray]:
        return self.pairs.plan(tokens, rng)

    def batch(self, key: np.ndarray) -> Dict[str, np.ndarray]:
        names = ("token_ids", "token_types", "valid_length", "labels")
        return dict(zip(names, self.pairs.batch(key)))

    def losses(self, batch: Dict[str, mx.nd.NDArray], update: int) -> Dict[str, mx.nd.NDArray]:
        scores = self.scores(batch, update)
        return {"loss": cross_entropy(scores, batch["labels"])}

    def scores(self, batch: Dict[str, mx.nd.NDArray], update: int) -> mx.nd.NDArray:
        """Scores that the loss reads.

        Parameters
        ----------
        batch : dict of str to mxnet.nd.NDArray
            Rows of a batch.
        update : int
            Number of the update, from 1.

        Returns
        -------
        mxnet.nd.NDArray
            (rows,) log-odds.
        """
        return self.network(batch["token_ids"], batch["token_types"], batch["valid_length"])
