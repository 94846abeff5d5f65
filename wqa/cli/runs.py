"""RUNs and TREC runs of a command, and the rules by which the stages of a RUN drop candidates."""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from wqa.cli.options import numbers, ranking_options, refuse
from wqa.errors import OptionError

if TYPE_CHECKING:
    from wqa.evaluation.comparison import NamedRanker

#: Name of an option, ``drop_ratio`` or ``keep``, and its text on the command line.
Given = Tuple[str, str]

_KINDS: Dict[str, type] = {"drop_ratio": float, "keep": int}
#: Options that apply to RUNs but not to TREC runs.
_OF_RUNS = (
    *("data", "drops", "seeds", "per_exit", "trec_run", "run_metadata", "trec_qrels", "total"),
    "ties",
)


class DropSetting(NamedTuple):
    """One setting, as `wqa.inference.Ranker.set_drops` takes it."""

    name: str
    drop_ratio: Any = None
    keep: Any = None

    @property
    def arguments(self) -> Dict[str, Any]:
        """Keyword arguments of `wqa.load_ranker`."""
        return {"drop_ratio": self.drop_ratio, "keep": self.keep}

    def arguments_for(self, run: str) -> Dict[str, Any]:
        """Keyword arguments of `wqa.inference.Ranker.set_drops`."""
        if self.drop_ratio != "tuned":
            return self.arguments
        from wqa.systems.run_config import read_tuned

        return {"drop_ratio": read_tuned(run)}


def add_drops(parser: argparse.ArgumentParser, rows: str = "") -> None:
    """Add ``--drop-ratio`` and ``--keep``."""
    parser.add_argument(
        "--drop-ratio",
        dest="drops",
        action="append",
        type=lambda text: ("drop_ratio", text),
        metavar="A[,A...]",
        help="share of its candidates that a stage drops: one number for all stages, or one a "
        "stage; or tuned, for the ratios that `wqa tune` stored in the run (default: 0)" + rows,
    )
    parser.add_argument(
        "--keep",
        dest="drops",
        action="append",
        type=lambda text: ("keep", text),
        metavar="K[,K...]",
        help="number of candidates that a stage keeps instead. To combine lists of both options, "
        "leave an entry empty, or write a dash, where the stage has the other option: "
        "--drop-ratio 0.3, --keep ,5",
    )


def drop_settings(given: Optional[Sequence[Given]]) -> List[DropSetting]:
    """Settings in the order of the command line."""
    settings: List[DropSetting] = []
    for option, text in given or ():
        setting = _parse(option, text)
        for index, earlier in enumerate(settings):
            if _complete_each_other(earlier, setting):
                settings[index] = _joined(earlier, setting)
                break
        else:
            settings.append(setting)
    return settings


def settings_by_name(given: Optional[Sequence[Given]], run: str) -> Dict[str, Dict[str, Any]]:
    """Settings as evaluation and timing take them."""
    return {setting.name: setting.arguments_for(run) for setting in drop_settings(given)}


def one_drop_setting(given: Optional[Sequence[Given]]) -> DropSetting:
    """The setting of a command that takes a single one."""
    settings = drop_settings(given)
    if len(settings) > 1:
        names = " and ".join(setting.name for setting in settings)
        raise OptionError("drop_ratio and keep", names, "one of them")
    return settings[0] if settings else DropSetting("")


def _parse(option: str, text: str) -> DropSetting:
    name = text if option == "drop_ratio" else f"keep={text}"
    values: Any = text
    if (option, text) != ("drop_ratio", "tuned"):
        values = _entries(option, text)
    return DropSetting(name, **{option: values})


def _entries(option: str, text: str) -> Any:
    kind = _KINDS[option]
    parts = text.split(",")
    if len(parts) == 1:
        return numbers(text, option, kind)[0]
    entries = []
    for part in parts:
        is_empty = part.strip() in ("", "-")
        entries.append(None if is_empty else numbers(part, option, kind)[0])
    return entries


def _complete_each_other(one: DropSetting, two: DropSetting) -> bool:
    """Whether one setting is a list of drop ratios, the other of numbers, with empty entries."""
    ratios, counts = (one, two) if one.keep is None else (two, one)
    lists = [values for values in (ratios.drop_ratio, counts.keep) if isinstance(values, list)]
    return len(lists) == 2 and all(None in values for values in lists)


def _joined(one: DropSetting, two: DropSetting) -> DropSetting:
    ratios, counts = (one, two) if one.keep is None else (two, one)
    names = []
    for ratio, count in itertools.zip_longest(ratios.drop_ratio, counts.keep):
        parts = []
        if ratio is not None:
            parts.append(f"{ratio:g}")
        if count is not None:
            parts.append(f"keep={count}")
        names.append("&".join(parts) or "-")
    return DropSetting(",".join(names), ratios.drop_ratio, counts.keep)


def scores_trec_runs(options: argparse.Namespace) -> bool:
    """Whether the options name TREC runs to score, not RUNs."""
    command = f"wqa {options.command}"
    if not options.runs:
        if not options.trec_runs or not options.qrels:
            raise OptionError(command, "neither RUN nor both --run and --qrels", "one or the other")
        refuse(options, _OF_RUNS, "with --run, where nothing is ranked", "a RUN")
        return True
    if options.trec_runs or options.qrels:
        raise OptionError(
            command,
            "RUN with --run or --qrels",
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
