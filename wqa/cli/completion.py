"""Print a script that completes commands, options and files in a shell.

example:
  wqa completion bash > ~/.local/share/bash-completion/completions/wqa
  wqa completion zsh > ~/.zfunc/_wqa   # with fpath+=~/.zfunc before compinit in ~/.zshrc

Of `wqa train` and `wqa bench` it knows the systems, but not each system's own options.
"""

from __future__ import annotations

import argparse

from wqa.cli.systems import installed_systems, subparsers
from wqa.errors import MissingDependency, how_to_install

SHELLS = ("bash", "zsh")
#: Metavars of options and arguments that are files or folders; one may have alternatives, ``A|B``.
_PATHS = {"DIR", "DOCUMENTS", "FILE", "INDEX", "OUT", "PATH", "RUN", "SRC", "STUDENT", "TEACHER"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa completion`` to its parser."""
    parser.add_argument("shell", choices=SHELLS, help="shell that reads the script")


def run(options: argparse.Namespace) -> None:
    """Run ``wqa completion`` and print the script."""
    from wqa.cli import build_parser

    print(completion_script(build_parser(), options.shell))


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Make the script that completes the command line of a parser."""
    try:
        import shtab
    except ImportError:
        raise MissingDependency(
            "shtab",
            "is not installed",
            "the library that writes completions",
            how_to_install("completion"),
        ) from None
    systems = tuple(installed_systems())  # other completions need no MXNet
    for sub in subparsers(parser).values():
        for action in sub._actions:  # argparse has no public list of them
            if _PATHS.intersection(str(action.metavar).split("|")):
                action.complete = shtab.FILE
            if action.dest == "system":
                action.choices = systems
    return shtab.complete(parser, shell=shell)
