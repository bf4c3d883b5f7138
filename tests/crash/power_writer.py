"""The processes whose power is cut: writers, and one that keeps the projections warm.

Run as ``python -m tests.crash.power_writer FILE EVENTS SYNCHRONOUS``. What was acknowledged stands
in a file beside the store's, so that it is recorded with what is written there. At the end nothing
is closed: SQLite would write all of its log back.
"""

from __future__ import annotations

import os
import random
import sys
from contextlib import suppress
from typing import cast

from eventstore import EventStore
from eventstore.errors import StoreUnavailable
from eventstore.events import UserMessage
from eventstore.ids import new_id
from eventstore.sql.engines import Synchronous
from projections.catalogue import PROJECTIONS
from projections.engine.follower import catch_up_behind

ACKS = "-acks"
WRITERS = 2
CONVERSATIONS = 20

_left_open: list[EventStore] = []


def write(file: str, number: int, events: int, synchronous: str) -> None:
    """Append batches, and tell of each once it is acknowledged."""
    choose = random.Random(number)  # noqa: S311 - work, not secrets
    acks = os.open(f"{file}{ACKS}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    store = EventStore.open(f"sqlite:///{file}", synchronous=cast(Synchronous, synchronous))
    _left_open.append(store)
    streams = [new_id() for _ in range(CONVERSATIONS)]
    while events > 0:
        stream, size = choose.choice(streams), choose.randint(1, 20)
        texts = ("x" * choose.randint(1, 400) for _ in range(size))
        done = store.append(stream, [UserMessage.text(text) for text in texts])
        os.write(acks, f"{stream} {done.version}\n".encode())
        events -= size


def fold(file: str) -> None:
    """Keep the projections warm until killed."""
    store = EventStore.open(f"sqlite:///{file}")
    while True:
        with suppress(StoreUnavailable):
            catch_up_behind(store, PROJECTIONS)


def main(file: str, events: str, synchronous: str) -> None:
    """Have writers and a follower work side by side."""
    follower = _forked(fold, file)
    writers = [
        _forked(write, file, number, int(events) // WRITERS, synchronous)
        for number in range(WRITERS)
    ]
    failed = sum(os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) != 0 for each in writers)
    os.kill(follower, 9)
    os.waitpid(follower, 0)
    os._exit(failed)


def _forked(work: object, *arguments: object) -> int:
    if child := os.fork():
        return child
    status = 1
    try:
        work(*arguments)  # type: ignore[operator]
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
