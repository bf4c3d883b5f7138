"""Counting messages of OpenAI's chat format as they are billed.

Plain messages follow OpenAI's cookbook ("How to count tokens with tiktoken", 2024): three tokens
a message, the tokens of its fields, one more for a name, three for the reply. How tool calls in
history are written out for the model is not published; they are counted as observed, and inexact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from eventstore.tokens.count import Count
from eventstore.tokens.text import Tokenizer

_MESSAGE = 3
_NAME = 1
_REPLY = 3

_ONE_CALL = 5  # the recipient that stands in the header of a message with a call
_SLACK_OF_ONE_CALL = 3
_SLACK_OF_PARALLEL_CALLS = 6

# A part that is no text. For an image: 85 tokens at low detail, otherwise those of 1024 x 1024
# pixels in the gpt-4o family (85 + 4 tiles of 170; the real span is 1 to 8 tiles). OpenAI's
# "Images and vision" guide, 2024. The size of the picture is not looked at.
_IMAGE_LOW = Count(85, exact=False, margin=0.9)
_IMAGE = Count(765, exact=False, margin=0.9)
_OTHER_PART = Count(1000, exact=False, margin=1.0)

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


def count_messages(messages: Iterable[Mapping[str, Any]], tokenizer: Tokenizer) -> Count:
    """Return the prompt tokens of a list of messages, with the three that start the reply."""
    counts = (count_message(message, tokenizer) for message in messages)
    return sum(counts, tokenizer.widen(Count(_REPLY)))


def count_message(message: Mapping[str, Any], tokenizer: Tokenizer) -> Count:
    """Return the tokens of one message within a request.

    Counted are role, content, refusal, name and tool calls. ``tool_call_id`` and the ids of calls
    are not: the model is not shown them. Fields of the wrong type are counted as their JSON.

    Args:
        message: One message of OpenAI's chat format; content is a string, None, or parts.
        tokenizer: What to count with; see ``tokenizer_for``.
    """
    plain = tokenizer.plain
    total = Count(_MESSAGE) + _count_value(message.get("role"), plain)
    total += _count_content(message.get("content"), plain)
    total += _count_value(message.get("refusal"), plain)
    if message.get("name"):
        total += Count(_NAME) + _count_value(message["name"], plain)
    total += _count_calls(_calls_of(message), plain)
    return tokenizer.widen(total)


def _count_value(value: object, tokenizer: Tokenizer) -> Count:
    return Count(0) if value is None else tokenizer.count(_text_of(value))


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _count_content(content: object, tokenizer: Tokenizer) -> Count:
    if not isinstance(content, list):
        return _count_value(content, tokenizer)
    return sum((_count_part(part, tokenizer) for part in content), Count(0))


def _count_part(part: object, tokenizer: Tokenizer) -> Count:
    if not isinstance(part, Mapping):
        return _count_value(part, tokenizer)
    for field in ("text", "refusal"):
        if isinstance(part.get(field), str):
            return tokenizer.count(part[field])
    if part.get("type") in ("image_url", "input_image", "image"):
        image = part.get("image_url")
        detail = image.get("detail") if isinstance(image, Mapping) else part.get("detail")
        return _IMAGE_LOW if detail == "low" else _IMAGE
    return _OTHER_PART


def _calls_of(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return name and arguments of each call, also of the older single ``function_call``."""
    calls = message.get("tool_calls")
    listed = list(calls) if isinstance(calls, list | tuple) else []
    if message.get("function_call"):
        listed.append({"function": message["function_call"]})
    return [_name_and_arguments(call) for call in listed]


def _name_and_arguments(call: object) -> tuple[str, str]:
    if not isinstance(call, Mapping):
        return "", _text_of(call)
    inner = call.get("function") or call.get("custom") or call
    if not isinstance(inner, Mapping):
        return "", _text_of(inner)
    arguments = inner.get("arguments", inner.get("input"))
    return _text_of(inner.get("name") or ""), "" if arguments is None else _text_of(arguments)


def _count_calls(calls: list[tuple[str, str]], tokenizer: Tokenizer) -> Count:
    if not calls:
        return Count(0)
    if len(calls) == 1:
        name, arguments = calls[0]
        counted = Count(_ONE_CALL) + tokenizer.count(name) + tokenizer.count(arguments)
        return counted.loosened(_SLACK_OF_ONE_CALL)
    # Several calls reach the model as one call of a wrapping tool, in JSON of ASCII only.
    uses = ",".join(
        f'{{"recipient_name":"functions.{name}","parameters":{_escaped(arguments)}}}'
        for name, arguments in calls
    )
    counted = Count(_ONE_CALL) + tokenizer.count(f'{{"tool_uses":[{uses}]}}')
    return counted.loosened(_SLACK_OF_PARALLEL_CALLS)


def _escaped(text: str) -> str:
    return _NOT_ASCII.sub(lambda run: json.dumps(run[0])[1:-1], text)
