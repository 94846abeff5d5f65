"""Titles and texts of Markdown and of HTML, which becomes Markdown.

The texts keep headings, lists, tables and code, by which `wqa.data.sentences` divides them.
"""

from __future__ import annotations

import html
import pathlib
import re
from typing import Any, Iterator, List, Tuple

from wqa.data.sentences import code_lines
from wqa.errors import DataError, MissingDependency, how_to_install

_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"\w")
#: Marks of Markdown within a line. What they hold is bounded, so that no line takes long.
_LINK = re.compile(r"!?\[([^\[\]]{0,500})\]\([^()\s]{0,2000}(?:[ \t]+\"[^\"]{0,500}\")?\)")
_REFERENCE = re.compile(r"(?<!\w)!?\[([^\[\]]{0,500})\]\[[^\[\]]{0,200}\]")
_MARK = re.compile(
    r"(?<![\w\\*_~`])(\*{1,3}|_{1,3}|~~|`{1,2})(?=[^\s`])(.{1,500}?)(?<=[^\s*_~`])\1(?![\w*_~`])"
)
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
#: A line that says where the links of a name lead.
_TARGET = re.compile(
    r" {0,3}\[[^\[\]^]{1,200}\]:[ \t]*(?:<[^<>]{0,2000}>|\S{0,2000}[/#.]\S{0,2000})"
    r"(?:[ \t]+[\"'(].{0,500})?[ \t]*"
)
#: What may be YAML at the start of a file, its first line, and any of its lines.
_FRONT_MATTER = re.compile(r"---[ \t]*\n((?:(?!---|\.\.\.).*\n)*?)(?:---|\.\.\.)[ \t]*(?:\n|$)")
_YAML_KEY = re.compile(r"[\w\"'-][^:\n]{0,100}:(?:\s|$)|#")
_YAML = re.compile(r"[ \t]|-(?:\s|$)|[]}]|" + _YAML_KEY.pattern)
_TITLE = re.compile(r" {0,3}#{1,6}[ \t]+(\S.*)")
_UNDERLINE = re.compile(r"=+[ \t]*$")
#: What holds one page apart from another; pages that are nested more deeply take too long.
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_DEEPEST = 1000
#: Elements that need no end.
_OPEN = re.compile(
    "p|li|td|tr|th|dt|dd|option|thead|tbody|tfoot|colgroup|area|base|br|col|embed|hr|img|input|link|"
    "meta|source|track|wbr|html|head|body",
    re.IGNORECASE,
)
#: Elements of a page that are not part of its text.
_OUTSIDE = "script,style,noscript,template,nav,footer,aside,button,select,textarea,svg,iframe"
#: An element of these that XHTML closes at once; HTML would take what follows for its content.
_CLOSED = re.compile(
    r"<(iframe|noscript|script|select|style|template|textarea|title|button|svg)"
    r"((?:\s[^<>]{0,2000})?)/>",
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
        The content of the file.

    Returns
    -------
    title, text : str
        The first heading, or an empty text; and the text.
    """
    lines = _without_comments(_without_front_matter(source.replace("\r\n", "\n"))).split("\n")
    title = ""
    kept: List[str] = []
    for line, is_code in zip(lines, code_lines(lines)):
        if not is_code:
            if _UNDERLINE.match(line) and kept and kept[-1].strip():
                line = f"# {kept.pop().strip()}"
            if _TARGET.fullmatch(line):
                continue
            for pattern in (_LINK, _REFERENCE, _MARK, _MARK, _ESCAPE):  # emphasis inside emphasis
                line = pattern.sub(lambda match: match.group(match.lastindex or 0), line)
            line = html.unescape(line)
            heading = _TITLE.match(line)
            if heading and not title:
                title = heading.group(1).rstrip("# \t") or heading.group(1)
        kept.append(line)
    return title, "\n".join(kept)


def _without_front_matter(source: str) -> str:
    """A text without the YAML between two lines with which it may begin."""
    match = _FRONT_MATTER.match(source)
    if not match:
        return source
    lines = [line for line in match[1].split("\n") if line.strip()]
    is_yaml = all(_YAML.match(line) for line in lines) and bool(lines)
    return source[match.end() :] if is_yaml and _YAML_KEY.match(lines[0]) else source


def _without_comments(source: str) -> str:
    """A text without the comments of HTML; one that does not end is text."""
    parts: List[str] = []
    start = 0
    while True:
        begin = source.find("<!--", start)
        end = source.find("-->", begin + 4) if begin >= 0 else -1
        if end < 0:
            return "".join([*parts, source[start:]])
        parts.append(source[start:begin])
        start = end + 3


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
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        raise MissingDependency(
            "selectolax", "is not installed", "the reader of HTML", how_to_install("html")
        ) from None
    for mark in (_BLOCK, _LINE):
        source = source.replace(mark, "")
    page = LexborHTMLParser(_CLOSED.sub(r"<\1\2></\1>", source))
    title = page.css_first("title")
    for element in page.css(_OUTSIDE):
        element.decompose()
    text = ""
    for root in _roots(page):
        text = text or _text_of(root)
    return _SPACE.sub(" ", title.text()).strip() if title else "", text


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
        if not _INLINE.fullmatch(element.tag):
            element.insert_before(around[0])
            element.insert_after(around[1])
    blocks = []
    for part in root.text().split(_BLOCK):
        lines = [_SPACE.sub(" ", line).strip() for line in part.split(_LINE)]
        block = "\n".join(filter(None, lines))
        if _WORD.search(block):
            blocks.append(block)
    return "\n\n".join(blocks)


def check_nesting(source: str, where: pathlib.Path) -> None:
    """Refuse a page whose elements are nested so deeply that reading it would take minutes."""
    depth = 0
    for end, name in _TAG.findall(source):
        if not _OPEN.fullmatch(name):
            depth = max(0, depth + (-1 if end else 1))
        if depth > _DEEPEST:
            raise DataError(where, f"elements nested {_DEEPEST:,} deep", "a page of HTML")
