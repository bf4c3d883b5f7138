"""Redaction: takes content that must not be stored out of payloads before they are encoded.

A `Redactor` is called with each text and each JSON value of a payload, from the outside in, and
returns the value to store instead. It does not see the catalogue's ids, names, numbers and
statuses: without them an event would no longer record what happened. `redact_secrets` is a redactor
for keys and passwords.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel

from eventstore.errors import RedactionFailed
from eventstore.events.bounds import Most, types_of
from eventstore.events.records import EventData, Meta
from eventstore.events.registry import UnknownEvent

__all__ = [
    "UNREDACTED",
    "Path",
    "Redactor",
    "hidden",
    "redacted",
    "redacted_meta",
]


Path = tuple[str | int, ...]
"""The path of a value: the event's type, then fields, keys and list indexes, such as
``("user_message", "parts", 0, "text")``."""

Redactor = Callable[[Path, Any], Any]
"""Returns the value to store: the same value, or another JSON value.

A text must be replaced by a text, and an object of the catalogue by an object. If the redactor
returns another object or list, it is not called for the values inside.
"""

UNREDACTED = "[redacted: the redactor failed]"
"""Stored in place of a text if it is unknown whether the text may be stored."""

_HIDDEN = {"redacted": UNREDACTED}


def redacted(
    payload: EventData,
    redact: Redactor,
    *,
    only: Collection[str] | None = None,
    index: int | None = None,
) -> EventData:
    """Return a redacted payload; the same object if nothing was changed.

    Args:
        payload: The payload to store.
        redact: The redactor.
        only: The fields to redact; by default all.
        index: The event's index in its append, for the error.

    Raises:
        RedactionFailed: The redactor raised, or returned an invalid value.
    """
    path: Path = (payload.type,)
    try:
        if isinstance(payload, UnknownEvent):
            raw = _json(payload.raw, path, redact)
            if raw is payload.raw:
                return payload
            return UnknownEvent(payload.type, payload.schema_version, raw, payload.reason)
        kept: EventData = _value(payload, path, redact, only)
        return kept
    except Exception as error:
        # Not the error's text: the redactor may quote there what it should take out.
        said = f"the redactor failed at a {payload.type} event ({type(error).__name__})"
        raise RedactionFailed(f"{said}: nothing was stored", index=index) from error


def redacted_meta(meta: Meta, redact: Redactor, *, index: int | None = None) -> Meta:
    """Return redacted metadata; the redactor only sees ``extra``.

    Raises:
        RedactionFailed: The redactor raised, or did not return an object.
    """
    if not meta.extra:
        return meta
    path: Path = ("meta", "extra")
    try:
        kept = _json(meta.extra, path, redact)
        _check(meta.extra, kept, path)
    except Exception as error:
        said = f"the redactor failed at an event's extra metadata ({type(error).__name__})"
        raise RedactionFailed(f"{said}: nothing was stored", index=index) from error
    return meta if kept is meta.extra else meta.model_copy(update={"extra": kept})


def hidden(payload: EventData, redact: Redactor | None) -> EventData:
    """Return a payload with `UNREDACTED` wherever a redactor fails; without one, at every text."""

    def safe(path: Path, value: Any) -> Any:
        try:
            if redact is None:
                raise ValueError(path)
            kept = redact(path, value)
            _check(value, kept, path)
        except Exception:
            if isinstance(value, dict):
                return _HIDDEN
            return UNREDACTED if isinstance(value, str | list) else value
        return kept

    return redacted(payload, safe)


def _value(
    value: BaseModel, path: Path, redact: Redactor, only: Collection[str] | None = None
) -> Any:
    changed: dict[str, Any] = {}
    held = value.__dict__
    for name in _asked(type(value)):
        before = held.get(name)
        if before is not None and (only is None or name in only):
            after = _content(before, (*path, name), redact)
            if after is not before:
                changed[name] = after
    return value.model_copy(update=changed) if changed else value


def _content(value: Any, path: Path, redact: Redactor) -> Any:
    if isinstance(value, BaseModel):
        return _value(value, path, redact)
    if isinstance(value, tuple):
        after = tuple(_content(one, (*path, at), redact) for at, one in enumerate(value))
        return value if all(map(_is, value, after)) else after
    kept = _json(value, path, redact)
    _check(value, kept, path)
    return kept


def _json(value: Any, path: Path, redact: Redactor) -> Any:
    if isinstance(value, BaseModel):  # in a list field of your product's own event
        return _value(value, path, redact)
    if value in (UNREDACTED, _HIDDEN):
        return value
    kept = redact(path, value)
    if kept is not value or not isinstance(value, dict | list):
        return kept
    if isinstance(value, dict):
        items = {key: _json(one, (*path, key), redact) for key, one in value.items()}
        return value if all(items[key] is one for key, one in value.items()) else items
    listed = [_json(one, (*path, at), redact) for at, one in enumerate(value)]
    return value if all(map(_is, value, listed)) else listed


def _check(value: Any, kept: Any, path: Path) -> None:
    for kind in (str, dict):
        if isinstance(value, kind) and not isinstance(kept, kind):
            raise TypeError(f"{path} must stay a {kind.__name__}")


def _is(one: Any, other: Any) -> bool:
    return one is other


@cache
def _asked(cls: type[BaseModel]) -> tuple[str, ...]:
    """Return the fields of a payload or value that a redactor sees."""
    return tuple(name for name, kind in types_of(cls).items() if _has_content(kind))


def _has_content(kind: Any) -> bool:
    if kind is str or kind is Any or get_origin(kind) is dict:
        return True
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return True
    if get_origin(kind) is Annotated:
        of, *marks = get_args(kind)
        return not any(isinstance(mark, Most) for mark in marks) and _has_content(of)
    return any(map(_has_content, get_args(kind)))
