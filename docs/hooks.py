"""Let pages link to files of the repository outside ``docs/``, such as the logs of recipes.

A link that works where the page lies in the repository works on the site as well: the file comes
along, under the path that it has in the repository. Markdown files come along as pages.

A page with the options of all commands and systems is made from the parser.
"""

from __future__ import annotations

import os
import pathlib
import posixpath
import re
from typing import Any, List, Set
from unittest import mock

from mkdocs.structure.files import File

from wqa.cli import COMMANDS, build_parser
from wqa.cli.parser import CommandParser
from wqa.systems import SYSTEMS

ROOT = pathlib.Path(__file__).parent.parent
#: Page of the options, which is made when the site is built.
OPTIONS = "reference/options.md"
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")


def site_path(path: str) -> str:
    """Path on the site of a file of the repository."""
    return path[len("docs/") :] if path.startswith("docs/") else path


def repository_path(site: str) -> str:
    """Path in the repository of a page of the site."""
    inside = posixpath.join("docs", site)
    return inside if (ROOT / inside).is_file() else site


def targets(path: str) -> List[str]:
    """Files of the repository that a page links to, by their paths in the repository."""
    folder = posixpath.dirname(path)
    markdown = (ROOT / path).read_text(encoding="utf-8")
    return [posixpath.normpath(posixpath.join(folder, link)) for link in LINK.findall(markdown)]


def section(parser: CommandParser) -> List[str]:
    """Section of a command: its name, and what it prints with ``--help-all``."""
    parser.complete()
    parser.first = ()
    return ["", f"## {parser.prog}", "", "```text", parser.format_help().rstrip(), "```"]


def options_page() -> str:
    """The page of options: what ``wqa COMMAND --help-all`` prints, and that of each system."""
    [commands] = build_parser()._subparsers._group_actions
    lines = ["# Options", "", "What `wqa COMMAND --help-all` prints."]
    with mock.patch.dict(os.environ, COLUMNS="100"):
        for name in COMMANDS:
            lines += section(commands.choices[name])
        [systems] = commands.choices["train"]._subparsers._group_actions
        for name in SYSTEMS:
            lines += section(systems.choices[name])
    return "\n".join(lines) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Add the page of options, what pages link to outside ``docs/``, and what those link to."""
    files.append(File.generated(config, OPTIONS, content=options_page()))
    waiting = []
    for page in files.documentation_pages():
        if page.src_uri != OPTIONS:
            waiting.append(repository_path(page.src_uri))
    seen: Set[str] = set(waiting)
    while waiting:
        for target in targets(waiting.pop()):
            if target in seen or target.startswith("docs/") or not (ROOT / target).is_file():
                continue
            seen.add(target)
            files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
            if target.endswith(".md"):
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Write links as they stand on the site."""
    if page.file.src_uri == OPTIONS:
        return markdown
    path = repository_path(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def rewritten(match: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
        return posixpath.relpath(site_path(target), here or ".")

    return LINK.sub(rewritten, markdown)
