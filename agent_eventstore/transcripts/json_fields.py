"""Fields of foreign JSON objects: their values if they have the expected type.

Also the naming of a call, and the fields that an event does not hold, which its ``raw`` keeps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["FieldTypes", "as_text", "naming_of", "object_in", "text_at", "unheld", "whole_at"]


def object_in(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the object under a key, or an empty one."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def text_at(value: Any, key: str) -> str | None:
    """Return the text under a key of an object, or None."""
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else None


def as_text(value: Any) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def whole_at(value: Mapping[str, Any], key: str) -> int | None:
    """Return the count under a key, or None."""
    found = value.get(key)
    known = isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 2**31
    return found if known else None


FieldTypes = Mapping[str, type | tuple[type, ...]]
"""The fields of a record that an event holds, with the types of their values."""


def unheld(value: Mapping[str, Any], known_fields: FieldTypes) -> dict[str, Any]:
    """Return the fields that an event does not hold, for its ``raw``: others, or of other types."""
    return {
        key: each
        for key, each in value.items()
        if key not in known_fields or not (each is None or isinstance(each, known_fields[key]))
    }


def naming_of(value: Any, name: str, provider_id: str) -> tuple[str, str | None] | None:
    """Return the name and id of a call; None if the name, or an id that is there, is no text.

    Args:
        value: The call.
        name: The key of its name.
        provider_id: The key of its id.
    """
    named, stated = text_at(value, name), text_at(value, provider_id)
    if named is None or (stated is None and value.get(provider_id) is not None):
        return None
    return named, stated
