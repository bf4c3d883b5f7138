"""What a namespace of LangGraph's long-term memory holds, folded from its events, and what fits.

Pure: items and namespaces are looked for by paths and operators.
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
    """An item: the version of its event, its JSON, and when it was put first and last."""

    version: int
    text: str
    created_at: datetime
    updated_at: datetime


class Items:
    """What a namespace holds by key, up to a version."""

    def __init__(self) -> None:
        self.version, self.chain = 0, b""
        self.held: dict[str, Held] = {}

    def fold(self, event: RecordedEvent) -> None:
        """Take in what comes next."""
        self.version, self.chain, data = event.version, event.chain, event.data
        if isinstance(data, LanggraphItem):
            before, at = self.held.pop(data.key, None), event.recorded_at
            if data.value is not None:
                created = at if before is None else before.created_at
                text = dumps_json(data.value)
                self.held[data.key] = Held(event.version, text, created, at)


def fields_of(namespace: Namespace, key: str, held: Held) -> dict[str, Any]:
    """Return what an `Item` is made of; its value is the reader's own."""
    return {
        "namespace": namespace,
        "key": key,
        "value": loads_json(held.text),
        "created_at": held.created_at,
        "updated_at": held.updated_at,
    }


def at_path(value: Any, path: str) -> Any:
    """Return a value of an object by its name; ``a.b`` is also that of ``b`` in ``a``."""
    if isinstance(value, dict) and path not in value and "." in path:
        first, _, rest = path.partition(".")
        return at_path(value.get(first), rest)
    return value.get(path) if isinstance(value, dict) else None


def fits(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    """Whether a namespace begins or ends with a path, of which ``*`` is any label."""
    size = len(condition.path)
    part = namespace[:size] if condition.match_type == "prefix" else namespace[-size:]
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
    """Whether a value is what a filter wants: the same, or by operators; an object in parts."""
    if isinstance(wanted, dict) and any(name.startswith("$") for name in wanted):
        for name in wanted:
            if name not in _OPERATORS:
                raise ValueError(f"{name} is no operator of a filter: there are {[*_OPERATORS]}")
        try:
            return all(_OPERATORS[name](value, each) for name, each in wanted.items())
        except TypeError:  # values of different kinds have no order
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
