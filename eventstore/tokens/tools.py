"""Counting the declarations of tools, which reach the model as TypeScript.

The constants are those of OpenAI's cookbook ("How to count tokens with tiktoken", 2024). It covers
flat parameters with a type, a description and perhaps string values to choose from; anything
beyond that is counted in the same way, level by level, and marked inexact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eventstore.tokens.count import Count
from eventstore.tokens.text import Tokenizer

_FUNCTION = {"cl100k_base": 10, "o200k_base": 7}
_PROPERTIES = 3
_PROPERTY = 3
_ENUM = -3
_ENUM_ITEM = 3
_ALL_FUNCTIONS = 12

_MARGIN_BEYOND_COOKBOOK = 0.15
_MARGIN_OF_BUILT_IN = 0.5
_SCHEMAS = ("parameters", "input_schema", "inputSchema")  # OpenAI, Anthropic, MCP
_DEEPEST = 32  # a schema may be of any depth; below this its JSON is counted as text


def count_tools(tools: Iterable[Mapping[str, Any]], tokenizer: Tokenizer) -> Count:
    """Return the tokens that the declarations of tools add to a request; none for no tools.

    Args:
        tools: Declarations of OpenAI's chat format (``{"type": "function", "function": {...}}``),
            of its Responses format, where name and parameters stand at the top, or of Anthropic's
            (``input_schema``). The same function costs the same in each. Anything else is a tool
            of the provider's own, and an estimate.
        tokenizer: What to count with; see ``tokenizer_for``.
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
    """Return where a declaration has name and parameters; None if it declares no function."""
    if not isinstance(tool, Mapping):
        return None
    function = tool.get("function", tool)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return None
    # Anthropic calls functions "custom", as OpenAI calls tools that take free text.
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
    """Count what the cookbook does not cover: nested objects, array items, alternatives."""
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
