"""The cache of step plans between two reads; the plan of a step depends only on earlier rows.

A read that finds the plan of the last step here only reads newer rows. Correctness does not depend
on the cache: a plan is used only if none of its rows has changed, which the fold records in its
state, and without the cache the same plan is made again. `projections.context.row_cache` caches the
rows themselves by the same rule.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from eventstore.processes import in_child
from eventstore.sql.read import END
from projections.engine.heads import Head

if TYPE_CHECKING:
    from projections.context.plans import Step

__all__ = ["Folded", "KeptPlan", "PlanMemo", "Recent", "is_key", "touch"]

_MOST = 64  # values
_MOST_TOUCHED = 32
_PLANNED = 1 << 11  # bytes that a group of a cached plan is assumed to take, with its row's levels

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """The last step, and when it was computed.

    Attributes:
        head: The conversation's version when the step was computed.
        step: The step.
    """

    head: int
    step: Step

    @property
    def weight(self) -> int:
        """The memory that the step takes, in bytes."""
        return _PLANNED * (1 + len(self.step.before.groups))


class Recent(Generic[V]):
    """A least-recently-used cache with a total weight; safe to share between threads.

    Args:
        most: The most total weight.
        weigh: Returns the weight of a value; by default 1.

    Attributes:
        most: The most total weight.
    """

    def __init__(self, most: int = _MOST, weigh: Callable[[V], int] = lambda _: 1) -> None:
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self.most = most
        self._weigh = weigh
        self._weight = 0
        self._unlock()
        in_child(self._unlock)

    def _unlock(self) -> None:
        self._lock = Lock()

    def get(self, key: Hashable) -> V | None:
        """Return the cached value of a key, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def put(self, key: Hashable, value: V) -> None:
        """Cache a value, and discard the least recently used ones beyond the total weight.

        A value that exceeds it alone is not cached, and discards only the key's previous value.
        """
        weight = self._weigh(value)
        with self._lock:
            before = self._values.pop(key, None)
            self._weight -= 0 if before is None else self._weigh(before)
            if weight > self.most:
                return
            self._values[key] = value
            self._weight += weight
            while self._weight > self.most:
                self._weight -= self._weigh(self._values.popitem(last=False)[1])


@dataclass(frozen=True, slots=True)
class Folded:
    """How far a conversation is folded, as one read sees it.

    Attributes:
        version: The version of the last folded event.
        touched: The fold's record of later changes to rows; see `touch`.
    """

    version: int
    touched: list[list[int]]

    @classmethod
    def of(cls, head: Head) -> Folded:
        """Read it from the head of a conversation that is caught up."""
        try:
            return cls(head.version, head.state["touched"])
        except (LookupError, TypeError):
            # The state is damaged: assume that any row has changed. The next fold will fail.
            return cls(head.version, [[head.version, 1]])

    def oldest_since(self, version: int) -> int:
        """Return the version of the oldest row that was changed by events after a version."""
        return min((oldest for at, oldest in self.touched if at > version), default=END)


def is_key(value: object) -> bool:
    """Whether a value can be part of a key; a product's strategy may hold a list or a dict."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


class PlanMemo:
    """The cached plans of one conversation, within one read.

    Args:
        plans: The process's cache.
        owner: The key of the conversation, in a generation.
        folded: How far the read sees the conversation folded.
    """

    def __init__(self, plans: Recent[KeptPlan], owner: Hashable, folded: Folded) -> None:
        self._plans = plans
        self._owner = owner
        self._folded = folded

    def get(self, key: Hashable) -> Step | None:
        """Return the cached step of a key, if no row up to it has changed."""
        found = self._plans.get((self._owner, key))
        if found is None or self._folded.version < found.head:
            return None
        if self._folded.oldest_since(found.head) <= found.step.place[0]:
            return None
        # The fold merges old entries of ``touched``: from now on, only later changes matter.
        self.put(key, found.step)
        return found.step

    def put(self, key: Hashable, step: Step) -> None:
        """Cache a step."""
        self._plans.put((self._owner, key), KeptPlan(self._folded.version, step))


def touch(touched: list[list[int]], version: int, oldest: int) -> list[list[int]]:
    """Record that the event at a version changed rows, the oldest of them at version ``oldest``.

    Keeps, newest last, only the changes that reach further back than all later ones. If there are
    too many, the two oldest are merged into one that reaches as far back as either.
    """
    kept = [each for each in touched if each[1] < oldest]
    kept.append([version, oldest])
    if len(kept) > _MOST_TOUCHED:
        first, second, *rest = kept
        kept = [[second[0], first[1]], *rest]
    return kept
