#!/usr/bin/env python3
"""The fenced blocks of the documentation's pages, for the tests and for `tests/newcomer.sh`.

python tests/pages.py PAGE sh|python|text        print the blocks of a language without a title
python tests/pages.py PAGE --title TITLE         print the block of this title
python tests/pages.py PAGE --files FOLDER        write the blocks of Python and JSON with a title
"""

import argparse
import pathlib
import re

#: A fenced block: what follows the fence, and the lines inside.
BLOCK = re.compile(r"^```(\S*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    """What follows the fence and the text of each block of a language."""
    fenced = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(rest.strip(), text) for kind, rest, text in fenced if kind == language]


def untitled(page, language):
    """The blocks of a language that no file is made of, as one text."""
    return "\n".join(text for rest, text in blocks(page, language) if "title=" not in rest)


def files(page):
    """Names and texts of the files that a page's blocks of Python and JSON make."""
    made = {}
    for rest, text in [*blocks(page, "python"), *blocks(page, "json")]:
        if "title=" in rest:
            made[re.search('title="(.+)"', rest)[1]] = text
    return made


def main():
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("language", nargs="?")
    parser.add_argument("--title")
    parser.add_argument("--files", type=pathlib.Path)
    options = parser.parse_args()
    if options.files:
        for name, text in files(options.page).items():
            (options.files / name).write_text(text, encoding="utf-8")
    elif options.title:
        [text] = [
            text
            for _, rest, text in BLOCK.findall(options.page.read_text(encoding="utf-8"))
            if f'title="{options.title}"' in rest
        ]
        print(text, end="")
    else:
        print(untitled(options.page, options.language), end="")


if __name__ == "__main__":
    main()
