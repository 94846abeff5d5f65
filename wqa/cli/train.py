"""Train a system into a run directory.

example:
  wqa train cascade --encoder minilm --train data/wikiqa/train.jsonl --dev data/wikiqa/dev.jsonl \\
      --out runs/wikiqa --exits 2,4,6 --epochs 5 --learning-rate 5e-5 --warmup-updates 100

The run directory holds config.json, model.params (the best parameters by dev MAP), tokenizer.json
and metrics.jsonl; it is all that `wqa rank` and `wqa evaluate` need. A training that was stopped
goes on when the same command is given again with --resume, and ends with the same bits.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from typing import Any, Callable, Dict

from wqa.cli.options import add_filter, numbers
from wqa.config import EngineConfig, TrainingConfig

_DEFAULTS = TrainingConfig()
#: What an option's value is called: by its name, or by its type.
_METAVARS: Dict[Any, Any] = {"ctx": "DEVICE", "engine": None, int: "N", float: "X", str: None}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Parser of the subcommand.
    """
    parser.add_argument(
        "system", metavar="SYSTEM", help="cascade, or pairwise for the monolithic ranker"
    )
    start = parser.add_mutually_exclusive_group(required=True)
    start.add_argument(
        "--encoder",
        default="",
        metavar="DIR",
        help="pretrained encoder: a Hugging Face directory or a tar of one, what `wqa convert` "
        "wrote, or minilm for the installed package",
    )
    start.add_argument(
        "--init",
        default="",
        metavar="RUN",
        help="run to start from instead, as TANDA's adapt step does",
    )
    parser.add_argument(
        "--train",
        required=True,
        metavar="FILE",
        help="training questions, canonical JSONL, or a store that `wqa tokenize` wrote",
    )
    parser.add_argument(
        "--dev", metavar="FILE", help="development questions, for evaluation and early stopping"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="run directory to write")
    parser.add_argument(
        "--exits",
        default="",
        metavar="I[,J...]",
        help="layers with a head (default: every second from the fourth of twelve, or in "
        "proportion)",
    )
    parser.add_argument(
        "--max-length",
        type=int,
        default=128,
        metavar="TOKENS",
        help="limit of a pair (default: 128)",
    )
    add_filter(parser, "--train-filter", _DEFAULTS.train_filter, "training questions to use")
    add_filter(parser, "--dev-filter", _DEFAULTS.dev_filter, "development questions to score")
    parser.add_argument(
        "--resume", action="store_true", help="go on with the run that stands in --out"
    )
    _add_training(parser.add_argument_group("training"))


def _add_training(group: argparse._ArgumentGroup) -> None:
    for field in dataclasses.fields(TrainingConfig):
        if not field.name.endswith("_filter"):
            kind = type(field.default)
            group.add_argument(
                "--" + field.name.replace("_", "-"),
                type=kind,
                default=field.default,
                choices=TrainingConfig.CHOICES.get(field.name),
                metavar=_METAVARS.get(field.name, _METAVARS[kind]),
                help=f"{field.metadata['help']} (default: {field.default})",
            )


def run(options: argparse.Namespace) -> None:
    """Train as the options say.

    Parameters
    ----------
    options : argparse.Namespace
        What was parsed.
    """
    from wqa.training import task_type, train

    names = [field.name for field in dataclasses.fields(TrainingConfig)]
    config = TrainingConfig(**{name: getattr(options, name) for name in names})
    own = {}
    if options.exits:
        own["exits"] = tuple(numbers(options.exits, "exits"))
    state = train(
        options.system,
        options.train,
        options.out,
        options.encoder,
        options.init,
        config,
        options.max_length,
        options.resume,
        evaluator_factory(options) if options.dev else None,
        shlex.join(["wqa", *sys.argv[1:]]),
        **own,
    )
    if state.update == 0:
        print(f"{options.out} is complete already")
        return
    message = f"{options.out}: {state.update} updates"
    if state.best_update:
        metric = task_type(options.system).metric.upper()
        best = f"{100 * state.best_figure:.2f} at update {state.best_update}"
        message += f", best dev {metric} {best}"
    print(message)


def evaluator_factory(options: argparse.Namespace) -> Callable:
    """What `wqa.training.train` takes to evaluate on development questions.

    Parameters
    ----------
    options : argparse.Namespace
        What was parsed.

    Returns
    -------
    callable
        Takes a pair encoder; returns what the trainer calls.
    """
    from wqa.data import filter_questions, read_questions
    from wqa.evaluation import dev_evaluator
    from wqa.inference import build_ranker

    questions = filter_questions(read_questions(options.dev), options.dev_filter)
    engine = EngineConfig(engine=options.engine, ctx=options.ctx.split("-")[0])

    def evaluator(encoder: Any) -> Callable[[Any], Dict[str, float]]:
        def build(network: Any) -> Any:
            return build_ranker(options.system, network, encoder, engine=engine)

        # MXNet's engine alone reads the parameters as they are.
        return dev_evaluator(questions, build, live=options.engine == "mxnet", progress=True)

    return evaluator
