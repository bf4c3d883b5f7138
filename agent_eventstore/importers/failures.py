"""Failed model calls in transcripts that keep them as assistant messages (document 000, 4.3).

Such a message holds the partial text and an ``LLM_ERROR`` block, as messages[] renders it. One in
exactly that form becomes an `LlmError` again; anything else stays what an assistant said.
"""

from __future__ import annotations

import re
from typing import get_args

from eventstore.events import LlmError, PartialToolCall
from eventstore.events.values import LlmErrorKind
from projections.context.prompts import llm_error

__all__ = ["error_in"]

_BLOCK = re.compile(
    r"(?:(?P<partial>.+)\n\n)?LLM_ERROR\n- kind: (?P<kind>\w+)\n- attempt: (?P<attempt>\d{1,9})\n"
    r"- message: (?P<message>.*?)"
    r"(?:\n- tool calls left unfinished, never executed: (?P<tools>[^\n]+))?",
    re.DOTALL,
)


def error_in(text: str) -> LlmError | None:
    """Return the failure that an assistant message tells of, or None if it tells of none."""
    if "LLM_ERROR\n" not in text:
        return None
    found = _BLOCK.fullmatch(text)
    kind = next((k for k in get_args(LlmErrorKind) if found and k == found["kind"]), None)
    if found is None or kind is None or int(found["attempt"]) < 1:
        return None
    tools = tuple(found["tools"].split(", ")) if found["tools"] else ()
    error = LlmError(
        kind=kind,
        message=found["message"],
        attempt=int(found["attempt"]),
        partial_text=found["partial"] or "",
        partial_tool_calls=tuple(
            PartialToolCall(index=index, name=name) for index, name in enumerate(tools)
        ),
    )
    again = llm_error(
        error.kind,
        error.message,
        attempt=error.attempt,
        partial_text=error.partial_text,
        partial_tools=tools,
    )
    return error if again == text else None
