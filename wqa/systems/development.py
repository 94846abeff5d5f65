"""Evaluation on the development data of a training, by what a system computes.

This layer lies below rankers and metrics, which the functions here import when they are called.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List

from wqa.config import EngineConfig, TrainingConfig
from wqa.data import Question
from wqa.errors import OptionError

#: Takes the network, and returns its figures.
Evaluator = Callable[[Any], Dict[str, float]]
#: Takes a pair encoder, and returns an evaluator.
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
        computes = self.own_config.computes
        if computes not in FACTORIES:
            raise OptionError("dev", f"data for a network that computes {computes}", "none")
        return FACTORIES[computes](self)


def _question_factory(dev: Development, make: Callable[..., Evaluator]) -> Factory:
    """Factory of evaluators on questions."""
    from wqa.data import read_questions
    from wqa.data.filters import filter_and_note
    from wqa.text import naming_file, note_long_questions, prepare_questions

    questions = filter_and_note(read_questions(dev.data), dev.config.dev_filter)

    def evaluator(encoder: Any) -> Evaluator:
        # Now, not at the first evaluation, which may be hours away.
        with naming_file(dev.data):
            prepared = prepare_questions(questions, [encoder])
            made = make(dev, encoder, prepared.questions)
        note_long_questions(prepared.truncated, prepared.skipped, dev.data)
        return made

    return evaluator


def _paragraph_factory(dev: Development) -> Factory:
    """Factory of evaluators on the examples of held-out documents, drawn with seed 0."""
    from wqa.data.paragraph_minima import note_left_out
    from wqa.systems.mspp.paragraph_batches import Masking, ParagraphEncoder
    from wqa.systems.mspp.paragraph_scores import ParagraphScorer, paragraph_figures
    from wqa.systems.mspp.pretraining import open_stream

    def evaluator(encoder: Any) -> Evaluator:
        # After the task is made, which refuses what does not fit the encoder.
        stream = open_stream(dev.data, dev.own_config)
        note_left_out(stream.count(), dev.data)
        examples = list(stream.examples(0))
        masking = Masking(encoder.tokenizer, dev.own_config.mask_rate)
        tokens, ctx = dev.config.tokens_per_batch, dev.engine.ctx
        scorer = ParagraphScorer(ParagraphEncoder(encoder, masking), examples, tokens, ctx)
        return lambda network: paragraph_figures(scorer.score(network))

    return evaluator


def _claim_factory(dev: Development) -> Factory:
    """Factory of evaluators on claims."""
    from wqa.data import read_claims
    from wqa.evaluation import claim_evaluator
    from wqa.systems.mspp.claim_inputs import OF_CLAIMS, prepare_claims
    from wqa.systems.mspp.verifier import Verifier
    from wqa.text import naming_file, note_long_questions

    engine = dev.engine

    def evaluator(encoder: Any) -> Evaluator:
        def build(network: Any) -> Any:
            return Verifier(network, encoder, engine)

        # After the task is made, which refuses a head of labels that it does not train.
        claims = list(read_claims(dev.data))
        with naming_file(dev.data):
            prepared = prepare_claims(claims, encoder)
        note_long_questions(prepared.truncated, prepared.skipped, dev.data, OF_CLAIMS)
        return claim_evaluator(prepared.claims, build, engine.engine == "mxnet")

    return evaluator


def evaluation_engine(engine: str, ctx: str) -> EngineConfig:
    """Engine that evaluates, or scores by a teacher, on the first device of a training."""
    # oneDNN may be able to train a network but not to rank with it; MXNet then ranks.
    return EngineConfig(engine="mxnet" if engine == "mxnet" else "auto", ctx=ctx.split("-")[0])


def _of_scores(dev: Development, encoder: Any, questions: List[Question]) -> Evaluator:
    """Evaluator of rankings."""
    from wqa.evaluation import dev_evaluator
    from wqa.systems.load import build_ranker

    engine = dev.engine

    def build(network: Any) -> Any:
        return build_ranker(dev.system, network, encoder, engine=engine)

    # Only MXNet's engine reads the current parameters.
    return dev_evaluator(questions, build, live=engine.engine == "mxnet", progress=True)


def _of_spans(dev: Development, encoder: Any, questions: List[Question]) -> Evaluator:
    """Evaluator of answers."""
    from wqa.evaluation import reading_evaluator
    from wqa.systems.reader.reader import Reader

    engine = dev.engine

    def build(network: Any) -> Any:
        return Reader(network, encoder, engine)

    read = getattr(dev.own_config, "read", 0)  # where the system has this option
    return reading_evaluator(questions, build, engine.engine == "mxnet", read)


#: Factories of evaluators by `wqa.models.NetworkConfig.computes`.
FACTORIES: Dict[str, Callable[[Development], Factory]] = {
    "scores": lambda dev: _question_factory(dev, _of_scores),
    "spans": lambda dev: _question_factory(dev, _of_spans),
    "paragraphs": _paragraph_factory,
    "labels": _claim_factory,
}
