"""Train a system into a run directory.

example:
  wqa train cascade --encoder minilm --train data/wikiqa/train.jsonl --dev data/wikiqa/dev.jsonl \\
      --out runs/wikiqa --exits 2,4,6 --epochs 5 --learning-rate 5e-5 --warmup-updates 100

  wqa train --config wikiqa.yaml --learning-rate 3e-5 --out runs/slower

`wqa train SYSTEM --help` also shows the options of a system. The run directory holds config.json,
model.params (the best parameters by the figures on dev), tokenizer.json and metrics.jsonl; `wqa
rank` and `wqa evaluate` need nothing else. --config takes options by their names from a file, such
as `epochs: 5` and `exits: [2, 4, 6]`, or those of another run from its config.json. --teachers
names rankers, or folders that `wqa score` wrote, to learn from besides the labels. An interrupt
stops a training after the current update. The same command with --resume continues it, and ends
with the same bits.
"""

from __future__ import annotations

import argparse
import shlex
from typing import Any, Callable

from wqa.cli.options import add_fields, add_filter, add_number, fields_of, values_of
from wqa.cli.output import add_json, show
from wqa.cli.systems import HelpWithOwnOptions
from wqa.config import TrainingConfig
from wqa.errors import printable

_FILTERS = ("train_filter", "dev_filter")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa train`` to its parser."""
    defaults = TrainingConfig()
    parser.add_argument(
        "-h", "--help", action=HelpWithOwnOptions, nargs=0, help="show this message and exit"
    )
    parser.add_argument("system", metavar="SYSTEM", help="system to train")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--encoder",
        default="",
        metavar="DIR",
        help="pretrained encoder: a Hugging Face directory or a tar of one, what `wqa convert` "
        "wrote, minilm for the installed package, a hub name (FacebookAI/roberta-base), or "
        "gluonnlp:MODEL/DATASET for GluonNLP's zoo",
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
        help="training questions, JSONL, .csv or .tsv, or a store that `wqa tokenize` wrote",
    )
    parser.add_argument(
        "--dev", metavar="FILE", help="development questions, for evaluation and early stopping"
    )
    parser.add_argument("--out", required=True, metavar="PATH", help="run directory to write")
    text = "limit of an input; of a text in words for systems on word vectors"
    add_number(parser, "--max-length", 128, text, "TOKENS")
    add_filter(parser, "--train-filter", defaults.train_filter, "training questions to use")
    add_filter(parser, "--dev-filter", defaults.dev_filter, "development questions to score")
    parser.add_argument(
        "--log-dir", metavar="DIR", help="folder to write the figures to for TensorBoard"
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="file of these options, YAML or the config.json of a run; flags win over it",
    )
    parser.add_argument("--resume", action="store_true", help="resume the run in --out")
    add_json(parser)
    add_fields(parser.add_argument_group("training"), TrainingConfig, _FILTERS)


def run(options: argparse.Namespace) -> None:
    """Run ``wqa train`` and print the best figure."""
    from wqa.systems.registry import find_system
    from wqa.systems.train import train

    config = TrainingConfig(**fields_of(options, TrainingConfig))
    own = fields_of(options, find_system(options.system).network_type().Config)
    command = shlex.join(options.command_line)
    options.resume_command = command if options.resume else f"{command} --resume"
    state = train(
        train_file=options.train,
        config=config,
        command=command,
        score_teacher=teacher_scorer(options),
        log_dir=options.log_dir or "",
        dev=options.dev or "",
        **values_of(options, "system", "out", "encoder", "init", "max_length", "resume"),
        **own,
    )
    if state.rank:
        return  # worker 0 shows the result
    metric = find_system(options.system).task_type().metric
    message = f"{printable(options.out)}: {state.update} updates"
    if state.update == 0:
        message = f"{printable(options.out)} is complete already"
    elif state.best_figure is not None:
        best = f"{100 * state.best_figure:.2f} at update {state.best_update}"
        message += f", best dev {metric.upper()} {best}"
    result = {
        "run": options.out,
        "was_complete": state.update == 0,
        "updates": state.update,
        "metric": metric,
        "best_figure": state.best_figure,
        "best_update": state.best_update,
    }
    show(message, result, options.json)


def teacher_scorer(options: argparse.Namespace) -> Callable:
    """Make the ``score_teacher`` argument of `wqa.train`."""

    def score(run: str) -> Any:
        from wqa.systems.development import evaluation_engine
        from wqa.systems.scores import score_in_memory

        engine = evaluation_engine(options.engine, options.ctx)
        return score_in_memory(
            run,
            options.train,
            options.train_filter,
            progress=True,
            ctx=engine.ctx,
            engine=engine.engine,
            long_questions=options.long_questions,
        )

    return score
