"""Output items of OpenAI's Responses that ask the product to act, as tool calls.

The endpoint waits for the output of a shell, patch, computer or search action that the product
runs, just as for the output of a function. These items are therefore recorded as tool calls, named
after the action. Actions that the provider's own container or search has performed are not.
"""

from __future__ import annotations

from eventstore.events.base import JsonObject
from projections.providers.parser import text

__all__ = ["CALLS", "acts_of"]

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The items that call the product's tools by name, and the field that holds the arguments."""

_ACTIONS = {
    "apply_patch_call": "operation",
    "computer_call": "action",
    "local_shell_call": "action",
    "shell_call": "action",
    "tool_search_call": "arguments",
}
"""The items that ask the product to act, and the field that describes the action."""


def acts_of(item: JsonObject) -> tuple[str, JsonObject] | None:
    """Return tool name and arguments of an item that the product must answer, otherwise None."""
    kind = text(item.get("type"))
    if kind == "mcp_approval_request":
        return "mcp_approval", {key: item.get(key) for key in ("server_label", "name", "arguments")}
    if kind not in _ACTIONS or not _is_products(kind, item):
        return None
    given = item.get(_ACTIONS[kind])
    if kind == "computer_call" and given is None:
        given = {"actions": item.get("actions")}
    return kind.removesuffix("_call"), given if isinstance(given, dict) else {"input": given}


def _is_products(kind: str, item: JsonObject) -> bool:
    if kind == "tool_search_call":
        return item.get("execution") == "client"
    environment = item.get("environment")
    hosted = isinstance(environment, dict) and environment.get("type") != "local"
    return kind != "shell_call" or not hosted
