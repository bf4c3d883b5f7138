"""Providers' own context management: requests to compact a prompt, or to clear parts of it.

OpenAI, API reference "Create a model response" (2026): entries of ``context_management``.
Anthropic, guides "Context editing" (2025) and "Compaction" (2026): edits, each in a beta; the
clearing of thinking must come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["KINDS", "managed"]

_COMPACTION = "compaction"
_THINKING = "clear_thinking_20251015"
_BETAS = {
    _THINKING: "context-management-2025-06-27",
    "clear_tool_uses_20250919": "context-management-2025-06-27",
    "compact_20260112": "compact-2026-01-12",
}

KINDS = (_COMPACTION, *_BETAS)
"""The types of entries: the first is OpenAI's, the others are Anthropic's."""


def managed(format: str, entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the call's parameters for these entries in a format; other providers' are ignored."""
    if format == "openai_responses":
        own = [dict(each) for each in entries if each["type"] == _COMPACTION]
        return {"context_management": own} if own else {}
    if format != "anthropic_messages":
        return {}
    edits = [dict(each) for each in entries if each["type"] in _BETAS]
    edits.sort(key=lambda each: each["type"] != _THINKING)
    betas = sorted({_BETAS[each["type"]] for each in edits})
    return {"betas": betas, "context_management": {"edits": edits}} if edits else {}
