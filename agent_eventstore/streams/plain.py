"""Whatever a caller feeds, as plain JSON that the event store can keep.

SDK objects are asked for their fields (those which were set, as the provider sent them). What JSON
cannot express becomes text rather than an error: recording never breaks the product's own loop.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from enum import Enum
from typing import Any

__all__ = ["as_chunk", "attribute", "plain", "word"]

_DEEPEST = 100
"""Levels of nesting that every JSON reader on the way to the database accepts."""

_LONGEST_REPR = 1_000
_LARGEST_INT_BITS = 1_024


def as_chunk(chunk: Any) -> Any:
    """Return a chunk as plain JSON, be it an SDK's object, a dict or a line of an event stream.

    None stands for a line that says nothing, and ``[DONE]`` for itself.
    """
    value = plain(chunk)
    return plain(_from_line(value)) if isinstance(value, str) else value


def _from_line(text: str) -> Any:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith((":", "event:", "id:"))]
    data = "\n".join(line.removeprefix("data:").strip() for line in lines)
    if data in ("", "[DONE]"):
        return data or None
    try:
        value = json.loads(data) if data.startswith("{") else None
    except (ValueError, RecursionError):
        value = None
    return text if value is None else value


def attribute(value: Any, name: str) -> Any:
    """Return an attribute of a foreign object, or None where it has none or cannot give it."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def word(value: Any, name: str) -> str:
    """Return an attribute of a foreign object that is a text, or an empty one."""
    try:
        found = getattr(value, name, None)
        return str.__str__(found) if isinstance(found, str) else ""
    except Exception:
        return ""


def plain(value: Any) -> Any:
    """Return a value as plain JSON: cycles cut, what is no JSON as text."""
    return _plain(value, ())


def _plain(value: Any, path: tuple[int, ...]) -> Any:
    # By exact type first: that is nearly every value of nearly every chunk.
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    if kind is not dict and kind is not list:
        # Objects of a caller may raise whatever they like when they are looked at.
        try:
            scalar = _scalar(value)
        except Exception:
            return _described(value)
        if scalar is not None:
            return scalar
    if len(path) >= _DEEPEST or id(value) in path:
        return _described(value)
    return _container(value, (*path, id(value)))


def _scalar(value: Any) -> Any:
    if isinstance(value, Enum):
        return _scalar(value.value)
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _LARGEST_INT_BITS else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return value.isoformat() if isinstance(value, date | datetime) else None


def _container(value: Any, path: tuple[int, ...]) -> Any:
    try:
        if isinstance(value, Mapping):
            return {
                key if type(key) is str else _key(key): _plain(item, path)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [_plain(item, path) for item in value]
        fields = _fields(value)
    except Exception:
        fields = None
    return _described(value) if fields is None else _plain(fields, path)


def _fields(value: Any) -> Any:
    if isinstance(value, type):
        return None
    dump = attribute(value, "model_dump")
    if not callable(dump):
        dump = attribute(value, "to_dict")
        return dump() if callable(dump) else None
    try:
        return dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    except Exception:
        return dump()


def _key(key: Any) -> str:
    return str.__str__(key) if isinstance(key, str) else _described(key)


def _described(value: Any) -> str:
    try:
        return repr(value)[:_LONGEST_REPR]
    except Exception:
        return f"<{type(value).__name__}>"
