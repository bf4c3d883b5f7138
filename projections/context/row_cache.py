"""The cache of a conversation's newest rows: a read fetches only what is new since the last one.

Correctness does not depend on the cache. Cached rows are used up to the oldest one that has changed
since, which the fold records in its state (see `projections.context.row_cache`); newer rows are
read again.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from operator import attrgetter
from sys import intern
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, Pool

from eventstore.database import END, AnyConnection, chain_at
from eventstore.processes import in_child
from projections.context.compression.items import text_of
from projections.context.compression.search import Embedding, scores_among, terms
from projections.context.groups import groups_of
from projections.context.rows import ContextRow, Key, letters
from projections.context.source import RENDERED_FIRST, ContextHead, SqlRowSource, head_of, pending
from projections.context.state import Active
from projections.engine import heads
from projections.engine.generations import Generation
from projections.engine.heads import FoldHead

if TYPE_CHECKING:
    from projections.context.plans import PlanStep

__all__ = [
    "MOST_IN_MEMORY",
    "CachedPlan",
    "CachedRows",
    "Folded",
    "PlanMemo",
    "Recent",
    "RecentRows",
    "RowMemory",
    "is_key",
    "shared_memory",
    "touch",
]


_MOST = 64  # values


_MOST_TOUCHED = 32


_PLANNED = 1 << 11  # bytes that a group of a cached plan is assumed to take, with its row's levels


V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CachedPlan:
    """A result that depends only on the rows up to a version, such as the last step.

    Attributes:
        head: The conversation's version when it was computed.
        until: The version.
        value: The result.
        weight: The memory that it takes, in bytes.
    """

    head: int
    until: int
    value: Any
    weight: int


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
    def of(cls, head: FoldHead) -> Folded:
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

    def __init__(self, plans: Recent[CachedPlan], owner: Hashable, folded: Folded) -> None:
        self._plans = plans
        self._owner = owner
        self._folded = folded

    def get(self, key: Hashable) -> Any:
        """Return the cached result of a key, if no row that it depends on has changed."""
        found = self._plans.get((self._owner, key))
        if found is None or self._folded.version < found.head:
            return None
        if self._folded.oldest_since(found.head) <= found.until:
            return None
        # The fold merges old entries of ``touched``: from now on, only later changes matter.
        self._put(key, replace(found, head=self._folded.version))
        return found.value

    def put(self, key: Hashable, step: PlanStep) -> None:
        """Cache a step."""
        self.put_until(step.place[0], key, step, 1 + len(step.before.groups))

    def put_until(self, until: int, key: Hashable, value: Any, groups: int) -> None:
        """Cache a result of about so many groups that depends only on the rows up to a version."""
        self._put(key, CachedPlan(self._folded.version, until, value, _PLANNED * groups))

    def _put(self, key: Hashable, plan: CachedPlan) -> None:
        self._plans.put((self._owner, key), plan)


def touch(touched: list[list[int]], version: int, oldest: int) -> list[list[int]]:
    """Record that the event at a version changed rows, the oldest of them at version ``oldest``.

    Keeps, newest last, only the changes that reach further back than all later ones. If there are
    too many, the two oldest are merged into one that reaches as far back as either.
    """
    older = [each for each in touched if each[1] < oldest]
    older.append([version, oldest])
    if len(older) > _MOST_TOUCHED:
        first, second, *rest = older
        older = [[second[0], first[1]], *rest]
    return older


_MOST_NEW = 256  # rows; if more are new, all rows are read again


MOST_IN_MEMORY = 1_000
"""The most events of a conversation that is searched in memory; an index serves longer ones."""


_LONGEST_SEARCHED = 1 << 22  # bytes of its rows


_PAGE = 100  # rows


_WORD = 1 << 7  # bytes that the count of a term in a row is assumed to take


_FEW = 16  # rows with rules or identifiers, read at once to update cached ones


_LEAST_KEPT = 256  # rows of a conversation to keep, regardless of `_MOST_TOKENS`


_MOST_TOKENS = 400_000  # of one conversation's rows: as much as the largest windows hold


_CONVERSATION = 1 << 12  # bytes that a conversation takes in addition to its rows


_SEEN = 1 << 13  # bytes that a conversation's head takes in addition to the entries of its state


_ENTRY = 1 << 8  # bytes that an entry of the state is assumed to take, such as an open call


_UNSAVED = 1 << 11  # bytes that an unsaved row takes in addition to its texts


@dataclass(frozen=True, slots=True)
class _Lasting:
    """The newest ``limit`` rows or more before a version that contain rules or identifiers.

    ``complete`` says that there are no older ones.
    """

    before: int
    limit: int
    rows: tuple[ContextRow, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class CachedRows:
    """The cached rows of a conversation, from which a request was built.

    Attributes:
        version: The conversation's version when they were read.
        apart: System part, notebook and summaries in effect, in ascending order.
        first_user: The oldest user row.
        latest_users: The two newest user rows, newest first.
        error: The newest visible error row.
        newest: The visible rows, newest first, without a gap.
        all_read: Whether ``newest`` contains all visible rows.
        lasting: The rows with rules or identifiers that were last read.
        weight: The memory that these rows take, in bytes.
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
    """A `RowSource` with a cache; it reads from another source what is not cached.

    Args:
        source: The source of the current rows.
        memory: The process's cache.
        owner: The key of the conversation, in a generation.
        folded: How far the source is folded.
    """

    def __init__(
        self, source: SqlRowSource, memory: Recent[Any], owner: Hashable, folded: Folded
    ) -> None:
        self._source = source
        self.rows_at = source.rows_at
        self._memory = memory
        self._owner, self._folded = owner, folded
        self._start = _updated(memory.get(owner), source, folded) or _read_all(source, folded)
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
        """Return the newest visible error row, if newer than the second-latest user row."""
        return pending(self._start.latest_users, self._start.error)

    def newest(self, page: int) -> Iterator[ContextRow]:
        """Yield the visible rows in descending order; read uncached ones in pages."""
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
        """Return the newest visible rows before a version that contain rules or identifiers.

        The result of the last call is cached, and extended if ``before`` is later than then.
        """
        cached = self._lasting
        if cached is not None and cached.limit == limit and before < cached.before:
            older = [row for row in cached.rows if row.version < before]
            # Fewer rows than the limit are all that there are.
            if cached.complete or len(older) >= limit:
                return older[:limit]
        if cached is None or cached.limit != limit or before < cached.before:
            rows = self._source.lasting(before, limit)
            complete = len(rows) < limit
        else:
            rows = self._lasting_since(cached, before)
            complete = cached.complete and len(rows) < 2 * limit
        self._lasting = _Lasting(before, limit, tuple(rows), complete)
        return rows[:limit]

    def rows_around(self, versions: Sequence[int]) -> Sequence[ContextRow]:
        """Return the rows at these versions, and at the next version on either side of each."""
        newest, found = self._newest, set[int]()
        for version in versions:
            first = bisect_left(newest, -version, key=_age)
            last = bisect_right(newest, -version, key=_age)
            if last == len(newest) and not self._all_read:
                return self._source.rows_around(versions)
            found.update(row.version for row in newest[max(first - 1, 0) : last + 1])
        return [
            row
            for version in sorted(found, reverse=True)
            for row in takewhile(
                lambda row, at=version: row.version == at,  # type: ignore[misc]
                islice(newest, bisect_left(newest, -version, key=_age), None),
            )
        ]

    def search(
        self,
        intent: str,
        limit: int,
        *,
        until: Key | None = None,
        embedding: Embedding | None = None,
    ) -> Mapping[Key, float]:
        """Return the scores of the groups that answer an intent best.

        They are cached: all requests of a turn search for the same text, up to the same message.
        """
        if until is None:
            return self._source.search(intent, limit, embedding=embedding)
        memo = PlanMemo(self._memory, self._owner, self._folded)
        key = "search", intent, limit, until, None if embedding is None else embedding.name
        scores: Mapping[Key, float] | None = memo.get(key)
        if scores is None:
            if embedding is None and self._folded.version <= MOST_IN_MEMORY:
                scores = self._searched(intent, limit, until)
            if scores is None:
                scores = self._source.search(intent, limit, until=until, embedding=embedding)
            memo.put_until(until[0], key, scores, 1 + len(scores) // 8)
        return scores

    def _searched(self, intent: str, limit: int, until: Key) -> Mapping[Key, float] | None:
        """Search a short conversation in memory: faster than to bring an index up to date.

        None if its texts are long: to count their words takes longer than to look them up.
        """
        keys, counted, size = list[Key](), list[Counter[str]](), 0
        for group in groups_of(self.newest(_PAGE)):
            size += sum(map(_own_bytes, group))
            if size > _LONGEST_SEARCHED:
                return None
            if group[0].key <= until:
                keys.append(group[0].key)
                words = [*map(_words_of, group)]
                counted.append(words[0] if len(words) == 1 else sum(words, Counter[str]()))
        return scores_among(keys, counted, intent, limit)

    def _lasting_since(self, cached: _Lasting, before: int) -> list[ContextRow]:
        rows = self._lasting_between(cached.before, before)
        if rows is not None:
            return [*rows, *cached.rows][: 2 * cached.limit]
        rows = []
        while before > cached.before and len(rows) < cached.limit:
            page = self._source.lasting(before, _FEW)
            rows += (row for row in page if row.version >= cached.before)
            before = page[-1].version if len(page) == _FEW else 0
        # More than the limit, for a request that plans twice, up to different places.
        return [*rows, *cached.rows][: 2 * cached.limit]

    def _lasting_between(self, first: int, before: int) -> list[ContextRow] | None:
        """Return the cached rows in a range of versions, or None if part of it is not cached."""
        if not (self._all_read or (self._newest and self._newest[-1].version < first)):
            return None
        place = bisect_left(self._newest, 1 - before, key=_age)
        since = takewhile(lambda row: row.version >= first, islice(self._newest, place, None))
        return [row for row in since if row.lasting is not None]

    def keep(self) -> None:
        """Cache the rows that were read."""
        start, lasting = self._start, self._lasting
        fitting, weight = _as_many_as_fit(self._newest, self._memory.most // 2)
        newest = tuple(self._newest[:fitting])
        all_read = self._all_read and fitting == len(self._newest)
        extra = (*start.apart, *(() if lasting is None else lasting.rows))
        weight += sum(map(_bytes, extra), _CONVERSATION)
        self._memory.put(
            self._owner,
            replace(start, newest=newest, all_read=all_read, lasting=lasting, weight=weight),
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """A conversation's head at the last request.

    ``log`` identifies the log that it was read from: it changes when the database goes back to an
    older state. ``active`` is the conversation's mode and tool policy, if they were read.
    """

    head: heads.FoldHead
    log: object
    active: Active | None
    weight: int


class RowMemory:
    """The process's cache of conversations from one request to the next.

    Heads, rows and plans share one limit: what was not used for longest is discarded.

    If the event at the head of the last request no longer exists, or is a different one, because
    the database has gone back to an older state, the conversation's cached rows and plans are not
    used again.
    """

    def __init__(self, most: int) -> None:
        """Cache about ``most`` bytes; 0 caches nothing."""
        if most < 0:
            raise ValueError(f"memory_bytes is {most}: give bytes, or 0 for none")
        # Heads by their conversation, rows by its key in a generation, plans by that and their own.
        self._entries: Recent[Any] = Recent(most, attrgetter("weight"))
        self._unlock()
        in_child(self._unlock)

    def _unlock(self) -> None:
        self._lock = Lock()

    def head(self, stream: UUID) -> heads.FoldHead | None:
        """Return a conversation's head at the last request, or None if it is not cached."""
        seen = self._seen(stream)
        return None if seen is None else seen.head

    def _seen(self, stream: UUID) -> _Seen | None:
        return self._entries.get(stream)

    def active(self, stream: UUID, head: heads.FoldHead | None) -> Active | None:
        """Return mode and tool policy of the last request, if only new rows were folded since."""
        seen = self._seen(stream)
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
        head: heads.FoldHead | None = None,
        active: Active | None = None,
    ) -> tuple[RecentRows, PlanMemo]:
        """Return the cached rows and plans of a conversation, for one read.

        Args:
            rows: The conversation's rows, without those that were kept out of the context.
            connection: A connection in a transaction in which the conversation is caught up.
            generation: The generation of the rows.
            stream: The conversation.
            head: The conversation's head, if known.
            active: The conversation's mode and tool policy, to be cached.
        """
        if head is None:
            [head] = heads.read(connection, [generation], stream).values()
        seen = self._seen(stream)
        log = seen.log if seen and _still_there(connection, stream, seen.head, head) else object()
        with self._lock:
            newest = self._seen(stream)
            # Another thread's request may have seen a later version.
            if newest is None or newest.log is not log or newest.head.version <= head.version:
                self._entries.put(stream, _Seen(head, log, active, _SEEN + _bytes_of_head(head)))
        owner, folded = (stream, generation.number, log), Folded.of(head)
        return RecentRows(rows, self._entries, owner, folded), PlanMemo(
            self._entries, owner, folded
        )


_SHARED: WeakKeyDictionary[Pool, dict[int, RowMemory]] = WeakKeyDictionary()


if hasattr(os, "register_at_fork"):  # Another thread of the parent may have held a lock.
    os.register_at_fork(after_in_child=_SHARED.clear)


def shared_memory(engine: Engine, most: int) -> RowMemory:
    """Return the cache that all conversations of a store share, whichever owner it is bound to.

    Stores on the same engine share it too, if they have the same ``memory_bytes``.
    """
    return _SHARED.setdefault(engine.pool, {}).setdefault(most, RowMemory(most))


def _still_there(
    connection: AnyConnection, stream: UUID, last: heads.FoldHead, now: heads.FoldHead
) -> bool:
    """Whether the log still has the event at the head of the last request."""
    known = dict([now.before or (now.version, now.chain), (now.version, now.chain)])
    chain = known.get(last.version) or chain_at(connection, stream, last.version)
    return chain is not None and chain == last.chain


def _read_all(source: SqlRowSource, folded: Folded) -> CachedRows:
    apart, first = source.apart(), source.oldest_user()
    users, error = tuple(source.latest_users()), source.newest_error()
    return CachedRows(folded.version, tuple(apart), first, users, error)


def _updated(cached: CachedRows | None, source: SqlRowSource, folded: Folded) -> CachedRows | None:
    """Return the cached rows brought up to date, or None if too much has changed since."""
    if cached is None or folded.version < cached.version:
        return None
    # Rows up to this version are unchanged.
    until = min(cached.version, folded.oldest_since(cached.version) - 1)
    if until == folded.version:
        return cached
    older = cached.newest[bisect_left(cached.newest, -until, key=_age) :]
    if not (older or cached.all_read):
        return None
    rows = source.shown_since(until, _MOST_NEW)
    if len(rows) == _MOST_NEW:
        return None
    users = [row for row in rows if row.kind == "user"]
    first, error = _up_to(until, cached.first_user), _up_to(until, cached.error)
    latest = [*users, *(row for row in cached.latest_users if row.version <= until)][:2]
    errors = [row for row in rows if row.kind == "error" and row.summarised_by is None]
    if len(latest) < len(cached.latest_users) or (cached.error and not (error or errors)):
        return None  # An older row has become the latest, and it may be far back.
    unsummarised = [row for row in rows if row.summarised_by is None]
    visible = [row for row in unsummarised if row.kind not in RENDERED_FIRST]
    apart = [row for row in cached.apart if row.version <= until]
    apart += [row for row in rows if row.kind in RENDERED_FIRST]
    apart += [row for row in unsummarised if row.kind == "summary"]
    return CachedRows(
        folded.version,
        tuple(sorted(apart, key=lambda row: row.key)),
        first or (users[-1] if users else None),
        tuple(latest),
        errors[0] if errors else error,
        (*visible, *older),
        cached.all_read,
        cached.lasting if cached.lasting and cached.lasting.before <= until + 1 else None,
    )


def _as_many_as_fit(rows: Sequence[ContextRow], most: int) -> tuple[int, int]:
    """Return how many of a conversation's newest rows to keep, and their size in bytes.

    The size is at most ``most``.
    """
    used = sum(map(_bytes, rows))
    if used <= most and sum(map(_tokens, rows)) <= _MOST_TOKENS:
        return len(rows), used
    tokens = used = 0
    for place, row in enumerate(rows):
        tokens += row.tokens
        size = _bytes(row)
        if used + size > most or (tokens > _MOST_TOKENS and place >= _LEAST_KEPT):
            return place, used
        used += size
    return len(rows), used


def _bytes_of_head(head: heads.FoldHead) -> int:
    """Return about how many bytes of memory a head's state and its unsaved rows take."""
    rows = () if head.unsaved is None else head.unsaved.rows.values()
    entries = sum(len(each) for each in head.state.values() if isinstance(each, dict | list))
    return _ENTRY * entries + sum(_UNSAVED + 2 * letters(row.get("message")) for row in rows)


_own_bytes, _tokens = attrgetter("bytes"), attrgetter("tokens")


def _bytes(row: Any) -> int:
    size: int = row.bytes
    return size if row.words is None else size + _WORD * len(row.words)


def _age(row: ContextRow) -> int:
    return -row.version


def _words_of(row: ContextRow) -> Counter[str]:
    if row.words is None:
        row.note("words", Counter(map(intern, terms(text_of((row.message,))))))
    words: Counter[str] = row.words
    return words


def _up_to(version: int, row: ContextRow | None) -> ContextRow | None:
    return row if row is not None and row.version <= version else None
