"""Evaluation on the development data of a training, as the record of its system names it.

A ranker that was trained on few questions may rank worse than one that was not trained. So a
training also evaluates what ranks without it, and writes an ensemble of these rankers and the run.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import os
import pathlib
import re
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

import numpy as np

from wqa.config import EngineConfig, TrainingConfig
from wqa.data import Question, read_questions
from wqa.data.records import filter_and_note
from wqa.errors import DataError, OptionError, printable
from wqa.evaluation import by_document_id, dev_evaluator, evaluate
from wqa.evaluation.reliability import note_few_questions
from wqa.io.encoder_directories import INSTALLED
from wqa.io.files import write_json
from wqa.systems.load import load_ranker
from wqa.systems.registry import find_system, run_kind
from wqa.text import naming_file, note_long_questions, prepare_questions
from wqa.training.checkpoint import MetricsFile

LOGGER = logging.getLogger(__name__)

#: File of a run with the ensemble of the run and of rankers that need no training.
ENSEMBLE = "ensemble.json"
#: Greatest number of candidates that rankers are compared on.
_COMPARED = 5_000

#: Takes the network, and returns its figures.
Evaluator = Callable[[Any], Dict[str, float]]


@dataclasses.dataclass(frozen=True)
class Development:
    """Development data of a training."""

    data: str
    system: str
    own_config: Any
    config: TrainingConfig
    _questions: List[Question] = dataclasses.field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @property
    def engine(self) -> EngineConfig:
        """Engine that evaluates."""
        return evaluation_engine(self.config.engine, self.config.ctx)

    @property
    def is_live(self) -> bool:
        """Whether the engine reads the current parameters, as MXNet's alone does."""
        return self.engine.engine == "mxnet"

    def builder(self, inputs: Any) -> Callable[[Any], Any]:
        """Function that builds what uses a network: a ranker, a reader or a verifier."""
        build = find_system(self.system).ranker_type(self.own_config.computes)
        return functools.partial(build, inputs=inputs, engine=self.engine)

    def evaluator(self, inputs: Any) -> Evaluator:
        """Make the evaluator of networks with these inputs."""
        make: Any = evaluate_rankings
        if self.own_config.computes != "scores":
            make = find_system(self.system).part("development")
        if make is None:
            problem = f"data for a network that computes {self.own_config.computes}"
            raise OptionError("dev", problem, "none")
        with naming_file(self.data):
            return make(self, inputs)

    def questions(self, inputs: Any) -> List[Question]:
        """The questions of the data that count, by its filter and the rule for over-long ones."""
        if not self._questions:
            questions = filter_and_note(read_questions(self.data), self.config.dev_filter)
            self._questions.extend(self.prepared(questions, inputs))
        return self._questions

    def comparison(self, inputs: Any, encoder: str, init: str) -> Optional[Comparison]:
        """Rank by what needs no training; None for a network that computes no scores."""
        ranks = self.own_config.computes == "scores"
        return Comparison(self, inputs, encoder, init) if ranks else None

    def prepared(self, items: Iterable[Any], inputs: Any) -> List[Any]:
        """Apply the rule for over-long questions now, not hours later at the first evaluation."""
        prepared = prepare_questions(items, [inputs])
        note_long_questions(prepared.truncated, prepared.skipped, self.data)
        return prepared.questions


def evaluation_engine(engine: str, ctx: str) -> EngineConfig:
    """Engine that evaluates on the first device of a training."""
    # oneDNN may be able to train a network but not to rank with it; MXNet then ranks.
    name = "mxnet" if engine == "mxnet" else "auto"
    return EngineConfig(engine=name, ctx=re.split("[-,]", ctx)[0])


def evaluate_rankings(dev: Development, inputs: Any) -> Evaluator:
    """Make the evaluator of rankings."""
    questions = dev.questions(inputs)
    if not any(label for question in questions for label in question.labels):
        problem = f"none has a correct candidate under the filter {dev.config.dev_filter}"
        expected = "development questions with candidates of label 1"
        raise DataError("questions", problem, expected, "check its labels, or train without --dev")

    return dev_evaluator(questions, dev.builder(inputs), live=dev.is_live, progress=True)


class Comparison:
    """What ranks without a training, and afterwards the run, on the first development questions.

    BM25 needs no training. An encoder ranks by the similarity of its tokens, and a run to start
    from as it is, unless the network starts as a ranker of its own.

    Parameters
    ----------
    dev : Development
        Development data of a network that computes scores.
    inputs : PairInputs
        Inputs of the network.
    encoder, init : str
        What the training starts from, as `wqa.systems.train.train` takes them.
    """

    def __init__(self, dev: Development, inputs: Any, encoder: str, init: str) -> None:
        questions = by_document_id(dev.questions(inputs))  # ties break as in `wqa evaluate`
        ends = itertools.accumulate(len(question.candidates) for question in questions)
        count = sum(end <= _COMPARED for end in ends)
        self.questions = questions[: max(count, 1)]
        self._options = {"long_questions": "truncate", **dataclasses.asdict(dev.engine)}
        starts_as = dev.own_config.starts_as
        names = ["bm25", *_start_as_ranker(encoder, init, starts_as)]
        self._scores = {name: self._ranked_by(name) for name in names}
        self.figures = {name: self._figures([name]) for name in names}
        if len(names) > 1:
            self.figures["+".join(names)] = self._figures(names)
        # The run takes the place of the ranker that its network was.
        self._beside_run = names[:1] if starts_as else names

    def _ranked_by(self, ranker: str) -> List[np.ndarray]:
        """Scores of the candidates of each question."""
        rankings = load_ranker(ranker, **self._options).rank_all(self.questions)
        return [ranking.scores for ranking in rankings]

    def _figures(self, names: Sequence[str]) -> Dict[str, float]:
        """Metrics of the ensemble of some rankers."""
        orders = []
        for scores in zip(*(self._scores[name] for name in names)):
            orders.append(np.argsort(-np.sum(scores, axis=0), kind="stable"))
        return evaluate(orders, self.questions)

    def described(self) -> str:
        """MAP of rankers by their names."""
        rows = self.figures.items()
        maps = [f"{printable(name)} {100 * figures['map']:.2f}" for name, figures in rows]
        return f"MAP on {len(self.questions)} questions of dev: {', '.join(maps)}"

    def finish(self, run: pathlib.Path, update: int) -> None:
        """Evaluate a trained run beside the others, write the ensemble, and say which is best."""
        best = max(self.figures, key=lambda name: self.figures[name]["map"])
        self._scores["."] = self._ranked_by(str(run))
        members = [*self._beside_run, "."]
        own, ensemble = self._figures(["."]), self._figures(members)
        self.figures.update({"run": own, ENSEMBLE: ensemble})
        metrics = MetricsFile(run / "metrics.jsonl")
        metrics.keep_until(update)  # a stop may have left a part of a line
        metrics.append({"update": update, "compared": self.figures})
        write_json(run / ENSEMBLE, {"ensemble": members, "combine": "scores"})
        LOGGER.info(self.described())
        path, untrained = printable(str(run / ENSEMBLE)), self.figures[best]["map"]
        if own["map"] < untrained:
            use = f": use {path}" if ensemble["map"] > untrained else f", and so does {path}"
            LOGGER.warning(f"the run ranks worse than {best}, which needs no training{use}")
        elif own["map"] < ensemble["map"]:
            LOGGER.info(f"{path}, which adds the run to what needs no training, ranks better")
        note_few_questions(len(self.questions), map=own["map"])


def _start_as_ranker(encoder: str, init: str, starts_as: str) -> List[str]:
    """Name of the ranker that a training starts from, if it can rank; paths are absolute."""
    name, rule = encoder or init, starts_as or "maxsim"
    path = os.path.abspath(name) if os.path.exists(name) else name
    if encoder or starts_as:
        return [path if path in INSTALLED and rule == "maxsim" else f"{rule}:{path}"]
    return [path] if init and run_kind(init) == "scores" else []
