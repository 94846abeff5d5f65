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
import shlex
import sys
from typing import Any, Callable, Dict

from wqa.cli.options import add_filter, numbers
from wqa.config import EngineConfig, TrainingConfig

_DEFAULTS = TrainingConfig()


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
    for option, kind, metavar, text in (
        ("ctx", str, "DEVICE", "cpu, gpu:0, a range such as gpu:0-7, or cpu:0-1 for two contexts"),
        ("epochs", int, "N", "passes over the training questions"),
        ("max-updates", int, "N", "stop after so many updates, 0: no limit"),
        ("seed", int, "N", "seed of everything random"),
        ("learning-rate", float, "R", "peak of the triangular schedule"),
        ("warmup-updates", int, "N", "updates up to the peak"),
        ("tokens-per-batch", int, "N", "padded tokens a device and update"),
        ("clip-norm", float, "X", "greatest norm of a gradient, 0: no clipping"),
        ("checkpoint-every", int, "UPDATES", "updates between checkpoints"),
        ("eval-every", int, "UPDATES", "updates between evaluations, 0: once an epoch"),
        ("patience", int, "N", "stop after so many evaluations without a better dev MAP, 0: never"),
        ("log-every", int, "UPDATES", "updates between lines of metrics.jsonl"),
        ("shuffle", str, "S", "what an epoch shuffles: pair, or question for blocks of questions"),
        (
            "engine",
            str,
            "E",
            "what computes the layers: mxnet; onednn, on a CPU; auto, onednn where it is installed",
        ),
        (
            "precision",
            str,
            "P",
            "what products compute in: float32, or bfloat16 on a CPU with instructions for it",
        ),
    ):
        default = getattr(_DEFAULTS, option.replace("-", "_"))
        group.add_argument(
            f"--{option}",
            type=kind,
            default=default,
            metavar=metavar,
            help=f"{text} (default: {default})",
        )


def run(options: argparse.Namespace) -> None:
    """Train as the options say.

    Parameters
    ----------
    options : argparse.Namespace
        What was parsed.
    """
    import dataclasses

    from wqa.training import train

    config = TrainingConfig(
        **{field.name: getattr(options, field.name) for field in dataclasses.fields(TrainingConfig)}
    )
    state = train(
        options.system,
        options.train,
        options.out,
        options.encoder,
        options.init,
        numbers(options.exits, "exits") if options.exits else (),
        config,
        options.max_length,
        options.resume,
        evaluator_factory(options) if options.dev else None,
        shlex.join(["wqa", *sys.argv[1:]]),
    )
    if state.update == 0:
        print(f"{options.out} is complete already")
    elif state.best_update:
        print(
            f"{options.out}: {state.update} updates, best dev MAP {100 * state.best_map:.2f} "
            f"at update {state.best_update}"
        )
    else:
        print(f"{options.out}: {state.update} updates")


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
