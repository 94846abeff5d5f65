"""Let pages link to files of the repository outside ``docs/``, such as the logs of recipes.

A link that works where the page lies in the repository works on the site as well: the file comes
along, under the path that it has in the repository. Markdown files come along as pages.
"""

from __future__ import annotations

import pathlib
import posixpath
import re
from typing import Any, List, Set

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parent.parent
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


def on_files(files: Any, config: Any) -> Any:
    """Add what pages link to outside ``docs/``, and what those pages link to."""
    waiting = [repository_path(page.src_uri) for page in files.documentation_pages()]
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
    path = repository_path(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def rewritten(match: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
        return posixpath.relpath(site_path(target), here or ".")

    return LINK.sub(rewritten, markdown)
