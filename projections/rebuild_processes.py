"""The processes of a rebuild: pages of conversations, folded in several at a time.

They are started for one rebuild and end with it, or with the process that has started them.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context, parent_process
from uuid import UUID

from eventstore import EventStore, KeyProvider
from eventstore.sql.engines import open_engine
from projections.base import Projection
from projections.catalogue import PROJECTIONS
from projections.failures import Failure
from projections.generations import Generation

__all__ = ["Done", "FoldPage", "Pending", "in_processes"]

Pending = tuple[UUID, int]
"""A conversation that the new generations lack, and its version."""

Done = tuple[int, int, list[Failure]]
"""Of a page: the conversations, their events, and what was set aside."""

FoldPage = Callable[[EventStore, Sequence[Generation], Sequence[Pending]], Done]
"""Folds a page into the generations; one that another process can import."""


def in_processes(
    store: EventStore,
    targets: Sequence[Generation],
    fold: FoldPage,
    pages: Iterator[list[Pending]],
    count: int,
) -> Iterator[Done]:
    """Fold pages in processes of their own, at most twice as many at a time as there are."""
    url = store.engine.url.render_as_string(hide_password=False)
    keys = None if store.keys is None else store.keys.provider
    numbers = tuple((_told(target.projection), target.number) for target in targets)
    # Spawned, not forked: a connection must not be shared with a child.
    pool = ProcessPoolExecutor(
        count,
        mp_context=get_context("spawn"),
        initializer=_start,
        initargs=(url, keys, numbers, fold),
    )
    running: set[Future[Done]] = set()
    try:
        for page in pages:
            running.add(pool.submit(_work, page))
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
    fold: FoldPage


def _start(
    url: str,
    keys: KeyProvider | None,
    numbers: tuple[tuple[str | Projection, int], ...],
    fold: FoldPage,
) -> None:
    # Ctrl-C is for the parent, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # A fold makes no cycles: looking for them among a page's rows took a tenth of the time.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    _Worker.store = EventStore(open_engine(url), keys=keys)
    _Worker.targets = [Generation(_found(told), number, None) for told, number in numbers]
    _Worker.fold = fold


def _told(projection: Projection) -> str | Projection:
    """Return what another process finds a projection by: one of this package's by its name."""
    return projection.name if projection in PROJECTIONS else projection


def _found(told: str | Projection) -> Projection:
    return PROJECTIONS.named([told])[0] if isinstance(told, str) else told


def _end_with_parent() -> None:
    """End this worker when the parent is gone, also when it was killed and could not say so."""
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _work(page: list[Pending]) -> Done:
    return _Worker.fold(_Worker.store, _Worker.targets, page)
