"""The tool calls and tool results that a request's messages hold, in the order in which they stand.

A framework that runs tools by itself tells nobody but the model what came of them: its next request
is where the recorder learns it. Messages of OpenAI's chat completions, of its Responses and of
Anthropic's Messages are read alike, since no field of one means anything else in another.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent_eventstore.streams.plain import plain
from eventstore.events import ContentPart, FilePart, ImagePart, OtherPart, TextPart
from eventstore.events.base import JsonObject

__all__ = ["Content", "SentCall", "SentResult", "sent_in"]

Content = str | tuple[ContentPart, ...]

_OUTPUT = "_call_output"
_TEXTS = frozenset({"text", "input_text", "output_text"})
_FAILED = frozenset({"failed", "error"})


@dataclass(frozen=True, slots=True)
class SentCall:
    """A tool call that a request repeats.

    ``key`` is the provider's id, or the tool's name where there is none.
    """

    key: str
    arguments: Any = None


@dataclass(frozen=True, slots=True)
class SentResult:
    """What a request says that came of a tool call."""

    key: str
    content: Content
    failed: bool = False

    @property
    def first_line(self) -> str:
        """The first line, if it is text."""
        text = self.content
        if isinstance(text, tuple):
            text = next((part.text for part in text if isinstance(part, TextPart)), "")
        return text.partition("\n")[0]


Sent = SentCall | SentResult


def sent_in(prompt: Any) -> list[Sent]:
    """Return the calls and results of a prompt: a list of messages or items, or what holds one."""
    value = plain(prompt)
    if isinstance(value, dict):
        value = value.get("messages", value.get("input"))
    items = value if isinstance(value, list) else []
    return [found for item in items if isinstance(item, dict) for found in _of(item)]


def _of(item: JsonObject) -> Iterator[Sent]:
    kind, role = _text(item.get("type")), item.get("role")
    if kind.endswith(_OUTPUT):
        yield from _result(_id(item, "call_id", "id"), item.get("output"), item.get("status"))
    elif kind.endswith("_call") and item.get("call_id"):
        arguments = item.get("arguments", item.get("input", item.get("action")))
        yield SentCall(_text(item.get("call_id")), _parsed(arguments))
    elif role in ("tool", "function"):
        yield from _result(_id(item, "tool_call_id", "name"), item.get("content"))
    elif role in ("assistant", "user"):
        yield from _calls(item)
        content = item.get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict):
                yield from _block(block)


def _calls(message: JsonObject) -> Iterator[SentCall]:
    calls = message.get("tool_calls")
    listed = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    if isinstance(legacy := message.get("function_call"), dict):
        listed.append({"function": legacy})
    for call in listed:
        body = call.get("function", call.get("custom"))
        body = body if isinstance(body, dict) else {}
        key = _text(call.get("id")) or _text(body.get("name"))
        if key:
            yield SentCall(key, _parsed(body.get("arguments", body.get("input"))))


def _block(block: JsonObject) -> Iterator[Sent]:
    if block.get("type") == "tool_use" and _text(block.get("id")):
        yield SentCall(_text(block.get("id")), block.get("input"))
    elif block.get("type") == "tool_result":
        status = "failed" if block.get("is_error") is True else None
        yield from _result(_id(block, "tool_use_id"), block.get("content"), status)


def _result(key: str, content: Any, status: Any = None) -> Iterator[SentResult]:
    if key:
        yield SentResult(key, content_of(content), failed=status in _FAILED)


def content_of(value: Any) -> Content:
    """Return a result's content: its text, or its parts where it is more than one text."""
    if value is None or isinstance(value, str):
        return value or ""
    parts = tuple(_part(part) for part in (value if isinstance(value, list) else [value]))
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return parts or ""


def _part(part: Any) -> ContentPart:
    if isinstance(part, str):
        return TextPart(text=part)
    if not isinstance(part, dict):
        return OtherPart(raw=part)
    kind, source = part.get("type"), part.get("source")
    image = part.get("image_url")
    if kind in _TEXTS and isinstance(part.get("text"), str):
        return TextPart(text=part["text"])
    if isinstance(image, dict):
        image = image.get("url")
    if kind in ("image_url", "input_image", "computer_screenshot") and isinstance(image, str):
        return ImagePart(url=image)
    if kind == "image" and isinstance(source, dict) and (url := _url_of(source)):
        return ImagePart(url=url, media_type=_text(source.get("media_type")) or None)
    if kind == "input_file" and (part.get("file_id") or part.get("filename")):
        data = part.get("file_data") or part.get("file_url")
        name, file_id = _text(part.get("filename")), _text(part.get("file_id"))
        return FilePart(name=name or None, file_id=file_id or None, url=_text(data) or None)
    return OtherPart(raw=part)


def _url_of(source: JsonObject) -> str:
    if _text(source.get("data")):
        return f"data:{_text(source.get('media_type'))};base64,{source['data']}"
    return _text(source.get("url"))


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _id(item: JsonObject, *names: str) -> str:
    return next((found for name in names if (found := _text(item.get(name)))), "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
