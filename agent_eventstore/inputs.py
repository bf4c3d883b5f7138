"""Conversion and checks of a product's inputs, tool results and JSON objects.

Content parts may be a provider's dictionaries, a tool's result any JSON value. Other values are
refused with an error that says what to pass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from eventstore.database import require_content
from eventstore.errors import InvalidEvent
from eventstore.events import ContentPart, Meta, OtherPart, TextPart, UserMessage
from eventstore.events.base import Value
from eventstore.events.bounds import Extra, excess_of
from eventstore.events.codec import dumps
from projections.providers.content_blocks import content_part

__all__ = [
    "Content",
    "UserInput",
    "content_of",
    "message_of",
    "parts_of",
    "stored_json",
    "with_extra",
]


Part = ContentPart | Mapping[str, Any] | str
UserInput = str | UserMessage | Sequence[Part]
"""An input: text, a whole message, or parts, which may be a provider's dictionaries."""

Content = Any
"""A tool's result: text, parts, or a JSON value."""

_WANTED = "pass text, a UserMessage, or a list of parts"
_OURS: TypeAdapter[ContentPart] = TypeAdapter(ContentPart)


def message_of(given: Any) -> UserMessage:
    """Return an input as the message to record.

    Raises:
        InvalidEvent: It is not an input, it is empty, or one of its parts has an unknown format.
    """
    message = _message(given)
    require_content(message)
    return message


def parts_of(given: Any, *, may_be_empty: bool) -> tuple[ContentPart, ...]:
    """Return the parts of an input.

    Raises:
        InvalidEvent: As for `message_of`, except that an input may be empty where this is allowed.
    """
    return (_message(given) if may_be_empty else message_of(given)).parts


def _message(given: Any) -> UserMessage:
    if isinstance(given, UserMessage):
        return given
    if isinstance(given, str):
        return UserMessage.text(given)
    if isinstance(given, Value):
        return UserMessage(parts=(_part(given),))
    if isinstance(given, Mapping):
        raise InvalidEvent(f"an input cannot be a dictionary ({_start(given)}): {_WANTED}")
    if not isinstance(given, Sequence) or isinstance(given, bytes | bytearray):
        raise InvalidEvent(f"an input cannot be {_start(given)}: {_WANTED}")
    return UserMessage(parts=tuple(map(_part, given)))


def content_of(result: Any) -> str | tuple[ContentPart, ...] | None:
    """Return a tool's result as text or parts; any other value becomes JSON text.

    Raises:
        InvalidEvent: JSON cannot represent it.
    """
    if result is None or isinstance(result, str):
        return result
    if isinstance(result, Value):
        return (_part(result),)
    if isinstance(result, list | tuple) and result:
        known = tuple(map(_known, result))
        if None not in known:
            return tuple(part for part in known if part is not None)
    try:
        value = to_jsonable_python(result, inf_nan_mode="strings")
        return json.dumps(value, ensure_ascii=False)
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise InvalidEvent(
            f"a tool's result cannot be {_start(result)}, which is not a JSON value: pass text, "
            "parts, or a value that json.dumps accepts"
        ) from error


def _part(item: Any) -> ContentPart:
    if isinstance(item, str):
        return TextPart(text=item)
    part = _known(item)
    if part is not None:
        return part
    if isinstance(item, Mapping) and isinstance(item.get("type"), str):
        return OtherPart(raw=dict(item))
    raise InvalidEvent(f"{_start(item)} is not a part of a message: {_WANTED}")


def _known(item: Any) -> ContentPart | None:
    """Return a part in this project's format or a framework's; None for any other."""
    if isinstance(item, Value):
        try:
            return _OURS.validate_python(item)
        except ValidationError:
            return None
    if not isinstance(item, Mapping):
        return None
    if "kind" in item and "type" not in item:
        try:
            return _OURS.validate_python(dict(item))
        except ValidationError:
            return None
    found = content_part(item) if "type" in item else None
    return None if isinstance(found, OtherPart) else found


def _start(value: Any) -> str:
    """Return a value's type and the start of its repr."""
    try:
        shown = repr(value)
    except Exception:
        shown = "..."
    return f"{type(value).__name__} {shown[:80]}"


def stored_json(kind: Any, name: str, value: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a product's JSON object after checking the bounds of its kind.

    Raises:
        InvalidEvent: It is too large, nested too deeply, or not a JSON object.
    """
    if found := excess_of(kind, name, value):
        raise InvalidEvent(str(found[0]), field=found[0].field, limit=found[0].limit)
    if value is not None:
        if not isinstance(value, dict):
            raise InvalidEvent(f"{name} must be a JSON object, not {value!r:.80}", field=name)
        dumps(value)
    return value


def with_extra(meta: Meta, extra: dict[str, Any] | None) -> Meta:
    """Return metadata with more keys in ``extra``.

    Raises:
        InvalidEvent: See `stored_json`.
    """
    if not stored_json(Extra, "extra", extra):
        return meta
    both = {**(meta.extra or {}), **(extra or {})}
    return meta.model_copy(update={"extra": stored_json(Extra, "extra", both)})
