"""Catch-up benchmark: reads all events of a store from the beginning, in order, with payloads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from uuid import UUID

from benchmarks import peers
from benchmarks.bench import POSTGRESQL, SQLITE, Bench
from benchmarks.floors import Bare, bare
from benchmarks.measure import in_turns
from benchmarks.results import Target, Work, work
from benchmarks.workload import conversation
from eventstore import EventStore, new_id

__all__ = ["catch_up_reads"]

_PAGE = 500
_RATES = {SQLITE: 150_000, POSTGRESQL: 60_000}


def catch_up_reads(bench: Bench) -> Iterator[Work]:
    """Measure the feed of the whole store and the read of one conversation, on each database."""
    for database in bench.databases:
        yield _reads(bench, database)


def _reads(bench: Bench, database: str) -> Work:
    count = bench.scale.small
    with (
        bench.fresh(database) as url,
        EventStore.open(url) as store,
        peers.readers(url) as others,
    ):
        told, conversation_id = list(conversation(count, Random(1))), new_id()
        for start in range(0, count, 1_000):
            store.append(conversation_id, told[start : start + 1_000])
        floor = bare(url)
        candidates: dict[str, Callable[[], int]] = {
            f"{floor.name} SELECT, json.loads": lambda: _select(floor),
            "EventStore.read_all": lambda: _feed(store),
            "EventStore.read": lambda: _stream(store, conversation_id),
        }
        for peer in others:
            peer.fill(told)
            candidates[peer.name] = peer.read_all
        for candidate in candidates.values():
            assert candidate() == count
        figures = in_turns(candidates, bench.scale.repeats, events=count)
        floor.close()
    reach = Target(rate=_RATES[database])
    return work(
        f"Catch-up read, decoded, {database}",
        figures,
        {"EventStore.read_all": reach, "EventStore.read": reach},
        note=f"{count:,} events of one conversation, `data` of each used; the floor selects data "
        f"and meta, and parses data as JSON. Pages of {_PAGE} (`read`: its own).",
    )


def _select(floor: Bare) -> int:
    return sum(
        json.loads(data) is not None for page in floor.pages("events", _PAGE) for _, data, _ in page
    )


def _feed(store: EventStore) -> int:
    count, cursor = 0, None
    while (page := store.read_all(after=cursor, limit=_PAGE)).events:
        count += sum(event.data is not None for event in page.events)
        cursor = page.cursor
    return count


def _stream(store: EventStore, conversation_id: UUID) -> int:
    return sum(event.data is not None for event in store.read(conversation_id))
