"""Options of the systems: the fields of their configurations."""

from __future__ import annotations

import argparse
import dataclasses

from wqa.cli.options import add_fields, fields_of, has_option
from wqa.errors import OptionError

#: Options that take the place of another, so that the system's default of that does not apply.
_REPLACED_BY = {
    "warmup_updates": ("warmup_share", "schedule"),
    "tokens_per_update": ("accumulate",),
}


class HelpWithOwnOptions(argparse.Action):
    """Shows the help text, with the options of the system if one is named before."""

    def __call__(self, parser, options, values, option=None):  # noqa: ANN001 - argparse's own
        if getattr(options, "system", None):
            add_own_options(parser, options.system)
            set_training_defaults(parser, options)
        parser.print_help()
        parser.exit()


def add_own_options(parser: argparse.ArgumentParser, system: str) -> None:
    """Add the options of a system, the fields of its configuration.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Parser of the subcommand.
    system : str
        Name of the system.

    Raises
    ------
    OptionError
        If the system is unknown.
    """
    from wqa.models import network_type

    config = network_type(system).Config
    title = f"options of {system}"
    if any(group.title == title for group in parser._action_groups):
        return  # its help was asked for
    taken = {action.dest for action in parser._actions}
    for field in dataclasses.fields(config):
        if field.name in taken and has_option(field):
            raise ValueError(f"{config.__name__}.{field.name} has the name of an option of wqa")
    add_fields(parser.add_argument_group(title), config)


def set_training_defaults(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Set the defaults of the training to those of the system, which its own options may decide.

    An option that takes the place of another one leaves out the system's default of that.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Parser of the subcommand, with the options of the system.
    options : argparse.Namespace
        Options that it parsed before, with ``system``.
    """
    from wqa.models import network_type

    config = network_type(options.system).Config
    try:
        own = config(**fields_of(options, config))
    except (OptionError, AttributeError):  # raised again where the options are used; or for --help
        own = config()
    defaults = own.training_defaults()
    for name, others in _REPLACED_BY.items():
        given = [getattr(options, other, None) for other in others]
        if given != [parser.get_default(other) for other in others]:
            defaults.pop(name, None)
    parser.set_defaults(**defaults)
