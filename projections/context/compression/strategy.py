"""The interface of strategies: the order in which a conversation loses detail, until it fits.

A strategy returns reductions, and never sees a budget.
`projections.context.compression.reduction` carries them out one by one and stops when all limits
hold. So every strategy keeps the budget and never breaks a group, and a larger budget never keeps
less: it stops earlier in the same list. A product registers its own strategies under the entry
point group ``eventstore.compression``, or passes a strategy object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, Protocol, runtime_checkable

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

# The strategies of this package, imported on demand.
_OWN = {
    "level_of_detail": "level_of_detail:LevelOfDetail",
    "key_messages": "key_messages:KeyMessages",
    "live_summary": "level_of_detail:LiveSummary",
    "sliding_window": "level_of_detail:SlidingWindow",
    "retrieval": "retrieval:Retrieval",
    "hybrid": "retrieval:Hybrid",
    "llm_summary": "llm_summary:LlmSummary",
}

_LEAST = 64
_TOKENS = 64


class Reduction(NamedTuple):
    """A loss of detail of one item.

    Attributes:
        item: Its index in the sequence given to the strategy.
        to: The level to reduce it to; no effect if it is already at or below that level.
        fact: With ``to="facts"``, the index of a fact to drop from the digest; None to reduce the
            item to all of its facts.
        why: A short reason for the ledger.
    """

    item: int
    to: Level
    fact: int | None = None
    why: str = ""


@runtime_checkable
class Strategy(Protocol):
    """Decides the order of reductions; the same items and intent always give the same result."""

    @property
    def name(self) -> str:
        """The name that selects it; recorded with every request."""

    @property
    def version(self) -> int:
        """Must be raised whenever its reductions change."""

    def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
        """Return the reductions in order; those of mandatory items have no effect.

        Args:
            items: Oldest first. The list should end with reductions of every item that is not
                mandatory to ``dropped``; otherwise a feasible small budget may be rejected.
            intent: The text of the latest user message.
        """


def strategies() -> tuple[str, ...]:
    """Return the names of all strategies: this package's, then those of entry points."""
    others = (entry.name for entry in entry_points(group=ENTRY_POINTS))
    return tuple(dict.fromkeys((*_OWN, *sorted(others))))


def strategy_of(strategy: str | Strategy, **options: Any) -> Strategy:
    """Return the strategy with this name, or the given object.

    Args:
        strategy: A strategy or its name.
        options: The constructor's options, if it is given by name.

    Raises:
        UnknownStrategy: No strategy of this name is registered (the message lists those that are),
            or it cannot be imported (the message has the reason).
        InvalidSettings: The strategy does not accept these options.
        TypeError: The object is not a strategy.
    """
    if not isinstance(strategy, str):
        if isinstance(strategy, type) or not isinstance(strategy, Strategy):
            raise TypeError(f"{strategy!r} is not a strategy, nor the name of one")
        return strategy
    found = _registered(strategy)
    if not isinstance(found, type):
        if options:
            raise InvalidSettings((f"the strategy {strategy!r} takes no options",))
        made: Strategy = found
        return made
    try:
        made = found(**options)
    except (TypeError, ValueError) as error:
        raise InvalidSettings((f"the strategy {strategy!r}: {error}",)) from error
    return made


def options_of(strategy: Strategy, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that recreate a strategy, as far as JSON can express them.

    Args:
        strategy: One of this package has its own options, another one those given.
        given: The options in the settings that name it; empty if they name another strategy.
    """
    if strategy.name in _OWN and type(strategy) is _registered(strategy.name):
        own: tuple[Field[Any], ...] = fields(strategy) if is_dataclass(strategy) else ()
        held = {each.name: getattr(strategy, each.name) for each in own}
        given = {each.name: held[each.name] for each in own if held[each.name] != each.default}
    return {name: value for name, value in given.items() if _is_json(value)}


def require_counts(**counts: int) -> None:
    """Check that options of a strategy are whole numbers, at least 0.

    Raises:
        ValueError: An option is not.
    """
    for name, number in counts.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ValueError(f"{name} is a whole number from 0, not {number!r}")


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
    """Return the number of groups between two anchors: a power of two that grows with the budget.

    At each anchor, a history over its trigger has a major step; see `projections.context.planning`.
    """
    groups = _LEAST
    while groups * _TOKENS < max_tokens:
        groups *= 2
    return groups
