"""``eventstore serve``: how long pages take in a large store, and what many followers cost."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import httpx
import psutil

from benchmarks.bench import Bench
from benchmarks.measure import Amount, Figure, in_turns
from benchmarks.processes import background
from benchmarks.results import Target, Work, work
from benchmarks.screens import fill_list
from benchmarks.workload import text
from eventstore import EventStore, NewEvent, events, new_id
from projections.upkeep import rebuild

__all__ = ["served"]

_TOKEN = "a-token-of-the-benchmarks"  # noqa: S105 - of a service that ends with the benchmark
_HEADERS = {"Authorization": f"Bearer {_TOKEN}"}
_TOGETHER = 500
_PAGE_MS = 1_000.0
_SCREEN_MS = 250.0
_LIVE = 10  # followers of one conversation
_PAUSE_S = 0.05
_MB = 2**20


def served(bench: Bench) -> Iterator[Work]:
    """Measure pages beside many conversations, and the way of an event to many screens."""
    for database in bench.databases:
        with ExitStack() as stack:
            url = stack.enter_context(bench.fresh(database))
            store = stack.enter_context(EventStore.open(url, synchronous="NORMAL"))
            fill_list(store, bench.scale.listed)
            long = _long(store, bench.scale.read_lengths[-1])
            rebuild(store)
            place, process = stack.enter_context(_service(url))
            yield _pages(bench, database, place, long)
            yield from _followers(bench, database, store, place, process)


def _long(store: EventStore, length: int) -> UUID:
    """Return a conversation of so many messages."""
    stream, rng = new_id(), Random(3)
    for start in range(0, length, _TOGETHER):
        messages: list[NewEvent] = []
        for number in range(start, min(start + _TOGETHER, length)):
            of = events.AssistantMessage.of if number % 2 else events.UserMessage.text
            messages.append(NewEvent(of(text(rng))))
        store.append(stream, messages)
    return stream


@contextmanager
def _service(url: str) -> Iterator[tuple[str, psutil.Process]]:
    """Yield the address and the process of a service."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = f"http://127.0.0.1:{port}"
    with background(url, "serve", "--port", str(port), "--token", _TOKEN) as process:
        for _ in range(1_200):
            try:
                httpx.get(f"{place}/static/viewer.css", headers=_HEADERS)
            except httpx.TransportError:
                time.sleep(0.05)
            else:
                break
        yield place, process


def _pages(bench: Bench, database: str, place: str, long: UUID) -> Work:
    with httpx.Client(base_url=place, headers=_HEADERS, timeout=120) as client:

        def page(path: str) -> None:
            client.get(path).raise_for_status()

        figures = in_turns(
            {
                "a file of the service": lambda: page("/static/viewer.css"),
                "the list": lambda: page("/"),
                "a search in the list": lambda: page("/?q=harbour&part=rows"),
                "the long conversation": lambda: page(f"/c/{long}"),
                "its page before": lambda: page(f"/c/{long}?before=2000&part=items"),
            },
            max(bench.scale.rounds // 40, 1),
        )
    name = (
        f"Pages beside {bench.scale.listed:,} conversations, one of them of "
        f"{bench.scale.read_lengths[-1]:,} messages, {database}"
    )
    return work(name, figures, {each.name: Target(p99_ms=_PAGE_MS) for each in figures[1:]})


@dataclass
class _Screen:
    """A follower: which version it saw when."""

    stream: UUID
    seen: list[tuple[int, float]] = field(default_factory=list)

    async def follow(self, place: str, until: int, ready: asyncio.Barrier) -> None:
        """Follow the conversation to a version, as a program without any library."""
        host, _, port = place.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        path = f"/api/conversations/{self.stream}/follow"
        request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {_TOKEN}\r\n\r\n"
        writer.write(request.encode())
        waiting = True
        while line := await reader.readline():
            if not line.startswith(b"id: "):
                continue
            version = int(line[4:])
            self.seen.append((version, time.perf_counter()))
            if waiting:
                await ready.wait()
                waiting = False
            if version >= until:
                break
        writer.close()


def _followers(
    bench: Bench, database: str, store: EventStore, place: str, process: psutil.Process
) -> Iterator[Work]:
    count = bench.scale.followers
    streams = [new_id() for _ in range(max(count // _LIVE, 1))]
    for stream in streams:
        store.append(stream, events.UserMessage.text("begin"))
    appended = max(bench.scale.rounds // 100, 2)
    screens = [_Screen(streams[number % len(streams)]) for number in range(count)]
    before = process.memory_info().rss
    committed: dict[tuple[UUID, int], float] = {}
    resident: list[int] = []

    def write() -> None:
        rng = Random(4)
        for _ in range(appended):
            for stream in rng.sample(streams, len(streams)):
                time.sleep(rng.uniform(0, 2 * _PAUSE_S))
                done = store.append(stream, events.UserMessage.text("more"))
                committed[stream, done.version] = time.perf_counter()
            resident.append(process.memory_info().rss)

    async def run() -> None:
        ready = asyncio.Barrier(count + 1)
        async with asyncio.TaskGroup() as group:
            for screen in screens:
                group.create_task(screen.follow(place, appended + 1, ready))
            await ready.wait()
            threading.Thread(target=write, daemon=True).start()

    asyncio.run(run())
    times: list[float] = []
    for screen in screens:
        last = 1
        for version, at in screen.seen[1:]:
            times += [
                max(0.0, at - committed[screen.stream, each])
                for each in range(last + 1, version + 1)
            ]
            last = version
    yield work(
        f"From commit to {count} followers of {len(streams)} live conversations, {database}",
        [Figure("commit to screen", tuple(times))],
        {"commit to screen": Target(p99_ms=_SCREEN_MS)},
        note=f"One process; an event about every {1_000 * _PAUSE_S:.0f} ms in one of them.",
    )
    yield work(
        f"Memory of a service with {count} followers, {database}",
        [
            Amount("before", before / _MB, "MB"),
            Amount("at most, while they follow", max(resident) / _MB, "MB"),
        ],
    )
