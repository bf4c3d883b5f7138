"""By what LangGraph looks for items, namespaces and checkpoints: paths and operators. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph.store.base import MatchCondition

__all__ = ["at_path", "fits", "fulfils"]


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
