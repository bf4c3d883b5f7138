"""Which of a stream's deltas go into one event, decided by time and size.

The first delta is written at once, so that a crash right after it still shows that the model had
begun; what follows is gathered for 100 ms or 512 characters, whichever comes first. So a kill loses
at most one batch, and a stream of two thousand chunks does not become two thousand events.
"""

from __future__ import annotations

from typing import Any

from agent_eventstore.streams import Delta
from eventstore.events import AssistantChunk, ToolCallDelta

__all__ = ["AGAIN_S", "BATCH_CHARS", "BATCH_S", "SELDOM_S", "Batcher"]

BATCH_S = 0.1
BATCH_CHARS = 512
AGAIN_S = 0.05
SELDOM_S = 1.0
"""What cannot be written at once is tried again after this long, and then less and less often."""


class Batcher:
    """Gathers the deltas of one model call into events.

    Pure but for what it holds: the caller tells the time, in seconds of a monotonic clock.
    """

    def __init__(self, llm_call_id: str) -> None:
        self._llm_call_id = llm_call_id
        self._index = 0
        self._since: float | None = None
        self._clear()

    def _clear(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[ToolCallDelta] = []
        self._raw: list[Any] = []
        self._size = 0

    @property
    def due_at(self) -> float | None:
        """When what is held must be written, or None if nothing is held."""
        return None if self._since is None else self._since + BATCH_S

    def add(self, delta: Delta, now: float) -> AssistantChunk | None:
        """Take a delta; return the batch that is to be written now, if one is."""
        if not delta:
            return self.take(now) if self._due(now) else None
        self._text.append(delta.text)
        self._reasoning.append(delta.reasoning)
        self._refusal.append(delta.refusal)
        self._calls += delta.tool_calls
        self._raw += delta.raw
        self._size += len(delta.text) + len(delta.reasoning) + len(delta.refusal)
        self._size += sum(len(call.arguments) for call in delta.tool_calls)
        if self._since is None:
            self._since = now
        return self.take(now) if self._index == 0 or self._due(now) else None

    def take(self, now: float) -> AssistantChunk | None:
        """Return all that is held, as one batch; None if nothing is."""
        if self._since is None:
            return None
        chunk = AssistantChunk(
            llm_call_id=self._llm_call_id,
            index=self._index,
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            refusal="".join(self._refusal),
            tool_calls=_joined(self._calls),
            raw=tuple(self._raw),
        )
        self._index += 1
        self._since = None
        self._clear()
        return chunk

    def _due(self, now: float) -> bool:
        return self._since is not None and (
            self._size >= BATCH_CHARS or now - self._since >= BATCH_S
        )


def _joined(deltas: list[ToolCallDelta]) -> tuple[ToolCallDelta, ...]:
    """Join the neighbouring pieces of the same call; what is said stays in order."""
    joined: list[ToolCallDelta] = []
    for delta in deltas:
        last = joined[-1] if joined else None
        if last is None or last.index != delta.index or delta.name or delta.provider_id:
            joined.append(delta)
            continue
        joined[-1] = last.model_copy(update={"arguments": last.arguments + delta.arguments})
    return tuple(joined)
