"""Options that several subcommands share."""

from __future__ import annotations

import argparse
from typing import Any, Dict, List, Union

from wqa.data.filters import FILTERS
from wqa.errors import OptionError, shorten


def numbers(text: str, option: str, kind: type = int) -> List:
    """Parse a comma-separated list.

    Parameters
    ----------
    text : str
    option : str
        Its option, for messages.
    kind : {int, float}

    Returns
    -------
    list

    Raises
    ------
    OptionError
        If an entry is not such a number.
    """
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise OptionError(option, shorten(text), f"{what} separated by commas") from None


def drop_ratio(text: str, run: str = "") -> Union[float, List[Union[int, float]]]:
    """Parse a drop ratio: one number, one an exit, or ``tuned`` for what `wqa tune` stored in the
    run.

    Parameters
    ----------
    text : str
        Of a sequence of rankers, a whole number from 1 is how many candidates go on.
    run : str
        Run directory, for ``tuned``.

    Returns
    -------
    float or list of float
        Whole numbers are int.

    Raises
    ------
    OptionError
        If an entry is not a number.
    RunDirectoryError
        If nothing was tuned for the run.
    """
    if text == "tuned":
        from wqa.inference.tuned import read_tuned

        return list(read_tuned(run))
    found = numbers(text, "--drop-ratio", float)
    ratios = [
        int(part) if part.strip().isdecimal() else ratio
        for part, ratio in zip(text.split(","), found)
    ]
    return ratios[0] if len(ratios) == 1 else ratios


def add_ranking(parser: argparse.ArgumentParser) -> None:
    """Add the options of cascade inference.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.add_argument("--ctx", default="cpu", help="device: cpu or gpu:0 (default: cpu)")
    parser.add_argument(
        "--pool",
        default="question",
        choices=("question", "batch"),
        help="what an exit prunes among: all candidates of a question, or batches of them "
        "(default: question)",
    )
    parser.add_argument(
        "--pool-size",
        type=int,
        default=128,
        metavar="B",
        help="candidates a batch, for --pool batch (default: 128)",
    )
    parser.add_argument(
        "--precision",
        default="float32",
        choices=("float32", "bfloat16", "int8"),
        help="what products compute in; int8 needs a run that `wqa quantize` calibrated "
        "(default: float32)",
    )
    parser.add_argument(
        "--engine",
        default="auto",
        choices=("auto", "mxnet", "onednn"),
        help="auto takes oneDNN on a CPU where it is installed (default: auto)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="threads on a CPU (default: all that the process may use)",
    )


def ranking_options(options: argparse.Namespace) -> Dict[str, Any]:
    """Keyword arguments of `wqa.inference.load_ranker` that the options of cascade inference stand
    for.

    Parameters
    ----------
    options : argparse.Namespace

    Returns
    -------
    dict of str to Any
    """
    return {
        "ctx": options.ctx,
        "pool": options.pool,
        "pool_size": options.pool_size,
        "precision": options.precision,
        "engine": options.engine,
        "threads": options.threads,
    }


def add_filter(parser: argparse.ArgumentParser, name: str, default: str, what: str) -> None:
    """Add a filter of questions.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    name : str
        The option.
    default : str
    what : str
        Which questions it is about.
    """
    parser.add_argument(
        name,
        default=default,
        choices=tuple(FILTERS),
        help=f"{what}: all; no-all-negative, those with an answer; clean, those with both an "
        "answer "
        f"and a wrong candidate (default: {default})",
    )
