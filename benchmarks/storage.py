"""The size of a long conversation on disk, with all its projections."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import psycopg
from sqlalchemy import make_url

from agent_eventstore import Conversation
from benchmarks import peers
from benchmarks.bench import SQLITE, Bench
from benchmarks.floors import bare, conninfo, rows_of
from benchmarks.measure import Amount
from benchmarks.results import Target, Work, work
from benchmarks.workload import text
from eventstore import EventStore, NewEvent, events
from projections import Views, worker

__all__ = ["stored_sizes"]

_BYTES = 1_024
_MEGABYTES = 3.0
_MB = 1e6


def stored_sizes(bench: Bench) -> Iterator[Work]:
    """Measure the size of a conversation, recorded and as plain messages, on each database."""
    for database in bench.databases:
        yield _sizes(bench, database)


def _sizes(bench: Bench, database: str) -> Work:
    turns = bench.scale.turns
    plain, recorded = "messages alone", "as the recorder writes it"
    amounts = [
        Amount(f"bare {database}, one row a message", _floor(bench, database), "MB"),
        Amount(plain, _size(bench, database, _append_messages), "MB"),
        Amount(recorded, _size(bench, database, _record), "MB"),
        *_peers(bench, database),
    ]
    reach = Target(amount=_MEGABYTES)
    return work(
        f"Storage of {turns:,} turns of 1 KB + 1 KB, {database}",
        amounts,
        {plain: reach, recorded: reach},
        note="In MB of 10^6 bytes, all projections are caught up at the end, and the context is "
        "read at each turn. SQLite: the file after a checkpoint. PostgreSQL: all tables with their "
        "indexes, less their size when empty; no VACUUM.",
    )


def _size(bench: Bench, database: str, tell: Callable[[EventStore, int], None]) -> float:
    with bench.fresh(database) as url:
        with EventStore.open(url, synchronous="NORMAL") as store:
            worker.run(store, once=True)
            empty = 0.0 if database == SQLITE else _on_disk(url)
            tell(store, bench.scale.turns)
            worker.run(store, once=True)
        return _on_disk(url) - empty


def _append_messages(store: EventStore, turns: int) -> None:
    conversation = Conversation.start(store)
    views = Views(store)
    for user, assistant in _messages(turns):
        store.append(conversation.id, [user, assistant])
        views.context(conversation.id, max_tokens=4_000)


def _record(store: EventStore, turns: int) -> None:
    with Conversation.start(store, mode="chat") as conversation:
        rng = Random(1)
        for _ in range(turns):
            with conversation.turn(text(rng, _BYTES)) as turn:
                request = turn.context(max_tokens=4_000, model="gpt-4o")
                with turn.llm_call(request) as call:
                    call.response(_answer(text(rng, _BYTES)))


def _answer(content: str) -> dict[str, object]:
    message = {"role": "assistant", "content": content}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3_900, "completion_tokens": 200, "total_tokens": 4_100},
    }


def _messages(turns: int) -> Iterator[tuple[NewEvent, NewEvent]]:
    rng = Random(1)
    for _ in range(turns):
        user = events.UserMessage.text(text(rng, _BYTES))
        assistant = events.AssistantMessage.of(text(rng, _BYTES), final=True)
        yield NewEvent(user), NewEvent(assistant)


def _floor(bench: Bench, database: str) -> float:
    with bench.fresh(database) as url:
        floor = bare(url)
        for pair in _messages(bench.scale.turns):
            floor.insert(rows_of(pair, database != SQLITE))
        floor.close()
        return _on_disk(url)


def _peers(bench: Bench, database: str) -> Iterator[Amount]:
    with bench.fresh(database) as url, peers.writers(url) as found:
        for peer in found:
            append = peer.stream()
            for pair in _messages(bench.scale.turns):
                append(pair)
            size = _file_size(peer.path) if peer.path else _on_disk(url)
            yield Amount(peer.name, size, "MB")


def _on_disk(url: str) -> float:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _file_size(str(parsed.database))
    with psycopg.connect(conninfo(url)) as connection:
        [size] = connection.execute(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c "
            "WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace"
        ).fetchone() or [0]
    return float(size) / _MB


def _file_size(path: str) -> float:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(path).stat().st_size / _MB
