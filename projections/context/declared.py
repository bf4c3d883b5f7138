"""Declarations of tools: what each is called, and which of them a tool policy lets through.

Names stand where OpenAI's chat and Responses formats and Anthropic's have them; a provider's own
tool without a name is called by its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eventstore.events import ToolPolicy

__all__ = ["declared_name", "permitted"]


def declared_name(tool: Any) -> str | None:
    """Return what a tool is called by the model; None if the declaration does not say."""
    if not isinstance(tool, Mapping):
        return None
    inner = next((tool[key] for key in ("function", "custom") if key in tool), tool)
    for found in (inner.get("name") if isinstance(inner, Mapping) else None, tool.get("type")):
        if isinstance(found, str):
            return found
    return None


def permitted(tools: Iterable[Any], policy: ToolPolicy | None) -> tuple[Any, ...]:
    """Return the declarations of the tools that may be used, as they are and in their order.

    One whose name nobody can tell is left out where only some tools are allowed.
    """
    return tuple(tool for tool in tools if policy is None or _permits(policy, tool))


def _permits(policy: ToolPolicy, tool: Any) -> bool:
    if isinstance(tool, Mapping) and tool.get("type") == "mcp":
        return policy.server_refusal(str(tool.get("server_label"))) is None
    name = declared_name(tool)
    return policy.allowed is None if name is None else policy.refusal(name) is None
