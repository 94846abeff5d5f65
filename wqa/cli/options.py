"""Options that several subcommands share, and their output: a text, or the result as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import logging
import math
import os
import shlex
import sys
import typing
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from wqa.config import EngineConfig
from wqa.config.training import LONG_CANDIDATES, LONG_QUESTIONS, RANKING_ENGINES
from wqa.data.records import DEFAULT_FILTER, FILTERS
from wqa.errors import UNPRINTABLE, OptionError, printable, shorten

if TYPE_CHECKING:
    from wqa.data.parts import PartsReport, PartTask

LOGGER = logging.getLogger(__name__)

#: Greatest whole number of an option, that of 32 bits with a sign.
MOST = 2**31 - 1

#: Name of a setting of the drops, and its keywords as `wqa.load_ranker` takes them.
DropSetting = Tuple[str, Dict[str, Any]]

#: Metavar of an option, by name or type of the configuration's field.
_METAVARS: Dict[Any, str] = {"ctx": "DEVICE", "index": "INDEX", int: "N", float: "X", str: "TEXT"}


def numbers(text: str, option: str, kind: type = int) -> List:
    """Parse a comma-separated list of numbers or texts."""
    try:
        values = [kind(part) for part in text.split(",")]
    except ValueError:
        expected = "whole numbers" if kind is int else "numbers"
        raise OptionError(option, shorten(text), f"{expected} separated by commas") from None
    for value in values:
        check_number(value, option)
    return values


def check_number(value: Any, option: str) -> None:
    """Check that the value of an option is a number that every library takes."""
    if isinstance(value, float) and math.isnan(value):
        raise OptionError(option, value, "a number")
    if isinstance(value, int) and abs(value) > MOST:
        raise OptionError(option, shorten(value), f"a whole number up to {MOST}")


def add_fields(parser: Any, config: type, defaults: Optional[Mapping[str, Any]] = None) -> None:
    """Add an option for each field of a configuration.

    With other ``defaults`` an option that is not given is not among those that are parsed.
    """
    hints = typing.get_type_hints(config)
    choices = getattr(config, "CHOICES", {})
    for field in dataclasses.fields(config):
        if not has_option(field):
            continue
        flag = "--" + field.name.replace("_", "-")
        kind = hints[field.name]
        if type(None) in typing.get_args(kind):
            [kind, _] = typing.get_args(kind)
        default, shown = field.default, field.metadata.get("chosen")
        if defaults and field.name in defaults:
            default, shown = defaults[field.name], None
        text = field.metadata.get("help", field.name.replace("_", " ")).replace("%", "%%")
        keywords: Dict[str, Any] = {"default": default, "help": text}
        if kind is bool:
            keywords["action"] = "store_true"
        elif typing.get_origin(kind) is tuple:
            element = typing.get_args(kind)[0]
            keywords["type"] = functools.partial(_tuple_of, element, flag)
            keywords["metavar"] = "NAME[,NAME...]" if element is str else "I[,J...]"
        else:
            known = choices.get(field.name)
            if not known:
                keywords["metavar"] = _METAVARS.get(field.name, _METAVARS[kind])
            if not shown:
                shown = "none" if default == "" else str(default)
            keywords.update(type=kind, choices=known, help=f"{text} (default: {shown})")
        if defaults is not None:
            keywords["default"] = argparse.SUPPRESS
        parser.add_argument(flag, **keywords)


def _tuple_of(kind: type, flag: str, text: str) -> Tuple:
    """The value of a field that is a tuple."""
    return tuple(numbers(text, flag, kind)) if text else ()


def has_option(field: dataclasses.Field) -> bool:
    """Whether a field of a configuration has an option, which its metadata may deny."""
    return field.metadata.get("option", True)


def fields_of(options: argparse.Namespace, config: type) -> Dict[str, Any]:
    """Values of the options of `add_fields` that were parsed."""
    names = [field.name for field in dataclasses.fields(config) if has_option(field)]
    return values_of(options, *(name for name in names if name in options))


def add_number(
    parser: Any, flag: str, default: Optional[int], text: str, metavar: str = "N"
) -> None:
    """Add an option of a whole number, and its default to the help text if it has one."""
    if default is not None:
        text += f" (default: {default})"
    parser.add_argument(flag, type=int, default=default, metavar=metavar, help=text)


def add_choice(parser: Any, flag: str, choices: Sequence[str], text: str) -> None:
    """Add an option of one of several words, of which the first is the default."""
    text += f" (default: {choices[0]})"
    parser.add_argument(flag, default=choices[0], choices=tuple(choices), help=text)


def add_data(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``--data``, a file that the command needs."""
    parser.add_argument("--data", required=True, metavar="FILE", help=text)


def refuse(options: argparse.Namespace, names: Sequence[str], problem: str, expected: str) -> None:
    """Refuse options that do not apply, if they are given."""
    for name in names:
        value = getattr(options, name, None)
        if value not in (None, "", []) and value != options.parser.get_default(name):
            drops = "drop_ratio and keep and drop_below"
            raise OptionError(drops if name in ("drop_rows", "drops") else name, problem, expected)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    text = "write the result as JSON too; - for standard output instead of the table"
    parser.add_argument("--json", metavar="FILE", type=_output_file, help=text)


def _output_file(path: str) -> str:
    """A name that a file can be written to at the end, or ``-``."""
    if os.path.isdir(path):
        raise OptionError("--json", f"{path}, a folder", "the name of a file, or -")
    return path


def show(text: str, value: Any, path: str) -> None:
    """Print a result as text, or write it as JSON, or both."""
    if path == "-":
        has_all_characters = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
        sys.stdout.write(_document(value, ensure_ascii=not has_all_characters))
        return
    # The file first: a reader of standard output may close it.
    if path:
        from wqa.io.files import atomic_writer  # needs NumPy, which `wqa doctor` may find missing

        with atomic_writer(path) as file:
            file.write(_document(value))
    print(text)


def _document(value: Any, ensure_ascii: bool = False) -> str:
    """A value as JSON, with an escape for each character that must not reach a terminal."""
    # JSON has no NaN and no infinity.
    value = json.loads(json.dumps(value), parse_constant=lambda _: None)
    text = json.dumps(value, indent=2, ensure_ascii=ensure_ascii)
    lines = [
        UNPRINTABLE.sub(lambda match: json.dumps(match[0])[1:-1], line) for line in text.split("\n")
    ]
    return "\n".join(lines) + "\n"


def add_engine(
    parser: argparse.ArgumentParser,
    precisions: Sequence[str] = ("float32", "bfloat16", "int8"),
) -> None:
    """Add the options of the engine that computes a network."""
    note = "; a run ranks in int8 after `wqa quantize`" if "int8" in precisions else ""
    text = "device: cpu or gpu:0 (default: cpu)"
    parser.add_argument("--ctx", default="cpu", metavar="DEVICE", help=text)
    add_choice(parser, "--precision", precisions, f"precision of products{note}")
    text = "engine of the layers; auto takes oneDNN on a CPU where it is installed, and ONNX "
    text += "Runtime for an exported folder"
    add_choice(parser, "--engine", RANKING_ENGINES, text)
    text = "threads on a CPU (default: all that the process may use)"
    add_number(parser, "--threads", None, text)


def add_ranking(
    parser: argparse.ArgumentParser,
    with_cache: bool = True,
    long_questions: Sequence[str] = LONG_QUESTIONS,
    with_windows: bool = True,
    with_pool: bool = True,
) -> None:
    """Add the options of ranking, and what becomes of long questions and candidates."""
    add_engine(parser)
    if with_pool:
        text = "candidates that an exit compares: all of a question, or batches of them"
        add_choice(parser, "--pool", ("question", "batch"), text)
        add_number(parser, "--pool-size", 128, "candidates a batch, for --pool batch", "B")
    if with_cache:
        text = "document cache that `wqa encode` wrote, for a run that encodes documents apart"
        parser.add_argument("--cache", metavar="DIR", help=text)
    add_long_questions(parser, long_questions)
    if with_windows:
        text = "candidates that do not fit: read their first tokens, or all of them in windows"
        add_choice(parser, "--long-candidates", LONG_CANDIDATES, text)


def add_drops(parser: argparse.ArgumentParser, rows: str = "") -> None:
    """Add ``--drop-ratio``, ``--keep`` and ``--drop-below``, of which ``rows`` takes several."""
    text = f"share that a stage drops, for all stages or each; or tuned (default: 0){rows}"
    keep = "number of candidates that a stage keeps instead"
    below = "drop the candidates whose relevance, as `wqa calibrate` fits it, is below P instead"
    keywords: Dict[str, Any] = {"action": "append", "default": []}
    keywords["dest"] = "drop_rows" if rows else "drops"
    texts = {"--drop-ratio": ("A", text), "--keep": ("K", keep), "--drop-below": ("P", below)}
    for flag, (name, text) in texts.items():
        kind, metavar = functools.partial(_drop_setting, flag), f"{name}[,{name}...]"
        parser.add_argument(flag, type=kind, metavar=metavar, help=text, **keywords)


def _drop_setting(flag: str, text: str) -> DropSetting:
    option = flag[2:].replace("-", "_")
    name = {"keep": f"keep={text}", "drop_below": f"below={text}"}.get(option, text)
    if name == "tuned":
        return name, {option: text}
    values = numbers(text, flag, int if option == "keep" else float)
    return name, {option: values if len(values) > 1 else values[0]}


def settings_by_name(given: Sequence[DropSetting], run: str) -> Dict[str, Dict[str, Any]]:
    """Settings as evaluation and timing take them, with the tuned ratios of a run."""
    settings = dict(given)
    if "tuned" in settings:
        from wqa.systems.registry import read_tuned

        settings["tuned"] = {"drop_ratio": read_tuned(run)}
    return settings


def values_of(options: argparse.Namespace, *names: str) -> Dict[str, Any]:
    """Values of some options, as keyword arguments of the same names."""
    return {name: getattr(options, name) for name in names}


def engine_of(options: argparse.Namespace) -> EngineConfig:
    """Values of the options of `add_engine`."""
    return EngineConfig(options.engine, options.precision, options.threads, options.ctx)


def loading_options(options: argparse.Namespace) -> Dict[str, Any]:
    """Values of the options of `add_engine` and `add_long_questions`, for any loader."""
    return values_of(options, "ctx", "precision", "engine", "threads", "long_questions")


def ranking_options(options: argparse.Namespace) -> Dict[str, Any]:
    """Values of the options of `add_ranking`, and a single setting of drops, for `load_ranker`."""
    values = loading_options(options)
    if hasattr(options, "pool"):
        values.update(values_of(options, "pool", "pool_size"))
    settings = getattr(options, "drops", [])
    if len(settings) > 1:
        names = " and ".join(name for name, _ in settings)
        raise OptionError("drop_ratio and keep and drop_below", names, "one of them")
    for _, drops in settings:
        values.update(drops)
    if hasattr(options, "long_candidates"):
        values["long_candidates"] = options.long_candidates
    if getattr(options, "cache", None) is not None:
        from wqa.inference.document_cache import open_cache

        # One object for all rankers of a command, which counts what they look up.
        options.cache = open_cache(options.cache)
        values["cache"] = options.cache
    return values


def note_cache(options: argparse.Namespace) -> None:
    """Print on standard error how many documents were not in the cache, if there is one."""
    cache = getattr(options, "cache", None)
    # It is still a path where the subcommand has loaded no ranker.
    if cache is not None and not isinstance(cache, str) and cache.documents:
        text = f"all {cache.documents:,} documents came from the cache"
        if cache.missing:
            text = f"{cache.missing:,} of {cache.documents:,} documents were encoded, as the cache "
            text += "does not hold them or holds another text of theirs"
        LOGGER.warning(printable(f"{cache.path}: {text}"))


def add_long_questions(
    parser: argparse.ArgumentParser, choices: Sequence[str] = LONG_QUESTIONS
) -> None:
    """Add ``--long-questions``."""
    text = "questions that leave fewer than 16 tokens for a candidate"
    add_choice(parser, "--long-questions", choices, text)


def add_filter(parser: Any, name: str, default: str, text: str) -> None:
    """Add a filter of questions."""
    text += ": all; no-all-negative, those with an answer; clean, those with both an answer and a "
    text += f"wrong candidate (default: {default or DEFAULT_FILTER})"
    parser.add_argument(name, default=default, choices=tuple(FILTERS), help=text)


def add_partitions(
    parser: argparse.ArgumentParser, verb: str, participle: str, unit: str, tokens: int
) -> None:
    """Add ``--shard``, ``--cluster`` and ``--partition-tokens``."""
    where = parser.add_mutually_exclusive_group()
    text = f"{verb} the I-th of N shares of the partitions, I from 1"
    where.add_argument("--shard", metavar="I/N", help=text)
    text = f"{verb} on Ray: local, local:N for N workers on this machine, ray://HOST[:PORT]; "
    text += "--threads are those of a worker (default: 1)"
    where.add_argument("--cluster", metavar="ADDRESS", help=text)
    text = f"estimated tokens of the {unit} that are {participle} together"
    add_number(parser, "--partition-tokens", tokens, text)


def show_parts(
    options: argparse.Namespace, task: PartTask, describe: Callable[[PartsReport], str]
) -> None:
    """Run a task as the options of `add_partitions` say, and print what it made or what lacks."""
    report = _run_in_parts(options, task)
    counts = f"{report.computed:,} of {report.partitions:,} partitions computed"
    text = f"{printable(options.out)}.partitions: {counts}, "
    if report.meta is not None:
        text = describe(report)
    elif report.missing:
        text += f"{report.missing:,} are missing"
    else:
        text += "not merged yet; unless another process merges them, run it again"
    show(text, {"out": options.out, **report._asdict()}, options.json)


def _run_in_parts(options: argparse.Namespace, task: PartTask) -> PartsReport:
    from wqa.config.environment import device_numbers
    from wqa.data.parts import parse_shard, run_parts
    from wqa.io.progress import stop_on_signals

    kind, numbers = device_numbers(options.ctx)
    if len(numbers) > 1 and (options.shard or options.cluster):
        option = "--shard" if options.shard else "--cluster"
        raise OptionError("ctx", f"{options.ctx} with {option}", "one device for each process")
    shard = parse_shard("1/1" if options.shard is None else options.shard)
    options.resume_command = shlex.join(options.command_line)
    with stop_on_signals() as stop:
        if options.cluster is not None:
            from wqa.cluster import run_on_ray

            on_gpus = options.ctx.startswith("gpu")
            return run_on_ray(task, options.cluster, options.threads, on_gpus, True, stop)
        if len(numbers) > 1:
            from wqa.cluster import run_on_devices

            devices = [f"{kind}:{number}" for number in numbers]
            return run_on_devices(task, devices, progress=True, stop=stop)
        return run_parts(task, shard, progress=True, stop=stop)
