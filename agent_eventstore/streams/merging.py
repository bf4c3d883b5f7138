"""How pieces of a JSON object that a stream brings one by one become one object.

Texts grow, lists too, by ``index`` where their items have one; numbers, names and ids are replaced.
A piece costs what it is long, however much there is already.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from eventstore.events.base import JsonObject

__all__ = ["Growing", "told", "whole"]

_NAMES = frozenset({"format", "id", "index", "name", "role", "signature", "type"})
"""Fields whose text is a whole, and no piece of a longer one."""


def told(fields: JsonObject, known: frozenset[str]) -> JsonObject:
    """Return the fields that are not among the known ones and say something."""
    return {
        key: value
        for key, value in fields.items()
        if key not in known and value is not None and value not in ("", [], {})
    }


def whole(value: Any) -> Any:
    """Return a JSON value as it is, and of one that grows what it has come to."""
    return value.value() if isinstance(value, _Grown) else value


class _Grown:
    """A value that has been added to; what it was made of is never changed."""

    def value(self) -> Any:
        """Return it as plain JSON."""
        raise NotImplementedError


class Growing(_Grown):
    """An object to which pieces are added."""

    def __init__(self, start: JsonObject | None = None) -> None:
        self._fields: dict[str, Any] = dict(start or {})

    def __bool__(self) -> bool:
        """Whether it has any field."""
        return bool(self._fields)

    def add(self, piece: JsonObject) -> None:
        """Add a piece."""
        for key, value in piece.items():
            old = self._fields.get(key)
            self._fields[key] = value if key in _NAMES else _joined(old, value)

    def value(self) -> JsonObject:
        """Return the object as plain JSON."""
        return {key: whole(value) for key, value in self._fields.items()}


class _Text(_Grown):
    def __init__(self, *pieces: str) -> None:
        self.pieces = list(pieces)

    def value(self) -> str:
        return "".join(self.pieces)


class _Items(_Grown):
    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._items = list(items)
        self._places: dict[tuple[Hashable, Hashable], int] = {}
        for place, item in enumerate(self._items):
            self._places.setdefault(_named(item), place)

    def add(self, item: Any) -> None:
        name = _named(item)
        place = None if name[0] is None else self._places.get(name)
        if place is None:
            self._places.setdefault(name, len(self._items))
            self._items.append(item)
            return
        held = self._items[place]
        if not isinstance(held, Growing):
            held = self._items[place] = Growing(held)
        held.add(item)

    def value(self) -> list[Any]:
        return [whole(item) for item in self._items]


def _joined(old: Any, new: Any) -> Any:
    if isinstance(new, str) and isinstance(old, str | _Text):
        if isinstance(old, str):
            return _Text(old, new)
        old.pieces.append(new)
        return old
    if isinstance(new, dict) and isinstance(old, dict | Growing):
        grown = Growing(old) if isinstance(old, dict) else old
        grown.add(new)
        return grown
    if isinstance(new, list) and isinstance(old, list | _Items | None):
        items = old if isinstance(old, _Items) else _Items(old or ())
        for item in new:
            items.add(item)
        return items
    return old if new is None else new


def _named(item: Any) -> tuple[Hashable, Hashable]:
    """Return by what an item is known in its list; the first is None if by nothing."""
    if not isinstance(item, dict):
        return None, None
    index, kind = item.get("index"), item.get("type")
    hashable = (str, int, float, type(None))
    return (
        index if isinstance(index, hashable) else repr(index),
        kind if isinstance(kind, hashable) else repr(kind),
    )
