"""RUNs and TREC runs, which `wqa evaluate` and `wqa compare` score."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Sequence, Tuple

from wqa.cli.drops import DropSetting, drop_settings
from wqa.cli.options import ranking_options
from wqa.errors import OptionError

if TYPE_CHECKING:
    from wqa.evaluation.comparison import NamedRanker

#: Options that apply to RUNs but not to TREC runs.
_OF_RUNS = {
    "data": "data",
    "drops": "drop_ratio and keep",
    "seeds": "seeds",
    "per_exit": "per_exit",
    "trec_run": "trec_run",
    "trec_qrels": "trec_qrels",
    "total": "total",
    "ties": "ties",
}


def scores_trec_runs(options: argparse.Namespace) -> bool:
    """Whether the options name TREC runs to score, not RUNs."""
    command = f"wqa {options.command}"
    if not options.runs:
        if not options.trec_runs or not options.qrels:
            raise OptionError(command, "neither RUN nor both --run and --qrels", "one or the other")
        for name, shown in _OF_RUNS.items():
            if getattr(options, name, None):
                raise OptionError(shown, "with --run, where nothing is ranked", "a RUN")
        return True
    if options.trec_runs or options.qrels or options.complete:
        raise OptionError(
            command,
            "RUN with --run, --qrels or --complete",
            "one or the other",
            "with RUN, --trec-run and --write-qrels name TREC files to write",
        )
    if not options.data:
        raise OptionError("data", "nothing", "labelled questions to score RUN on")
    return False


def read_trec(options: argparse.Namespace) -> Tuple[List[Tuple[str, Any]], Any]:
    """Read the TREC files that the options name."""
    from wqa.data import DEFAULT_FILTER
    from wqa.data.records import note_filter
    from wqa.evaluation import read_qrels, read_run
    from wqa.evaluation.evaluate import filter_qrels

    qrels = read_qrels(options.qrels)
    answered, kept = (filter_qrels(qrels, name) for name in (DEFAULT_FILTER, options.filter))
    note_filter(options.filter, len(qrels), len(answered), len(kept))
    return [(path, read_run(path)) for path in options.trec_runs], qrels


def named_rankers(options: argparse.Namespace) -> Iterator[NamedRanker]:
    """Load the rankers of the RUNs one after another."""
    settings = drop_settings(options.drops) or [DropSetting("")]
    if len(settings) == 1:
        settings = settings * len(options.runs)
    if len(settings) != len(options.runs):
        raise OptionError(
            "drop_ratio and keep",
            f"{len(settings)} for {len(options.runs)} runs",
            "one for all, or one for each",
        )
    return _load(options, settings)


def _load(options: argparse.Namespace, settings: List[DropSetting]) -> Iterator[NamedRanker]:
    from wqa.evaluation.comparison import NamedRanker
    from wqa.systems.load import load_ranker

    ranking = ranking_options(options)
    for run, setting in zip(options.runs, settings):
        own = options_of(run, options.runs, ranking)
        ranker = load_ranker(run, **setting.arguments, **own)
        yield NamedRanker(run, ranker, setting.name or "-")


def options_of(run: str, runs: Sequence[str], ranking: Dict[str, Any]) -> Dict[str, Any]:
    """Options of one of several RUNs, of which some alone may read a document cache."""
    from wqa.systems.load import reads_cache

    if "cache" not in ranking or reads_cache(run) or not any(map(reads_cache, runs)):
        return ranking
    return {name: value for name, value in ranking.items() if name != "cache"}
