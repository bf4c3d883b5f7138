"""Cache of a conversation's newest rows between two reads: a read fetches only newer ones.

Correctness does not depend on it. Cached rows are used only up to the first row that has changed,
which the fold records in its state (see `projections.context.plan_cache`); newer rows are read
again.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from operator import attrgetter
from threading import Lock
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, Pool

from eventstore.sql.backend import AnyConnection
from eventstore.sql.read import chain_at
from projections.context.plan_cache import Folded, KeptPlan, PlanMemo, Recent
from projections.context.rows import ContextRow
from projections.context.source import RENDERED_FIRST, ContextHead, SqlRowSource, head_of, pending
from projections.context.state import Active
from projections.engine import heads
from projections.engine.generations import Generation

__all__ = ["KeptRows", "Memory", "RecentRows", "shared_memory"]

_MOST_NEW = 256  # rows read at once to update the cache
_FEW = 16  # rows with lasting content read at once to update the cache
_LEAST_KEPT = 256  # rows of a conversation kept, however large
_MOST_TOKENS = 400_000  # of a conversation's further rows: as much as the largest windows hold
_PLANNED = 1 << 11  # bytes counted for a group of a plan
_CONVERSATION = 1 << 12  # bytes counted for a conversation, in addition to its rows
_SEEN = 1 << 15  # bytes counted for the memory of a conversation's head
_UNSAVED = 1 << 11  # bytes counted for an unsaved row, in addition to its texts


@dataclass(frozen=True, slots=True)
class _Lasting:
    """The newest rows with lasting content before a version, up to a limit."""

    before: int
    limit: int
    rows: tuple[ContextRow, ...]


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows that a request was made from.

    Attributes:
        version: The version of the conversation at which they were read.
        apart: System part, notebook and standing summaries, in ascending order.
        first_user: The oldest user row.
        latest_users: The two newest user rows, newest first.
        error: The newest visible error row.
        newest: The visible rows, newest first, without a gap.
        all_read: Whether these are all visible rows.
        lasting: The rows with lasting content that were last read.
        weight: Its size in the cache, in bytes.
    """

    version: int
    apart: tuple[ContextRow, ...]
    first_user: ContextRow | None
    latest_users: tuple[ContextRow, ...]
    error: ContextRow | None
    newest: tuple[ContextRow, ...] = ()
    all_read: bool = False
    lasting: _Lasting | None = None
    weight: int = 0


class RecentRows:
    """A `RowSource` over another one, which it reads only for rows that are not cached.

    Args:
        source: The current rows.
        memory: The process's cache.
        owner: The key of the rows: the conversation, in a generation.
        folded: How far the source is folded.
    """

    def __init__(
        self, source: SqlRowSource, memory: Recent[KeptRows], owner: Hashable, folded: Folded
    ) -> None:
        self._source = source
        # Rows read for a strategy that retrieves are not cached.
        self.rows_at, self.rows_around = source.rows_at, source.rows_around
        self.search = source.search
        self._memory = memory
        self._owner = owner
        self._start = _brought_up(memory.get(owner), source, folded) or _anew(source, folded)
        self._newest = list(self._start.newest)
        self._all_read = self._start.all_read
        self._lasting = self._start.lasting

    def head(self) -> ContextHead:
        """Return the system part, the summaries, and the oldest user row that is not hidden."""
        first = self._start.first_user
        return head_of(self._start.apart, () if first is None else (first,))

    def latest_user(self) -> ContextRow | None:
        """Return the newest user row that is not hidden, whether summarised or not."""
        return next(iter(self._start.latest_users), None)

    def latest_error(self) -> ContextRow | None:
        """Return the newest visible error row, if it is newer than the latest user row but one."""
        return pending(self._start.latest_users, self._start.error)

    def newest(self, page: int) -> Iterator[ContextRow]:
        """Yield the visible rows in descending order; uncached ones are read in pages."""
        place = 0
        while True:
            yield from islice(self._newest, place, None)  # including rows added meanwhile
            if self._all_read:
                return
            place = len(self._newest)
            more = self._source.page(page, self._newest[-1].key if self._newest else None)
            self._newest += more
            self._all_read = len(more) < page

    def lasting(self, before: int, limit: int) -> Sequence[ContextRow]:
        """Return the newest visible rows with lasting content before a version.

        The rows before the last requested version are cached.
        """
        kept = self._lasting
        if kept is None or kept.limit != limit or before < kept.before:
            rows = self._source.lasting(before, limit)
        else:
            rows = self._lasting_since(kept, before)
        self._lasting = _Lasting(before, limit, tuple(rows))
        return rows

    def _lasting_since(self, kept: _Lasting, before: int) -> list[ContextRow]:
        rows = self._lasting_between(kept.before, before)
        if rows is not None:
            return [*rows, *kept.rows][: kept.limit]
        rows = []
        while before > kept.before and len(rows) < kept.limit:
            page = self._source.lasting(before, _FEW)
            rows += (row for row in page if row.version >= kept.before)
            before = page[-1].version if len(page) == _FEW else 0
        return [*rows, *kept.rows][: kept.limit]

    def _lasting_between(self, first: int, before: int) -> list[ContextRow] | None:
        """Return the rows from a version on; None if not all rows since then are available."""
        if not (self._all_read or (self._newest and self._newest[-1].version < first)):
            return None
        place = bisect_left(self._newest, 1 - before, key=lambda row: -row.version)
        since = takewhile(lambda row: row.version >= first, islice(self._newest, place, None))
        return [row for row in since if row.lasting is not None]

    def keep(self) -> None:
        """Store the rows that were read in the cache."""
        start, lasting = self._start, self._lasting
        kept, weight = _as_many_as_fit(self._newest, self._memory.most // 2)
        newest = tuple(self._newest[:kept])
        all_read = self._all_read and kept == len(self._newest)
        besides = (*start.apart, *(() if lasting is None else lasting.rows))
        weight += sum(map(_bytes, besides), _CONVERSATION)
        self._memory.put(
            self._owner,
            replace(start, newest=newest, all_read=all_read, lasting=lasting, weight=weight),
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """A conversation's head at the last request, and an identifier of the log it belonged to.

    Also what was active there, if requested.
    """

    head: heads.Head
    log: object
    active: Active | None
    weight: int


class Memory:
    """What a process caches of conversations from one request to the next.

    The cache is valid for one state of the log. If the event at the last request is missing or
    different, because the database has gone back to an older state, it is discarded.

    Attributes:
        has_levels: Whether the table of lower levels existed at the last request that checked.
    """

    has_levels = False

    def __init__(self, most: int) -> None:
        """Cache about this many bytes of rows, and plans of them; 0 disables the cache."""
        if most < 0:
            raise ValueError(f"memory_bytes is {most}: give a number of bytes, or 0 for none")
        self._plans: Recent[KeptPlan] = Recent(most // _PLANNED, lambda kept: kept.weight)
        self._rows: Recent[KeptRows] = Recent(most, lambda kept: kept.weight)
        self._seen: Recent[_Seen] = Recent(most, lambda seen: seen.weight)
        self._lock = Lock()

    def head(self, stream: UUID) -> heads.Head | None:
        """Return a conversation's head at the last request."""
        seen = self._seen.get(stream)
        return None if seen is None else seen.head

    def active(self, stream: UUID, head: heads.Head | None) -> Active | None:
        """Return what was active at the last request, if since then only new rows were folded."""
        seen = self._seen.get(stream)
        if seen is None or head is None or head.unsaved is None:
            return None
        last = seen.head
        same = last.generation is head.generation and (last.version, last.chain) == head.before
        return seen.active if same else None

    def of(
        self,
        rows: SqlRowSource,
        connection: AnyConnection,
        generation: Generation,
        stream: UUID,
        head: heads.Head | None = None,
        active: Active | None = None,
    ) -> tuple[RecentRows, PlanMemo]:
        """Return the cached rows and plans of a conversation, as seen by one read.

        Args:
            rows: The conversation's rows, without those kept out of the context.
            connection: In a transaction in which the conversation is caught up.
            generation: The generation of the rows.
            stream: The conversation.
            head: The conversation's head, if known.
            active: What is active there, to be cached.
        """
        if head is None:
            [head] = heads.read(connection, [generation], stream).values()
        seen = self._seen.get(stream)
        log = seen.log if seen and _still_there(connection, stream, seen.head, head) else object()
        with self._lock:
            newest = self._seen.get(stream)
            # Another thread's request may have got further.
            if newest is None or newest.log is not log or newest.head.version <= head.version:
                self._seen.put(stream, _Seen(head, log, active, _SEEN + _held(head)))
        owner, folded = (stream, generation.number, log), Folded.of(head)
        return RecentRows(rows, self._rows, owner, folded), PlanMemo(self._plans, owner, folded)


_SHARED: WeakKeyDictionary[Pool, dict[int, Memory]] = WeakKeyDictionary()
if hasattr(os, "register_at_fork"):  # Another thread of the parent may have held a lock.
    os.register_at_fork(after_in_child=_SHARED.clear)


def shared_memory(engine: Engine, most: int) -> Memory:
    """Return the cache shared by all conversations of a store, whatever owner it is bound to.

    Stores made from the same engine share it too, if they have the same number of bytes.
    """
    return _SHARED.setdefault(engine.pool, {}).setdefault(most, Memory(most))


def _still_there(
    connection: AnyConnection, stream: UUID, last: heads.Head, now: heads.Head
) -> bool:
    """Whether the log still has the event at which the last request was made."""
    known = dict([now.before or (now.version, now.chain), (now.version, now.chain)])
    chain = known.get(last.version) or chain_at(connection, stream, last.version)
    return chain is not None and chain == last.chain


def _anew(source: SqlRowSource, folded: Folded) -> KeptRows:
    apart, first = source.apart(), source.oldest_user()
    users, error = tuple(source.latest_users()), source.newest_error()
    return KeptRows(folded.version, tuple(apart), first, users, error)


def _brought_up(kept: KeptRows | None, source: SqlRowSource, folded: Folded) -> KeptRows | None:
    """Return updated cached rows; None if too much has changed since."""
    if kept is None or folded.version < kept.version:
        return None
    # Everything up to here is unchanged.
    until = min(kept.version, folded.oldest_since(kept.version) - 1)
    if until == folded.version:
        return kept
    older = kept.newest[bisect_left(kept.newest, -until, key=lambda row: -row.version) :]
    if not (older or kept.all_read):
        return None
    rows = source.shown_since(until, _MOST_NEW)
    if len(rows) == _MOST_NEW:
        return None
    users = [row for row in rows if row.kind == "user"]
    first, error = _up_to(until, kept.first_user), _up_to(until, kept.error)
    latest = [*users, *(row for row in kept.latest_users if row.version <= until)][:2]
    errors = [row for row in rows if row.kind == "error" and row.summarised_by is None]
    if len(latest) < len(kept.latest_users) or (kept.error and not (error or errors)):
        return None  # The latest one is now another, possibly far back.
    standing = [row for row in rows if row.summarised_by is None]
    visible = [row for row in standing if row.kind not in RENDERED_FIRST]
    apart = [row for row in kept.apart if row.version <= until]
    apart += [row for row in rows if row.kind in RENDERED_FIRST]
    apart += [row for row in standing if row.kind == "summary"]
    return KeptRows(
        folded.version,
        tuple(sorted(apart, key=lambda row: row.key)),
        first or (users[-1] if users else None),
        tuple(latest),
        errors[0] if errors else error,
        (*visible, *older),
        kept.all_read,
        kept.lasting if kept.lasting and kept.lasting.before <= until + 1 else None,
    )


def _as_many_as_fit(rows: Sequence[ContextRow], most: int) -> tuple[int, int]:
    """Return how many of a conversation's newest rows are kept, and their size in bytes.

    At most ``most``.
    """
    held = sum(map(_bytes, rows))
    if held <= most and sum(map(_tokens, rows)) <= _MOST_TOKENS:
        return len(rows), held
    tokens = held = 0
    for place, row in enumerate(rows):
        tokens += row.tokens
        size = _bytes(row)
        if held + size > most or (tokens > _MOST_TOKENS and place >= _LEAST_KEPT):
            return place, held
        held += size
    return len(rows), held


def _held(head: heads.Head) -> int:
    """Return the approximate size in bytes of a head's unsaved rows."""
    rows = () if head.unsaved is None else head.unsaved.rows.values()
    return sum(_UNSAVED + 2 * _letters(row.get("message")) for row in rows)


def _letters(value: Any) -> int:
    """Return the total length of the texts in a JSON value, in characters."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        value = value.values()
    return sum(map(_letters, value)) if isinstance(value, Iterable) else 0


_bytes, _tokens = attrgetter("bytes"), attrgetter("tokens")


def _up_to(version: int, row: ContextRow | None) -> ContextRow | None:
    return row if row is not None and row.version <= version else None
