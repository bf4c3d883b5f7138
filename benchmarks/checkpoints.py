"""The cost of a checkpoint, compared with reading its heads; and of verifying against it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from random import Random

from benchmarks.bench import Bench
from benchmarks.floors import bare
from benchmarks.measure import in_turns
from benchmarks.results import Target, Work, work
from benchmarks.workload import conversation
from eventstore import EventStore, new_id
from eventstore.security.checkpoints import new_key

__all__ = ["checkpoints"]

_MOST = 1.2
_EVENTS = 12
_HEADS = "SELECT conversation_id, version, chain FROM conversations ORDER BY conversation_id"


def checkpoints(bench: Bench) -> Iterator[Work]:
    """Measure both numbers of conversations, on each database."""
    for database in bench.databases:
        for conversations in bench.scale.marked:
            yield _checkpoints(bench, database, conversations)


def _checkpoints(bench: Bench, database: str, conversations: int) -> Work:
    private, public = new_key()
    with (
        tempfile.TemporaryDirectory() as folder,
        bench.fresh(database) as url,
        EventStore.open(url, synchronous="NORMAL") as store,
    ):
        for seed in range(conversations):
            store.append(new_id(), list(conversation(_EVENTS, Random(seed))))
        file = Path(folder, "store.checkpoint")
        store.checkpoint(file, key=private)
        assert store.verify_against(file, public_key=public).ok
        floor = bare(url)
        heads = f"{floor.name} SELECT of the heads"
        figures = in_turns(
            {
                heads: lambda: floor.connection.execute(_HEADS).fetchall(),
                "checkpoint": lambda: store.checkpoint(BytesIO(), key=private),
                "verify": store.verify,
                "verify_against": lambda: store.verify_against(file, public_key=public),
            },
            max(bench.scale.repeats, 2 * bench.scale.rounds // conversations),
        )
        floor.close()
    return work(
        f"Checkpoint of {conversations:,} conversations, {database}",
        figures,
        {"verify_against": Target(ratio=_MOST, against="verify")},
        note=f"Signed, in memory; conversations of {_EVENTS} events. `verify` reads and hashes "
        "every event; `verify_against` also compares each conversation with the file.",
    )
