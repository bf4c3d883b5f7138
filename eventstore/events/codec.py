r"""Payload to JSON text and back: the only place where payloads are encoded.

The database stores this text, and the hash chain commits to it, byte for byte. It is UTF-8
without escapes, except for text that UTF-8 cannot carry: NUL is always ``\u0000``, and a payload
with a lone surrogate is written in ASCII escapes throughout, so that SQLite and PostgreSQL's
``json`` both keep it losslessly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from eventstore.errors import InvalidEvent
from eventstore.events.base import Payload
from eventstore.events.bounds import clamped, read_json
from eventstore.events.own import class_of, tell_of_unknown, upcaster_of
from eventstore.events.registry import REGISTRY, UnknownEvent

__all__ = ["decode", "dumps", "dumps_json", "encode", "loads", "loads_json", "unreadable"]

_LOST = "\ufffd" * 3
"""Pydantic's silent replacement for a lone surrogate in a key."""

# Created once: `json.dumps` would create an encoder for every call.
_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

_CURRENT: dict[tuple[str, int], Callable[[str], Payload]] = {
    (cls.type, cls.schema_version): cls.__pydantic_validator__.validate_json
    for cls in REGISTRY.values()
}

_NO_TYPE = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL's text accepts neither


def encode(payload: Payload | UnknownEvent) -> str:
    """Return the JSON text of a payload.

    Raises:
        InvalidEvent: The payload holds NaN, an infinity, or a value that JSON cannot express; or
            its type or version does not fit its column.
    """
    if isinstance(payload, UnknownEvent):
        if _NO_TYPE.search(payload.type) or not 0 < payload.schema_version < 2**31:
            raise InvalidEvent(f"{payload!r} has a type or version that no column can hold")
        return dumps(payload.raw)
    try:
        text = payload.__pydantic_serializer__.to_json(payload, exclude_none=True).decode()
    except PydanticSerializationError as error:
        if "surrogates not allowed" not in str(error):
            raise InvalidEvent(
                f"a {payload.type} event cannot be written as JSON: {error}"
            ) from error
        return _ascii(payload)
    if _LOST in text:
        return _ascii(payload)
    if "NaN" in text or "Infinity" in text:
        loads(text)
    return text


def _ascii(payload: Payload) -> str:
    # In Python mode, because pydantic's JSON mode loses lone surrogates in the keys of objects.
    return dumps(_plain(payload.model_dump(exclude_none=True)))


def _plain(value: Any) -> Any:
    """Return a Python value in JSON form: datetimes as text, and text unchanged."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return to_jsonable_python(value)


def decode(type_name: str, schema_version: int, text: str) -> Payload | UnknownEvent:
    """Decode a payload from its JSON text, upcast to the version that this code knows.

    A type or version from the future, or a payload that does not fit its class, is returned as
    `UnknownEvent` with the JSON untouched: reading never fails on other writers' data.
    Numbers beyond their bounds are clamped.
    """
    if (read := _CURRENT.get((type_name, schema_version))) is not None:
        try:
            return clamped(read(text))
        except ValidationError:
            pass  # the reason is determined below
    cls = class_of(type_name)
    if cls is None:
        tell_of_unknown(type_name)
    if cls is None or schema_version > cls.schema_version:
        return UnknownEvent(type_name, schema_version, _lenient(text))
    try:
        if schema_version == cls.schema_version:
            try:
                return clamped(cls.model_validate_json(text))
            except ValidationError:
                # pydantic's JSON reader refuses lone surrogates, and numbers of 5,000 digits.
                return clamped(cls.model_validate(read_json(text)))
        value = read_json(text)
        for version in range(schema_version, cls.schema_version):
            value = upcaster_of(type_name, version)(value)
        return clamped(cls.model_validate(value))
    except Exception as error:  # An upcaster may fail in any way at a shape it never expected.
        return UnknownEvent(type_name, schema_version, _lenient(text), reason=str(error))


def unreadable(payload: Payload, text: str) -> str | None:
    """Return why a product's own event would not be read back as it is, or None if it would.

    Lists and tuples count as equal: JSON has one kind.
    """
    name, cls = type(payload).__name__, class_of(payload.type)
    if cls is None or not isinstance(payload, cls):
        return f"{name} is not registered for its type: call register_event({name})"
    read = decode(payload.type, cls.schema_version, text)
    if isinstance(read, UnknownEvent):
        return f"it could not be read back; change its class: {read.reason}"
    for field in cls.model_fields:
        if not _same(getattr(payload, field), getattr(read, field)):
            return f"{field} would be read back as another value; change its class"
    return None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, BaseModel) and isinstance(other, BaseModel):
        return all(
            _same(getattr(one, each), getattr(other, each, None)) for each in type(one).model_fields
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def dumps(value: Any) -> str:
    """Return compact JSON text that both databases keep losslessly.

    Raises:
        InvalidEvent: The value holds NaN, an infinity, or a value that JSON cannot express.
    """
    try:
        text = _compact(value)
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(f"the value cannot be written as JSON: {error}") from error
    return text


def dumps_json(value: Any) -> str:
    """Return the same as `dumps`, several times as fast, for a value made of JSON's own types.

    Unlike `dumps`, it does not refuse other types.
    """
    try:
        text = to_json(value).decode()
    except PydanticSerializationError:  # lone surrogates, or nested too deeply for it
        return dumps(value)
    return dumps(value) if "NaN" in text or "Infinity" in text else text


def loads_json(text: str) -> Any:
    """Return the same as `loads`, several times as fast if no lone surrogate is escaped.

    Raises:
        InvalidEvent: The text is not JSON.
    """
    try:
        # Looking up values in a cache takes longer than creating them again.
        return from_json(text, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        return loads(text)


def loads(text: str | bytes) -> Any:
    """Return the value of a JSON text, strictly: NaN and infinities are not JSON.

    Raises:
        InvalidEvent: The text is not JSON.
    """
    try:
        return _STRICT.decode(text if isinstance(text, str) else text.decode())
    except RecursionError as error:
        raise InvalidEvent("the JSON is nested too deeply") from error
    except ValueError as error:
        raise InvalidEvent(f"the text is not JSON: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value; send null or a string instead")


_STRICT = json.JSONDecoder(parse_constant=_refuse)


def _lenient(text: str) -> Any:
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        return text
