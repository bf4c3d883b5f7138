"""What a declaration of a tool is called, whoever's format it is in, and whether it is sent."""

from __future__ import annotations

from typing import Any

import pytest

from eventstore.events import ToolPolicy
from projections.context.prompts import declared_name, permitted

CHAT: dict[str, Any] = {"type": "function", "function": {"name": "search", "parameters": {}}}
RESPONSES: dict[str, Any] = {"type": "function", "name": "search", "parameters": {}}
ANTHROPIC: dict[str, Any] = {"name": "search", "input_schema": {}}
CUSTOM = {"type": "custom", "custom": {"name": "search"}}
BUILT_IN = {"type": "web_search"}
BASH = {"type": "bash_20250124", "name": "bash"}
SERVER = {"type": "mcp", "server_label": "github", "server_url": "https://example.com"}


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        *((tool, "search") for tool in (CHAT, RESPONSES, ANTHROPIC, CUSTOM)),
        (BUILT_IN, "web_search"),
        (BASH, "bash"),
        ({}, None),
        ({"name": 1}, None),
        ({"googleSearch": {}}, None),
        ("search", None),
    ],
)
def test_the_name_is_found(tool: Any, name: str | None) -> None:
    """Where each format has it; a tool of the provider's own is called by its type."""
    assert name == declared_name(tool)


@pytest.mark.parametrize("tool", [CHAT, RESPONSES, ANTHROPIC, CUSTOM])
def test_a_denied_tool_is_not_declared(tool: Any) -> None:
    """In whatever format; the others stay as they are."""
    assert (BASH,) == permitted([tool, BASH], ToolPolicy(denied=("search",)))
    assert (tool,) == permitted([tool, BASH], ToolPolicy(allowed=("search",)))
    assert (tool, BASH) == permitted([tool, BASH], None)


def test_an_mcp_server_is_allowed_as_a_whole() -> None:
    """The provider calls its tools: nobody else can stop one of them."""
    assert (SERVER,) == permitted([SERVER], ToolPolicy(mcp_allowlist=("github",)))
    assert (SERVER,) == permitted([SERVER], ToolPolicy(allowed=("github",)))
    assert () == permitted([SERVER], ToolPolicy(mcp_allowlist=("files",)))
    assert () == permitted([SERVER], ToolPolicy(denied=("github",)))
    assert () == permitted([SERVER], ToolPolicy(allowed=("search",)))


def test_what_has_no_name_is_sent_only_where_everything_may_be() -> None:
    """A list of what is allowed cannot name it."""
    nameless: dict[str, Any] = {"googleSearch": {}}

    assert (nameless,) == permitted([nameless], ToolPolicy(denied=("search",)))
    assert () == permitted([nameless], ToolPolicy(allowed=("search",)))
