"""Tokens of a model call whose provider told none: counted from what was sent and received.

Long prompts are counted in part and reckoned up, so that an estimate costs milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from agent_eventstore.streams import Partial
from agent_eventstore.streams.plain import plain
from eventstore.events import TokenUsage
from projections.usage import estimated_tokens

__all__ = ["estimated_usage"]

_COUNTED = 20_000
_A_MESSAGE = 4
"""Tokens that a message takes beside its text."""


def estimated_usage(
    model: str | None, prompt: Any, counted: int | None, tools: Sequence[Any], said: Partial
) -> TokenUsage:
    """Return an estimate, marked as one.

    Args:
        model: Decides how tokens are counted.
        prompt: What was sent, as far as that is known.
        counted: Its tokens, if they were counted before it was sent.
        tools: The tool declarations that were sent.
        said: What came back.
    """
    if counted is None:
        value = plain(prompt)
        messages = len(value) if isinstance(value, list) else 1
        texts = [*_texts(value), *(json.dumps(plain(tool)) for tool in tools)]
        counted = _tokens("\n".join(texts), model) + (_A_MESSAGE * messages if texts else 0)
    calls = (text for call in said.tool_calls for text in (call.name or "", call.arguments_text))
    written = [said.reasoning, said.text, said.refusal, *calls]
    return TokenUsage(
        prompt_tokens=counted,
        completion_tokens=sum(_tokens(text, model) for text in written),
        reported=False,
    )


def _tokens(text: str, model: str | None) -> int:
    if not text:
        return 0
    tokens = estimated_tokens([text[:_COUNTED]], model)
    return tokens if len(text) <= _COUNTED else round(tokens * len(text) / _COUNTED)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a prompt; what images and files hold is none."""
    if isinstance(value, str) and not value.startswith("data:"):
        yield value
    for item in value if isinstance(value, list) else ():
        yield from _texts(item)
    for key, item in value.items() if isinstance(value, dict) else ():
        if key not in _NO_TEXT:
            yield from _texts(item)


_NO_TEXT = frozenset(
    {"data", "file_data", "file_id", "id", "call_id", "role", "tool_call_id", "type"}
)
