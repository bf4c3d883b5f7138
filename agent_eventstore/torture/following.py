"""The processes that follow the writers: tailing readers, projection workers, and rebuilds.

A cut connection is no end for any of them: each goes on where it was, as a product's would. A
reader remembers its cursor only; what it was handed stands in its notes, in that order.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from agent_eventstore.torture.notes import Batch, Notes, write_down
from agent_eventstore.torture.plan import PATIENCE_S, Plan
from agent_eventstore.torture.writing import open_store
from eventstore.errors import EventStoreError, InvalidCursor, StoreUnavailable
from projections import worker
from projections.catalogue import PROJECTIONS
from projections.rebuild import rebuild

__all__ = ["fold", "rebuild_again", "tail"]

_PAUSE_S = 0.02

_PAGE = 500


def tail(plan: Plan, index: int, cursor: str | None) -> None:
    """Read the feed from a cursor on, until all that was written has been handed out.

    Where the cursor is refused, since the log has gone back, forgets all and begins anew. Gives up
    when nothing came for two minutes, though the writers have ended.
    """
    seen = 0
    file = os.open(plan.notes(f"reader-{index}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    until = time.monotonic() + PATIENCE_S
    with open_store(plan) as store, Notes(plan.notes(f"readers-{index}")) as notes:
        while True:
            try:
                # Before the page: what is stored then must be in it, or in one of those before.
                end = sum(plan.heads(store).values()) if plan.settled() else None
                page = store.read_all(after=cursor, limit=_PAGE)
                own = [each for each in page if each.meta.correlation_id == plan.run.hex]
                write_down(file, [(each.conversation_id, each.version) for each in own])
                cursor, seen = page.cursor, seen + len(own)
                if page:
                    until = time.monotonic() + PATIENCE_S
                    continue
                if end is not None and seen >= end:
                    break
            except InvalidCursor:
                os.ftruncate(file, 0)
                cursor, seen = None, 0
                notes.count("begun_anew")
            except StoreUnavailable:
                pass
            if plan.settled() and time.monotonic() > until:
                break
            time.sleep(_PAUSE_S)
    os.close(file)


def fold(plan: Plan, index: int) -> None:
    """Keep all projections warm, as ``eventstore projections run`` does."""
    stop = threading.Event()
    threading.Thread(target=_tell_when_stopped, args=(plan, stop), daemon=True).start()
    with open_store(plan) as store:
        while not stop.is_set():
            with suppress(EventStoreError):
                worker.run(store, poll_interval_s=_PAUSE_S, stop=stop)


def _tell_when_stopped(plan: Plan, stop: threading.Event) -> None:
    while not plan.stopped():
        time.sleep(_PAUSE_S)
    stop.set()


def rebuild_again(plan: Plan) -> None:
    """Rebuild projections, some or all, again and again.

    Rests for as long as each has taken: what a rebuild costs grows with the log, and would leave
    the writers of a long run ever less.
    """
    choose = plan.chance("rebuild", os.getpid())
    names = [projection.name for projection in PROJECTIONS]
    with Notes(plan.notes("rebuilds")) as notes, open_store(plan) as store:
        while not plan.stopped():
            chosen, started = choose.sample(names, choose.randint(1, len(names))), time.monotonic()
            with suppress(EventStoreError):
                done = rebuild(store, chosen)
                notes.acknowledged(Batch("rebuild", plan.run, done.events), 0)
            until = 2 * time.monotonic() - started
            while time.monotonic() < until and not plan.stopped():
                time.sleep(_PAUSE_S)
