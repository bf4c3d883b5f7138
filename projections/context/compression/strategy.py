"""What a strategy is: an order in which a conversation loses detail, until it fits.

A strategy answers with reductions, and never sees a budget.
`projections.context.compression.reduction` carries them out one after the other and stops at the
first moment when all limits hold. So every strategy keeps within the budget, never breaks a group,
and a larger budget never keeps less: it stops earlier in the same list. A product registers its
own under the entry point group ``eventstore.compression``, or gives the object itself.
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

# Of this package, imported when they are asked for.
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
    """One item loses detail.

    Attributes:
        item: Its index in the sequence that the strategy was given.
        to: The level that it comes down to. One that it has already passed changes nothing.
        fact: With ``to="facts"``, the index of a fact that leaves the digest; None to come
            down to all of its facts.
        why: In a few words, for the ledger.
    """

    item: int
    to: Level
    fact: int | None = None
    why: str = ""


@runtime_checkable
class Strategy(Protocol):
    """Decides what goes first. Deterministic: same items and intent, same reductions, for ever."""

    @property
    def name(self) -> str:
        """By which it is chosen; recorded with every request."""

    @property
    def version(self) -> int:
        """Raised whenever it would answer otherwise than before."""

    def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
        """Return the reductions, first to go first; those of mandatory items do nothing.

        Args:
            items: Oldest first. Every item that is not mandatory should come down to ``dropped``
                at the end of the list, or a small budget is refused that could be held.
            intent: The text of the latest user message.
        """


def strategies() -> tuple[str, ...]:
    """Return the names of all strategies: those of this package, then those of entry points."""
    others = (entry.name for entry in entry_points(group=ENTRY_POINTS))
    return tuple(dict.fromkeys((*_OWN, *sorted(others))))


def strategy_of(strategy: str | Strategy, **options: Any) -> Strategy:
    """Return a strategy, by name or as it is given.

    Args:
        strategy: Its name, or the strategy itself.
        options: What a strategy that was named is made with.

    Raises:
        UnknownStrategy: None of this name is registered, and it names those that are; or what is
            registered cannot be imported, and it says why.
        InvalidSettings: The strategy does not take these options.
        TypeError: It is not a strategy.
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
    """Return what a strategy must be made with to be the same again, as far as JSON can hold it.

    Args:
        strategy: One of this package tells its own options, another those that it was given.
        given: The options of the settings that name it; empty if they name another.
    """
    if strategy.name in _OWN and type(strategy) is _registered(strategy.name):
        own: tuple[Field[Any], ...] = fields(strategy) if is_dataclass(strategy) else ()
        held = {each.name: getattr(strategy, each.name) for each in own}
        given = {each.name: held[each.name] for each in own if held[each.name] != each.default}
    return {name: value for name, value in given.items() if _is_json(value)}


def require_counts(**counts: int) -> None:
    """Refuse options of a strategy that are no numbers from 0.

    Raises:
        ValueError: One is none.
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
    """Return after how many groups a step falls in any case: a power of two, by the budget."""
    groups = _LEAST
    while groups * _TOKENS < max_tokens:
        groups *= 2
    return groups
