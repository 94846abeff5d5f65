"""Evaluation on the development data during `wqa train`, by what a system computes."""

from __future__ import annotations

import argparse
from typing import Any, Callable, Dict, List

from wqa.cli.options import fields_of
from wqa.config import EngineConfig
from wqa.data import Question
from wqa.errors import OptionError

#: Takes the network, and returns its figures.
Evaluator = Callable[[Any], Dict[str, float]]


def evaluator_factory(options: argparse.Namespace) -> Callable[[Any], Evaluator]:
    """Make the ``make_evaluator`` argument of `wqa.training.train`.

    Parameters
    ----------
    options : argparse.Namespace
        Options of ``wqa train``, with development questions.

    Returns
    -------
    callable
        Takes a pair encoder and returns the evaluator that the trainer calls.
    """
    from wqa.models import network_type

    kind = network_type(options.system).Config
    own_config = kind(**fields_of(options, kind))
    if own_config.computes not in FACTORIES:
        problem = f"data for a network that computes {own_config.computes}"
        raise OptionError("dev", problem, "none")
    return FACTORIES[own_config.computes](options, own_config)


def _question_factory(
    options: argparse.Namespace, make: Callable[..., Evaluator]
) -> Callable[[Any], Evaluator]:
    """Factory of evaluators on questions."""
    from wqa.data import filter_questions, read_questions
    from wqa.text import naming_file, note_long_questions, prepare_questions

    questions = filter_questions(read_questions(options.dev), options.dev_filter)

    def evaluator(encoder: Any) -> Evaluator:
        # Now, not at the first evaluation, which may be hours away.
        with naming_file(options.dev):
            prepared = prepare_questions(questions, [encoder])
            made = make(options, encoder, prepared.questions)
        note_long_questions(prepared.truncated, prepared.skipped, options.dev)
        return made

    return evaluator


def _paragraph_factory(options: argparse.Namespace, own_config: Any) -> Callable[[Any], Evaluator]:
    """Factory of evaluators on the examples of held-out documents, drawn with seed 0."""
    from wqa.evaluation.paragraphs import paragraph_figures
    from wqa.inference.paragraphs import ParagraphScorer
    from wqa.text.masking import Masking
    from wqa.text.paragraphs import ParagraphEncoder
    from wqa.training.paragraphs import open_stream

    examples = list(open_stream(options.dev, own_config).examples(0))

    def evaluator(encoder: Any) -> Evaluator:
        masking = Masking(encoder.tokenizer, own_config.mask_rate)
        engine = evaluation_engine(options)
        scorer = ParagraphScorer(
            ParagraphEncoder(encoder, masking), examples, options.tokens_per_batch, engine.ctx
        )
        return lambda network: paragraph_figures(scorer.score(network))

    return evaluator


def _claim_factory(options: argparse.Namespace, own_config: Any) -> Callable[[Any], Evaluator]:
    """Factory of evaluators on claims."""
    from wqa.data import read_claims
    from wqa.evaluation import claim_evaluator
    from wqa.inference import Verifier
    from wqa.text import OF_CLAIMS, naming_file, note_long_questions, prepare_claims

    engine = evaluation_engine(options)

    def evaluator(encoder: Any) -> Evaluator:
        def build(network: Any) -> Any:
            return Verifier(network, encoder, engine)

        # After the task is made, which refuses a head of labels that it does not train.
        claims = list(read_claims(options.dev))
        with naming_file(options.dev):
            prepared = prepare_claims(claims, encoder)
        note_long_questions(prepared.truncated, prepared.skipped, options.dev, OF_CLAIMS)
        return claim_evaluator(prepared.claims, build, engine.engine == "mxnet")

    return evaluator


def evaluation_engine(options: argparse.Namespace) -> EngineConfig:
    """Engine that evaluates, or scores by a teacher, on the first device of a training.

    Parameters
    ----------
    options : argparse.Namespace
        Options of ``wqa train``.

    Returns
    -------
    EngineConfig
        MXNet if it trains, otherwise ``auto``.
    """
    # oneDNN may be able to train a network but not to rank with it; MXNet then ranks.
    chosen = "mxnet" if options.engine == "mxnet" else "auto"
    return EngineConfig(engine=chosen, ctx=options.ctx.split("-")[0])


def _of_scores(options: argparse.Namespace, encoder: Any, questions: List[Question]) -> Evaluator:
    """Evaluator of rankings."""
    from wqa.evaluation import dev_evaluator
    from wqa.inference import build_ranker

    engine = evaluation_engine(options)

    def build(network: Any) -> Any:
        return build_ranker(options.system, network, encoder, engine=engine)

    # Only MXNet's engine reads the current parameters.
    return dev_evaluator(questions, build, live=engine.engine == "mxnet", progress=True)


def _of_spans(options: argparse.Namespace, encoder: Any, questions: List[Question]) -> Evaluator:
    """Evaluator of answers."""
    from wqa.evaluation import reading_evaluator
    from wqa.inference import Reader

    engine = evaluation_engine(options)

    def build(network: Any) -> Any:
        return Reader(network, encoder, engine)

    read = getattr(options, "read", 0)  # where the system has this option
    return reading_evaluator(questions, build, engine.engine == "mxnet", read)


#: Factories of evaluators by `wqa.models.NetworkConfig.computes`. One takes the options and the
#: configuration of the system.
FACTORIES: Dict[str, Callable[..., Callable[[Any], Evaluator]]] = {
    "scores": lambda options, own_config: _question_factory(options, _of_scores),
    "spans": lambda options, own_config: _question_factory(options, _of_spans),
    "paragraphs": _paragraph_factory,
    "labels": _claim_factory,
}
