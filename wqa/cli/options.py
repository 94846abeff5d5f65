"""Options that several subcommands share."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import math
import re
import shlex
import typing
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

from wqa.config import LONG_CANDIDATES, LONG_QUESTIONS, RANKING_ENGINES, EngineConfig
from wqa.data.records import DEFAULT_FILTER, FILTERS
from wqa.errors import OptionError, printable, shorten

if TYPE_CHECKING:
    from wqa.data.parts import PartsReport, PartTask

LOGGER = logging.getLogger(__name__)

#: Greatest whole number of an option, that of 32 bits with a sign.
MOST = 2**31 - 1

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


def add_fields(parser: Any, config: type, leave_out: Sequence[str] = ()) -> None:
    """Add an option for each field of a configuration."""
    hints = typing.get_type_hints(config)
    choices = getattr(config, "CHOICES", {})
    for field in dataclasses.fields(config):
        if field.name in leave_out or not has_option(field):
            continue
        flag = "--" + field.name.replace("_", "-")
        kind = _without_none(hints[field.name])
        text = field.metadata.get("help", field.name.replace("_", " ")).replace("%", "%%")
        if kind is bool and field.default:
            raise ValueError(f"{config.__name__}.{field.name} is on by default")
        if kind is bool:
            parser.add_argument(flag, action="store_true", help=text)
        elif typing.get_origin(kind) is tuple:
            default = ",".join(map(str, field.default))  # type: ignore[arg-type]
            names = typing.get_args(kind)[0] is str
            metavar = "NAME[,NAME...]" if names else "I[,J...]"
            option = parser.add_argument(flag, default=default, metavar=metavar, help=text)
            option.takes_list = True  # in a file of options
        else:
            known = choices.get(field.name)
            shown = field.metadata.get("chosen") or "%(default)s"
            if field.default == "":
                shown = "none"
            parser.add_argument(
                flag,
                type=kind,
                default=field.default,
                choices=known,
                metavar=None if known else _METAVARS.get(field.name, _METAVARS[kind]),
                help=f"{text} (default: {shown})",
            )


def has_option(field: dataclasses.Field) -> bool:
    """Whether a field of a configuration has an option, which its metadata may deny."""
    return field.metadata.get("option", True)


def _without_none(kind: Any) -> Any:
    """The type itself where it is optional."""
    if type(None) in typing.get_args(kind):
        return next(inner for inner in typing.get_args(kind) if inner is not type(None))
    return kind


def fields_of(options: argparse.Namespace, config: type) -> Dict[str, Any]:
    """Values of the options of `add_fields`."""
    values = {}
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        if not has_option(field):
            continue
        name, kind = field.name, hints[field.name]
        value = getattr(options, name)
        if typing.get_origin(kind) is tuple:
            number = typing.get_args(kind)[0]
            value = tuple(numbers(value, name, number)) if value else ()
        values[name] = value
    return values


def metric_names(text: str) -> List[str]:
    """Parse a comma-separated list of metrics."""
    from wqa.evaluation.metrics import metric

    names = re.split(r",(?![^(]*\))", text)  # RBP(p=0.8,rel=1) is one name
    for name in names:
        metric(name)
    return names


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
            shown = "drop_ratio and keep" if name == "drops" else name
            raise OptionError(shown, problem, expected)


def add_engine(
    parser: argparse.ArgumentParser,
    precisions: Sequence[str] = ("float32", "bfloat16", "int8"),
) -> None:
    """Add the options of the engine that computes a network."""
    note = ""
    if "int8" in precisions:
        note = "; a run ranks in int8 after `wqa quantize`"
    parser.add_argument(
        "--ctx", default="cpu", metavar="DEVICE", help="device: cpu or gpu:0 (default: cpu)"
    )
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
) -> None:
    """Add the options of ranking, and what becomes of long questions."""
    add_engine(parser)
    text = "candidates that an exit compares: all of a question, or batches of them"
    add_choice(parser, "--pool", ("question", "batch"), text)
    add_number(parser, "--pool-size", 128, "candidates a batch, for --pool batch", "B")
    if with_cache:
        parser.add_argument(
            "--cache",
            metavar="DIR",
            help="document cache that `wqa encode` wrote, for a run that encodes documents apart",
        )
    add_long_questions(parser, long_questions)


def add_long_candidates(parser: argparse.ArgumentParser) -> None:
    """Add ``--long-candidates``."""
    text = "candidates that do not fit: read their first tokens, or all of them in windows"
    add_choice(parser, "--long-candidates", LONG_CANDIDATES, text)


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
    """Values of the options of `add_ranking`, for `load_ranker`."""
    values = {**loading_options(options), **values_of(options, "pool", "pool_size")}
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
    if not (cache is None or isinstance(cache, str)):
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


def add_filter(parser: argparse.ArgumentParser, name: str, default: str, text: str) -> None:
    """Add a filter of questions."""
    parser.add_argument(
        name,
        default=default,
        choices=tuple(FILTERS),
        help=f"{text}: all; no-all-negative, those with an answer; clean, those with both an "
        f"answer and a wrong candidate (default: {default or DEFAULT_FILTER})",
    )


def add_scoring(parser: argparse.ArgumentParser) -> None:
    """Add the options of judgements and metrics."""
    text = "labelled questions, JSONL, .csv, .tsv or ir:NAME"
    parser.add_argument("--data", metavar="FILE", help=text)
    parser.add_argument("--run", action="append", dest="trec_runs", metavar="FILE", help="TREC run")
    parser.add_argument("--qrels", metavar="FILE", help="TREC judgements, for --run")
    parser.add_argument(
        "--metrics",
        default="map,mrr,p@1,ndcg@10",
        metavar="M[,M...]",
        help="of map, mrr, p@K, ndcg@K, and hit@K, pbt@K, ptb@K, the P@N, PBT@N, PTB@N of the "
        "DC-BERT paper; or of ir-measures, such as R@100 (default: map,mrr,p@1,ndcg@10)",
    )
    parser.add_argument(
        "--ties",
        choices=("trec", "pessimistic"),
        help="candidates with equal scores: trec, by descending document id; pessimistic, the "
        "correct ones last (default: trec, but for the baseline wo)",
    )
    add_filter(parser, "--filter", "", "questions to score")


def add_partitions(
    parser: argparse.ArgumentParser, verb: str, participle: str, unit: str, tokens: int
) -> None:
    """Add ``--shard``, ``--cluster``, ``--merge`` and ``--partition-tokens``."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--shard", metavar="I/N", help=f"{verb} the I-th of N shares of the partitions, I from 1"
    )
    where.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help=f"{verb} on Ray: local, local:N for N workers on this machine, ray://HOST[:PORT]; "
        "--threads are those of a worker (default: 1)",
    )
    where.add_argument(
        "--merge", action="store_true", help=f"{verb} nothing; merge what shards have {participle}"
    )
    text = f"estimated tokens of the {unit} that are {participle} together"
    add_number(parser, "--partition-tokens", tokens, text)


def run_in_parts(options: argparse.Namespace, task: PartTask) -> PartsReport:
    """Run a task as the options of `add_partitions` say, with a bar on standard error."""
    from wqa.data.parts import merge_parts, parse_shard, run_parts
    from wqa.io.progress import stop_on_signals

    shard = parse_shard("1/1" if options.shard is None else options.shard)
    options.resume_command = shlex.join(options.command_line)
    with stop_on_signals() as stop:
        if options.merge:
            return merge_parts(task, progress=True, stop=stop)
        if options.cluster is not None:
            from wqa.cluster import run_on_ray

            on_gpus = options.ctx.startswith("gpu")
            return run_on_ray(task, options.cluster, options.threads, on_gpus, True, stop)
        return run_parts(task, shard, progress=True, stop=stop)


def state_line(options: argparse.Namespace, report: PartsReport) -> str:
    """State of partitions that are not merged by this command."""
    state = f"{report.missing:,} are missing"
    if not report.missing:
        state = "not merged yet; unless another process merges them, run --merge"
    counts = f"{report.computed:,} of {report.partitions:,} partitions computed"
    return f"{printable(str(options.out))}.partitions: {counts}, {state}"
