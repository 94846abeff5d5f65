"""Tasks: the batches, the losses and the initialisation of each system.

Everything else is part of the trainer (`wqa.training.trainer`): devices, seeds, accumulation,
clipping, weight decay, schedule, checkpoints, evaluation and progress.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np

from wqa.config import TrainingConfig
from wqa.config.systems import System
from wqa.data import filter_questions, read_questions
from wqa.data.formats import data_digest
from wqa.models import Network
from wqa.text import PairInputs, PairStore, is_store, naming_file, note_long_questions
from wqa.training.losses import cross_entropy, taught_loss, teachers_of
from wqa.training.pairs import TrainingPairs
from wqa.training.start import Start

#: Arrays of a batch, or its losses, by their names.
Arrays = Dict[str, mx.nd.NDArray]


class Setup(NamedTuple):
    """What a training gives its task.

    Attributes
    ----------
    system : System
        Record of the system.
    start : Start
        Encoder or run that the training starts from.
    own_config : NetworkConfig
        Configuration of the system.
    train_file : str
        File or store of training data.
    config : TrainingConfig
        Settings of the training.
    max_length : int
        Greatest length of an input in tokens.
    """

    system: System
    start: Start
    own_config: Any
    train_file: str
    config: TrainingConfig
    max_length: int

    def network(self) -> Any:
        """Make the network of the system, with the encoder's sizes; its parameters are not
        initialised.
        """
        return self.system.network_type()(self.start.backbone(), self.own_config)


class Task:
    """Base class of tasks.

    Attributes
    ----------
    network : Network
        Network to train.
    inputs : PairInputs
        Token ids of the network's inputs; their tokenizer is saved in the run.
    max_length : int
        Most tokens of all inputs of a row together.
    digest : str
        SHA-256 of the training data.
    """

    #: Figure on the development questions that selects the best parameters; higher is better.
    metric = "map"
    #: Number of the network's scores that learn from teachers, such as that of its heads. 0 for a
    #: task that cannot learn from teachers.
    taught_scores = 0
    #: Fields of the network's configuration that a run of the same kind to start from must share.
    shape: Tuple[str, ...] = ()

    network: Network
    inputs: PairInputs
    max_length: int
    digest: str

    @classmethod
    def create(cls, setup: Setup) -> Task:
        """Build the task of a training, without initialising parameters or writing files.

        Parameters
        ----------
        setup : Setup
            What the training is given.

        Returns
        -------
        Task

        Raises
        ------
        WqaError
            If the data cannot be read, or the settings do not fit the data or the encoder.
        """
        raise NotImplementedError

    def initialize(self, start: Start, devices: Sequence[mx.Context]) -> str:
        """Initialise the network's parameters.

        Parameters
        ----------
        start : Start
            Encoder or run that the training starts from.
        devices : sequence of mxnet.Context
            Devices that hold the parameters.

        Returns
        -------
        str
            Log line about the parts taken from a run; empty for other starts.
        """
        return start.fill(self.network, devices)

    def teach(self, scores_of: Callable[[TrainingPairs], np.ndarray]) -> None:
        """Give the task the scores of its teachers, before the first update.

        Parameters
        ----------
        scores_of : callable
            Takes the training pairs, with their keys, and returns the (N, T) float32 log-odds of
            the T teachers.

        Raises
        ------
        DataError
            If a pair has no score.
        """
        raise NotImplementedError

    def size(self) -> Dict[str, int]:
        """Count what is trained on, for the model card.

        Returns
        -------
        dict of str to int
            Counts by the names of what they count, such as ``"questions"``; empty if unknown.
        """
        return {}

    def hybridize(self, active: bool) -> None:
        """Hybridize the blocks that `losses` calls, or undo it.

        Parameters
        ----------
        active : bool
            False if an engine is attached, which computes only blocks that are not hybridized.
        """
        self.network.hybridize(active)

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> Iterable[Any]:
        """Plan the batches of an epoch.

        Parameters
        ----------
        tokens : int
            Most tokens of a batch, padding included.
        rng : numpy.random.Generator, optional
            Generator that shuffles. The number of batches does not depend on it.

        Returns
        -------
        iterable
            Key of each batch, for `batch`. A sequence, or an iterator for an epoch that does not
            fit in memory.
        """
        raise NotImplementedError

    def batch(self, key: Any) -> Dict[str, np.ndarray]:
        """Assemble a batch.

        Parameters
        ----------
        key : Any
            Key of the batch in the plan.

        Returns
        -------
        dict of str to numpy.ndarray
            Arrays by name, all with the same number of rows (first axis).
        """
        raise NotImplementedError

    def pairs_of(self, batch: Dict[str, np.ndarray]) -> int:
        """Count the pairs of a batch, for the speed in the log; by default each row is one.

        Parameters
        ----------
        batch : dict of str to numpy.ndarray
            Arrays of `batch`, or some of their rows.

        Returns
        -------
        int
        """
        return len(next(iter(batch.values())))

    def losses(self, batch: Dict[str, mx.nd.NDArray], update: int) -> Dict[str, mx.nd.NDArray]:
        """Compute the losses of the network on a batch. Their sum is minimised.

        Parameters
        ----------
        batch : dict of str to mxnet.nd.NDArray
            Rows of a batch on one device.
        update : int
            Number of the update, from 1. Random draws depend on it and the seed alone, so that they
            are the same on all devices and after a resumption.

        Returns
        -------
        dict of str to mxnet.nd.NDArray
            Losses by name, each (rows,). The names appear in the log if there are several.
        """
        raise NotImplementedError


class PairTask(Task):
    """Labelled pairs and binary cross-entropy (Soldaini and Moschitti 2020, section 3.1).

    Parameters
    ----------
    network : Network
        Network that scores pairs.
    inputs : PairInputs
        Token ids of questions and candidates, as pairs.
    pairs : TrainingPairs
        Labelled pairs to train on.
    config : TrainingConfig
        Settings of the training.
    digest : str
        SHA-256 of the training data.
    """

    def __init__(
        self,
        network: Network,
        inputs: PairInputs,
        pairs: TrainingPairs,
        config: TrainingConfig,
        digest: str = "",
    ) -> None:
        self.network, self.inputs, self.pairs, self.config = network, inputs, pairs, config
        self.max_length, self.digest = inputs.longest, digest
        self._teacher_scores: Optional[np.ndarray] = None

    @classmethod
    def create(cls, setup: Setup) -> PairTask:
        train_file, config = setup.train_file, setup.config
        network = cls.make_network(setup)
        tokenizer = setup.start.tokenizer()
        inputs = network.text_inputs(tokenizer, setup.max_length, config.long_questions)
        pairs, digest = cls.read_pairs(train_file, inputs, config)
        note_long_questions(pairs.truncated_questions, pairs.skipped_questions, train_file)
        return cls(network, inputs, pairs, config, digest)

    @classmethod
    def read_pairs(
        cls, train_file: str, inputs: PairInputs, config: TrainingConfig
    ) -> Tuple[TrainingPairs, str]:
        """Read the labelled pairs of a file or a store, and the SHA-256 of its data."""
        shuffle, train_filter = config.shuffle, config.train_filter
        if is_store(train_file):
            store = PairStore(train_file)
            pairs = TrainingPairs(store, inputs, shuffle, train_filter)
            return pairs, store.meta["source_sha256"]
        with naming_file(train_file):
            questions = filter_questions(read_questions(train_file), train_filter)
            pairs = TrainingPairs(questions, inputs, shuffle, train_filter, bool(config.teachers))
        return pairs, data_digest(train_file)

    @classmethod
    def make_network(cls, setup: Setup) -> Network:
        """Make the network to train; by default that of the system, with the encoder's sizes.

        Parameters
        ----------
        setup : Setup
            What the training is given.

        Returns
        -------
        Network
            Network whose parameters are not initialised.
        """
        network = setup.network()
        if cls.shape:
            setup.start.has_shape(network.own_config, cls.shape)
        return network

    def teach(self, scores_of: Callable[[TrainingPairs], np.ndarray]) -> None:
        self._teacher_scores = scores_of(self.pairs)

    def size(self) -> Dict[str, int]:
        questions = np.unique(self.pairs.questions)
        return {"questions": len(questions), "pairs": len(self.pairs)}

    def plan(self, tokens: int, rng: Optional[np.random.Generator] = None) -> Sequence[np.ndarray]:
        return self.pairs.plan(tokens, rng)

    def batch(self, key: np.ndarray) -> Dict[str, np.ndarray]:
        batch = dict(zip((*self.inputs.names, "labels"), self.pairs.batch(key)))
        if self._teacher_scores is not None:
            batch["teacher_scores"] = self._teacher_scores[key]
        return batch

    def losses(self, batch: Dict[str, mx.nd.NDArray], update: int) -> Dict[str, mx.nd.NDArray]:
        return {"loss": self.score_loss(self.scores(batch, update), batch, update)}

    def score_loss(
        self,
        scores: mx.nd.NDArray,
        batch: Dict[str, mx.nd.NDArray],
        update: int,
        index: int = 0,
    ) -> mx.nd.NDArray:
        """Compute the loss of scores: that of the labels, and of the teachers if there are any.

        Parameters
        ----------
        scores : mxnet.nd.NDArray
            (rows,) log-odds.
        batch, update
            As `losses` takes them.
        index : int
            Index of the score among those that learn from teachers, such as that of a head.

        Returns
        -------
        mxnet.nd.NDArray
            (rows,) losses.
        """
        labels, config = batch["labels"], self.config
        if "teacher_scores" not in batch:
            return cross_entropy(scores, labels)
        teachers = batch["teacher_scores"]  # (rows, T)
        chosen = teachers_of(config.teaching, index, teachers.shape[1], update)
        return taught_loss(scores, labels, teachers, chosen, config.alpha, config.tau)

    def scores(self, batch: Dict[str, mx.nd.NDArray], update: int) -> mx.nd.NDArray:
        """Compute the scores of a batch, from which the loss is computed.

        Parameters
        ----------
        batch, update
            As `losses` takes them.

        Returns
        -------
        mxnet.nd.NDArray
            (rows,) log-odds.
        """
        return self.network(*self.network_inputs(batch))

    def network_inputs(self, batch: Dict[str, mx.nd.NDArray]) -> List[mx.nd.NDArray]:
        """Arrays of a batch that the network takes, in its order.

        Parameters
        ----------
        batch : dict of str to mxnet.nd.NDArray
            Rows of a batch.

        Returns
        -------
        list of mxnet.nd.NDArray
        """
        return [batch[name] for name in self.inputs.names]
