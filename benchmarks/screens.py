"""What the screens of a chat product wait for: a list, a search, and chunks of an answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

from benchmarks.bench import SQLITE, Bench
from benchmarks.floors import bare
from benchmarks.measure import Figure, in_turns
from benchmarks.results import Target, Work, work
from benchmarks.workload import text
from eventstore import ANY, EventStore, NewEvent, events, new_id
from projections import Views
from projections.upkeep import rebuild

__all__ = ["fill_list", "screens"]

_SHOWN = ("directory", "search")
_PAGE = 50
_USERS = 20
_TOGETHER = 500
_LIST_MS = 10.0
_SEARCH_MS = 50.0
_FOLLOW_MS = 50.0
_FOLLOWERS = 10


def screens(bench: Bench) -> Iterator[Work]:
    """Measure what a chat product's screens query in a store with many conversations.

    The floor reads the same page from the same index with the bare driver, and does not check
    whether any conversation is behind.
    """
    for database in bench.databases:
        with ExitStack() as stack:
            url = stack.enter_context(bench.fresh(database))
            store = stack.enter_context(EventStore.open(url, synchronous="NORMAL"))
            fill_list(store, bench.scale.listed)
            rebuild(store, _SHOWN)
            yield _lists(bench, database, url, store)
            yield _searches(bench, database, url, store)
            yield _followed(bench, database, url, store)


def fill_list(store: EventStore, conversations: int) -> None:
    """Append conversations of two messages, for one tenant and several users."""
    rng = Random(1)
    for start in range(0, conversations, _TOGETHER):
        requests = [
            store._request(
                new_id(),
                [
                    NewEvent(events.UserMessage.text(text(rng))),
                    NewEvent(events.AssistantMessage.of(text(rng))),
                ],
                ANY,
                None,
                "tenant",
                f"user-{number % _USERS}",
                None,
                None,
            )
            for number in range(start, min(start + _TOGETHER, conversations))
        ]
        for outcome in store._append_group(requests):
            if isinstance(outcome, Exception):
                raise outcome


def _lists(bench: Bench, database: str, url: str, store: EventStore) -> Work:
    views = Views(store)
    first = views.conversations(user_id="user-1", limit=_PAGE)
    floor = bare(url)
    try:
        figures = in_turns(
            {
                floor.name: _bare_page(floor.connection, database, store),
                "a user's newest": lambda: views.conversations(user_id="user-1", limit=_PAGE),
                "a user's next page": lambda: views.conversations(
                    user_id="user-1", after=first.cursor, limit=_PAGE
                ),
                "a tenant's newest": lambda: views.conversations(tenant_id="tenant", limit=_PAGE),
                "everybody's newest": lambda: views.conversations(limit=_PAGE),
            },
            max(bench.scale.rounds // 4, 1),
        )
    finally:
        floor.close()
    name = f"A list of {_PAGE} of {bench.scale.listed:,} conversations, {database}"
    targets = {each.name: Target(p99_ms=_LIST_MS) for each in figures[1:]}
    return work(name, figures, targets)


def _searches(bench: Bench, database: str, url: str, store: EventStore) -> Work:
    """Measure searches; the floor reads the words of a user's messages without an index."""
    views, floor = Views(store), bare(url)
    try:
        figures = in_turns(
            {
                f"{floor.name}, LIKE": _bare_search(floor.connection, database),
                "a user's, one word": lambda: views.search("harbour", user_id="user-1"),
                "a user's, a phrase": lambda: views.search('"harbour height"', user_id="user-1"),
                "everybody's, a phrase": lambda: views.search('"harbour height"'),
                "everybody's, three words": lambda: views.search("harbour copper yesterday"),
                "everybody's, nothing": lambda: views.search("xylophone"),
            },
            max(bench.scale.rounds // 40, 1),
        )
    finally:
        floor.close()
    name = f"A search in {2 * bench.scale.listed:,} messages, {database}"
    return work(name, figures, {each.name: Target(median_ms=_SEARCH_MS) for each in figures[1:]})


def _followed(bench: Bench, database: str, url: str, store: EventStore) -> Work:
    """Measure from the return of an append to the last of ten followers; the floor polls in a loop.

    There is a pause between two appends, as between two chunks of an answer.
    """
    count = max(bench.scale.rounds // 40, 3)
    cid = new_id()
    store.append(cid, events.UserMessage.text("begin"))
    with EventStore.open(url) as reader:
        polled = _delivered(store, cid, count, partial(_poll, reader, cid, count + 1), 1)
        views, start = Views(reader), count + 1
        told = _delivered(
            store, cid, count, partial(_follow, views, cid, start, start + count), _FOLLOWERS
        )
    figures = [Figure("a query in a loop", polled), Figure(f"{_FOLLOWERS} followers", told)]
    name = f"From commit to a follower, {database}"
    return work(name, figures, {figures[1].name: Target(p99_ms=_FOLLOW_MS)})


def _delivered(
    store: EventStore, cid: UUID, count: int, follow: Callable[[list[float]], None], followers: int
) -> tuple[float, ...]:
    seen: list[list[float]] = [[] for _ in range(followers)]
    threads = [threading.Thread(target=follow, args=(each,)) for each in seen]
    for thread in threads:
        thread.start()
    committed = []
    rng = Random(2)
    for _ in range(count):
        time.sleep(rng.uniform(0.02, 0.2))
        store.append(cid, events.UserMessage.text("more"))
        committed.append(time.perf_counter())
    for thread in threads:
        thread.join()
    return tuple(max(0.0, max(at) - done) for done, *at in zip(committed, *seen, strict=True))


def _poll(store: EventStore, cid: UUID, until: int, seen: list[float]) -> None:
    version = 1
    while version < until:
        now = store.get(cid).version
        seen += [time.perf_counter()] * (now - version)
        version = now


def _follow(views: Views, cid: UUID, after: int, until: int, seen: list[float]) -> None:
    for update in views.follow(cid, after=after):
        seen.append(time.perf_counter())
        if update.version == until:
            return


def _bare_search(connection: Any, database: str) -> Callable[[], object]:
    mark = "?" if database == SQLITE else "%s"
    query = (
        f"SELECT conversation_id, version FROM message_words WHERE words LIKE {mark} "
        f"AND conversation_id IN (SELECT conversation_id FROM conversations WHERE user_id = {mark})"
    )
    return lambda: connection.execute(query, ("%harbour%", "user-1")).fetchall()


def _bare_page(connection: Any, database: str, store: EventStore) -> Callable[[], object]:
    with store.reading() as reading:
        query = "SELECT max(generation) FROM projections WHERE name = 'directory'"
        generation = reading.exec_driver_sql(query).scalar()
    mark = "?" if database == SQLITE else "%s"
    page = (
        f"SELECT * FROM directory_g{generation} WHERE user_id = {mark} AND status = {mark} "
        f"ORDER BY last_activity_at DESC, conversation_id DESC LIMIT {_PAGE}"
    )
    return lambda: connection.execute(page, ("user-1", "open")).fetchall()
