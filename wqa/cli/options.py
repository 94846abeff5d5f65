"""Options that several subcommands share."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import math
import re
import typing
from typing import Any, Dict, List, Sequence

from wqa.config import LONG_QUESTIONS
from wqa.data.records import DEFAULT_FILTER, FILTERS
from wqa.errors import OptionError, printable, shorten

LOGGER = logging.getLogger(__name__)

#: Greatest whole number of an option, that of 32 bits with a sign.
MOST = 2**31 - 1

#: Metavar of an option, by name or type of the configuration's field.
_METAVARS: Dict[Any, str] = {"ctx": "DEVICE", int: "N", float: "X", str: "TEXT"}


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


def add_engine(
    parser: argparse.ArgumentParser,
    precisions: Sequence[str] = ("float32", "bfloat16", "int8"),
) -> None:
    """Add the options of the engine that computes a network."""
    note = ""
    if "int8" in precisions:
        note = "; int8 needs a run that `wqa quantize` has calibrated"
    parser.add_argument(
        "--ctx", default="cpu", metavar="DEVICE", help="device: cpu or gpu:0 (default: cpu)"
    )
    parser.add_argument(
        "--precision",
        default="float32",
        choices=tuple(precisions),
        help=f"precision of products{note} (default: float32)",
    )
    parser.add_argument(
        "--engine",
        default="auto",
        choices=("auto", "mxnet", "onednn"),
        help="engine of the layers; auto takes oneDNN on a CPU where it is installed "
        "(default: auto)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="threads on a CPU (default: all that the process may use)",
    )


def add_ranking(parser: argparse.ArgumentParser, with_cache: bool = True) -> None:
    """Add the options of ranking."""
    add_engine(parser)
    parser.add_argument(
        "--pool",
        default="question",
        choices=("question", "batch"),
        help="candidates that an exit compares: all of a question, or batches of them "
        "(default: question)",
    )
    parser.add_argument(
        "--pool-size",
        type=int,
        default=128,
        metavar="B",
        help="candidates a batch, for --pool batch (default: 128)",
    )
    if with_cache:
        parser.add_argument(
            "--cache",
            metavar="DIR",
            help="document cache that `wqa encode` wrote, for a run that encodes documents apart",
        )


def ranking_options(options: argparse.Namespace) -> Dict[str, Any]:
    """Values of the options of `add_ranking` and `add_long_questions`, for `load_ranker`."""
    names = ("ctx", "pool", "pool_size", "precision", "engine", "threads", "long_questions")
    values = {name: getattr(options, name) for name in names}
    if getattr(options, "cache", None) is not None:
        from wqa.cache.document_cache import CachedDocuments

        # One object for all rankers of a command, which counts what they look up.
        options.cache = CachedDocuments.of(options.cache)
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
    parser.add_argument(
        "--long-questions",
        default="error",
        choices=choices,
        help="questions that leave fewer than 16 tokens for a candidate (default: error)",
    )


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
    parser.add_argument("--data", metavar="FILE", help="labelled questions, JSONL or ir:NAME")
    parser.add_argument("--run", action="append", dest="trec_runs", metavar="FILE", help="TREC run")
    parser.add_argument("--qrels", metavar="FILE", help="TREC judgements, for --run")
    parser.add_argument(
        "--complete",
        action="store_true",
        help="count judged questions that a TREC run leaves out as 0, as trec_eval -c does",
    )
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
