"""The ``--json`` side of every command: one JSON document on stdout, and nothing else.

Names are those of the library's own classes. Times are ISO 8601 in UTC, ids whole, digests in hex.
On a terminal, characters that could steer it or be overlooked are written as JSON's escapes; a file
or a pipe gets them as they are. Either has the same value.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

import click
from pydantic import BaseModel

from agent_eventstore.cli.text import escaped
from eventstore.errors import EventStoreError
from eventstore.events import RecordedEvent
from eventstore.events.codec import encode

__all__ = ["event_document", "print_document", "write_json"]


def print_document(value: Any) -> None:
    """Write a value to stdout as JSON, in UTF-8 whatever the locale."""
    text = json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, indent=2)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Lone surrogates have no UTF-8; as escapes they are kept.
        text = json.dumps(value, default=_plain, allow_nan=False, indent=2)
    write_json(f"{text}\n")


def write_json(text: str) -> None:
    """Write JSON text, or lines of it, to stdout."""
    click.echo((escaped(text) if sys.stdout.isatty() else text).encode(), nl=False)


def event_document(event: RecordedEvent) -> dict[str, Any]:
    """Return an event with its whole envelope; ``data`` is None once it was erased."""
    document = _plain(event)
    del document["quotable"]  # of the row that it was read from
    document["data"] = None if event.data is None else json.loads(encode(event.data))
    document["meta"] = event.meta.model_dump(mode="json", exclude_none=True)
    return {**document, "occurred_at": event.occurred_at, "erased": event.erased}


def _plain(value: Any) -> Any:
    """Return what JSON can express for a value; those inside follow by themselves."""
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
