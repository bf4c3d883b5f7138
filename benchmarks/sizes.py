"""Messages from a kilobyte to many megabytes, through everything that a store does with them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from sqlalchemy import make_url

from agent_eventstore.transcripts import export_messages_json
from benchmarks.bench import POSTGRESQL, SQLITE, Bench
from benchmarks.measure import Figure
from benchmarks.results import Work, work
from eventstore import EventStore, events, new_id
from projections import Views, worker
from projections.errors import BudgetInfeasible
from projections.upkeep import rebuild
from tests.postgres import PostgresServer, fresh_database

__all__ = ["NEEDLE", "both_sockets", "message_sizes", "steps", "text_of"]

NEEDLE = "marigold"
"""A word of each text that its other words do not contain."""
_SMALL = 8_000  # tokens
_LARGE = 10**8


def text_of(size: int) -> str:
    """Return a text of about this many bytes, of words that do not repeat."""
    rng = Random(size)
    return " ".join([NEEDLE, *(f"{rng.getrandbits(64):016x}" for _ in range(size // 17))])


def steps(store: EventStore, text: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what is done with a message of this text, in order; each checks what it gets."""
    stream, views = new_id(), Views(store)
    message = events.UserMessage.text(text)

    def append() -> None:
        assert store.append(stream, [message]).version == 1

    def read() -> None:
        assert [each.data for each in store.read(stream)] == [message]

    def context() -> None:
        request = views.context(stream, max_tokens=_LARGE, mode=None)
        assert request.messages[-1]["content"] == text

    def small_context() -> None:
        try:
            views.context(stream, max_tokens=_SMALL, mode=None)
        except BudgetInfeasible:
            assert len(text) > _SMALL

    def timeline() -> None:
        assert [item.text for item in views.timeline(stream)] == [text]

    def search() -> None:
        assert [hit.conversation_id for hit in views.search(NEEDLE)] == [stream]

    def work_off() -> None:
        worker.run(store, once=True)

    def rebuild_all() -> None:
        rebuild(store)
        timeline()

    def export() -> None:
        assert text in json.dumps(export_messages_json(store, stream), default=str)

    def erase() -> None:
        store.erase(stream, reason="no longer needed")
        assert next(iter(store.read(stream))).data is None
        assert all(NEEDLE not in (item.text or "") for item in views.timeline(stream))
        assert not views.search(NEEDLE)

    yield "append", append
    yield "read", read
    yield f"context, {_LARGE:,} tokens", context
    yield f"context, {_SMALL:,} tokens", small_context
    yield "timeline", timeline
    yield "search", search
    yield "worker", work_off
    yield "rebuild", rebuild_all
    yield "export", export
    yield "erase", erase


@contextmanager
def both_sockets() -> Iterator[dict[str, str]]:
    """Start a server that listens to a Unix socket and to TCP, and yield its URL for each."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with PostgresServer({"listen_addresses": "127.0.0.1", "port": str(port)}) as server:
        local = make_url(server.url()).set(port=port)
        ways = {"Unix socket": local, "TCP": local.set(host="127.0.0.1", query={})}
        yield {way: url.render_as_string(hide_password=False) for way, url in ways.items()}


def message_sizes(bench: Bench) -> Iterator[Work]:
    """Measure each size on SQLite, and on PostgreSQL by both kinds of sockets."""
    for size in bench.scale.message_sizes:
        with bench.fresh(SQLITE) as url:
            yield _measured(url, size, SQLITE)
    if bench.server_url is None:
        return
    with both_sockets() as ways:
        for way, server in ways.items():
            for size in bench.scale.message_sizes:
                with fresh_database(server) as url:
                    yield _measured(url, size, f"{POSTGRESQL}, {way}")


def _measured(url: str, size: int, database: str) -> Work:
    figures = []
    with EventStore.open(url) as store:
        for name, run in steps(store, text_of(size)):
            begun = time.perf_counter()
            run()
            figures.append(Figure(name, (time.perf_counter() - begun,), 0))
    return work(f"A message of {size:,} bytes, {database}", figures)
