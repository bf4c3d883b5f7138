"""The payload base class and the value types that payloads share.

A payload is an immutable fact. Its ``type`` and ``schema_version`` are class attributes, because
they are columns of the event and never part of the payload. Text may hold NUL characters and lone
surrogates: the codec (`eventstore.events.codec`) keeps both losslessly.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict

__all__ = ["Clock", "JsonObject", "Payload", "UtcDatetime", "Value", "utc_now"]

JsonObject = dict[str, Any]
"""A JSON object, kept unchanged; NaN and infinities are refused when it is encoded."""

Clock = Callable[[], datetime]
"""Returns the current time: aware, in UTC."""


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:  # which pydantic does not take for a value that does not fit
        raise ValueError("the time is before the year 1 or after 9999 in UTC") from error


UtcDatetime = Annotated[AwareDatetime, AfterValidator(_in_utc)]
"""An aware datetime, converted to UTC; a naive one is refused."""


class Value(BaseModel):
    """An immutable value inside a payload. It refuses unknown fields and non-finite numbers."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants"
    )


class Payload(Value):
    """The body of one event.

    Subclasses set their ``type`` (a snake_case noun that is never renamed) and the
    ``schema_version`` that this code writes.
    """

    type: ClassVar[str]
    schema_version: ClassVar[int] = 1


def utc_now() -> datetime:
    """Return the current time, aware, in UTC."""
    return datetime.now(UTC)
