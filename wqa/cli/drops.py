"""``--drop-ratio`` and ``--keep``: what every stage of a ranker drops."""

from __future__ import annotations

import argparse
import itertools
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from wqa.cli.options import numbers
from wqa.errors import OptionError

#: An option's name, ``drop_ratio`` or ``keep``, and the text that was given for it.
Given = Tuple[str, str]

_KINDS: Dict[str, type] = {"drop_ratio": float, "keep": int}


class DropSetting(NamedTuple):
    """One setting, as `wqa.inference.Ranker.set_drops` takes it.

    Attributes
    ----------
    name : str
        How tables and files call it: ``0.3``, ``keep=5``, ``0.3,keep=5``, ``tuned``.
    drop_ratio : float, list of (float or None), "tuned", or None
        Drop ratio of all stages, or one a stage.
    keep : int, list of (int or None), or None
        Number of candidates that go on, likewise.
    """

    name: str
    drop_ratio: Any = None
    keep: Any = None

    @property
    def arguments(self) -> Dict[str, Any]:
        """Keyword arguments of `wqa.inference.load_ranker`."""
        return {"drop_ratio": self.drop_ratio, "keep": self.keep}

    def arguments_for(self, run: str) -> Dict[str, Any]:
        """Keyword arguments of `wqa.inference.Ranker.set_drops`.

        Parameters
        ----------
        run : str
            Run directory, whose tuned drop ratios stand for ``tuned``.

        Returns
        -------
        dict of str to Any
            ``drop_ratio`` and ``keep``.

        Raises
        ------
        RunDirectoryError
            If nothing was tuned for the run.
        """
        if self.drop_ratio != "tuned":
            return self.arguments
        from wqa.inference.tuned import read_tuned

        return {"drop_ratio": read_tuned(run)}


def add_drops(parser: argparse.ArgumentParser, rows: str = "") -> None:
    """Add ``--drop-ratio`` and ``--keep``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Parser of the subcommand. Its options get ``drops``, the pairs that `drop_settings` takes.
    rows : str
        What several settings stand for, for the help text.
    """
    parser.add_argument(
        "--drop-ratio",
        dest="drops",
        action="append",
        type=lambda text: ("drop_ratio", text),
        metavar="A[,A...]",
        help="share of its candidates that a stage drops: one number for all stages, or one a "
        "stage; or tuned, for what `wqa tune` stored in the run (default: 0)" + rows,
    )
    parser.add_argument(
        "--keep",
        dest="drops",
        action="append",
        type=lambda text: ("keep", text),
        metavar="K[,K...]",
        help="how many candidates a stage lets through instead. In a list of both options an entry "
        "that is empty or a dash leaves the stage to the other option: "
        "--drop-ratio 0.3, --keep ,5",
    )


def drop_settings(given: Optional[Sequence[Given]]) -> List[DropSetting]:
    """Settings in the order of the command line.

    Parameters
    ----------
    given : sequence of (str, str), optional
        What was given for ``--drop-ratio`` and ``--keep``.

    Returns
    -------
    list of DropSetting
        One for each text. Two lists with empty entries, one of each option, are one setting.

    Raises
    ------
    OptionError
        If a text is not a list of such numbers.
    """
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
    """Settings as evaluation and timing take them.

    Parameters
    ----------
    given : sequence of (str, str), optional
        What was given for ``--drop-ratio`` and ``--keep``.
    run : str
        Run directory, whose tuned drop ratios stand for ``tuned``.

    Returns
    -------
    dict of str to dict
        Keyword arguments of `wqa.inference.Ranker.set_drops`, by the name of the setting.

    Raises
    ------
    OptionError
        If a text is not a list of such numbers.
    RunDirectoryError
        If nothing was tuned for the run.
    """
    return {setting.name: setting.arguments_for(run) for setting in drop_settings(given)}


def one_drop_setting(given: Optional[Sequence[Given]]) -> DropSetting:
    """The setting of a command that takes a single one.

    Parameters
    ----------
    given : sequence of (str, str), optional
        What was given for ``--drop-ratio`` and ``--keep``.

    Returns
    -------
    DropSetting
        With None for both where nothing was given.

    Raises
    ------
    OptionError
        If a text is not a list of such numbers, or there are several settings.
    """
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
    """Whether the two are lists with empty entries, one of drop ratios and one of numbers."""
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
