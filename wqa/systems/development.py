"""Evaluation on the development data of a training, as the record of its system names it."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Callable, Dict, Iterable, List

from wqa.config import EngineConfig, TrainingConfig
from wqa.data import Question, read_questions
from wqa.data.records import filter_and_note
from wqa.errors import DataError, OptionError
from wqa.evaluation import dev_evaluator
from wqa.systems.load import build_ranker
from wqa.systems.registry import find_system
from wqa.text import naming_file, note_long_questions, prepare_questions

#: Takes the network, and returns its figures.
Evaluator = Callable[[Any], Dict[str, float]]


@dataclasses.dataclass(frozen=True)
class Development:
    """Development data of a training."""

    data: str
    system: str
    own_config: Any
    config: TrainingConfig

    @property
    def engine(self) -> EngineConfig:
        """Engine that evaluates."""
        return evaluation_engine(self.config.engine, self.config.ctx)

    @property
    def is_live(self) -> bool:
        """Whether the engine reads the current parameters, as MXNet's alone does."""
        return self.engine.engine == "mxnet"

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
        """The questions of the data, under its filter and the rule for over-long ones."""
        questions = filter_and_note(read_questions(self.data), self.config.dev_filter)
        return self.prepared(questions, inputs)

    def prepared(self, items: Iterable[Any], inputs: Any) -> List[Any]:
        """Apply the rule for over-long questions now, not hours later at the first evaluation."""
        prepared = prepare_questions(items, [inputs])
        note_long_questions(prepared.truncated, prepared.skipped, self.data)
        return prepared.questions


def evaluation_engine(engine: str, ctx: str) -> EngineConfig:
    """Engine that evaluates on the first device of a training."""
    # oneDNN may be able to train a network but not to rank with it; MXNet then ranks.
    return EngineConfig(
        engine="mxnet" if engine == "mxnet" else "auto", ctx=re.split("[-,]", ctx)[0]
    )


def evaluate_rankings(dev: Development, inputs: Any) -> Evaluator:
    """Make the evaluator of rankings."""
    questions = dev.questions(inputs)
    if not any(label for question in questions for label in question.labels):
        problem = f"none has a correct candidate under the filter {dev.config.dev_filter}"
        expected = "development questions with candidates of label 1"
        raise DataError("questions", problem, expected, "check its labels, or train without --dev")

    def build(network: Any) -> Any:
        return build_ranker(dev.system, network, inputs, engine=dev.engine)

    return dev_evaluator(questions, build, live=dev.is_live, progress=True)
