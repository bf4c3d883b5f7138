"""Rebuild: fold every conversation from scratch into a new generation, then cut over once.

Readers use the live generation until the cut-over, and never wait. The rebuild works in pages of
conversations, one transaction each, so a killed rebuild loses at most its current page. When
started again, it finds its unfinished generation and continues with the missing conversations.
Events appended in the meantime are caught up when they are first read, as always.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from logging import INFO
from multiprocessing import get_context, parent_process
from multiprocessing.synchronize import Lock
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Table, and_, exists, func, not_, select

from eventstore import EventStore, KeyProvider
from eventstore.database import (
    TURN_S,
    Backend,
    WholeStreams,
    backend_of,
    chains_stand,
    feed,
    is_in_memory,
    long_running,
    may_fork,
    metadata_for,
    open_engine,
    schema_lock,
)
from eventstore.erasure.erase import erasure_count, erasure_lock
from eventstore.errors import ConversationDamaged, DatabaseBusy, KeyUnavailable
from eventstore.events import RecordedEvent
from eventstore.telemetry.log import get_logger
from eventstore.telemetry.operations import operation
from projections.engine import generations, heads, tables
from projections.engine import set_aside as failures
from projections.engine import tables as row_statements
from projections.engine.catch_up import Begin, CatchUp, fold_from_start, in_pieces
from projections.engine.folds import Fold, begin, is_own_fault
from projections.engine.generations import Generation
from projections.engine.heads import BoundHead, FoldHead
from projections.engine.members import Membership
from projections.engine.pages import DAMAGED
from projections.engine.projection import Projection, named
from projections.engine.set_aside import FoldFailure
from projections.engine.setup import install_all
from projections.errors import ProjectionFailed
from projections.tokens.counts import TokenCounts, known_of, write_all

__all__ = [
    "ALONE",
    "AlreadyFolded",
    "Done",
    "FoldPage",
    "FoldedPage",
    "Pending",
    "RebuildReport",
    "Turn",
    "fold_whole",
    "in_processes",
    "rare_collections",
    "rebuild",
]


Pending = tuple[UUID, int]


"""A conversation that is missing from the new generations, and its version."""


Done = tuple[int, int, list[FoldFailure]]


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
        self._locked = False

    def __enter__(self) -> None:
        self._locked = self._lock.acquire(timeout=TURN_S)

    def __exit__(self, *_: object) -> None:
        if self._locked:
            self._locked = False
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
            new_heads = [FoldHead(fold.generation, fold.version, fold.state) for fold in folds]
            reached += heads.bind(owner, new_heads)
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
            yield each, fold_from_start(connection, generations, each, counts=known)
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
    if backend_of(store.engine).locks_all:
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
def rare_collections() -> Iterator[None]:
    """Make Python collect garbage less often within the block, in the whole process.

    Folds create no reference cycles; searching a page's rows for cycles took a tenth of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


T = TypeVar("T")


_log = get_logger("projections.engine.rebuild")


_PATIENCE_MS = 60_000


_PAUSE_S = 0.2


_MOMENT_S = 0.05


_PAGE_EVENTS = 2_500


_LEAST_PAGE_EVENTS = 500


_SHARES = 2  # pages into which one worker's share of the remaining events is divided, at least


_PAGE_CONVERSATIONS = 200


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """The result of a rebuild; ``conversations`` and ``events`` exclude the work of earlier starts.

    ``set_aside`` lists the conversations that could not be folded, and the projections that lack
    them.
    """

    projections: tuple[str, ...]
    conversations: int
    events: int
    seconds: float
    set_aside: tuple[FoldFailure, ...] = ()


def rebuild(
    store: EventStore,
    names: Iterable[str] | None = None,
    *,
    projections: Sequence[Projection],
    workers: int = 1,
    skip_broken: bool = False,
    join: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> RebuildReport:
    """Fold all events from scratch into new tables, and go live; see `projections.upkeep`."""
    chosen = named(projections, names)
    if join:
        with store.reading() as connection:
            chosen = tuple(
                each for each in chosen if generations.building(connection, each) is not None
            )
        if not chosen:
            return RebuildReport((), 0, 0, 0.0)
    rebuilt = tuple(projection.name for projection in chosen)
    with operation("projections", "rebuild", level=INFO, projections=rebuilt) as operation_span:
        started = time.perf_counter()
        install_all(store, projections)
        with schema_lock(store.engine) as connection:
            end = feed.feed_end(connection)
            targets = [generations.start_building(connection, each, end) for each in chosen]
        numbers = tuple(target.number for target in targets)
        _log.info("rebuild begun", projections=rebuilt, generations=numbers, workers=workers)
        with Membership(store, "rebuild", chosen) as membership:
            conversations, events, failed = _fold_all(
                store, targets, workers, skip_broken, membership, on_progress
            )
        _finish(store, targets)
        operation_span.note(conversations=conversations, events=events, set_aside=len(failed))
        seconds = time.perf_counter() - started
    return RebuildReport(rebuilt, conversations, events, seconds, tuple(failed))


def _fold_all(
    store: EventStore,
    targets: Sequence[Generation],
    workers: int,
    skip_broken: bool,
    membership: Membership,
    on_progress: Callable[[int, int], None] | None,
) -> Done:
    done = conversations = 0
    failed: list[FoldFailure] = []
    total = _pending_events(store, targets)
    pages = _pages(store, targets, total, workers, _start_of(membership.renew().number))
    fold = partial(_page_done, skip_broken=skip_broken)
    if workers > 1 and not is_in_memory(store.engine.url):
        results = in_processes(store, targets, fold, pages, workers)
    else:
        results = (fold(store, targets, page, ALONE) for page in pages)
    for page_conversations, page_events, page_failed in results:
        failed += page_failed
        conversations += page_conversations
        done += page_events
        membership.renew()
        if on_progress is not None:
            on_progress(done, max(total, done))
    return conversations, done, failed


def _finish(store: EventStore, targets: Sequence[Generation]) -> None:
    transaction = store.writing(durable=False, patience_ms=_PATIENCE_MS)
    with long_running(), transaction as connection:
        for target in targets:
            tables.end_filling(connection, target.projection, target.number)

    def cut_over(connection: Connection) -> None:
        for target in targets:
            generations.cut_over(connection, target)

    def forget(connection: Connection) -> None:
        generations.forget_heads(connection)
        failures.forget(connection)

    with operation("projections", "cut_over", level=INFO):
        _once_free(store, cut_over)
    # Separate from the cut-over, which must be short: dropping large tables takes time. If a power
    # cut undoes part of it, the next rebuild drops the rest.
    while _once_free(store, _drop_some, durable=False):
        pass
    _once_free(store, forget, durable=False)


def _drop_some(connection: Connection) -> bool:
    """Drop a table of a dead generation; return whether there may be more.

    On SQLite, where readers do not wait, drop as many as fit into a short time in which writers
    wait: each commit leaves pages to write back to the file, which waits for the disk.
    """
    until = time.monotonic() + _MOMENT_S
    while generations.drop_dead(connection):
        if not backend_of(connection).locks_all or time.monotonic() >= until:
            return True
    return False


def _once_free(store: EventStore, change: Callable[[Connection], T], *, durable: bool = True) -> T:
    """Change the schema once no transaction holds a table that the change needs.

    Readers queue behind a change that waits for a table; between two attempts they can proceed.
    """
    until = time.monotonic() + _PATIENCE_MS / 1000
    while True:
        try:
            with schema_lock(store.engine, durable=durable) as connection:
                return change(connection)
        except DatabaseBusy:
            if time.monotonic() >= until:
                raise
        time.sleep(_PAUSE_S)


def _lacking(connection: Connection, targets: Sequence[Generation]) -> list[ColumnElement[bool]]:
    tables = metadata_for(connection.dialect.name).tables
    streams, heads = tables["conversations"], tables["projection_heads"]
    built = [
        exists().where(
            and_(
                heads.c.conversation_id == streams.c.conversation_id,
                heads.c.projection == target.projection.name,
                heads.c.generation == target.number,
                heads.c.version >= streams.c.version,
            )
        )
        for target in targets
    ]
    return [streams.c.version > 0, not_(and_(*built))]


def _pending_events(store: EventStore, targets: Sequence[Generation]) -> int:
    with store.reading() as connection:
        streams = metadata_for(connection.dialect.name).tables["conversations"]
        query = select(func.coalesce(func.sum(streams.c.version), 0))
        return int(connection.execute(query.where(*_lacking(connection, targets))).scalar_one())


def _pages(
    store: EventStore, targets: Sequence[Generation], events: int, workers: int, start: float
) -> Iterator[list[Pending]]:
    """Yield conversations that the targets lack, in pages of about 2,500 events.

    With several workers the last pages are smaller, so that all workers finish together.

    Args:
        store: The store.
        targets: The generations to build.
        events: Number of events that the targets lack.
        workers: Number of processes that share the pages.
        start: Where among all conversations to begin, from 0 to 1.
    """
    page: list[Pending] = []
    size = 0
    for pending in _conversations(store, targets, start):
        page.append(pending)
        size += pending[1]
        share = events // (_SHARES * workers) if workers > 1 else events
        full = size >= min(_PAGE_EVENTS, max(_LEAST_PAGE_EVENTS, share))
        if full or len(page) == _PAGE_CONVERSATIONS:
            yield page
            events -= size
            page, size = [], 0
    if page:
        yield page


def _start_of(number: int) -> float:
    """Return where the rebuild that joined as this one, from 0, begins: 0, 1/2, 1/4, 3/4, 1/8 ...

    So each begins in the middle of what the others have furthest to go for.
    """
    start, step = 0.0, 0.5
    while number:
        number, bit = divmod(number, 2)
        start += bit * step
        step /= 2
    return start


def _conversations(
    store: EventStore, targets: Sequence[Generation], start_at: float
) -> Iterator[Pending]:
    """Yield the conversations that the targets lack.

    Ends with the id that was highest at the start: a product that keeps opening conversations must
    not prevent a rebuild from ending. Later conversations are caught up like any others.
    """
    streams = metadata_for(store.engine.dialect.name).tables["conversations"]
    ids = streams.c.conversation_id
    with store.reading() as connection:
        ends = (select(ids).order_by(end).limit(1) for end in (ids, ids.desc()))
        first, last = (connection.execute(end).scalar() for end in ends)
        if first is None or last is None:
            return
        start = first
        if start_at:
            count = connection.execute(select(func.count()).select_from(streams)).scalar_one()
            middle = select(ids).order_by(ids).offset(int(count * start_at)).limit(1)
            start = connection.execute(middle).scalar() or first
    yield from _within(store, targets, ids >= start, ids <= last)
    yield from _within(store, targets, ids < start)


def _within(
    store: EventStore, targets: Sequence[Generation], *wanted: ColumnElement[bool]
) -> Iterator[Pending]:
    streams = metadata_for(store.engine.dialect.name).tables["conversations"]
    ids = streams.c.conversation_id
    after: UUID | None = None
    while True:
        with store.reading() as connection:
            query = select(ids, streams.c.version)
            query = query.where(*_lacking(connection, targets), *wanted)
            if after is not None:
                query = query.where(ids > after)
            query = query.order_by(ids).limit(_PAGE_CONVERSATIONS)
            found = [(row[0], row[1]) for row in connection.execute(query)]
        if wrong := [each for each, version in found if type(version) is not int]:
            raise ConversationDamaged(wrong[0])
        if not found:
            return
        after = found[-1][0]
        yield from found


def _page_done(
    store: EventStore,
    targets: Sequence[Generation],
    page: Sequence[Pending],
    turn: Turn,
    *,
    skip_broken: bool,
) -> Done:
    failed: list[FoldFailure] = []
    events = sum(version for _, version in page)
    page_span = operation("projections", "rebuild_page", conversations=len(page), events=events)
    with rare_collections(), page_span:
        try:
            _rebuild_page(store, targets, page, turn)
        except Exception as error:
            if not is_own_fault(error) or (isinstance(error, ProjectionFailed) and not skip_broken):
                raise
            for conversation_id, _ in page:
                if not skip_broken:
                    # Rows of many conversations were written at once; alone, the error names one.
                    try:
                        _fold_alone(store, targets, conversation_id)
                        continue
                    except KeyUnavailable as unavailable:
                        if not is_own_fault(unavailable):
                            raise
                failed += failures.catch_up_or_set_aside(_begin(store), targets, conversation_id)
    return len(page), events, failed


def _rebuild_page(
    store: EventStore, targets: Sequence[Generation], page: Sequence[Pending], turn: Turn = ALONE
) -> None:
    """Fold a page of conversations and write them.

    They are folded before the write transaction begins, so that several processes can fold at the
    same time even if only one can write. Conversations longer than two pages are folded after the
    others, each in its own pages.
    """
    short = [pending for pending in page if pending[1] <= 2 * _PAGE_EVENTS]
    alone = [pending for pending in page if pending[1] > 2 * _PAGE_EVENTS]
    try:
        _fold_together(store, targets, [conversation_id for conversation_id, _ in short], turn)
    except AlreadyFolded:
        # Partly folded by a killed or concurrent rebuild, or erased since.
        alone = short + alone
    for conversation_id, _ in alone:
        _fold_alone(store, targets, conversation_id)


def _fold_together(
    store: EventStore, targets: Sequence[Generation], ids: Sequence[UUID], turn: Turn
) -> None:
    erasures, counts, folded = fold_whole(store, targets, ids)
    together = FoldedPage.of(backend_of(store.engine), folded)
    reached = {
        conversation_id: (folds[0].version, folds[0].chain)
        for conversation_id, folds in folded.items()
        if folds[0].version
    }
    _save_counts(store, ids, list(counts.values()), erasures)
    with turn, store.writing(durable=False, patience_ms=_PATIENCE_MS) as connection:
        erasure_lock(connection, *ids)
        # Do not write rows of events that were erased, or that have disappeared, since the fold.
        if erasure_count(connection, ids) != erasures or not chains_stand(connection, reached):
            raise AlreadyFolded
        together.write(connection)


def _fold_alone(store: EventStore, targets: Sequence[Generation], conversation_id: UUID) -> None:
    """Fold a conversation as a reader would, piece by piece."""
    in_pieces([CatchUp(targets, conversation_id)], _begin(store))


def _begin(store: EventStore) -> Begin[Connection]:
    return Begin(store.reading, partial(store.writing, durable=False, patience_ms=_PATIENCE_MS))


def _save_counts(
    store: EventStore, ids: Sequence[UUID], counts: Sequence[TokenCounts], erasures: int
) -> None:
    """Store the token counts before the rows, in a separate transaction.

    A reader that counts the same message waits for the first writer of the count, and must not have
    to wait for the page's rows.
    """
    if not any(known.has_new for known in counts):
        return
    with store.writing(durable=False, patience_ms=_PATIENCE_MS) as connection:
        erasure_lock(connection, *ids)
        if erasure_count(connection, ids) == erasures:
            write_all(connection, counts)
