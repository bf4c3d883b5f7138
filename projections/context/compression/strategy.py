"""Strategies: each defines the order in which a conversation loses detail, until it fits.

A strategy returns reductions, and never sees a budget. `projections.context.compression.reduction`
carries them out one by one, and stops as soon as all limits hold. So every strategy keeps within
the budget and never splits a group, and a larger budget never keeps less: it stops earlier in the
same list. A product registers its own strategy under the entry point group
``eventstore.compression``, or passes the object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, Protocol

from projections.context.compression.items import Item, Level
from projections.errors import InvalidSettings, UnknownStrategy

__all__ = [
    "ENTRY_POINTS",
    "Reduction",
    "Strategy",
    "interval",
    "options_of",
    "require_counts",
    "strategies",
    "strategy_of",
]


ENTRY_POINTS = "eventstore.compression"

# The strategies of this package, imported on first use.
_OWN = {
    "hybrid": "retrieval:Hybrid",
    "key_messages": "key_messages:KeyMessages",
    "retrieval": "retrieval:Retrieval",
    "llm_summary": "llm_summary:LlmSummary",
    "window": "level_of_detail:NewestGroups",
    "level_of_detail": "level_of_detail:LevelOfDetail",
}

_MEMBERS = ("name", "version", "reductions")

_LEAST = 64
_TOKENS = 64


class Reduction(NamedTuple):
    """One item loses detail.

    Attributes:
        item: The index of the item in the sequence that the strategy received.
        to: The level to reduce it to. A level that it has already passed changes nothing.
        fact: With ``to="facts"``, the index of a fact to remove from the digest; None to reduce the
            item to all of its facts.
        why: The reason in a few words, for the ledger.
    """

    item: int
    to: Level
    fact: int | None = None
    why: str = ""


class Strategy(Protocol):
    """Decides what loses detail first; the same items and intent always give the same list."""

    @property
    def name(self) -> str:
        """The name that selects the strategy; recorded with every request."""

    @property
    def version(self) -> int:
        """Must be raised whenever the strategy would return something different than before."""

    def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
        """Return the reductions in the order to carry them out; mandatory items ignore theirs.

        Args:
            items: The items, oldest first. The list must reduce every item that is not mandatory to
                ``dropped`` in the end; otherwise small budgets that could be met are rejected.
            intent: The text of the latest user message.
        """


def strategies() -> tuple[str, ...]:
    """Return the names of all strategies: this package's, then those of entry points, sorted."""
    others = (entry.name for entry in entry_points(group=ENTRY_POINTS))
    return tuple(dict.fromkeys((*_OWN, *sorted(others))))


def strategy_of(strategy: str | Strategy, **options: Any) -> Strategy:
    """Return the strategy of a name, or the strategy that was passed.

    Args:
        strategy: A strategy, or its name.
        options: The options to create a named strategy with.

    Raises:
        UnknownStrategy: No strategy of this name is registered, and the error lists those that are;
            or the registered one cannot be imported, and the error says why.
        InvalidSettings: The strategy does not take these options, or is not given by its name.
        TypeError: The object is not a strategy.
    """
    if not isinstance(strategy, str):
        # Much faster than `isinstance` with a protocol, and called for every request.
        if isinstance(strategy, type) or not all(hasattr(strategy, each) for each in _MEMBERS):
            raise TypeError(f"{strategy!r} is not a strategy, nor the name of one")
        if options:
            problem = f"the strategy {strategy.name!r} is an object that has its options already"
            raise InvalidSettings((f"{problem}: {', '.join(options)}",))
        return strategy
    found = _registered(strategy)
    if not isinstance(found, type):
        if options:
            raise InvalidSettings((f"the strategy {strategy!r} takes no options",))
        return strategy_of(found)
    try:
        made = found(**options)
    except (TypeError, ValueError) as error:
        raise InvalidSettings((f"the strategy {strategy!r}: {error}",)) from error
    return strategy_of(made)


def options_of(strategy: Strategy, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that create the same strategy again, as far as JSON can hold them.

    Args:
        strategy: The strategy. One of this package reports its own options; for any other, the
            result is ``given``.
        given: The options in the settings that name this strategy; empty if they name another.
    """
    if strategy.name in _OWN and type(strategy) is _registered(strategy.name):
        own: tuple[Field[Any], ...] = fields(strategy) if is_dataclass(strategy) else ()
        values = {each.name: getattr(strategy, each.name) for each in own}
        given = {each.name: values[each.name] for each in own if values[each.name] != each.default}
    return {name: value for name, value in given.items() if _is_json(value)}


def require_counts(**counts: int) -> None:
    """Check that options of a strategy are whole numbers from 0.

    Raises:
        ValueError: An option is not.
    """
    for name, number in counts.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ValueError(f"{name} must be a whole number from 0, not {number!r}")


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


@cache
def _registered(name: str) -> Any:
    if name in _OWN:
        module, _, made = _OWN[name].partition(":")
        return getattr(import_module(f"projections.context.compression.{module}"), made)
    entries = [each for each in entry_points(group=ENTRY_POINTS) if each.name == name]
    if not entries:
        raise UnknownStrategy(name, strategies())
    return _loaded(entries[0])


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        unknown = UnknownStrategy(entry.name, strategies())
        why = f"{type(error).__name__}: {error}"
        unknown.args = (f"strategy {entry.name!r} cannot be imported from {entry.value}: {why}",)
        raise unknown from error


def interval(max_tokens: int) -> int:
    """Return after how many groups a major step is due in any case: a power of two, by budget."""
    groups = _LEAST
    while groups * _TOKENS < max_tokens:
        groups *= 2
    return groups
