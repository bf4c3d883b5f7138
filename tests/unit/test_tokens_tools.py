"""A declaration of a tool costs the same in every provider's format, and nothing is refused."""

from __future__ import annotations

from typing import Any

import pytest

from projections.tokens import Count, Tokenizer, count_tools

O200K = Tokenizer("o200k_base")
HEAD = {"name": "search", "description": "Search the catalogue."}
SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What to look for"}},
}
CHAT = {"type": "function", "function": {**HEAD, "parameters": SCHEMA}}


@pytest.mark.parametrize(
    "tool",
    [
        {**HEAD, "parameters": SCHEMA},
        {"type": "function", "strict": True, **HEAD, "parameters": SCHEMA},
        {**HEAD, "input_schema": SCHEMA},
        {"type": "custom", **HEAD, "input_schema": SCHEMA},
        {"type": None, **HEAD, "input_schema": SCHEMA},
        {**HEAD, "inputSchema": SCHEMA},
    ],
    ids=["legacy", "responses", "anthropic", "anthropic custom", "anthropic null", "mcp"],
)
def test_every_format_costs_what_the_chat_format_costs(tool: dict[str, Any]) -> None:
    """The model gets the same declaration, wherever the format keeps its parameters."""
    assert count_tools([CHAT], O200K) == count_tools([tool], O200K)
    assert count_tools([tool], O200K).tokens > count_tools([HEAD], O200K).tokens


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        {"type": "custom", "name": "grammar", "format": {"type": "grammar"}},
        {"type": "custom", "custom": {"name": "free_text"}},
        "search",
        None,
    ],
    ids=["anthropic's own", "free text", "free text in chat", "text", "none"],
)
def test_what_is_no_function_is_an_estimate(tool: Any) -> None:
    """A name alone does not make it one: what the provider adds for it is not published."""
    counted = count_tools([tool], O200K)
    assert (False, True) == (counted.exact, counted.margin > 0)
    assert counted.tokens > Count(12).tokens
