"""What a step came to, kept between two reads: it follows from the rows before it alone.

A read that finds the plan of the last step here looks only at what was said since. Correctness does
not rest on it: a plan is taken only if no row that it was made of has changed, which the fold notes
in its state, and without it the same plan is made again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING
from uuid import UUID

from sqlalchemy import Connection

from projections import heads
from projections.generations import Generation

if TYPE_CHECKING:
    from projections.context.planning import Plan

__all__ = ["KeptPlan", "PlanMemo", "Plans", "touch"]

_MOST = 64  # plans; each holds up to some hundred rows
_MOST_TOUCHED = 32


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """The plan of a step.

    Attributes:
        head: The version of the conversation that it was made at.
        step: The place of the group with which the step fell.
        ordinal: The number of that group; None if it has none.
        before: What became of the groups that the step has covered.
        covered: The place of the newest of these.
    """

    head: int
    step: tuple[int, int]
    ordinal: int | None
    before: Plan
    covered: tuple[int, int]


class Plans:
    """The plans that a process remembers; safe to share between threads."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Hashable, KeptPlan] = OrderedDict()
        self._lock = Lock()

    def memo(self, connection: Connection, generation: Generation, stream: UUID) -> PlanMemo:
        """Return what is remembered of a conversation, as one read sees it."""
        return PlanMemo(self, connection, generation, stream)

    def get(self, key: Hashable) -> KeptPlan | None:
        """Return the plan of this key, if it is remembered."""
        with self._lock:
            found = self._plans.get(key)
            if found is not None:
                self._plans.move_to_end(key)
            return found

    def put(self, key: Hashable, plan: KeptPlan) -> None:
        """Remember a plan, and forget what was not asked for longest."""
        with self._lock:
            self._plans[key] = plan
            self._plans.move_to_end(key)
            while len(self._plans) > _MOST:
                self._plans.popitem(last=False)


class PlanMemo:
    """The plans of one conversation, within one read."""

    def __init__(
        self, plans: Plans, connection: Connection, generation: Generation, stream: UUID
    ) -> None:
        self._plans = plans
        self._connection = connection
        self._generation = generation
        self._stream = stream
        self._head: tuple[int, list[list[int]]] | None = None

    def get(self, key: Hashable) -> KeptPlan | None:
        """Return the plan of this key, if nothing up to its step has changed."""
        found = self._plans.get(self._own(key))
        if found is None:
            return None
        version, touched = self._now()
        if version < found.head or _oldest_since(touched, found.head) <= found.step[0]:
            return None
        return found

    def put(
        self,
        key: Hashable,
        step: tuple[int, int],
        ordinal: int | None,
        before: Plan,
        covered: tuple[int, int],
    ) -> None:
        """Remember a plan."""
        kept = KeptPlan(self._now()[0], step, ordinal, before, covered)
        self._plans.put(self._own(key), kept)

    def _own(self, key: Hashable) -> Hashable:
        return (self._stream, self._generation.number, key)

    def _now(self) -> tuple[int, list[list[int]]]:
        if self._head is None:
            found = heads.read(self._connection, [self._generation], self._stream)
            head = next(iter(found.values()))
            self._head = head.version, head.state["touched"]
        return self._head


def touch(touched: list[list[int]], version: int, oldest: int) -> list[list[int]]:
    """Note that the event at a version has changed rows, the oldest of which stands at ``oldest``.

    Kept are, newest last, the changes that reach further back than all later ones. When there are
    too many, the two oldest become one that reaches as far back as either.
    """
    kept = [each for each in touched if each[1] < oldest]
    kept.append([version, oldest])
    if len(kept) > _MOST_TOUCHED:
        first, second, *rest = kept
        kept = [[second[0], first[1]], *rest]
    return kept


def _oldest_since(touched: list[list[int]], head: int) -> int:
    """Return the place of the oldest row that was changed after a head."""
    return min((oldest for version, oldest in touched if version > head), default=1 << 62)
