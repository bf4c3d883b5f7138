"""`AsyncEventStore`: the same names and signatures, for an event loop.

One synchronous core serves both. Each method makes one hop into the store's own executor, which is
bounded by the connection pool. Concurrent appends of many tasks share one transaction (group
commit), so a single disk write makes them all durable.
"""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial, wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, Unpack
from uuid import UUID

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.pool import QueuePool

from eventstore.errors import DatabaseBusy, ErrorType, FactsNotWritten, StoreClosed, Traceback
from eventstore.events.records import EventData, Meta, NewEvent, RecordedEvent
from eventstore.ids import StreamId
from eventstore.owners import Owned, named
from eventstore.processes import in_child
from eventstore.sql.append_requests import ANY, Anchor, Append, Appended, Expected, many
from eventstore.sql.backend import backend_of
from eventstore.sql.driver_errors import lacks_connection
from eventstore.sql.row_security import OWNER
from eventstore.sql.transactions import append_within, require_connection
from eventstore.store import EventStore, StoreOptions
from eventstore.telemetry import operations
from eventstore.threads import finish, made_in_thread, to_thread

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

__all__ = ["CLOSED", "AsyncEventStore", "GroupCommit"]


CLOSED = "this store is closed: close it after its conversations, or open another"


_GROUP = 256


_AGAIN_S = 0.01


_SELDOM_S = 0.2


class AppendsTogether(Protocol):
    """Runs many appends together, like `EventStore._append_group`."""

    def __call__(
        self, requests: Sequence[Append], *, wait: bool = True
    ) -> list[Appended | Exception]: ...


@dataclass(slots=True, eq=False)
class _Waiting:
    """An append that a task awaits; while its stream is locked, it is retried up to ``until``."""

    make: Callable[[], Append]
    future: asyncio.Future[Appended]
    wait: bool
    made: Append | None = None
    until: float = 0.0

    @property
    def request(self) -> Append:
        """The append, encoded."""
        assert self.made is not None  # noqa: S101 - those that failed to encode are dropped
        return self.made


class GroupCommit:
    """Collects appends while a transaction is running, and commits them together in the next.

    Args:
        append_group: Appends in one transaction.
        patience_s: How long a locked stream is tried again, in seconds.
        by_stream: Whether each stream has transactions of its own.
    """

    def __init__(
        self, append_group: AppendsTogether, patience_s: float, *, by_stream: bool = False
    ) -> None:
        self._append_group = append_group
        self._patience_s = patience_s
        self._by_stream = by_stream
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="eventstore-group")
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._running = False

    async def submit(self, request: Callable[[], Append], *, wait: bool = True) -> Appended:
        """Return the append's result once it is durable.

        The request is built in a thread, since encoding a large payload would block the loop.
        """
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        with self._changed:
            if not self._running:
                # Under the lock, so that no task relies on a thread that cannot be started.
                try:
                    self._executor.submit(self._drain)
                except RuntimeError as error:
                    raise StoreClosed(CLOSED) from error
                self._running = True
            self._waiting.append(_Waiting(request, future, wait))
            self._changed.notify()
        return await future

    def close(self) -> None:
        """Wait for running appends, and accept no more."""
        self._executor.shutdown()

    def _drain(self) -> None:
        deferred: list[_Waiting] = []
        again, pause = 0.0, _AGAIN_S
        while True:
            with self._changed:
                if deferred and not self._waiting:
                    self._changed.wait(max(0.0, again - time.monotonic()))
                size = min(_GROUP, len(self._waiting))
                new = [self._waiting.popleft() for _ in range(size)]
                if not new and not deferred:
                    self._running = False
                    return
            due = time.monotonic() >= again
            group, deferred = _parted(deferred, self._made(new), due)
            if group:
                deferred = self._append(group) + deferred
            if not deferred:
                pause = _AGAIN_S
            elif due:
                again, pause = time.monotonic() + pause, min(2 * pause, _SELDOM_S)

    def _made(self, new: Sequence[_Waiting]) -> list[_Waiting]:
        well, failed = list[_Waiting](), list[tuple[_Waiting, Appended | Exception]]()
        for each in new:
            try:
                each.made = each.make()
            except Exception as error:
                failed.append((each, error))
            else:
                each.until = time.monotonic() + self._patience_s
                well.append(each)
        _tell(failed)
        return well

    def _append(self, group: Sequence[_Waiting]) -> list[_Waiting]:
        """Append without waiting for locks, report the outcomes, return the appends to retry."""
        if self._by_stream:
            parts: dict[UUID, list[_Waiting]] = {}
            for each in group:
                parts.setdefault(each.request.conversation_id, []).append(each)
            return [again for part in parts.values() for again in self._append_part(part)]
        return self._append_part(group)

    def _append_part(self, group: Sequence[_Waiting]) -> list[_Waiting]:
        outcomes = self._append_group([each.request for each in group], wait=False)
        deferred, finished = list[_Waiting](), list[tuple[_Waiting, Appended | Exception]]()
        for each, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, DatabaseBusy) and _may_try_again(each, outcome):
                deferred.append(each)
            else:
                finished.append((each, outcome))
        _tell(finished)
        return deferred


def _may_try_again(each: _Waiting, error: DatabaseBusy) -> bool:
    return each.wait and not lacks_connection(error) and time.monotonic() < each.until


def _parted(
    deferred: list[_Waiting], new: list[_Waiting], due: bool
) -> tuple[list[_Waiting], list[_Waiting]]:
    """Return the appends to try now and those to try later; each stream keeps its order."""
    if due:
        return deferred + new, []
    streams = {each.request.conversation_id for each in deferred}
    later = [each for each in new if each.request.conversation_id in streams]
    return [each for each in new if each not in later], deferred + later


def _tell(outcomes: Sequence[tuple[_Waiting, Appended | Exception]]) -> None:
    answers: dict[asyncio.AbstractEventLoop, list[tuple[_Waiting, Appended | Exception]]] = {}
    for each, outcome in outcomes:
        answers.setdefault(each.future.get_loop(), []).append((each, outcome))
    for loop, answered in answers.items():
        # If the loop has been closed in the meantime, nothing awaits the outcome.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_answer, answered)


def _answer(answered: Sequence[tuple[_Waiting, Appended | Exception]]) -> None:
    for each, outcome in answered:
        if each.future.done():  # its task was cancelled
            continue
        if isinstance(outcome, Exception):
            each.future.set_exception(outcome)
        else:
            each.future.set_result(outcome)


P = ParamSpec("P")


T = TypeVar("T")


_PAGE = 1_000


def _awaited(
    method: Callable[Concatenate[EventStore, P], T],
) -> Callable[Concatenate[AsyncEventStore, P], Coroutine[Any, Any, T]]:
    """Return a coroutine method that runs a method of `EventStore` in the store's threads."""

    @wraps(method)
    async def call(self: AsyncEventStore, /, *args: P.args, **options: P.kwargs) -> T:
        answer: T = await self._run(getattr(self.store, method.__name__), *args, **options)
        return answer

    return call


class AsyncEventStore:
    """`EventStore` for asyncio; `EventStore` documents the methods, their arguments and errors.

    Cancelling a task that awaits an append does not undo the append: it may still become durable,
    as after a lost connection. Repeat it with the same event ids to learn the outcome.
    """

    def __init__(self, store: EventStore, *, threads: int = 5) -> None:
        self.store = store
        self._threads = threads
        self._begin_threads()
        in_child(self._begin_threads)

    def _begin_threads(self) -> None:
        self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="eventstore")
        # A transaction over several servers takes a commit in two phases: rather several of them.
        apart = backend_of(self.store.engine).is_distributed
        self._groups = [
            GroupCommit(self.store._append_group, self.store.patience_s, by_stream=apart)
            for _ in range(self._threads if apart else 1)
        ]

    @classmethod
    async def open(
        cls,
        url: str | URL,
        *,
        pool_size: int = 5,
        read_url: str | URL | None = None,
        **options: Unpack[StoreOptions],
    ) -> Self:
        """Open a database; see `EventStore.open`."""
        opening = partial(EventStore.open, url, pool_size=pool_size, read_url=read_url, **options)
        store = await made_in_thread(opening, EventStore.close)
        return cls(store, threads=pool_size)

    def for_owner(self, *, tenant_id: str | None = None, user_id: str | None = None) -> Self:
        """Return this store for one owner; see `EventStore.for_owner`."""
        bound = copy.copy(self)
        bound.store = self.store.for_owner(tenant_id=tenant_id, user_id=user_id)
        in_child(bound._begin_threads)
        return bound

    @classmethod
    async def from_engine(
        cls, engine: Engine | AsyncEngine, **options: Unpack[StoreOptions]
    ) -> Self:
        """Open the database of a product's engine; see `EventStore.from_engine`.

        An `Engine` shares its pool. The connections of an `AsyncEngine` belong to its event loop,
        and the store's threads cannot use them: the store opens its own pool with the same URL, the
        driver psycopg or pysqlite, and as many connections. It does not see what the engine was
        given in addition to its URL, such as ``connect_args``.
        """
        size = engine.pool.size() if isinstance(engine.pool, QueuePool) else 5
        if not isinstance(engine, Engine):
            url = engine.url.set(drivername=engine.url.get_backend_name())
            return await cls.open(url, pool_size=size, **options)
        opening = partial(EventStore.from_engine, engine, **options)
        store = await made_in_thread(opening, EventStore.close)
        return cls(store, threads=max(1, size))

    async def append(
        self,
        conversation_id: StreamId,
        events: Sequence[NewEvent | EventData] | NewEvent | EventData,
        *,
        expected_version: Expected | int = ANY,
        meta: Meta | None = None,
        tenant_id: str | None = None,
        user_id: str | None = None,
        parent: tuple[UUID, int] | None = None,
        writer_epoch: int | None = None,
        anchor: Anchor | None = None,
        connection: Connection | AsyncConnection | None = None,
        wait: bool = True,
        allow_empty: bool = False,
    ) -> Appended:
        """Append events, in one transaction with the concurrent appends of other tasks.

        With ``connection``, append in its transaction: either a connection from `transaction`, or
        an asynchronous SQLAlchemy connection with psycopg, which stays on its event loop.
        """
        events = many(events)
        stream, _ = named(conversation_id, self.store.resolve_owner(tenant_id, user_id).tenant_id)
        request = partial(
            self.store._request,
            conversation_id,
            events,
            expected_version,
            meta,
            tenant_id,
            user_id,
            parent,
            writer_epoch,
            anchor,
            allow_empty,
        )
        where, started = self.store.database, time.perf_counter()
        try:
            if connection is None and OWNER in self.store.engine.get_execution_options():
                # Row-level security names one owner per transaction, so owners cannot share one.
                outcome = await self._run(self._append_alone, request, wait)
            elif connection is None:
                group = self._groups[stream.int % len(self._groups)]
                outcome = await group.submit(request, wait=wait)
            elif isinstance(connection, Connection):
                outcome = await self._run(self._append_within, connection, request)
            else:
                # Slow work, and work on a connection of the store's own, runs in a thread.
                if not hasattr(connection, "run_sync"):
                    require_connection(connection)
                made = await self._run(request)
                outcome = await connection.run_sync(self._append_within, lambda: made)
        except Exception as error:
            operations.appended(where, stream, len(events), error, started)
            raise
        operations.appended(where, stream, len(events), outcome, started)
        return outcome

    def _append_alone(self, request: Callable[[], Append], wait: bool) -> Appended:
        [outcome] = self.store._append_group([request()], wait=wait)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _append_within(self, connection: Connection, request: Callable[[], Append]) -> Appended:
        return append_within(self.store, connection, request(), self.store.clock())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Yield a connection in a transaction of the caller's; see `EventStore.transaction`.

        Statements executed directly on the connection block the loop: use `asyncio.to_thread`.
        """
        transaction = self.store.transaction()
        entered = False

        async def enter() -> Connection:
            nonlocal entered
            connection = await self._run(transaction.__enter__)
            entered = True
            return connection

        try:
            connection = await finish(enter())
        except asyncio.CancelledError as error:
            if entered:
                await finish(self._run(_end, transaction, error))
            raise
        try:
            yield connection
        except BaseException as error:
            await finish(self._run(_end, transaction, error))
            raise
        await finish(self._run(_end, transaction, None))

    async def read(
        self,
        conversation_id: StreamId,
        *,
        after: int = 0,
        before: int | None = None,
        backward: bool = False,
        limit: int | None = None,
        **owner: Unpack[Owned],
    ) -> AsyncIterator[RecordedEvent]:
        """Yield a conversation's events in order of version."""
        events = self.store.read(
            conversation_id, after=after, before=before, backward=backward, limit=limit, **owner
        )
        more = True
        while more:
            page = await self._run(list, islice(events, _PAGE))
            for event in page:
                yield event
            more = len(page) == _PAGE

    read_all = _awaited(EventStore.read_all)
    get = _awaited(EventStore.get)
    find = _awaited(EventStore.find)
    list = _awaited(EventStore.list)
    fork = _awaited(EventStore.fork)
    blob = _awaited(EventStore.blob)
    verify = _awaited(EventStore.verify)
    checkpoint = _awaited(EventStore.checkpoint)
    verify_against = _awaited(EventStore.verify_against)
    raise_writer_epoch = _awaited(EventStore.raise_writer_epoch)
    writer = _awaited(EventStore.writer)
    writers = _awaited(EventStore.writers)
    unwritten = _awaited(EventStore.unwritten)
    erase = _awaited(EventStore.erase)
    erase_user = _awaited(EventStore.erase_user)
    purge = _awaited(EventStore.purge)
    vacuum = _awaited(EventStore.vacuum)
    archive = _awaited(EventStore.archive)
    archived = _awaited(EventStore.archived)
    restore = _awaited(EventStore.restore)
    verify_archive = _awaited(EventStore.verify_archive)

    async def close(self) -> None:
        """Wait for running calls to finish, then close every connection.

        Later calls raise `StoreClosed`.

        Raises:
            FactsNotWritten: See `EventStore.close`.
        """
        await finish(self._close())

    async def _close(self) -> None:
        for group in self._groups:
            await to_thread(group.close)
        await to_thread(self._executor.shutdown)
        await to_thread(self.store.close)

    async def __aenter__(self) -> Self:
        """Return the store itself."""
        return self

    async def __aexit__(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> None:
        """Close the store; an exception of the block comes before unwritten events."""
        with suppress(*((FactsNotWritten,) if error is not None else ())):
            await self.close()

    async def _run(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        call = partial(function, *args, **options)
        try:
            answer = asyncio.get_running_loop().run_in_executor(self._executor, call)
        except RuntimeError as error:
            raise StoreClosed(CLOSED) from error
        return await answer


def _end(transaction: AbstractContextManager[Connection], error: BaseException | None) -> None:
    transaction.__exit__(None if error is None else type(error), error, None)
