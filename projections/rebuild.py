"""Rebuild: every conversation folded anew into a new generation, then one cut-over.

Readers keep using the live generation until the cut-over, and never wait. Work is done in pages of
conversations, each one transaction, so a rebuild that is killed loses at most the page it was at:
started again, it finds the generation that it had begun and goes on with what is missing. What is
appended meanwhile is caught up when it is first read, as always.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, exists, func, not_, select

from eventstore import EventStore
from eventstore.erasure import erasure_count, erasure_lock
from eventstore.errors import ProjectionFailed
from eventstore.log import get_logger
from eventstore.sql import feed
from eventstore.sql.engines import open_engine
from eventstore.sql.migrate import schema_lock
from eventstore.sql.schema import metadata_for
from projections import failures, generations, tables
from projections.catalogue import named
from projections.engine import catch_up, fold_anew, save_folds, untouched
from projections.failures import Failure
from projections.generations import Generation
from projections.setup import install_all
from projections.token_counts import TokenCounts

__all__ = ["RebuildReport", "rebuild"]

_log = get_logger("projections.rebuild")
_PAGE_EVENTS = 5_000
_PAGE_CONVERSATIONS = 200

Pending = tuple[UUID, int]
"""A conversation that the new generations lack, and its version."""

Done = tuple[int, int, list[Failure]]
"""Of a page: the conversations, their events, and what was set aside."""


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a rebuild did; ``conversations`` and ``events`` leave out what an earlier start did.

    ``set_aside`` is what could not be folded, and was left out of the projections it names.
    """

    projections: tuple[str, ...]
    conversations: int
    events: int
    seconds: float
    set_aside: tuple[Failure, ...] = ()


def rebuild(
    store: EventStore,
    names: Iterable[str] | None = None,
    *,
    workers: int = 1,
    skip_broken: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> RebuildReport:
    """Fold all events anew into new tables and make them the live ones.

    Args:
        store: The store; an in-memory one is rebuilt by this process alone.
        names: The projections; all of them by default.
        workers: Processes that fold; 1 folds in this one.
        skip_broken: Set aside what cannot be folded, and go on; it is in the report, and noted
            until it has been caught up.
        on_progress: Called with the events folded so far and those to be folded in all.

    Raises:
        UnknownProjection: A name is none of a projection.
        ProjectionFailed: A fold raised, or an event cannot be read. The live generation stays as
            it is, and the rebuild can be started again where it stopped.
    """
    started = time.perf_counter()
    projections = named(names)
    install_all(store)
    with schema_lock(store.engine) as connection:
        end = feed.feed_end(connection)
        targets = [generations.start_building(connection, each, end) for each in projections]
    done = conversations = 0
    failed: list[Failure] = []
    total = _pending_events(store, targets)
    pages = _pages(store, targets)
    if workers > 1 and not _in_memory(store):
        results = _in_processes(store, targets, pages, workers, skip_broken)
    else:
        results = (_page_done(store, targets, page, skip_broken) for page in pages)
    for page_conversations, page_events, page_failed in results:
        failed += page_failed
        conversations += page_conversations
        done += page_events
        if on_progress is not None:
            on_progress(done, max(total, done))
    _finish(store, targets)
    seconds = time.perf_counter() - started
    _log.info("rebuilt", conversations=conversations, events=done, seconds=round(seconds, 3))
    rebuilt = tuple(projection.name for projection in projections)
    return RebuildReport(rebuilt, conversations, done, seconds, tuple(failed))


def _finish(store: EventStore, targets: Sequence[Generation]) -> None:
    with store.writing(durable=False) as connection:
        for target in targets:
            tables.analyse(connection, target.projection, target.number)
    with schema_lock(store.engine) as connection:
        for target in targets:
            generations.cut_over(connection, target)
    # Apart from the cut-over, which must be short: dropping and deleting takes time with size.
    with schema_lock(store.engine) as connection:
        generations.drop_dead(connection)
    with schema_lock(store.engine) as connection:
        generations.forget_heads(connection)
        failures.forget(connection)


def _lacking(connection: Connection, targets: Sequence[Generation]) -> list[ColumnElement[bool]]:
    tables = metadata_for(connection.dialect.name).tables
    streams, heads = tables["conversations"], tables["projection_heads"]
    built = [
        exists().where(
            and_(
                heads.c.conversation_id == streams.c.conversation_id,
                heads.c.projection == target.projection.name,
                heads.c.generation == target.number,
                heads.c.version > 0,
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


def _pages(store: EventStore, targets: Sequence[Generation]) -> Iterator[list[Pending]]:
    """Yield conversations that the targets lack, in pages of about 5,000 events.

    Only ids up to the highest one at the start: a product that goes on opening conversations must
    not keep a rebuild from its end. The later ones are caught up like any others.
    """
    streams = metadata_for(store.engine.dialect.name).tables["conversations"]
    ids = streams.c.conversation_id
    with store.reading() as connection:
        last = connection.execute(select(ids).order_by(ids.desc()).limit(1)).scalar()
    after: UUID | None = None
    while last is not None:
        with store.reading() as connection:
            query = select(ids, streams.c.version)
            query = query.where(*_lacking(connection, targets), ids <= last)
            if after is not None:
                query = query.where(ids > after)
            query = query.order_by(ids).limit(_PAGE_CONVERSATIONS)
            found = [(row[0], row[1]) for row in connection.execute(query)]
        if not found:
            return
        after = found[-1][0]
        page: list[Pending] = []
        for pending in found:
            page.append(pending)
            if sum(version for _, version in page) >= _PAGE_EVENTS:
                yield page
                page = []
        if page:
            yield page


def _page_done(
    store: EventStore, targets: Sequence[Generation], page: Sequence[Pending], skip_broken: bool
) -> Done:
    try:
        return *_rebuild_page(store, targets, page), []
    except ProjectionFailed:
        if not skip_broken:
            raise
    failed: list[Failure] = []
    for conversation_id, _ in page:
        with store.writing(durable=False) as connection:
            failed += failures.catch_up_or_set_aside(connection, targets, conversation_id)
    return len(page), sum(version for _, version in page), failed


def _rebuild_page(
    store: EventStore, targets: Sequence[Generation], page: Sequence[Pending]
) -> tuple[int, int]:
    """Fold a page of conversations and write them in one transaction; return both counts.

    Short conversations are folded before the transaction for writing begins, so that several
    processes fold at the same time also where only one can write.
    """
    ids = [conversation_id for conversation_id, _ in page]
    with store.reading() as connection:
        erasures = erasure_count(connection, ids)
        counts = {
            conversation_id: TokenCounts(conversation_id, connection)
            for conversation_id, version in page
            if version <= _PAGE_EVENTS
        }
        folded = {
            conversation_id: fold_anew(connection, targets, conversation_id, counts=known)
            for conversation_id, known in counts.items()
        }
    _save_counts(store, ids, list(counts.values()), erasures)
    with store.writing(durable=False) as connection:
        for conversation_id in ids:
            erasure_lock(connection, conversation_id)
        # What was erased since it was folded must not be written.
        stale = erasure_count(connection, ids) != erasures
        for conversation_id in ids:
            folds = folded.get(conversation_id)
            if folds is None or stale or not untouched(connection, targets, conversation_id):
                catch_up(connection, targets, conversation_id)
            else:
                save_folds(connection, folds, conversation_id)
    return len(page), sum(version for _, version in page)


def _save_counts(
    store: EventStore, ids: Sequence[UUID], counts: Sequence[TokenCounts], erasures: int
) -> None:
    """Store what was counted, before the rows and apart from them.

    A reader that counts the same message waits for whoever came first, and must not have to wait
    for the page's rows.
    """
    if not any(known.has_new for known in counts):
        return
    with store.writing(durable=False) as connection:
        for conversation_id in ids:
            erasure_lock(connection, conversation_id)
        if erasure_count(connection, ids) == erasures:
            for known in counts:
                known.write(connection)


def _in_memory(store: EventStore) -> bool:
    return store.engine.url.database in (None, "", ":memory:")


def _in_processes(
    store: EventStore,
    targets: Sequence[Generation],
    pages: Iterator[list[Pending]],
    count: int,
    skip_broken: bool,
) -> Iterator[Done]:
    """Rebuild pages in processes of their own, at most twice as many at a time as there are."""
    url = store.engine.url.render_as_string(hide_password=False)
    numbers = tuple((target.projection.name, target.number) for target in targets)
    # Spawned, not forked: a connection must not be shared with a child.
    pool = ProcessPoolExecutor(
        count, mp_context=get_context("spawn"), initializer=_start_worker, initargs=(url, numbers)
    )
    running: set[Future[Done]] = set()
    try:
        for page in pages:
            running.add(pool.submit(_work, page, skip_broken))
            if len(running) >= 2 * count:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        pool.shutdown(cancel_futures=True)


class _Worker:
    """What a worker process keeps between two pages."""

    store: EventStore
    targets: list[Generation]


def _start_worker(url: str, numbers: tuple[tuple[str, int], ...]) -> None:
    # Ctrl-C is for the parent, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _Worker.store = EventStore(open_engine(url))
    _Worker.targets = [
        Generation(projection, number, None)
        for name, number in numbers
        for projection in named([name])
    ]


def _end_with_parent() -> None:
    """End this worker when the parent is gone, also when it was killed and could not say so."""
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _work(page: list[Pending], skip_broken: bool) -> Done:
    return _page_done(_Worker.store, _Worker.targets, page, skip_broken)
