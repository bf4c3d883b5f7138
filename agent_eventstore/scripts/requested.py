"""A tool call that a model asked for, under our own id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from eventstore.events import Meta, RecordedEvent, ToolCallRequest
from eventstore.ids import call_id

__all__ = ["RequestedCall"]


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call that the model asked for.

    ``arguments`` is the parsed object, or None with ``parse_error`` telling why; the model's text
    is ``arguments_text``. ``call_id`` is our own; the provider's is ``provider_id``. ``asked_in``
    is the id of the event that holds the answer.
    """

    call_id: str
    name: str
    arguments: dict[str, Any] | None
    arguments_text: str
    parse_error: str | None
    provider_id: str | None
    meta: Meta
    asked_in: UUID | None = None

    @classmethod
    def of(
        cls, answer: RecordedEvent, index: int, request: ToolCallRequest, meta: Meta
    ) -> RequestedCall:
        """Make one of the ``index``-th call of an assistant message."""
        return cls(
            call_id=call_id(answer.version, index),
            name=request.name,
            arguments=request.arguments,
            arguments_text=request.arguments_text,
            parse_error=request.parse_error,
            provider_id=request.provider_id,
            meta=meta,
            asked_in=answer.event_id,
        )
