"""Pages of a rebuild: many conversations folded from scratch and written together, in processes.

A reader catches up one conversation, row by row; a rebuild has thousands. Their rows and heads are
bound before the transaction begins, because only one process can write to SQLite, and are then
written with one statement per table (`projections.engine.rows.load`). The result is the same as
that of `projections.engine.folds.BoundFolds`.

The caller's process folds too. The other processes are forked from it where that is safe, and start
at once; where they are spawned, the caller's process starts while they are still importing. They
are started for one rebuild and end with it, or with the process that started them.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.synchronize import Lock
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Table

from eventstore import EventStore, KeyProvider
from eventstore.erasure import erasure_count
from eventstore.events import RecordedEvent
from eventstore.sql.at_hand import TURN_S
from eventstore.sql.backend import Backend, backend_named
from eventstore.sql.engines import open_engine
from eventstore.sql.pools import may_fork
from eventstore.sql.read import WholeStreams
from projections.engine import heads
from projections.engine import rows as row_statements
from projections.engine.catch_up import fold_anew
from projections.engine.folds import Fold, begin
from projections.engine.generations import Generation
from projections.engine.heads import BoundHead, Head
from projections.engine.pages import DAMAGED
from projections.engine.projection import Projection
from projections.engine.set_aside import Failure
from projections.tokens.counts import TokenCounts, known_of

__all__ = [
    "ALONE",
    "AlreadyFolded",
    "Done",
    "FoldPage",
    "FoldedPage",
    "Pending",
    "Turn",
    "few_collections",
    "fold_whole",
    "in_processes",
]

Pending = tuple[UUID, int]
"""A conversation that is missing from the new generations, and its version."""

Done = tuple[int, int, list[Failure]]
"""A page's result: the number of conversations and of events, and what was set aside."""

Turn = AbstractContextManager[Any]
"""Held while a page is written, on databases with a single writer."""

ALONE: Turn = nullcontext()
"""The turn of a single process, or on a database with many writers."""

FoldPage = Callable[[EventStore, Sequence[Generation], Sequence[Pending], Turn], Done]
"""Folds a page into the generations; must be importable by another process."""


class WriteTurn:
    """A write lock among the processes of a rebuild, which would otherwise sleep and retry.

    If a turn does not come soon, for example because its holder was killed, the process writes
    anyway, and the database's own lock decides.
    """

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._held = False

    def __enter__(self) -> None:
        self._held = self._lock.acquire(timeout=TURN_S)

    def __exit__(self, *_: object) -> None:
        if self._held:
            self._held = False
            self._lock.release()


class AlreadyFolded(Exception):
    """Another process has folded a conversation of the page: discard the whole page."""


@dataclass(frozen=True, slots=True)
class FoldedPage:
    """Heads and rows of many conversations, in the driver's form."""

    _heads: Sequence[BoundHead]
    _rows: Mapping[Table, row_statements.NewRows]

    @classmethod
    def of(cls, backend: Backend, folded: Mapping[UUID, Sequence[Fold]]) -> FoldedPage:
        """Bind folds that began with the first event, given by conversation in order of id."""
        owners = [backend.from_id(conversation_id) for conversation_id in folded]
        reached: list[BoundHead] = []
        for owner, folds in zip(owners, folded.values(), strict=True):
            standing = [Head(fold.generation, fold.version, fold.state) for fold in folds]
            reached += heads.bind(owner, standing)
        bound = {}
        for of_generation in zip(*folded.values(), strict=True):
            for name, table in of_generation[0].generation.tables.items():
                made = (fold.buffer.new_rows(name) for fold in of_generation)
                rows = dict(zip(owners, made, strict=True))
                bound[table] = row_statements.bind_new(table, backend, rows)
        return cls(reached, bound)

    def write(self, connection: Connection) -> None:
        """Write the page, in the caller's transaction, which holds the erasure locks.

        Raises:
            AlreadyFolded: Part of it already exists; the transaction must be rolled back.
        """
        # Heads first: the process that inserts them has the conversations to itself.
        if not heads.insert(connection, self._heads):
            raise AlreadyFolded
        for table, rows in self._rows.items():
            row_statements.load(connection, table, rows)


def fold_whole(
    store: EventStore, generations: Sequence[Generation], ids: Sequence[UUID]
) -> tuple[int, Mapping[UUID, TokenCounts], Mapping[UUID, list[Fold]]]:
    """Return the number of erasures, and the token counts and folds of each conversation.

    Most conversations are folded outside any transaction: SQLite restarts its write-ahead log only
    when it has no readers, and the log would grow for as long as the rebuild runs.

    Raises:
        ProjectionFailed: A fold raised, or an event cannot be read.
    """
    with store.reading() as connection:
        erasures = erasure_count(connection, ids)
        counts = known_of(connection, ids)
        streams = WholeStreams.read(connection, ids)
    folded: dict[UUID, list[Fold]] = {}
    others: list[UUID] = []
    for each, known in counts.items():
        events = None if known.looks else _taken(streams, each)
        if events is None:
            others.append(each)
        else:
            folded[each] = _folded(generations, each, events, known)
    if others:
        with store.reading() as connection:
            folded.update(_fold_others(connection, generations, streams, counts, others))
    return erasures, counts, {each: folded[each] for each in counts}


def _fold_others(
    connection: Connection,
    generations: Sequence[Generation],
    streams: WholeStreams,
    counts: Mapping[UUID, TokenCounts],
    ids: Sequence[UUID],
) -> Iterator[tuple[UUID, list[Fold]]]:
    """Yield the folds of those that are sealed, in blobs, forked, damaged or have many counts."""
    for each in ids:
        known = counts[each]
        known.go_on_in(connection)
        events = _taken(streams, each, connection)
        if events is None:
            yield each, fold_anew(connection, generations, each, counts=known)
        else:
            yield each, _folded(generations, each, events, known)


def _taken(
    streams: WholeStreams, conversation_id: UUID, connection: Connection | None = None
) -> list[RecordedEvent] | None:
    with suppress(*DAMAGED):  # A second read finds the damaged event.
        return streams.take(conversation_id, connection)
    return None


def _folded(
    generations: Sequence[Generation],
    conversation_id: UUID,
    events: Sequence[RecordedEvent],
    counts: TokenCounts,
) -> list[Fold]:
    folds = [begin(generation) for generation in generations]
    counts.read_ahead()
    for fold in folds:
        fold.feed(events)
        fold.fill(counts, conversation_id)
    return folds


def in_processes(
    store: EventStore,
    targets: Sequence[Generation],
    fold: FoldPage,
    pages: Iterator[list[Pending]],
    count: int,
) -> Iterator[Done]:
    """Fold pages in this process and in others, each of which has one more page waiting.

    Args:
        store: The store; the other processes open their own.
        targets: The generations to build.
        fold: Folds a page.
        pages: The pages to fold.
        count: Number of processes, including this one; at least two.
    """
    url = store.engine.url.render_as_string(hide_password=False)
    keys = None if store.keys is None else store.keys.provider
    numbers = tuple((target.projection, target.number) for target in targets)
    # Unless it is forked, a child has to import everything again. A forked child must not share a
    # connection, the lock of a thread that it lacks, or anything that a key provider may hold.
    forked = keys is None and may_fork(store.engine)
    context = get_context("fork" if forked else "spawn")
    turn: Turn = ALONE
    if backend_named(store.engine.dialect.name).locks_all:
        turn = WriteTurn(context.Lock())
    pool = ProcessPoolExecutor(
        count - 1,
        mp_context=context,
        initializer=_start,
        initargs=(url, keys, numbers, fold, turn),
    )
    running: set[Future[Done]] = set()
    try:
        if forked:
            pool.submit(_ready)  # forks all of them before this process reopens a connection
        for page in pages:
            if len(running) < 2 * (count - 1):
                running.add(pool.submit(_work, page))
                continue
            yield fold(store, targets, page, turn)
            done, running = wait(running, timeout=0)
            yield from (future.result() for future in done)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        pool.shutdown(cancel_futures=True)


class _Worker:
    """The state that a worker process keeps between pages."""

    store: EventStore
    targets: list[Generation]
    fold: FoldPage
    turn: Turn


def _start(
    url: str,
    keys: KeyProvider | None,
    numbers: tuple[tuple[Projection, int], ...],
    fold: FoldPage,
    turn: Turn,
) -> None:
    # The parent handles Ctrl-C, and then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()
    _Worker.store = EventStore(open_engine(url), keys=keys)
    _Worker.targets = [Generation(projection, number, None) for projection, number in numbers]
    _Worker.fold = fold
    _Worker.turn = turn


def _ready() -> None:
    """Do nothing: the first task of a pool starts its processes."""


def _end_with_parent() -> None:
    """End this worker when the parent has ended, even if the parent was killed."""
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _work(page: list[Pending]) -> Done:
    return _Worker.fold(_Worker.store, _Worker.targets, page, _Worker.turn)


@contextmanager
def few_collections() -> Iterator[None]:
    """Make Python collect garbage less often within the block, in the whole process.

    Folds create no reference cycles; searching a page's rows for cycles took a tenth of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
