"""Train a system into a run directory.

example:
  wqa train cascade --encoder minilm --train data/wikiqa/train.jsonl --dev data/wikiqa/dev.jsonl \\
      --out runs/wikiqa --exits 2,4,6 --epochs 5 --learning-rate 5e-5 --warmup-updates 100

`wqa train SYSTEM --help` explains the options of a system. The run directory holds config.json,
model.params (the best parameters by the figures on dev), tokenizer.json and metrics.jsonl; `wqa
rank` and `wqa evaluate` need nothing else. With --dev, BM25, the encoder without training and their
mean are evaluated beside the run, and ensemble.json adds their scores to the run's, but not those
of what the run was before. --teachers names folders that `wqa score` wrote, to learn from besides
the labels. An interrupt stops a training after the current update. The same command with --resume
continues it, and ends with the same bits.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import shlex
from typing import Any, Dict

from wqa.cli.options import (
    add_fields,
    add_json,
    add_number,
    fields_of,
    has_option,
    show,
    values_of,
)
from wqa.cli.parser import CommandParser
from wqa.config import TrainingConfig
from wqa.errors import printable

#: Options that `wqa train SYSTEM --help` explains, beside those of the system.
_FIRST = ("encoder", "init", "dev", "resume", "epochs", "learning_rate", "seed", "ctx")
#: Settings that take the place of others: a system's default of these does not count beside them.
_REPLACED = {
    "warmup_share": ("warmup_updates",),
    "schedule": ("warmup_updates", "warmup_share"),
    "accumulate": ("tokens_per_update",),
    "tokens_per_update": ("accumulate",),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the systems of ``wqa train`` to its parser."""
    from wqa.systems.registry import SYSTEMS, add_installed_systems

    add_installed_systems()
    systems = parser.add_subparsers(
        dest="system", required=True, metavar="SYSTEM", parser_class=CommandParser
    )
    for name, system in SYSTEMS.items():
        systems.add_parser(
            name,
            help=system.help,
            description=f"Train {system.help}. `wqa train --help` says what a training writes.",
            add_arguments=functools.partial(add_system_arguments, system=name),
            first=_FIRST,
        )


def add_system_arguments(parser: CommandParser, system: str) -> None:
    """Add the arguments of ``wqa train SYSTEM`` to its parser."""
    config = _config_of(system)
    start = parser.add_mutually_exclusive_group()
    text = "pretrained encoder: a Hugging Face directory, a tar of one, or a hub name; what `wqa "
    text += "convert` wrote; minilm, the installed one; gluonnlp:MODEL/DATASET"
    start.add_argument("--encoder", default="", metavar="DIR", help=text)
    text = "run to start from instead, as TANDA's adapt step does"
    start.add_argument("--init", default="", metavar="RUN", help=text)
    text = "training questions, JSONL, .csv or .tsv, or a store that `wqa tokenize` wrote"
    parser.add_argument("--train", required=True, metavar="FILE", help=text)
    text = "development questions, for evaluation and early stopping"
    parser.add_argument("--dev", metavar="FILE", help=text)
    parser.add_argument("--out", required=True, metavar="PATH", help="run directory to write")
    text = "limit of an input; of a text in words for systems on word vectors"
    add_number(parser, "--max-length", 128, text, "TOKENS")
    parser.add_argument("--resume", action="store_true", help="resume the run in --out")
    add_json(parser)
    training = parser.add_argument_group("training")
    add_fields(training, TrainingConfig, config().training_defaults())
    own = [field.name for field in dataclasses.fields(config) if has_option(field)]
    add_fields(parser.add_argument_group(f"options of {system}"), config)
    parser.first = parser.first and (*parser.first, *own)


def _config_of(system: str) -> Any:
    """Configuration of a system, whose fields are its options."""
    import wqa.models  # noqa: F401 - before MXNet is imported
    from wqa.systems.registry import find_system

    return find_system(system).network_type().Config


def training_config(options: argparse.Namespace) -> TrainingConfig:
    """Settings of a training; those that are not given are the system's."""
    config = _config_of(options.system)
    given = fields_of(options, TrainingConfig)
    defaults = config(**fields_of(options, config)).training_defaults()
    for field in dataclasses.fields(TrainingConfig):
        if given.get(field.name, field.default) != field.default:
            for name in _REPLACED.get(field.name, ()):
                defaults.pop(name, None)
    return TrainingConfig(**{**defaults, **given})


def run(options: argparse.Namespace) -> None:
    """Run ``wqa train`` and print the best figure."""
    from wqa.systems.registry import find_system
    from wqa.systems.train import train

    config = training_config(options)
    command = shlex.join(options.command_line)
    options.resume_command = command if options.resume else f"{command} --resume"
    state = train(
        train_file=options.train,
        config=config,
        command=command,
        dev=options.dev or "",
        **values_of(options, "system", "out", "encoder", "init", "max_length", "resume"),
        **fields_of(options, _config_of(options.system)),
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
    result: Dict[str, Any] = {"run": options.out, "was_complete": state.update == 0}
    result.update(updates=state.update, metric=metric)
    result.update(best_figure=state.best_figure, best_update=state.best_update)
    show(message, result, options.json)
