"""The words that formats add where a provider's rules ask for a message that nobody wrote.

They are written for the model that reads them, and say no more than is true. They are stored
nowhere; changing one changes the bytes of later requests.
"""

from __future__ import annotations

__all__ = ["AUDIO", "CLOSING", "EMPTY_USER", "NOTHING_YET", "NO_USER", "OUTCOMES", "by", "note"]

NOTHING_YET = "<system_note>\nThe conversation has no messages yet.\n</system_note>"
NO_USER = "<system_note>\nNo user message stands before the assistant's.\n</system_note>"
CLOSING = "<system_note>\nThe conversation stops here. Continue it.\n</system_note>"
EMPTY_USER = "[empty message]"
AUDIO = "[audio]"

OUTCOMES = {
    "TOOL_FAILED": "failed",
    "TOOL_DENIED": "denied",
    "TOOL_SKIPPED": "skipped",
    "TOOL_NOT_STARTED": "not_started",
    "TOOL_OUTCOME_UNKNOWN": "outcome_unknown",
    "TOOL_RESULT_MISSING": "missing",
    "TOOL_RESULT_WITHDRAWN": "withdrawn",
    "TOOL_RESULT_NOT_SHOWN": "not_shown",
}
"""The first lines of `projections.context.prompts` that stand for results, and their meaning."""


def note(text: str) -> str:
    """Return a system message as text within a user's turn, told apart from what the user said."""
    return f"<system_note>\n{text.strip()}\n</system_note>"


def by(name: str, text: str) -> str:
    """Return a text with who said it, for formats that know no names."""
    return f"{name}: {text}" if text else f"{name}:"
