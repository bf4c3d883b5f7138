"""Facts that are larger than an event may be, made to fit: what has happened must not be lost.

A model may answer with a name of a megabyte or a count of 30 digits, a tool may return more than a
store takes. An append refuses such events (see `eventstore.events.bounds`), so the journal has them
fitted and tries again. What was cut says so, and is logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eventstore import NewEvent
from eventstore.events import Payload, ToolResult
from eventstore.events.bounds import Excess, fitted
from eventstore.events.codec import encode
from eventstore.events.records import EventData
from eventstore.log import get_logger
from projections.folding import result_text

__all__ = ["fit"]

_log = get_logger("agent_eventstore.fitting")
_NOTE_BYTES = 200
_ERROR_CHARS = 500


def fit(events: Sequence[NewEvent], most: int) -> list[NewEvent] | None:
    """Return the events within all bounds and of ``most`` bytes each; None if that changes nothing.

    Texts of what people and models say are never cut: of these, and of what a product declares,
    an append may still refuse what is too large.
    """
    told: list[Excess] = []
    kept = [
        replace(event, data=_within(event.data, most, told), meta=fitted(event.meta, told.append))
        for event in events
    ]
    for excess in told:
        _log.warning("cut to fit", field=excess.field, limit=excess.limit)
    return kept if told else None


def _within(data: EventData, most: int, told: list[Excess]) -> EventData:
    if not isinstance(data, Payload):
        return data
    data = fitted(data, told.append)
    for smaller in (_without_raw, _cut):
        size = len(encode(data).encode())
        if size > most:
            excess = Excess("the payload", f"has {size:,} bytes", f"{most:,} (max_event_bytes)")
            told.append(excess)
            data = smaller(data, size, most)
    return data


def _without_raw(data: Payload, size: int, most: int) -> Payload:
    """Return a payload without what a provider or a tool told beside its content."""
    return data.model_copy(update={"raw": None}) if getattr(data, "raw", None) else data


def _cut(data: Payload, size: int, most: int) -> Payload:
    """Return a result of which the start is kept, and a line that says how much is not."""
    if not isinstance(data, ToolResult):
        return data
    whole = result_text(data) or ""
    left = len(whole)
    while True:
        left = max(left * max(most - _NOTE_BYTES, 0) // size, 0) if size > most else left
        note = f"\n… {len(whole) - left:,} characters more, not kept: max_event_bytes is {most:,}"
        error = data.error and data.error[:_ERROR_CHARS]
        kept = data.model_copy(update={"content": whole[:left] + note, "error": error})
        size = len(encode(kept).encode())
        if size <= most or not left:
            return kept
