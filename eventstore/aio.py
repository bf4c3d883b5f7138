"""`AsyncEventStore`: the same names and signatures, for an event loop.

One synchronous core serves both. Each method makes one hop into an executor of its own, bounded by
the connection pool; appends of many tasks that come at the same time share one transaction (group
commit), so that a single disk write makes them all durable.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from os import PathLike
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack
from uuid import UUID

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.pool import QueuePool

from eventstore import blobs, telemetry
from eventstore.aio_eraser import AsyncEraser
from eventstore.checkpoints import Checkpoint
from eventstore.events.base import Clock, utc_now
from eventstore.events.records import EventData, Meta, NewEvent, RecordedEvent
from eventstore.group_commit import GroupCommit
from eventstore.ids import StreamId
from eventstore.integrity import Verification
from eventstore.owners import Owned, named
from eventstore.processes import in_child
from eventstore.redaction import Redactor
from eventstore.sealing import KeyProvider
from eventstore.sql.engines import Synchronous
from eventstore.sql.feed import FeedPage
from eventstore.sql.leases import Lease
from eventstore.sql.requests import ANY, MOST_BYTES, Anchor, Append, Appended, Expected, many
from eventstore.sql.row_security import OWNER
from eventstore.sql.streams import StreamInfo
from eventstore.sql.transactions import append_within
from eventstore.sql.verify import Progress
from eventstore.store import EventStore

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

__all__ = ["AsyncEventStore"]

P = ParamSpec("P")
T = TypeVar("T")
_PAGE = 1_000


class AsyncEventStore(AsyncEraser):
    """`EventStore` for asyncio; what the methods do, take and raise is documented there.

    Cancelling a task that awaits an append does not take the append back: it may still become
    durable, as after a lost connection. Repeat it with the same event ids to learn the outcome.
    """

    def __init__(self, store: EventStore, *, threads: int = 5) -> None:
        self.store = store
        self._threads = threads
        self._begin_threads()
        in_child(self._begin_threads)

    def _begin_threads(self) -> None:
        self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="eventstore")
        self._group = GroupCommit(self.store._append_group, self.store.patience_s)

    @classmethod
    async def open(
        cls,
        url: str | URL,
        *,
        schema: str | None = None,
        migrate: bool = True,
        read_only: bool = False,
        synchronous: Synchronous = "FULL",
        busy_timeout_ms: int = 30_000,
        pool_size: int = 5,
        blob_threshold: int = blobs.THRESHOLD_BYTES,
        max_event_bytes: int = MOST_BYTES,
        clock: Clock = utc_now,
        keys: KeyProvider | None = None,
        redact: Redactor | None = None,
    ) -> Self:
        """Open a database; see `EventStore.open`."""
        opening = partial(
            EventStore.open,
            url,
            schema=schema,
            migrate=migrate,
            read_only=read_only,
            synchronous=synchronous,
            busy_timeout_ms=busy_timeout_ms,
            pool_size=pool_size,
            blob_threshold=blob_threshold,
            max_event_bytes=max_event_bytes,
            clock=clock,
            keys=keys,
            redact=redact,
        )
        store = await asyncio.get_running_loop().run_in_executor(None, opening)
        return cls(store, threads=pool_size)

    def for_owner(self, *, tenant_id: str | None = None, user_id: str | None = None) -> Self:
        """Return this store for one owner; see `EventStore.for_owner`."""
        bound = copy.copy(self)
        bound.store = self.store.for_owner(tenant_id=tenant_id, user_id=user_id)
        in_child(bound._begin_threads)
        return bound

    @classmethod
    async def from_engine(
        cls,
        engine: Engine | AsyncEngine,
        *,
        schema: str | None = None,
        migrate: bool = True,
        read_only: bool = False,
        synchronous: Synchronous = "FULL",
        busy_timeout_ms: int = 30_000,
        blob_threshold: int = blobs.THRESHOLD_BYTES,
        max_event_bytes: int = MOST_BYTES,
        clock: Clock = utc_now,
        keys: KeyProvider | None = None,
        redact: Redactor | None = None,
    ) -> Self:
        """Open the database of a product's engine; see `EventStore.from_engine`.

        An `Engine` shares its pool. Connections of an `AsyncEngine` belong to its event loop, which
        the store's threads cannot use: the store opens a pool of its own with the same URL, by the
        driver psycopg or pysqlite, and as many connections. What the engine has beside its URL,
        such as ``connect_args``, is not known to it.
        """
        options: dict[str, Any] = {
            "schema": schema,
            "migrate": migrate,
            "read_only": read_only,
            "synchronous": synchronous,
            "busy_timeout_ms": busy_timeout_ms,
            "blob_threshold": blob_threshold,
            "max_event_bytes": max_event_bytes,
            "clock": clock,
            "keys": keys,
            "redact": redact,
        }
        size = engine.pool.size() if isinstance(engine.pool, QueuePool) else 5
        if not isinstance(engine, Engine):
            url = engine.url.set(drivername=engine.url.get_backend_name())
            return await cls.open(url, pool_size=size, **options)
        opening = partial(EventStore.from_engine, engine, **options)
        store = await asyncio.get_running_loop().run_in_executor(None, opening)
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
    ) -> Appended:
        """Append events, in one transaction with what other tasks append now.

        With ``connection`` in its transaction: one that `transaction` has begun, or an asynchronous
        one of SQLAlchemy's with psycopg, which stays on its loop.
        """
        events = many(events)
        stream, _ = named(conversation_id, self.store.whose(tenant_id, user_id).tenant_id)
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
        )
        where, started = self.store.database, time.perf_counter()
        try:
            if connection is None and OWNER in self.store.engine.get_execution_options():
                # What several owners append cannot share a transaction, which is one owner's.
                outcome = await self._run(self._append_alone, request, wait)
            elif connection is None:
                outcome = await self._group.submit(request, wait=wait)
            elif isinstance(connection, Connection):
                outcome = await self._run(self._append_within, connection, request)
            else:
                # What takes time, or a connection of the store's own, is done in a thread.
                made = await self._run(request)
                outcome = await connection.run_sync(self._append_within, lambda: made)
        except Exception as error:
            telemetry.appended(where, stream, len(events), error, started)
            raise
        telemetry.appended(where, stream, len(events), outcome, started)
        return outcome

    async def fork(
        self,
        source: StreamId,
        *,
        before: int | None = None,
        conversation_id: StreamId | None = None,
        title: str | None = None,
        tenant_id: str | None = None,
        user_id: str | None = None,
        new_user_id: str | None = None,
        events: Sequence[NewEvent | EventData] = (),
        meta: Meta | None = None,
    ) -> Appended:
        """Begin a conversation that shares another's events; see `EventStore.fork`."""
        return await self._run(
            self.store.fork,
            source,
            before=before,
            conversation_id=conversation_id,
            title=title,
            tenant_id=tenant_id,
            user_id=user_id,
            new_user_id=new_user_id,
            events=events,
            meta=meta,
        )

    def _append_alone(self, request: Callable[[], Append], wait: bool) -> Appended:
        [outcome] = self.store._append_group([request()], wait=wait)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _append_within(self, connection: Connection, request: Callable[[], Append]) -> Appended:
        return append_within(self.store, connection, request(), self.store.clock())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Yield a connection in a transaction of one's own; see `EventStore.transaction`.

        What is executed on it directly holds up the loop: `asyncio.to_thread` does not.
        """
        begun = self.store.transaction()
        entering = asyncio.ensure_future(self._run(begun.__enter__))
        try:
            connection = await asyncio.shield(entering)
        except asyncio.CancelledError as error:
            await asyncio.wait({entering})
            if entering.exception() is None:
                await self._run(_end, begun, error)
            raise
        try:
            yield connection
        except BaseException as error:
            await asyncio.shield(self._run(_end, begun, error))
            raise
        await asyncio.shield(self._run(_end, begun, None))

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
        left = limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            bounds = {"after": after, "before": before, "backward": backward, "limit": size}
            page = await self._run(self._page, conversation_id, **bounds, **owner)
            for event in page:
                yield event
            if len(page) < size:
                return
            left = None if left is None else left - size
            after, before = (after, page[-1].version) if backward else (page[-1].version, before)

    def _page(self, conversation_id: StreamId, **options: Any) -> list[RecordedEvent]:
        return [*self.store.read(conversation_id, **options)]

    async def read_all(self, *, after: str | None = None, limit: int = 500) -> FeedPage:
        """Return the next page of all events of the store."""
        return await self._run(self.store.read_all, after=after, limit=limit)

    async def get(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> StreamInfo:
        """Return what is known of a conversation."""
        return await self._run(self.store.get, conversation_id, **owner)

    async def find(self, *, key: str, **owner: Unpack[Owned]) -> StreamInfo | None:
        """Return the conversation that a product knows by a key; see `EventStore.find`."""
        return await self._run(self.store.find, key=key, **owner)

    async def list(
        self,
        *,
        tenant_id: str | None = None,
        user_id: str | None = None,
        after: UUID | None = None,
        limit: int = 100,
    ) -> list[StreamInfo]:
        """Return conversations in order of id."""
        return await self._run(
            self.store.list, tenant_id=tenant_id, user_id=user_id, after=after, limit=limit
        )

    async def blob(self, conversation_id: StreamId, digest: str, **owner: Unpack[Owned]) -> bytes:
        """Return the bytes of a blob."""
        return await self._run(self.store.blob, conversation_id, digest, **owner)

    async def verify(
        self,
        conversation_id: StreamId | None = None,
        *,
        progress: Progress | None = None,
        **owner: Unpack[Owned],
    ) -> Verification:
        """Recompute the hash chain of one conversation, or of all; ``progress`` is in a thread."""
        return await self._run(self.store.verify, conversation_id, progress=progress, **owner)

    async def checkpoint(
        self, file: str | PathLike[str] | IO[bytes], *, key: bytes | None = None
    ) -> Checkpoint:
        """Write the version and chain value of every conversation."""
        return await self._run(self.store.checkpoint, file, key=key)

    async def verify_against(
        self,
        checkpoint: str | PathLike[str],
        *,
        public_key: bytes | None = None,
        conversation_id: StreamId | None = None,
        progress: Progress | None = None,
        **owner: Unpack[Owned],
    ) -> Verification:
        """Do what `verify` does, and find what has gone since a checkpoint was made."""
        return await self._run(
            self.store.verify_against,
            checkpoint,
            public_key=public_key,
            conversation_id=conversation_id,
            progress=progress,
            **owner,
        )

    async def raise_writer_epoch(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> int:
        """Fence all earlier writers of a conversation."""
        return await self._run(self.store.raise_writer_epoch, conversation_id, **owner)

    async def writer(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> Lease | None:
        """Return who has a conversation open; see `EventStore.writer`."""
        return await self._run(self.store.writer, conversation_id, **owner)

    async def close(self) -> None:
        """Wait for what is under way, then close every connection."""
        await asyncio.to_thread(self._group.close)
        await asyncio.to_thread(self._executor.shutdown)
        self.store.close()

    async def __aenter__(self) -> Self:
        """Return the store itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the store."""
        await self.close()

    async def _run(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        call = partial(function, *args, **options)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


def _end(begun: AbstractContextManager[Connection], error: BaseException | None) -> None:
    begun.__exit__(None if error is None else type(error), error, None)
