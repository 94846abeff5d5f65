"""Evaluation on the development data of a training, as the record of its system names it."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List

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
#: Takes the inputs of a network, and returns an evaluator.
Factory = Callable[[Any], Evaluator]


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

    def factory(self) -> Factory:
        """Make the ``make_evaluator`` argument of `wqa.train`."""
        if self.own_config.computes == "scores":
            return evaluate_rankings(self)
        return (find_system(self.system).development_factory() or _refuse)(self)

    def of_questions(self, make: Callable[..., Evaluator]) -> Factory:
        """Factory of evaluators on questions, whose evaluator ``make`` builds."""
        questions = filter_and_note(read_questions(self.data), self.config.dev_filter)

        def evaluator(inputs: Any) -> Evaluator:
            # Now, not at the first evaluation, which may be hours away.
            with naming_file(self.data):
                prepared = prepare_questions(questions, [inputs])
                made = make(self, inputs, prepared.questions)
            note_long_questions(prepared.truncated, prepared.skipped, self.data)
            return made

        return evaluator


def _refuse(dev: Development) -> Factory:
    """Factory for a network that nothing evaluates; its task may refuse the network before."""

    def evaluator(inputs: Any) -> Evaluator:
        computes = dev.own_config.computes
        raise OptionError("dev", f"data for a network that computes {computes}", "none")

    return evaluator


def evaluation_engine(engine: str, ctx: str) -> EngineConfig:
    """Engine that evaluates, or scores by a teacher, on the first device of a training."""
    # oneDNN may be able to train a network but not to rank with it; MXNet then ranks.
    return EngineConfig(engine="mxnet" if engine == "mxnet" else "auto", ctx=ctx.split("-")[0])


def evaluate_rankings(dev: Development) -> Factory:
    """Factory of evaluators of rankings."""
    return dev.of_questions(_of_scores)


def _of_scores(dev: Development, inputs: Any, questions: List[Question]) -> Evaluator:
    """Evaluator of rankings."""
    if not any(label for question in questions for label in question.labels):
        raise DataError(
            "questions",
            f"none has a correct candidate under the filter {dev.config.dev_filter}",
            "development questions with candidates of label 1",
            "check its labels, or train without --dev",
        )
    engine = dev.engine

    def build(network: Any) -> Any:
        return build_ranker(dev.system, network, inputs, engine=engine)

    # Only MXNet's engine reads the current parameters.
    return dev_evaluator(questions, build, live=engine.engine == "mxnet", progress=True)
