"""Titles and texts of Markdown and of HTML, which becomes Markdown.

The texts keep headings, lists, tables and code, by which `wqa.data.sentences` divides them.
"""

from __future__ import annotations

import html
import re
from typing import Any, Iterator, Tuple

from wqa.errors import not_installed

_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"\w")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
#: What may be YAML at the start of a file, its first line, and any of its lines.
_FRONT_MATTER = re.compile(r"---[ \t]*\n((?:(?!---|\.\.\.).*\n)*?)(?:---|\.\.\.)[ \t]*(?:\n|$)")
_YAML_KEY = re.compile(r"[\w\"'-][^:\n]{0,100}:(?:\s|$)|#")
_YAML = re.compile(r"[ \t]|-(?:\s|$)|[]}]|" + _YAML_KEY.pattern)
#: Elements of a page that are not part of its text.
_OUTSIDE = "script,style,noscript,template,nav,footer,aside,button,select,textarea,svg,iframe"
#: An element that XHTML closes at once; HTML would take what follows for its content.
_CLOSED = re.compile(
    rf"<({_OUTSIDE.replace(',', '|')}|title|noembed|noframes|xmp|plaintext|header|main|article)"
    r"((?:\s(?:[^<>\"']|\"[^\"<]{0,2000}\"|'[^'<]{0,2000}'){0,200})?)/>",
    re.IGNORECASE,
)
#: Elements within a line; any other is a block.
_INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|img|ins|kbd|label|mark|q|s|samp|"
    "small|span|strike|strong|sub|sup|time|tt|u|var|wbr"
)
#: Marks of the ends of blocks and of lines, from Unicode's private use area.
_BLOCK, _LINE = "\ue000", "\ue001"
#: What stands before and behind the text of an element.
_AROUND = {f"h{level}": (f"{_BLOCK}{'#' * level} ", _BLOCK) for level in range(1, 7)}
_AROUND.update(dict.fromkeys(("td", "th"), ("", " | ")))
_AROUND.update(dict.fromkeys(("thead", "tbody", "tfoot"), ("", "")))
_AROUND["li"] = (f"{_BLOCK}- ", _BLOCK)
_AROUND["tr"] = (f"{_LINE}| ", "")
_AROUND["pre"] = (f"{_BLOCK}```{_LINE}", f"{_LINE}```{_BLOCK}")
_AROUND["br"] = ("", " ")


def markdown_text(source: str) -> Tuple[str, str]:
    """Title and text of Markdown, without front matter, comments, targets of links and emphasis.

    Parameters
    ----------
    source : str
        The content of the file, CommonMark with tables.

    Returns
    -------
    title, text : str
        The first heading, or an empty text; and the text, as `page_text` gives it.

    Raises
    ------
    MissingDependency
        If markdown-it-py or selectolax, the extra ``html``, is not installed.
    """
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        raise not_installed("markdown-it-py", "the reader of Markdown", "html") from None
    # Tags of Markdown may be names, as `List<String>`: they stay as text, and images by theirs.
    reader = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    reader.add_render_rule("image", _alternative)
    source = _without_front_matter(source.replace("\r\n", "\n"))
    page = _parse(reader.render(_COMMENT.sub("", source) if "-->" in source else source))
    title = page.css_first(", ".join(f"h{level}" for level in range(1, 7)))
    return _line(title), _main_text(page)


def _alternative(reader: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    """Text of an image."""
    return html.escape(tokens[index].content)


def _without_front_matter(source: str) -> str:
    """A text without the YAML between two lines with which it may begin."""
    match = _FRONT_MATTER.match(source)
    if not match:
        return source
    lines = [line for line in match[1].split("\n") if line.strip()]
    is_yaml = all(_YAML.match(line) for line in lines) and bool(lines)
    return source[match.end() :] if is_yaml and _YAML_KEY.match(lines[0]) else source


def page_text(source: str) -> Tuple[str, str]:
    """Title and text of a page of HTML.

    Parameters
    ----------
    source : str
        The page.

    Returns
    -------
    title, text : str
        The text is that of the element ``main``, of the only ``article``, or of the body without
        navigation, headers and footers. Blocks are divided by blank lines; headings, items, rows
        of tables and code are as in Markdown.

    Raises
    ------
    MissingDependency
        If selectolax, the extra ``html``, is not installed.
    """
    page = _parse(source)
    return _line(page.css_first("title")), _main_text(page)


def _parse(source: str) -> Any:
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        raise not_installed("selectolax", "the reader of HTML", "html") from None
    for mark in (_BLOCK, _LINE):
        source = source.replace(mark, "")
    return LexborHTMLParser(_CLOSED.sub(r"<\1\2></\1>", source))


def _line(element: Any) -> str:
    """Text of an element on one line; empty where there is no element."""
    return _SPACE.sub(" ", _text(element)).strip() if element else ""


def _text(element: Any) -> str:
    """Text of an element without soft hyphens, which would divide its words."""
    return element.text().replace("\xad", "")


def _main_text(page: Any) -> str:
    """Text of the likeliest element that has any."""
    for element in page.css(_OUTSIDE):
        element.decompose()
    return next(filter(None, map(_text_of, _roots(page))), "")


def _roots(page: Any) -> Iterator[Any]:
    """Elements that may hold the text of a page, the likelier ones first."""
    yield from page.css("main")[:1]
    articles = page.css("article")
    if len(articles) == 1:
        yield from articles
    if page.body is not None:
        for element in page.body.css("header"):
            element.decompose()
        yield page.body


def _text_of(root: Any) -> str:
    for element in root.css("*"):
        around = _AROUND.get(element.tag, (_BLOCK, _BLOCK))
        if element.tag == "p" and element.parent.tag in ("td", "th", "li"):
            around = ("", " ")
        if not _INLINE.fullmatch(element.tag):
            element.insert_before(around[0])
            element.insert_after(around[1])
    blocks = []
    for part in _text(root).split(_BLOCK):
        lines = [_SPACE.sub(" ", line).strip() for line in part.split(_LINE)]
        block = "\n".join(filter(None, lines))
        if _WORD.search(block):
            blocks.append(block)
    return "\n\n".join(blocks)
