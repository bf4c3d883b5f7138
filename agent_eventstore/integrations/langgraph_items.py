"""The items in a namespace of LangGraph's long-term memory, and matching of filters and paths.

Pure functions, and a fold of the namespace's events.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from langgraph.store.base import MatchCondition

from agent_eventstore.integrations.langgraph_events import LanggraphItem
from eventstore import RecordedEvent
from eventstore.events.codec import dumps_json, loads_json

__all__ = ["Held", "Items", "Namespace", "at_path", "fields_of", "fits", "fulfils"]

Namespace = tuple[str, ...]


class Held(NamedTuple):
    """An item: the version of its event, its JSON, and when it was first and last put."""

    version: int
    text: str
    created_at: datetime
    updated_at: datetime


class Items:
    """The items of a namespace by key, up to a version."""

    def __init__(self) -> None:
        self.version, self.chain = 0, b""
        self.held: dict[str, Held] = {}
        self.size = 0  # of the items' JSON, in characters

    def fold(self, event: RecordedEvent) -> None:
        """Fold the next event."""
        self.version, self.chain, data = event.version, event.chain, event.data
        if isinstance(data, LanggraphItem):
            before, at = self.held.pop(data.key, None), event.recorded_at
            self.size -= 0 if before is None else len(before.text)
            if data.value is not None:
                created = at if before is None else before.created_at
                text = dumps_json(data.value)
                self.size += len(text)
                self.held[data.key] = Held(event.version, text, created, at)


def fields_of(namespace: Namespace, key: str, held: Held) -> dict[str, Any]:
    """Return the fields of an `Item`; its value is a new copy."""
    return {
        "namespace": namespace,
        "key": key,
        "value": loads_json(held.text),
        "created_at": held.created_at,
        "updated_at": held.updated_at,
    }


def at_path(value: Any, path: str) -> Any:
    """Return an object's value for a name; ``a.b`` is also the value of ``b`` in ``a``."""
    if isinstance(value, dict) and path not in value and "." in path:
        first, _, rest = path.partition(".")
        return at_path(value.get(first), rest)
    return value.get(path) if isinstance(value, dict) else None


def fits(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    """Whether a namespace begins or ends with a path, in which ``*`` matches any label."""
    size = len(condition.path)
    begin = 0 if condition.match_type == "prefix" else max(len(namespace) - size, 0)
    part = namespace[begin : begin + size]
    return len(part) == size and all(
        wanted in ("*", label) for wanted, label in zip(condition.path, part, strict=True)
    )


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, wanted: bool(value == wanted),
    "$ne": lambda value, wanted: bool(value != wanted),
    "$gt": lambda value, wanted: bool(value > wanted),
    "$gte": lambda value, wanted: bool(value >= wanted),
    "$lt": lambda value, wanted: bool(value < wanted),
    "$lte": lambda value, wanted: bool(value <= wanted),
}


def fulfils(value: Any, wanted: Any) -> bool:
    """Whether a value matches a filter: equal, by operators, or field by field for an object.

    Raises:
        ValueError: The filter contains an unknown operator.
    """
    if isinstance(wanted, dict) and any(name.startswith("$") for name in wanted):
        for name in wanted:
            if name not in _OPERATORS:
                raise ValueError(f"unknown filter operator {name}: use one of {[*_OPERATORS]}")
        try:
            return all(_OPERATORS[name](value, each) for name, each in wanted.items())
        except TypeError:  # values of different types cannot be ordered
            return False
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(fulfils(value.get(k), v) for k, v in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(map(fulfils, value, wanted))
        )
    return bool(value == wanted)
