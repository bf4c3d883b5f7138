"""Cutting events that are too large to be stored.

Facts are never lost because of their size: a model may answer with a name of a megabyte or a count
of 30 digits, a tool may return more than a store accepts. An append refuses such events (see
`eventstore.events.bounds`), so the recorder and recovery cut them to fit and retry. A cut text says
so, and the cut is logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from eventstore import NewEvent
from eventstore.events import LlmError, PartialToolCall, Payload, ToolResult
from eventstore.events.bounds import Excess, fitted
from eventstore.events.codec import encode
from eventstore.events.records import EventData
from eventstore.telemetry.log import get_logger
from projections.payload_text import result_text

__all__ = ["fit"]

_log = get_logger("agent_eventstore")

_NOTE_BYTES = 200
_ERROR_CHARS = 500
_LEAST = 1e-6


def fit(events: Sequence[NewEvent], most: int) -> list[NewEvent] | None:
    """Return the events cut to all bounds and to ``most`` bytes each; None if nothing changes.

    Messages of people and models, and a product's declarations, are never cut: an append may still
    refuse one that is too large.
    """
    excesses: list[Excess] = []
    fitting = [
        replace(
            event,
            data=_within(event.data, most, excesses),
            meta=fitted(event.meta, excesses.append),
        )
        for event in events
    ]
    for excess in excesses:
        _log.warning("cut to fit", field=excess.field, limit=excess.limit)
    return fitting if excesses else None


def _within(data: EventData, most: int, excesses: list[Excess]) -> EventData:
    if not isinstance(data, Payload):
        return data
    data = whole = fitted(data, excesses.append)
    size = found = len(encode(data).encode())
    for smaller in (_without_raw, _cut, _cut_error):
        if size <= most:
            break
        data = smaller(data, size, most)
        size = len(encode(data).encode())
    if data is not whole:
        limit = f"{most:,} (max_event_bytes)"
        excesses.append(Excess("the payload", f"has {found:,} bytes", limit))
    return data


def _without_raw(data: Payload, size: int, most: int) -> Payload:
    """Return a payload without its ``raw`` field: data of a provider or tool beyond the content."""
    return data.model_copy(update={"raw": None}) if getattr(data, "raw", None) else data


def _cut(data: Payload, size: int, most: int) -> Payload:
    """Return a tool result cut to its start, with a line that says how much is missing."""
    if not isinstance(data, ToolResult):
        return data
    whole = result_text(data) or ""
    left = len(whole)
    while True:
        left = max(left * max(most - _NOTE_BYTES, 0) // size, 0) if size > most else left
        note = f"\n… {len(whole) - left:,} characters more, not kept: max_event_bytes is {most:,}"
        error = data.error and data.error[:_ERROR_CHARS]
        shortened = data.model_copy(update={"content": whole[:left] + note, "error": error})
        size = len(encode(shortened).encode())
        if size <= most or not left:
            return shortened


def _cut_error(data: Payload, size: int, most: int) -> Payload:
    """Return a failed model call's error with the start of each text; its chunks have the rest."""
    if not isinstance(data, LlmError):
        return data
    shortened, share = data, 1.0
    least = _ERROR_CHARS / max(len(data.message), 1)
    while size > most and share:
        share = share * max(most - 4 * _NOTE_BYTES, 0) / size if share > _LEAST else 0.0
        calls = data.partial_tool_calls[: ceil(share * len(data.partial_tool_calls))]
        shortened = data.model_copy(
            update={
                "message": _start(data.message, max(share, least)),
                "partial_text": _start(data.partial_text, share),
                "partial_reasoning": _start(data.partial_reasoning, share),
                "partial_tool_calls": tuple(_started(call, share) for call in calls),
            }
        )
        size = len(encode(shortened).encode())
    return shortened


def _started(call: PartialToolCall, share: float) -> PartialToolCall:
    return call.model_copy(update={"arguments_text": _start(call.arguments_text, share, "")})


def _start(text: str, share: float, note: str = "\n… {:,} characters more, not kept") -> str:
    left = int(share * len(text))
    return text if left >= len(text) else text[:left] + note.format(len(text) - left)
