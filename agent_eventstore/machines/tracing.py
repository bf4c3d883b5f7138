"""The span of a turn, a model call or a tool, where somebody traces: begun and ended with events.

By OpenTelemetry's conventions for GenAI, without what was said, which the log has. The ids of trace
and span stand in the metadata of the events, so that log and trace are found from each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eventstore import telemetry
from eventstore.events import Meta

if TYPE_CHECKING:
    from eventstore.otel import Activity

__all__ = ["Tracing", "beside"]


def beside(meta: Meta, turn: Meta) -> Meta:
    """Return the metadata of what was asked for in another span, as that of its turn's own."""
    if meta.span_id == turn.span_id:
        return meta
    return meta.model_copy(update={"trace_id": turn.trace_id, "span_id": turn.span_id})


@dataclass(slots=True)
class Tracing:
    """One span; nothing where nobody traces."""

    _open: Activity | None = None

    def begin(self, meta: Meta, name: str, attributes: Mapping[str, Any]) -> Meta:
        """Begin the span, within that of the metadata; return the metadata of what is within."""
        trace, span = meta.trace_id, meta.span_id
        parent = None if trace is None or span is None else (trace, span)
        self._open = telemetry.activity(name, parent, attributes)
        if self._open is None:
            return meta
        ids = {"trace_id": self._open.trace_id, "span_id": self._open.span_id}
        return meta.model_copy(update=ids)

    @property
    def is_open(self) -> bool:
        """Whether there is a span to be described, which has not ended."""
        return self._open is not None

    def end(self, attributes: Mapping[str, Any], error_type: str | None = None) -> None:
        """End the span, if there is one."""
        ended, self._open = self._open, None
        if ended is not None:
            ended.end(attributes, error_type)
