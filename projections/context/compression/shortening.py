"""A message in less detail: the same message with a shorter content, in the same format.

JSON stays JSON. Repetition goes first (whitespace, and the keys of similar objects: a list of them
becomes one table), then long prose within values, then the middle rows of long tables. Prose keeps
its first sentence, and the sentences with facts, numbers or words of obligation. Long prose
(document 000) also keeps a user's first paragraph and bullets, an assistant's conclusion, and a
tool's name, status, and first and last lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from projections.context.compression.facts import SENTENCE_ENDS, facts_of_text, json_of
from projections.context.compression.tables import dumped as _dumps
from projections.context.compression.tables import tabled

__all__ = ["LONGEST", "Preview", "is_short", "shorten", "shorten_json", "shorten_text"]

LONGEST = 8_000
"""The most characters of a shortened content."""

_ELLIPSIS = "…"
_LONGEST_VALUE = 160  # characters of a text within JSON
_LEAST_ROWS = 2
_LONG = 600  # characters above which prose is long; also the most that stay of a first paragraph
_ENDS = 2  # number of first lines, and of last lines, that stay of a long output
_PREVIEW = "TOOL_RESULT_PREVIEW"
_READ = 100_000  # characters of prose that are read: half at each end
_MOST_CUTS = 24
_CUT = re.compile(rf"{_ELLIPSIS} (\d{{1,9}}) more")
# Faster than SENTENCE_ENDS, and matches every text that it matches.
_MAY_END = re.compile(r"[.!?\n\u3002\uff01\uff1f](?!\Z)")
_OBLIGES = re.compile(
    r"\b(?=[acdmnost])"  # Most words begin with another letter.
    r"(?:must|should|need|needs|never|always|not|don't|only|todo|conclusion|summary|decided)\b"
    r"|必须|需要|不要|不能|应该|结论|总结|决定",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(
    r"\b(?=[ciost])"
    r"(?:conclusions?|summary|in short|in sum|to sum up|overall|therefore)\b|结论|总结|综上|总之",
    re.IGNORECASE,
)
_BULLET = re.compile(r"\s*(?:[-*+\u2022\u00b7]|\d{1,3}[.)\u3001])\s*\S")
_MAY_BE_LONG = re.compile(rf'[^"]{{{_LONGEST_VALUE + 1}}}|\\')
_MAY_BE_DIGIT = re.compile(r"[0-9\x80-\U0010ffff]")


class Preview(NamedTuple):
    """What is shown with the shortened output of a tool.

    Attributes:
        tool: The tool's name.
        status: The status of the result.
        path: The path under which the model can request the whole output; None if unknown.
    """

    tool: str | None
    status: str
    path: str | None


def shorten(message: Mapping[str, Any], preview: Preview | None = None) -> dict[str, Any] | None:
    """Return a message of OpenAI's chat format in less detail; None if it has no shorter form.

    Role, name and tool calls stay unchanged. A content of parts has no shorter form.

    Args:
        message: The message.
        preview: For a tool's output: shown if something was left out.
    """
    content = message.get("content")
    if not isinstance(content, str):
        return None
    shorter = _shorten_content(content, str(message.get("role")), preview)
    return {**message, "content": shorter} if len(shorter) < len(content) else None


def shorten_json(value: Any) -> str:
    """Return a JSON value as compact JSON: similar objects as tables, long texts shortened."""
    table = tabled(value, _shortened_value)
    text = _dumps(table)
    for _ in range(_MOST_CUTS):
        if len(text) <= LONGEST or (cut := _without_last_rows(table)) is None:
            break
        before = len(text)
        table, text = cut, _dumps(cut)
        if len(text) > _READ and len(text) > before * 15 // 16:
            break  # There are so many lists that cutting them one by one would take too long.
    return text if len(text) <= LONGEST else _both_ends(text)


def is_short(table: str, content: str) -> bool:
    """Whether `shorten` would return exactly the table of JSON, with nothing cut or added."""
    marks = table.count(_ELLIPSIS) == content.count(_ELLIPSIS)
    return marks and len(table) <= LONGEST and _MAY_BE_LONG.search(table) is None


def shorten_text(text: str, role: str = "") -> str:
    """Return the sentences of a text that matter most, in order; a single sentence is unchanged.

    Args:
        text: The text.
        role: The role of its author, which decides what else a long text keeps.
    """
    if len(text) > _READ:
        half = _READ // 2
        text = f"{text[:half]}\n{_ELLIPSIS}\n{text[-half:]}"
    if _MAY_END.search(text) is None and len(text) <= LONGEST:
        return text
    sentences = [
        sentence for sentence in SENTENCE_ENDS.split(text) if sentence and sentence.strip()
    ]
    also = _of_role(text, sentences, role) if len(text) > _LONG else ()
    kept = [
        sentence
        for place, sentence in enumerate(sentences)
        if place == 0 or place in also or _matters(sentence)
    ]
    shorter = text if len(kept) == len(sentences) else "\n".join(kept)
    if len(shorter) <= LONGEST:
        return shorter
    half = LONGEST // 2 - 2
    return f"{shorter[:half]}\n{_ELLIPSIS}\n{shorter[-half:]}"


def _of_role(text: str, sentences: list[str], role: str) -> set[int]:
    """Return the indexes of the sentences that a long text keeps because of its author's role."""
    last = len(sentences) - 1
    if role == "user":
        paragraph = text.lstrip().partition("\n\n")[0][:_LONG]
        first = len([each for each in SENTENCE_ENDS.split(paragraph) if each and each.strip()])
        bullets = (place for place, each in enumerate(sentences) if _BULLET.match(each))
        return {*range(first), *bullets}
    if role == "assistant":
        ends = {place for place, each in enumerate(sentences) if _CONCLUDES.search(each)}
        return ends or {last}
    if role == "tool":
        return {*range(_ENDS), *range(last + 1 - _ENDS, last + 1)}
    return set()


def _shorten_content(content: str, role: str, preview: Preview | None) -> str:
    value = json_of(content)
    if value is None:
        shorter = shorten_text(content, role)
        return shorter if preview is None or shorter == content else _told(shorter, preview)
    shorter = shorten_json(value)
    if preview is None or shorter.count(_ELLIPSIS) == content.count(_ELLIPSIS):
        return shorter
    told = {"tool": preview.tool, "status": preview.status, "full_output": preview.path}
    return f'{_dumps(told)[:-1]},"shortened":{shorter}}}'


def _told(shorter: str, preview: Preview) -> str:
    """Return a shortened output with its tool, its status, and the path of the whole output."""
    path = f"Full output: {preview.path}"
    if path not in shorter:
        shorter = f"{shorter}\n{path}"
    if shorter.startswith(_PREVIEW):
        return shorter
    return f"{_PREVIEW}\n- tool: {preview.tool}\n- status: {preview.status}\n{shorter}"


def _both_ends(text: str) -> str:
    """Return, as JSON, the two ends of a JSON text that cannot be made small enough."""
    return _dumps({"preview": f"{text[: LONGEST * 3 // 8]}{_ELLIPSIS}{text[-LONGEST // 8 :]}"})


def _matters(sentence: str) -> bool:
    return (
        (_MAY_BE_DIGIT.search(sentence) is not None and any(map(str.isdigit, sentence)))
        or _OBLIGES.search(sentence) is not None
        or next(facts_of_text(sentence), None) is not None
    )


def _shortened_value(value: str) -> str:
    if len(value) <= _LONGEST_VALUE:
        return value
    return shorten_text(value)[:_LONGEST_VALUE] + _ELLIPSIS


def _without_last_rows(value: Any) -> Any:
    """Return the value without the middle of its longest list; None if no list is long."""
    lists: list[tuple[int, tuple[Any, ...]]] = []
    _measured(value, (), lists)
    longest = max(lists, key=lambda found: found[0], default=None)
    return None if longest is None else _cut(value, longest[1])


def _measured(value: Any, path: tuple[Any, ...], lists: list[tuple[int, tuple[Any, ...]]]) -> int:
    """Return the length of a value's JSON, and add length and path of each long list in it."""
    if isinstance(value, list):
        sizes = [_measured(each, (*path, place), lists) for place, each in enumerate(value)]
        size = sum(sizes) + max(len(sizes), 1) + 1
        if len(sizes) > _LEAST_ROWS + 1:
            lists.append((size, path))
        return size
    if isinstance(value, dict):
        sizes = [
            len(_dumps(key)) + 1 + _measured(each, (*path, key), lists)
            for key, each in value.items()
        ]
        return sum(sizes) + max(len(sizes), 1) + 1
    return len(str(value)) if type(value) is int else len(_dumps(value))


def _cut(value: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        *rows, last = value
        kept = rows[: len(rows) // 2]
        mark = _CUT.fullmatch(rows[-1]) if isinstance(rows[-1], str) else None
        already = int(mark[1]) - 1 if mark else 0
        return [*kept, f"{_ELLIPSIS} {len(rows) - len(kept) + already} more", last]
    key, *rest = path
    if isinstance(value, dict):
        return {**value, key: _cut(value[key], tuple(rest))}
    return [*value[:key], _cut(value[key], tuple(rest)), *value[key + 1 :]]
