"""A cache of recently read conversations, so that they are not read and built again.

A framework's objects are cached pickled: each reader gets its own copies, in a third of the time
that validating them takes. Only data that this process has pickled is ever unpickled.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from threading import Lock
from typing import Any, Generic, TypeVar
from uuid import UUID

__all__ = ["ConversationMemory", "Objects"]

T = TypeVar("T")
_GROUP = 8  # objects pickled together
_MOST_BYTES = 32 * 2**20
_NOTHING = None, 0


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects in order, pickled in groups.

    Attributes:
        groups: The number of objects in each group, and the group's pickle.
    """

    groups: tuple[tuple[int, bytes], ...] = ()

    @property
    def count(self) -> int:
        """The number of objects."""
        return sum(count for count, _ in self.groups)

    @property
    def size(self) -> int:
        """The size of the pickles in bytes."""
        return sum(len(data) for _, data in self.groups)

    def newest(self, limit: int | None = None) -> list[Any]:
        """Return the newest objects in order; all of them without a limit."""
        found: list[list[Any]] = []
        for _, data in reversed(self.groups):
            if limit is not None and limit <= sum(map(len, found)):
                break
            found.append(pickle.loads(data))  # noqa: S301 - pickled by this process
        objects = [*chain.from_iterable(reversed(found))]
        return objects if limit is None else objects[max(len(objects) - limit, 0) :]

    def followed_by(self, objects: Sequence[Any]) -> Objects:
        """Return these objects followed by more; small groups that fill a whole one are merged."""
        small = [*takewhile(lambda group: group[0] < _GROUP, reversed(self.groups))]
        groups = self.groups
        if small and sum(count for count, _ in small) + len(objects) >= _GROUP:
            groups = groups[: -len(small)]
            objects = [*Objects((*reversed(small),)).newest(), *objects]
        places = range(0, len(objects), _GROUP)
        made = [objects[place : place + _GROUP] for place in places]
        return Objects((*groups, *((len(each), pickle.dumps(each, 5)) for each in made)))

    def first(self, count: int) -> Objects:
        """Return the first ``count`` objects."""
        found, left = list[tuple[int, bytes]](), count
        for group in self.groups:
            if group[0] > left:
                return Objects((*found,)).followed_by(Objects((group,)).newest()[:left])
            found.append(group)
            left -= group[0]
        return self


class ConversationMemory(Generic[T]):
    """A cache of the ``most`` most recently kept conversations, of at most 32 MiB.

    With ``newest``, the newest entry stays even if it is larger: for states that each call needs as
    a whole, so that not every call has to read it again.
    """

    def __init__(self, most: int = 64, *, newest: bool = False) -> None:
        self._most, self._least = most, int(newest)
        self._known: dict[UUID | str, tuple[T, int]] = {}
        self._read_once: dict[UUID, None] = {}
        self._lock = Lock()
        self._size = 0

    def get(self, stream: UUID | str) -> T | None:
        """Return a conversation's cached state, or None."""
        found = self._known.get(stream)
        return None if found is None else found[0]

    def keep(self, stream: UUID | str, known: T, size: int | None) -> None:
        """Cache a conversation's state as the newest entry, and evict the oldest ones.

        Args:
            stream: The conversation's id or key.
            known: Its state.
            size: The size of the state in bytes, exact or estimated; None if it is unchanged.
        """
        with self._lock:
            before = self._known.pop(stream, _NOTHING)[1]
            size = before if size is None else size
            self._size += size - before
            self._known[stream] = known, size
            while len(self._known) > self._least and self._is_full:
                self._size -= self._known.pop(next(iter(self._known)))[1]

    @property
    def _is_full(self) -> bool:
        return self._size > _MOST_BYTES or len(self._known) > self._most

    def has_changed(self, stream: UUID) -> bool:
        """Return whether a conversation was read before; the first call returns False.

        What is read only once is not worth pickling, and evicts nothing.
        """
        with self._lock:
            if stream in self._known or stream in self._read_once:
                return True
            self._read_once[stream] = None
            if len(self._read_once) > self._most:
                del self._read_once[next(iter(self._read_once))]
            return False

    def take(self, stream: UUID | str) -> T | None:
        """Remove a conversation from the cache and return its state."""
        with self._lock:
            known, size = self._known.pop(stream, _NOTHING)
            self._size -= size
        return known
