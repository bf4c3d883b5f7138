"""Values of this library as JSON: the form in which the command line and the service show them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from eventstore.errors import EventStoreError
from eventstore.events import RecordedEvent
from eventstore.events.codec import encode

__all__ = ["event_document", "json_bytes", "plain"]


def event_document(event: RecordedEvent) -> dict[str, Any]:
    """Return an event with its whole envelope; ``data`` is None if it was erased."""
    document: dict[str, Any] = plain(event)
    del document["quotable"]  # belongs to the row that the event was read from
    if not event.inherited:
        del document["inherited"]
    document["data"] = None if event.data is None else json.loads(encode(event.data))
    document["meta"] = event.meta.model_dump(mode="json", exclude_none=True)
    return {**document, "occurred_at": event.occurred_at, "erased": event.erased}


def plain(value: Any) -> Any:
    """Return a form that JSON can express; nested values are converted in turn."""
    match value:
        case datetime():
            return value.isoformat()
        case bytes():
            return value.hex()
        case BaseModel():
            return value.model_dump(mode="json", exclude_none=True)
        case EventStoreError():
            return {"error": type(value).__name__, "message": str(value)}
        case Mapping() | set() | frozenset():
            return dict(value) if isinstance(value, Mapping) else sorted(value)
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)


def json_bytes(value: Any) -> bytes:
    """Return a value as one line of JSON in UTF-8, which has no lone surrogates: escapes do."""
    options: dict[str, Any] = {"default": plain, "allow_nan": False, "separators": (",", ":")}
    try:
        return json.dumps(value, ensure_ascii=False, **options).encode()
    except UnicodeEncodeError:
        return json.dumps(value, **options).encode()
