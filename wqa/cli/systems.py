"""Options of the systems, the fields of their configurations, and options from a file.

The file is YAML, or the ``config.json`` of a run. Its values become the defaults of the options of
``wqa train``, so that flags on the command line win.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import re
from typing import Any, Collection, Dict, List, NamedTuple, Sequence, Set

from wqa.cli.options import add_fields, fields_of, has_option
from wqa.config import RunConfig, parse_json, read_json, read_run_config
from wqa.config.reading import open_file, unique_keys
from wqa.config.yaml_text import parse_yaml
from wqa.errors import OptionError, shorten

#: Greatest size of a file in bytes.
LARGEST = 1 << 20

#: Options that take the place of others: what a file or a system says of those does not count where
#: the command line, or the file before the system, has the first.
REPLACED = {
    "encoder": {"init"},
    "init": {"encoder"},
    "warmup_updates": {"warmup_share"},
    "warmup_share": {"warmup_updates"},
    "schedule": {"warmup_updates", "warmup_share"},
    "accumulate": {"tokens_per_update"},
    "tokens_per_update": {"accumulate"},
}
#: Options that no file can have.
_OF_THE_COMMAND = {"help", "config"}
#: Values of options by their types, for messages.
_KINDS = {int: "a whole number", float: "a number"}
#: End of the help text of an option.
_DEFAULT = re.compile(r"\(default: [^()]*(\(default\)s)?\)$")


class HelpWithOwnOptions(argparse.Action):
    """Shows the help text, with the options of the system if one is named before."""

    def __call__(self, parser, options, values, option=None):  # noqa: ANN001 - argparse's own
        if getattr(options, "system", None):
            add_own_options(parser, options.system)
            set_training_defaults(parser, options)
        else:
            texts = [f"{name}: {system.help}" for name, system in installed_systems().items()]
            for action in parser._actions:  # argparse has no public list of them
                if texts and action.dest == "system" and not action.option_strings:
                    action.help = "; ".join(texts)
        parser.print_help()
        parser.exit()


def subparsers(parser: argparse.ArgumentParser) -> Dict[str, Any]:
    """Parsers of the subcommands by name; none if the parser has no subcommands."""
    for action in parser._actions:  # argparse has no public list of them
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    return {}


def installed_systems() -> Dict[str, Any]:
    """Records of all systems by name."""
    from wqa.systems.registry import SYSTEMS, add_installed_systems

    add_installed_systems()
    return SYSTEMS


def add_own_options(parser: argparse.ArgumentParser, system: str) -> None:
    """Add the options of a system, the fields of its configuration."""
    import wqa.models  # noqa: F401 - here, where an interrupt ends the process at once
    from wqa.systems.registry import find_system

    config = find_system(system).network_type().Config
    title = f"options of {system}"
    if any(group.title == title for group in parser._action_groups):
        return  # its help was asked for
    taken = {action.dest for action in parser._actions}
    for field in dataclasses.fields(config):
        if field.name in taken and has_option(field):
            raise ValueError(f"{config.__name__}.{field.name} has the name of an option of wqa")
    add_fields(parser.add_argument_group(title), config)


def own_options(parser: argparse.ArgumentParser, system: str) -> List[str]:
    """Names of the options that `add_own_options` has added to a parser."""
    for group in parser._action_groups:
        if group.title == f"options of {system}":
            return [action.dest for action in group._group_actions]
    return []


def set_training_defaults(
    parser: argparse.ArgumentParser, options: argparse.Namespace, given: Collection[str] = ()
) -> None:
    """Set the defaults of the training to those of the system, which its own options may decide.

    An option that takes the place of another one leaves out the system's default of that.
    """
    from wqa.systems.registry import find_system

    config = find_system(options.system).network_type().Config
    try:
        own = config(**fields_of(options, config))
    except (OptionError, AttributeError):  # raised again where the options are used; or for --help
        own = config()
    defaults = own.training_defaults()
    for other, replaced in REPLACED.items():
        value = getattr(options, other, None)
        if other not in defaults and (other in given or value != parser.get_default(other)):
            for name in replaced:
                defaults.pop(name, None)
    parser.set_defaults(**defaults)
    for action in parser._actions:  # argparse has no public list of them
        if action.dest in defaults and action.help:
            # A value that is otherwise chosen has a default now.
            action.help = _DEFAULT.sub("(default: %(default)s)", action.help)


class Settings(NamedTuple):
    """Values of options."""

    path: str
    values: Dict[str, Any]

    def set_defaults(self, parser: argparse.ArgumentParser) -> None:
        """Make the values defaults of the options that a parser has so far."""
        for action in parser._actions:  # argparse has no public list of them
            if action.dest in self.values and action.dest not in _OF_THE_COMMAND:
                where = f"{self.path}, key {action.dest}"
                action.default = _value(action, self.values[action.dest], where)
                action.required = False
                if not action.option_strings:
                    action.nargs = "?"

    def check_keys(self, parser: argparse.ArgumentParser) -> None:
        """Check that each key is an option of the parser."""
        known = {action.dest for action in parser._actions} - _OF_THE_COMMAND
        for name in self.values:
            if name not in known:
                expected = "one of " + ", ".join(sorted(known))
                raise OptionError(self.path, f"unknown key {shorten(name)}", expected)


def read_settings(arguments: Sequence[str]) -> Settings:
    """Read the file that ``--config`` names."""
    parser = argparse.ArgumentParser(
        add_help=False, argument_default=argparse.SUPPRESS, allow_abbrev=False
    )
    for name in ("config", *REPLACED):
        parser.add_argument("--" + name.replace("_", "-"), nargs="?")
    given = vars(parser.parse_known_args(list(arguments))[0])
    path = given.get("config")
    if path is None:
        return Settings("", {})
    values = {name.replace("-", "_"): value for name, value in _read(path).items()}
    replaced: Set[str] = set()
    for name in given:
        replaced |= REPLACED.get(name, set())
    kept = {name: value for name, value in values.items() if name not in replaced}
    return Settings(path, {name: value for name, value in kept.items() if value is not None})


def _read(path: str) -> Dict[str, Any]:
    try:
        with open_file(path) as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        mend = "check the path"
        raise OptionError(path, f"cannot be read ({error.strerror})", "a file", mend) from None
    if len(content) > LARGEST:
        raise OptionError(path, f"more than {LARGEST:,} bytes", "a file of options")
    try:
        text = content.decode("utf-8-sig")
        values = parse_json(text, unique_keys) if path.endswith(".json") else parse_yaml(text)
    except ValueError as error:
        problem = " ".join(str(error).split())
        expected = "YAML without aliases, or a run's config.json"
        raise OptionError(path, f"cannot be read ({problem})", expected) from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise OptionError(path, shorten(values), "a mapping of options to values")
    if {"system", "network"} <= set(values):
        config = read_run_config(path)
        if config.training is None:
            expected = "the config.json of a run that `wqa train` wrote"
            raise OptionError(path, "a run that was not trained here", expected)
        return _options_of_run(config)
    return values


def _options_of_run(config: RunConfig) -> Dict[str, Any]:
    """Options with which a run was trained; its files are left to the command line."""
    from wqa.systems.registry import find_system

    values = dataclasses.asdict(config.training) if config.training else {}
    for field in dataclasses.fields(find_system(config.system).network_type().Config):
        if has_option(field) and field.name in config.network:
            values[field.name] = config.network[field.name]
    values.update(system=config.system, max_length=config.max_length)
    if config.encoder:
        values["init" if _is_run(config.encoder) else "encoder"] = config.encoder
    return values


def _is_run(start: str) -> bool:
    """Whether a training started from a run, and not from an encoder."""
    try:
        values = read_json(pathlib.Path(start) / "config.json")
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and values.get("system", "encoder") != "encoder"


def _value(action: argparse.Action, value: Any, where: str) -> Any:
    """A value of the file in the type of its option."""
    if action.nargs == 0:  # a flag
        if not isinstance(value, bool):
            raise OptionError(where, shorten(value), "true or false")
        return value
    kind: Any = action.type or str
    expected = _KINDS.get(kind, "text")
    try:  # Python makes no text of a number of thousands of digits
        if getattr(action, "takes_list", False) and isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        if isinstance(value, (bool, list, tuple, dict)) or "\0" in str(value):
            raise OptionError(where, shorten(value), expected)
        converted = kind(str(value))
    except ValueError:
        raise OptionError(where, shorten(value), expected) from None
    if action.choices and converted not in action.choices:
        raise OptionError(where, shorten(value), "one of " + ", ".join(action.choices))
    return converted
