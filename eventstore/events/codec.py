r"""Payload to JSON text and back: the only place where payloads are encoded.

The text is what the database keeps and what the hash chain commits to, byte for byte. It is UTF-8
without escapes, but for texts that UTF-8 cannot carry: NUL is always ``\u0000``, and a payload
with a lone surrogate is written in ASCII escapes throughout, so that SQLite and PostgreSQL's
``json`` both keep it losslessly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from eventstore.errors import InvalidEvent
from eventstore.events.base import JsonObject, Payload
from eventstore.events.registry import REGISTRY, UPCASTERS, UnknownEvent

__all__ = ["decode", "dumps", "encode", "loads"]

_LOST = "\ufffd" * 3
"""What pydantic makes, without an error, of a lone surrogate in a key."""

Upcaster = Callable[[JsonObject], JsonObject]


def encode(payload: Payload | UnknownEvent) -> str:
    """Return the JSON text of a payload.

    Raises:
        InvalidEvent: It holds NaN, an infinity, or something that JSON cannot express.
    """
    if isinstance(payload, UnknownEvent):
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
    # In Python's mode, since pydantic's JSON mode loses lone surrogates in the keys of objects.
    return dumps(payload.model_dump(exclude_none=True))


def decode(
    type_name: str,
    schema_version: int,
    text: str,
    *,
    registry: Mapping[str, type[Payload]] | None = None,
    upcasters: Mapping[tuple[str, int], Upcaster] | None = None,
) -> Payload | UnknownEvent:
    """Return the payload that ``text`` stands for, upcast to the version that this code knows.

    A type or version from the future, and a payload that does not fit its class, come back as
    `UnknownEvent` with the JSON untouched: reading never fails on what somebody else wrote.
    """
    cls = (REGISTRY if registry is None else registry).get(type_name)
    if cls is None or schema_version > cls.schema_version:
        return UnknownEvent(type_name, schema_version, _lenient(text))
    try:
        if schema_version == cls.schema_version:
            try:
                return cls.model_validate_json(text)
            except ValidationError:
                # pydantic's JSON reader refuses lone surrogates; the standard library's does not.
                return cls.model_validate(json.loads(text))
        value = json.loads(text)
        for version in range(schema_version, cls.schema_version):
            value = (UPCASTERS if upcasters is None else upcasters)[type_name, version](value)
        return cls.model_validate(value)
    except (ValidationError, LookupError, TypeError, ValueError, RecursionError) as error:
        return UnknownEvent(type_name, schema_version, _lenient(text), reason=str(error))


def dumps(value: Any) -> str:
    """Return compact JSON text that both databases keep losslessly.

    Raises:
        InvalidEvent: The value holds NaN, an infinity, or something that JSON cannot express.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(f"the value cannot be written as JSON: {error}") from error
    return text


def loads(text: str | bytes) -> Any:
    """Return the value of a JSON text, strictly: NaN and infinities are no JSON.

    Raises:
        InvalidEvent: The text is no JSON.
    """
    try:
        return _STRICT.decode(text if isinstance(text, str) else text.decode())
    except RecursionError as error:
        raise InvalidEvent("the JSON is nested too deeply") from error
    except ValueError as error:
        raise InvalidEvent(f"the text is no JSON: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value; send null or a string instead")


_STRICT = json.JSONDecoder(parse_constant=_refuse)


def _lenient(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
