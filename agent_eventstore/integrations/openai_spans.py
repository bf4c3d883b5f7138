"""Record guardrails of the OpenAI Agents SDK, and spans that the product creates.

The hooks of a `RecordedRun` receive model calls, tools and handoffs, but neither guardrails nor the
product's own spans. These are recorded from the SDK's spans as they end.
"""

from __future__ import annotations

from typing import Any

from agents.tracing import CustomSpanData, GuardrailSpanData, Span, Trace, TracingProcessor

from agent_eventstore.integrations.openai_events import OpenAIGuardrail, OpenAISpan
from agent_eventstore.integrations.openai_recording import current_run
from agent_eventstore.providers.base import plain

__all__ = ["RecordedSpans"]


class RecordedSpans(TracingProcessor):
    """Records guardrails and the product's own spans in the surrounding `RecordedRun`, if any.

    Pass it to `agents.add_trace_processor`, or to `set_trace_processors` to send nothing to OpenAI.
    If tracing is disabled, there are no spans.
    """

    def on_span_end(self, span: Span[Any]) -> None:
        """Record a span; the run waits for it before it ends."""
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
        """Do nothing: a span is recorded when it has ended."""

    def on_trace_start(self, trace: Trace) -> None:
        """Do nothing: a run is a turn."""

    def on_trace_end(self, trace: Trace) -> None:
        """Do nothing: a run is a turn."""

    def shutdown(self) -> None:
        """Do nothing: nothing is buffered."""

    def force_flush(self) -> None:
        """Do nothing: nothing is buffered."""
