"""How pieces of a JSON object that a stream brings one by one become one object."""

from __future__ import annotations

from typing import Any

from eventstore.events.base import JsonObject

__all__ = ["merged", "told"]

_NAMES = frozenset({"format", "id", "index", "name", "role", "signature", "type"})
"""Fields whose text is a whole, and no piece of a longer one."""


def told(fields: JsonObject, known: frozenset[str]) -> JsonObject:
    """Return the fields that are not among the known ones and say something."""
    return {
        key: value
        for key, value in fields.items()
        if key not in known and value is not None and value not in ("", [], {})
    }


def merged(whole: JsonObject, piece: JsonObject) -> JsonObject:
    """Return an object with a piece added: texts grow, lists too, by ``index`` where they have one.

    Numbers, names and ids are replaced. Neither argument is changed.
    """
    found = dict(whole)
    for key, value in piece.items():
        found[key] = value if key in _NAMES else _joined(found.get(key), value)
    return found


def _joined(old: Any, new: Any) -> Any:
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(old, dict) and isinstance(new, dict):
        return merged(old, new)
    if isinstance(old, list | None) and isinstance(new, list):
        found = list(old or ())
        for item in new:
            _place(found, item)
        return found
    return old if new is None else new


def _place(items: list[Any], item: Any) -> None:
    index = item.get("index") if isinstance(item, dict) else None
    for at, other in enumerate(items) if index is not None else ():
        same = isinstance(other, dict) and other.get("index") == index
        if same and other.get("type") == item.get("type"):
            items[at] = merged(other, item)
            return
    items.append(item)
