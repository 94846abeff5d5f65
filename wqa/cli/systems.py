"""Options of the systems: the fields of their configurations."""

from __future__ import annotations

import argparse
import dataclasses
import re
from typing import Collection

from wqa.cli.config_file import REPLACED
from wqa.cli.options import add_fields, fields_of, has_option
from wqa.errors import MissingDependency, OptionError

#: End of the help text of an option.
_DEFAULT = re.compile(r"\(default: [^()]*(\(default\)s)?\)$")


class HelpWithOwnOptions(argparse.Action):
    """Shows the help text, with the options of the system if one is named before."""

    def __call__(self, parser, options, values, option=None):  # noqa: ANN001 - argparse's own
        if getattr(options, "system", None):
            add_own_options(parser, options.system)
            set_training_defaults(parser, options)
        else:
            _list_systems(parser)
        parser.print_help()
        parser.exit()


def _list_systems(parser: argparse.ArgumentParser) -> None:
    """Let the help text of SYSTEM list the systems; without MXNet it stays as it is."""
    try:
        from wqa.systems.registry import SYSTEMS, add_installed_systems
    except MissingDependency:
        return
    add_installed_systems()
    for action in parser._actions:  # argparse has no public list of them
        if action.dest == "system" and not action.option_strings:
            action.help = "; ".join(f"{name}: {system.help}" for name, system in SYSTEMS.items())


def add_own_options(parser: argparse.ArgumentParser, system: str) -> None:
    """Add the options of a system, the fields of its configuration."""
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
