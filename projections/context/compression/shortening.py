"""A message in less detail: the same message with a shorter content, in the same format.

JSON stays JSON. Repetition goes first (whitespace, and the keys of similar objects: a list of them
becomes one table), then long prose within values, then the middle rows of long tables. Prose keeps
its first sentence, and the sentences with facts, numbers or words of obligation. Long prose
(document 000) also keeps a user's first paragraph and bullets, an assistant's conclusion, and a
tool's name, status, and first and last lines. Where nearly every line of an output matters (logs,
tables, listings), only the first and last lines stay.

`ends` is the last form of a message before it is left out: the two ends of each text, word for
word, in a few hundred tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from projections.context.compression.facts import (
    facts_of_text,
    json_of,
    texts_of,
)
from projections.context.compression.lasting import LONG, conclusions_in, is_lasting
from projections.context.compression.sentences import BULLET, sentences_of
from projections.context.compression.table_text import dumped as _dumps
from projections.context.compression.table_text import tabled

__all__ = [
    "LONGEST",
    "Preview",
    "ends",
    "is_short",
    "shorten",
    "shorten_json",
    "shorten_text",
]

LONGEST = 8_000
"""The most characters of a shortened content."""

_ELLIPSIS = "…"
_LONGEST_VALUE = 160  # characters of a text within JSON
_LEAST_ROWS = 2
_ENDS = 2  # number of first lines, and of last lines, that stay of a long output
_LEAST_END = 80  # characters of each end, if that many lines have fewer
_MOST_LINES = 4_000  # characters of the lines that stay of an output in which every line matters
_LEAST_LINES = 600  # characters above which such an output loses its middle
_END_OF_VALUE = 48
_PREVIEW = "TOOL_RESULT_PREVIEW"
_READ = 100_000  # characters of prose that are read: half at each end
_MOST_CUTS = 24
_CUT = re.compile(rf"{_ELLIPSIS} (\d{{1,9}}) more")
# Matches every text that has more than one sentence.
_MAY_END = re.compile(r"[.!?\n\u3002\uff01\uff1f](?!\Z)")
_OBLIGES = re.compile(
    r"\b(?=[acdmnost])"  # Most words begin with another letter.
    r"(?:must|should|need|needs|never|always|not|don't|only|todo|conclusion|summary|decided)\b"
    r"|必须|需要|不要|不能|应该|结论|总结|决定",
    re.IGNORECASE,
)
_SENTENCE = re.compile(rf".{{{_LEAST_END // 2},}}?[.!?\u3002\uff01\uff1f](?=\s|\Z)", re.DOTALL)
_SENTENCE_END = re.compile(r"[.!?]\s+|[\u3002\uff01\uff1f]")
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

    A list item is one sentence. The two ends of a tool's output stay as they are written.

    Args:
        text: The text.
        role: The role of its author, which decides what else a long text keeps.
    """
    whole = text
    if len(text) > _READ:
        half = _READ // 2
        text = f"{text[:half]}\n{_ELLIPSIS}\n{text[-half:]}"
    if _MAY_END.search(text) is None and len(text) <= LONGEST:
        return text
    sentences = sentences_of(text)
    also = _of_role(text, sentences, role)
    shortened = [
        sentence
        for place, sentence in enumerate(sentences)
        if place == 0 or place in also or _matters(sentence, role)
    ]
    shorter = text if len(shortened) == len(sentences) else "\n".join(shortened)
    if role == "tool" and len(whole) > LONG:
        if len(shorter) > max(len(whole) // 2, LONG) or len(shorter) > LONGEST:
            return _both(whole, min(max(len(whole) // 3, _LEAST_LINES), _MOST_LINES))
        if shorter is not text:
            return _with_ends(whole, shorter)
    if len(shorter) <= LONGEST:
        return shorter
    return _both(shorter, LONGEST - 32)


def ends(
    message: Mapping[str, Any], most_bytes: int, preview: Preview | None = None
) -> dict[str, Any] | None:
    """Return a message with the two ends of its text and of each argument; None if not shorter.

    The message of a tool names the tool, the status and the path of the whole output. Arguments
    stay a JSON object.

    Args:
        message: A message in OpenAI's chat format.
        most_bytes: The most bytes of UTF-8 that stay of a text; a byte is a third of a token.
        preview: What is shown with the output of a tool.
    """
    content, made = message.get("content"), dict(message)
    message_text = "\n".join(texts_of(message))
    others = len(content) - len([*texts_of(message)]) if isinstance(content, list) else 0
    if others or len(message_text.encode(errors="replace")) > most_bytes:
        made["content"] = _both(_body(message_text), _characters(message_text, most_bytes))
        if others:
            made["content"] = f"[{others} images or files]\n{made['content']}".rstrip()
        if preview is not None:
            made["content"] = _with_note(made["content"], preview)
    if isinstance(calls := message.get("tool_calls"), list):
        made["tool_calls"] = [_with_ends_of_arguments(call, most_bytes) for call in calls]
    return None if made == message else made


def _with_ends_of_arguments(call: Any, most_bytes: int) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    text = function.get("arguments") if isinstance(function, Mapping) else None
    if not isinstance(text, str) or len(text) <= most_bytes:
        return call
    value, arguments = json_of(text), ""
    for most in (most_bytes // 2, most_bytes // 8, 24) if isinstance(value, dict) else ():
        arguments = _dumps(_cut_texts(value, most))
        if len(arguments) <= most_bytes:
            break
    else:
        arguments = _dumps({"preview": _both(text, _characters(text, most_bytes * 3 // 4))})
    return {**call, "function": {**(function or {}), "arguments": arguments}}


def _cut_texts(value: Any, most: int) -> Any:
    """Return a JSON value with the ends of its long texts and lists."""
    if isinstance(value, str):
        return value if len(value) <= most else _both(value, most)
    if isinstance(value, list):
        if len(value) > 2 * _ENDS:
            left = f"{_ELLIPSIS} {len(value) - 2 * _ENDS} more"
            value = [*value[:_ENDS], left, *value[-_ENDS:]]
        return [_cut_texts(each, most) for each in value]
    if isinstance(value, dict):
        return {key: _cut_texts(each, most) for key, each in value.items()}
    return value


def _body(text: str) -> str:
    """Return a text without the lines that `_with_note` has added to it."""
    if not text.startswith(_PREVIEW):
        return text
    lines = text.split("\n")
    lines = lines[3:] if "- status: " in "".join(lines[2:3]) else lines
    return "\n".join(lines[:-1] if lines[-1].startswith("Full output: ") else lines)


def _characters(text: str, most_bytes: int) -> int:
    """Return how many characters of a text take about this many bytes."""
    return most_bytes * len(text) // max(len(text.encode(errors="replace")), 1)


def _both(text: str, most: int) -> str:
    """Return the two ends of a text, two thirds of it from the start: whole lines if possible."""
    if len(text) <= most:
        return text
    first, last = text[: most * 2 // 3], text[len(text) - most // 3 :]
    cut = first.rfind("\n")
    first = first[:cut] if cut > len(first) // 2 else first
    cut = last.find("\n")
    last = last[cut + 1 :] if 0 <= cut < len(last) // 2 else last
    left = text.count("\n", len(first), len(text) - len(last)) - 1
    more = f" {left} more lines" if left > 0 else ""
    return f"{first}\n{_ELLIPSIS}{more}\n{last}"


def _with_ends(text: str, shorter: str) -> str:
    """Return the sentences that matter, between the two ends of an output as they are written."""
    lines = [line for line in text.splitlines(keepends=True) if line.strip()]
    first = _end(lines)
    last = _end(lines[::-1], -1)
    middle = "\n".join(
        line
        for line in shorter.split("\n")
        if line.strip() not in first and line.strip() not in last
    )
    made = "\n".join(filter(None, (first.rstrip("\n"), middle, last)))
    return made if len(made) < len(text) else text


def _end(lines: list[str], step: int = 1) -> str:
    """Return the lines of one end of an output: two of them, or more if these are very short."""
    taken: list[str] = []
    for line in lines:
        if len(line) > LONG:
            taken.append(_start(line) if step > 0 else _finish(line))
            break
        if len(taken) >= _ENDS and sum(map(len, taken)) >= _LEAST_END:
            break
        taken.append(line)
    return "".join(taken[::step])


def _start(line: str) -> str:
    """Return the start of a long line, up to the end of a sentence if one is near."""
    found = _SENTENCE.match(line, 0, _LEAST_END)
    return line[:_LEAST_END] if found is None else found[0]


def _finish(line: str) -> str:
    """Return the end of a long line, from the start of a sentence if one is near."""
    last = line[-_LEAST_END:]
    ends = [each.end() for each in _SENTENCE_END.finditer(last, 0, _LEAST_END // 2)]
    return last[ends[-1] :] if ends else last


def _of_role(text: str, sentences: list[str], role: str) -> set[int]:
    """Return the indexes of the sentences that a text keeps because of its author's role."""
    if role == "user":
        bullets = {place for place, each in enumerate(sentences) if BULLET.match(each)}
        if len(text) <= LONG:
            return bullets
        paragraph = text.lstrip().partition("\n\n")[0][:LONG]
        return {*range(len(sentences_of(paragraph))), *bullets}
    if len(text) <= LONG:
        return set()
    if role == "assistant":
        return {*conclusions_in(text, sentences)}
    return set()


def _shorten_content(content: str, role: str, preview: Preview | None) -> str:
    value = json_of(content)
    if value is None:
        shorter = shorten_text(content, role)
        return shorter if preview is None or shorter == content else _with_note(shorter, preview)
    shorter = shorten_json(value)
    if preview is None or shorter.count(_ELLIPSIS) == content.count(_ELLIPSIS):
        return shorter
    fields = {"tool": preview.tool, "status": preview.status, "full_output": preview.path}
    return f'{_dumps(fields)[:-1]},"shortened":{shorter}}}'


def _with_note(shorter: str, preview: Preview) -> str:
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


def _matters(sentence: str, role: str) -> bool:
    return (
        (role == "user" and is_lasting(sentence))
        or (_MAY_BE_DIGIT.search(sentence) is not None and any(map(str.isdigit, sentence)))
        or _OBLIGES.search(sentence) is not None
        or next(facts_of_text(sentence), None) is not None
    )


def _shortened_value(value: str) -> str:
    if len(value) <= _LONGEST_VALUE:
        return value
    shorter = shorten_text(value)
    if len(shorter) <= _LONGEST_VALUE:
        return shorter + _ELLIPSIS
    return f"{shorter[: _LONGEST_VALUE - _END_OF_VALUE]}{_ELLIPSIS}{value[-_END_OF_VALUE:]}"


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
        first_rows = rows[: len(rows) // 2]
        mark = _CUT.fullmatch(rows[-1]) if isinstance(rows[-1], str) else None
        already = int(mark[1]) - 1 if mark else 0
        return [*first_rows, f"{_ELLIPSIS} {len(rows) - len(first_rows) + already} more", last]
    key, *rest = path
    if isinstance(value, dict):
        return {**value, key: _cut(value[key], tuple(rest))}
    return [*value[:key], _cut(value[key], tuple(rest)), *value[key + 1 :]]
