"""Guardrails of the OpenAI Agents SDK, and spans of a product's own: what no hook is told.

Model calls, tools and handoffs come by the hooks of a `RecordedRun`; guardrails and spans of a
product's own do not, so that they are taken from the spans as they end.
"""

from __future__ import annotations

from typing import Any

from agents.tracing import CustomSpanData, GuardrailSpanData, Span, Trace, TracingProcessor

from agent_eventstore.integrations.openai_events import OpenAIGuardrail, OpenAISpan
from agent_eventstore.integrations.openai_recording import current_run
from agent_eventstore.providers.base import plain

__all__ = ["RecordedSpans"]


class RecordedSpans(TracingProcessor):
    """Records guardrails and spans of a product's own in the `RecordedRun` around them, if any.

    For `agents.add_trace_processor`, or for `set_trace_processors`, with which nothing is sent to
    OpenAI. Where tracing is disabled there are no spans.
    """

    def on_span_end(self, span: Span[Any]) -> None:
        """Have a span recorded; the run waits for that before it ends."""
        run, data = current_run(), span.span_data
        if run is None:
            return
        error = None if span.error is None else span.error["message"]
        if isinstance(data, GuardrailSpanData):
            run.tell(OpenAIGuardrail(name=data.name, triggered=data.triggered, error=error))
        elif isinstance(data, CustomSpanData):
            run.tell(
                OpenAISpan(
                    name=data.name,
                    started_at=span.started_at,
                    ended_at=span.ended_at,
                    data=plain(data.data),
                    error=error,
                )
            )

    def on_span_start(self, span: Span[Any]) -> None:
        """Do nothing: a span is told when it has ended."""

    def on_trace_start(self, trace: Trace) -> None:
        """Do nothing: a run is a turn."""

    def on_trace_end(self, trace: Trace) -> None:
        """Do nothing: a run is a turn."""

    def shutdown(self) -> None:
        """Do nothing: nothing is held back."""

    def force_flush(self) -> None:
        """Do nothing: nothing is held back."""
