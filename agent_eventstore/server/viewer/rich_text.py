"""Stored text as HTML that can do no harm: markdown of users and models, JSON, and code.

Markdown is rendered without HTML, and the result is sanitised again. Images are shown only if their
data are in the text; of others only the address is shown, because loading one would tell its server
that the conversation was read.
"""

from __future__ import annotations

import json
import re
from collections.abc import MutableMapping, Sequence
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from agent_eventstore.cli.harmless import one_line, shown

__all__ = ["LONGEST", "code", "data_image", "first_line", "json_code", "marked", "prose", "visible"]

LONGEST = 20_000
"""The most characters of one text on a page; the whole text has an address of its own."""

_HIGHLIGHTED = 20_000
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp|avif);base64,[A-Za-z0-9+/=\s]+")
_LONGEST_IMAGE = 8_000_000
_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "img", "li", "ol",
    "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {
    "a": {"href", "title"},
    "code": {"class"},
    "img": {"src", "alt"},
    "ol": {"start"},
    "pre": {"class", "tabindex"},
    "span": {"class"},
}
_FORMATTER = HtmlFormatter(nowrap=True)


def visible(text: str) -> str:
    """Return a text whose control and invisible characters are shown as their escapes."""
    return shown(text)


def first_line(text: object, limit: int = 200) -> str:
    """Return the start of a text on one line."""
    return one_line(str(text), limit)


def code(text: str, language: str | None = None) -> Markup:
    """Return source text, highlighted if its language is known and it is not too long."""
    text = shown(text)
    if language and len(text) <= _HIGHLIGHTED:
        try:
            lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
        except ClassNotFound:
            return escape(text)
        return Markup(highlight(text, lexer, _FORMATTER))  # noqa: S704  # nosec B704 - Pygments escapes
    return escape(text)


def json_code(value: Any, limit: int = LONGEST) -> Markup:
    """Return a value as indented, highlighted JSON; a text that is JSON is parsed first."""
    if isinstance(value, str):
        if len(value) <= limit and value[:1] in ("{", "["):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return code(value[:limit])
        else:
            return code(value[:limit])
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return code(text[:limit], "json" if len(text) <= limit else None)


def data_image(url: str) -> str | None:
    """Return an image's address if its data are in it, and it is no SVG."""
    sized = len(url) <= _LONGEST_IMAGE
    return url if sized and _IMAGE.fullmatch(url) else None


def _image(
    _renderer: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, _env: Any
) -> str:
    token = tokens[index]
    source = str(token.attrGet("src") or "")
    if data_image(source):
        return str(Markup('<img src="{}" alt="{}">').format(source, token.content))
    return str(Markup('<span class="not-loaded">image not loaded: {}</span>').format(source))


def _fence(
    _renderer: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, _env: Any
) -> str:
    token = tokens[index]
    language = token.info.split(maxsplit=1)[0] if token.info.strip() else None
    inside = code(token.content.rstrip("\n"), language)
    return str(Markup('<pre tabindex="0"><code>{}</code></pre>\n').format(inside))


def _renderer() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(
        ["table", "strikethrough"]
    )
    made.add_render_rule("image", _image)
    made.add_render_rule("fence", _fence)
    made.add_render_rule("code_block", _fence)
    # Data images are links that markdown-it refuses; _image and nh3 decide instead.
    made.validateLink = _any_link  # type: ignore[method-assign]
    return made


def _any_link(url: str) -> bool:
    return bool(url)


_MARKDOWN = _renderer()


def prose(text: str, limit: int = LONGEST) -> Markup:
    """Return markdown as sanitised HTML, with headings below those of the page."""
    env: MutableMapping[str, Any] = {}
    tokens = _MARKDOWN.parse(shown(text[:limit]), env)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
    html = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, env)
    clean = nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes={"http", "https", "mailto", "data"},
        attribute_filter=_allowed,
        link_rel="nofollow noopener noreferrer",
    )
    return Markup(clean)  # noqa: S704  # nosec B704 - sanitised


def _allowed(tag: str, name: str, value: str) -> str | None:
    if tag == "a" and name == "href":
        return value if value.startswith(("http:", "https:", "mailto:")) else None
    if tag == "img" and name == "src":
        return data_image(value)
    return value


def marked(text: str, words: str, around: int = 90) -> Markup:
    """Return the part of a text around words, with the words marked."""
    low, sought = text.lower(), words.lower()
    at = low.find(sought)
    if at < 0 or not sought:
        return escape(first_line(text, 2 * around))
    start, end = max(0, at - around), min(len(text), at + len(sought) + around)
    before, after = (
        first_line(text[start:at], around) if at > start else "",
        text[at + len(sought) : end],
    )
    return Markup("{}{} <mark>{}</mark> {}{}").format(
        "…" if start else "",
        before,
        first_line(text[at : at + len(sought)]),
        first_line(after, around) if after.strip() else "",
        "…" if end < len(text) else "",
    )
