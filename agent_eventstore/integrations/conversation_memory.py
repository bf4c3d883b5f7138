"""What was read of conversations lately, in memory: it is neither read nor built again.

A framework's objects are kept pickled: each reader gets objects of its own, in a third of the time
that validating them takes. Only what this process has made itself is ever unpickled.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from threading import Lock
from typing import Any, Generic, TypeVar
from uuid import UUID

__all__ = ["Memory", "Objects"]

T = TypeVar("T")
_GROUP = 8  # objects that are pickled together
_MOST_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects in order, pickled by groups.

    Attributes:
        groups: How many objects are in each group, and the group.
    """

    groups: tuple[tuple[int, bytes], ...] = ()

    @property
    def count(self) -> int:
        """How many objects there are."""
        return sum(count for count, _ in self.groups)

    @property
    def size(self) -> int:
        """The bytes that they take."""
        return sum(len(data) for _, data in self.groups)

    def newest(self, limit: int | None = None) -> list[Any]:
        """Return the newest objects, in order, or all of them."""
        found: list[list[Any]] = []
        for _, data in reversed(self.groups):
            if limit is not None and limit <= sum(map(len, found)):
                break
            found.append(pickle.loads(data))  # noqa: S301 - pickled by this process
        objects = [*chain.from_iterable(reversed(found))]
        return objects if limit is None else objects[max(len(objects) - limit, 0) :]

    def followed_by(self, objects: Sequence[Any]) -> Objects:
        """Return these objects and more; small groups become one when they are enough for it."""
        small = [*takewhile(lambda group: group[0] < _GROUP, reversed(self.groups))]
        kept = self.groups
        if small and sum(count for count, _ in small) + len(objects) >= _GROUP:
            kept = kept[: -len(small)]
            objects = [*Objects((*reversed(small),)).newest(), *objects]
        places = range(0, len(objects), _GROUP)
        made = [objects[place : place + _GROUP] for place in places]
        return Objects((*kept, *((len(each), pickle.dumps(each, 5)) for each in made)))

    def first(self, count: int) -> Objects:
        """Return the first objects."""
        kept, left = list[tuple[int, bytes]](), count
        for group in self.groups:
            if group[0] > left:
                return Objects((*kept,)).followed_by(Objects((group,)).newest()[:left])
            kept.append(group)
            left -= group[0]
        return self


class Memory(Generic[T]):
    """What is known of the conversations that were read last: of ``most``, and 32 MiB."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._known: dict[UUID | str, tuple[T | None, int]] = {}
        self._lock = Lock()
        self._size = 0

    def get(self, stream: UUID | str) -> T | None:
        """Return what is known of a conversation."""
        found = self._known.get(stream)
        return None if found is None else found[0]

    def keep(self, stream: UUID | str, known: T | None, size: int | None = 0) -> None:
        """Keep what is known of a conversation as the newest, and let go of the oldest.

        Args:
            stream: The conversation, or its key.
            known: What is known of it.
            size: The bytes that this takes, or about as many; None if it takes what it did before.
        """
        with self._lock:
            before = self._known.pop(stream, (None, 0))[1]
            size = before if size is None else size
            self._size += size - before
            self._known[stream] = known, size
            while self._size > _MOST_BYTES or len(self._known) > self._most:
                self._size -= self._known.pop(next(iter(self._known)))[1]

    def asked_again(self, stream: UUID) -> bool:
        """Whether a conversation was read before: what is read once is not worth being pickled."""
        again = stream in self._known
        if not again:
            self.keep(stream, None)
        return again

    def take(self, stream: UUID | str) -> T | None:
        """Forget a conversation, and return what was known of it."""
        with self._lock:
            known, size = self._known.pop(stream, (None, 0))
            self._size -= size
        return known
