"""Counting whole requests: messages in a provider's framing, and tool declarations.

Messages in OpenAI's chat format are counted as billed, according to OpenAI's cookbook ("How to
count tokens with tiktoken", 2024): three tokens per message, the tokens of its fields, one more for
a name, three for the reply. How tool calls in the history are rendered for the model is not
published; they are counted as observed, and marked inexact.

Tool declarations reach the model as TypeScript. Their constants are from the cookbook too. It
covers flat parameters with a type, a description and optional string choices; anything else is
counted in the same way, level by level, and marked inexact.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from projections.tokens.text import Count, Tokenizer

_FUNCTION = {"cl100k_base": 10, "o200k_base": 7}
_PROPERTIES = 3
_PROPERTY = 3
_ENUM = -3
_ENUM_ITEM = 3
_ALL_FUNCTIONS = 12

_MARGIN_BEYOND_COOKBOOK = 0.15
_MARGIN_OF_BUILT_IN = 0.5
_SCHEMAS = ("parameters", "input_schema", "inputSchema")  # OpenAI, Anthropic, MCP
_DEEPEST = 32  # schemas may be arbitrarily deep; below this level, their JSON is counted as text

_ROLES = frozenset({"assistant", "developer", "function", "system", "tool", "user"})
_MESSAGE = 3
_NAME = 1
_REPLY = 3

_ONE_CALL = 5  # the recipient in the header of a message with a call
_SLACK_OF_ONE_CALL = 3
_SLACK_OF_PARALLEL_CALLS = 6

# Parts that are not text. An image counts 85 tokens at low detail, otherwise those of 1024 x 1024
# pixels in the gpt-4o family (85 + 4 tiles of 170; the real range is 1 to 8 tiles). OpenAI's
# "Images and vision" guide, 2024. The actual size of the image is not checked.
_IMAGE_LOW = Count(85, exact=False, margin=0.9)
_IMAGE = Count(765, exact=False, margin=0.9)
_OTHER_PART = Count(1000, exact=False, margin=1.0)

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


def count_tools(tools: Iterable[Mapping[str, Any]], tokenizer: Tokenizer) -> Count:
    """Return the tokens that tool declarations add to a request; 0 without tools.

    Args:
        tools: Declarations in OpenAI's chat format (``{"type": "function", "function": {...}}``),
            its Responses format, with name and parameters at the top level, or Anthropic's format
            (``input_schema``). A function costs the same in each. Anything else is taken for a
            provider's built-in tool, and estimated.
        tokenizer: The tokenizer to count with; see ``tokenizer_for``.
    """
    counts = [_count_tool(tool, tokenizer.plain) for tool in tools]
    if not counts:
        return Count(0)
    return tokenizer.widen(sum(counts, Count(_ALL_FUNCTIONS)))


def _count_tool(tool: object, tokenizer: Tokenizer) -> Count:
    function = _function(tool)
    if function is None:
        return _inexact(tokenizer.count(_json(tool)), _MARGIN_OF_BUILT_IN)
    description = _described(function)
    total = Count(_FUNCTION[tokenizer.name])
    total += tokenizer.count(f"{function['name']}:{description or ''}")
    if description is None:
        total = _inexact(total)
    parameters = next((function[key] for key in _SCHEMAS if function.get(key)), None)
    if isinstance(parameters, Mapping):
        total += _count_properties(parameters, tokenizer, depth=0)
    return total


def _function(tool: object) -> Mapping[str, Any] | None:
    """Return the object with a declaration's name and parameters; None if it is not a function."""
    if not isinstance(tool, Mapping):
        return None
    function = tool.get("function", tool)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return None
    # Anthropic's type for functions is "custom", which OpenAI uses for tools with free text input.
    kind = tool.get("type") or "function"
    return function if kind == "function" or "input_schema" in function else None


def _count_properties(schema: Mapping[str, Any], tokenizer: Tokenizer, depth: int) -> Count:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return Count(0)
    counts = (_count_property(k, v, tokenizer, depth) for k, v in properties.items())
    return sum(counts, Count(_PROPERTIES))


def _count_property(name: str, schema: object, tokenizer: Tokenizer, depth: int) -> Count:
    if not isinstance(schema, Mapping) or depth == _DEEPEST:
        return _inexact(Count(_PROPERTY) + tokenizer.count(f"{name}:{_json(schema)}"))
    kind, description = schema.get("type"), _described(schema)
    shown = kind if isinstance(kind, str) else _json(kind) if kind else ""
    total = Count(_PROPERTY) + tokenizer.count(f"{name}:{shown}:{description or ''}")
    total += _count_choices(schema.get("enum"), tokenizer)
    total += _count_inner(schema, tokenizer, depth + 1)
    covered = isinstance(kind, str) and description is not None and _only_strings(schema)
    return total if covered else _inexact(total)


def _count_choices(choices: object, tokenizer: Tokenizer) -> Count:
    if not isinstance(choices, Sequence) or isinstance(choices, str):
        return Count(0)
    texts = [choice if isinstance(choice, str) else _json(choice) for choice in choices]
    tokens = sum((tokenizer.count(text) for text in texts), Count(0))
    return tokens + Count(_ENUM + _ENUM_ITEM * len(texts))


def _count_inner(schema: Mapping[str, Any], tokenizer: Tokenizer, depth: int) -> Count:
    """Count schemas that the cookbook does not cover: nested objects, array items, alternatives."""
    total = _count_properties(schema, tokenizer, depth)
    inner = [schema["items"]] if schema.get("items") else []
    for keyword in ("anyOf", "oneOf", "allOf"):
        alternatives = schema.get(keyword)
        inner += alternatives if isinstance(alternatives, list) else []
    for part in inner:
        total += _count_property("", part, tokenizer, depth)
    return _inexact(total) if total.tokens else total


def _only_strings(schema: Mapping[str, Any]) -> bool:
    return all(isinstance(choice, str) for choice in schema.get("enum") or ())


def _described(schema: Mapping[str, Any]) -> str | None:
    description = schema.get("description")
    return description.removesuffix(".") if isinstance(description, str) else None


def _inexact(count: Count, margin: float = _MARGIN_BEYOND_COOKBOOK) -> Count:
    return Count(count.tokens, exact=False, margin=max(count.margin, margin))


def _json(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def count_messages(messages: Iterable[Mapping[str, Any]], tokenizer: Tokenizer) -> Count:
    """Return the prompt tokens of a list of messages, including three that start the reply."""
    counts = (count_message(message, tokenizer) for message in messages)
    return sum(counts, tokenizer.widen(Count(_REPLY)))


def count_message(message: Mapping[str, Any], tokenizer: Tokenizer) -> Count:
    """Return the tokens of one message within a request.

    Counts role, content, refusal, name and tool calls. ``tool_call_id`` and the ids of calls are
    not counted, because the model does not see them. Fields of the wrong type are counted as JSON.

    Args:
        message: One message in OpenAI's chat format; content is a string, None, or parts.
        tokenizer: The tokenizer to count with; see ``tokenizer_for``.
    """
    plain = tokenizer.plain
    role = message.get("role")
    known = isinstance(role, str) and role in _ROLES
    total = Count(_MESSAGE) + (_count_role(role, plain) if known else _count_value(role, plain))
    total += _count_content(message.get("content"), plain)
    if message.get("refusal") is not None:
        total += _count_value(message["refusal"], plain)
    if message.get("name"):
        total += Count(_NAME) + _count_value(message["name"], plain)
    if calls := _calls_of(message):
        total += _count_calls(calls, plain)
    return tokenizer.widen(total)


@lru_cache(maxsize=32)  # Every message has a role, and there are few roles.
def _count_role(role: str, tokenizer: Tokenizer) -> Count:
    return tokenizer.count(role)


def _count_value(value: object, tokenizer: Tokenizer) -> Count:
    return Count(0) if value is None else tokenizer.count(_text_of(value))


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


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
    if (text := _text_of_file(part.get("file"))) is not None:
        return tokenizer.count(text)
    return _OTHER_PART


def _text_of_file(file: object) -> str | None:
    """Return the text of a file that contains its data, or None if it is not text."""
    url = file.get("file_data") if isinstance(file, Mapping) else None
    if not isinstance(url, str) or not url.startswith("data:text/"):
        return None
    head, _, data = url.partition(",")
    if not head.endswith(";base64"):
        return None
    try:
        return base64.b64decode(data).decode("utf-8", "replace")
    except binascii.Error:
        return None


def _calls_of(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return name and arguments of each call, including the legacy single ``function_call``."""
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
    if len(calls) == 1:
        name, arguments = calls[0]
        counted = Count(_ONE_CALL) + tokenizer.count(name) + tokenizer.count(arguments)
        return counted.loosened(_SLACK_OF_ONE_CALL)
    # Several calls reach the model as one call of a wrapper tool, in ASCII-only JSON.
    uses = ",".join(
        f'{{"recipient_name":"functions.{name}","parameters":{_escaped(arguments)}}}'
        for name, arguments in calls
    )
    counted = Count(_ONE_CALL) + tokenizer.count(f'{{"tool_uses":[{uses}]}}')
    return counted.loosened(_SLACK_OF_PARALLEL_CALLS)


def _escaped(text: str) -> str:
    return _NOT_ASCII.sub(lambda run: json.dumps(run[0])[1:-1], text)
