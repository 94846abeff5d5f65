"""Evaluation on the development questions during `wqa train`, by what a system computes."""

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
    if own_config.computes == "paragraphs":
        return _paragraph_factory(options, own_config)
    return _question_factory(options, own_config.computes)


def _question_factory(options: argparse.Namespace, computes: str) -> Callable[[Any], Evaluator]:
    """Factory of evaluators on questions."""
    from wqa.data import filter_questions, read_questions
    from wqa.text import naming_file, note_long_questions, prepare_questions

    if computes not in EVALUATIONS:
        raise OptionError("dev", f"questions for a network that computes {computes}", "none")
    questions = filter_questions(read_questions(options.dev), options.dev_filter)
    make = EVALUATIONS[computes]

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


#: Evaluation of each kind of network, by `wqa.models.Network.computes`.
EVALUATIONS: Dict[str, Callable[..., Evaluator]] = {"scores": _of_scores, "spans": _of_spans}
