"""Pydantic AI conversations, compared with the storage in its own documentation and examples.

Pydantic AI has no database store of its own: `InMemoryConversationStore` is its only one.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from sqlalchemy import make_url

from agent_eventstore.integrations.pydantic_ai.conversations import EventStoreConversations
from benchmarks.bench import SQLITE, Bench
from benchmarks.measure import Amount, awaiting, in_turns
from benchmarks.results import Target, Work, work
from eventstore import EventStore

__all__ = ["pydantic_ai_histories"]

_LENGTHS = (100, 1_000, 5_000)
_ROUNDS = 30
_NEWEST = 20
_PEER, _FILE, _OURS = "a table of runs", "a JSON file", "EventStoreConversations"
_FIRST = "EventStoreConversations, first load"
_TEXT = "What the user asked, and what the model has answered to it, in a few plain words. " * 3
_MB = 1e6


class _File:
    """As on Pydantic AI's page on persistence: the conversation as one JSON file, durable."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def save(self, conversation: Conversation, _new: list[Any]) -> None:
        await asyncio.to_thread(self._save, conversation)

    async def load(self, _limit: int | None = None) -> Any:
        return await asyncio.to_thread(self._load)

    def _save(self, conversation: Conversation) -> None:
        new = self.path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(ConversationTypeAdapter.dump_json(conversation))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)

    def _load(self) -> Conversation:
        return ConversationTypeAdapter.validate_json(self.path.read_bytes())


class _Table:
    """As in the chat example of `pydantic-ai-examples`: one row for each run, in SQLite.

    One thread holds the connection and runs all statements; usage and waiting calls are lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.threads = ThreadPoolExecutor(max_workers=1)
        self.connection = self.threads.submit(partial(sqlite3.connect, path)).result()
        table = "CREATE TABLE messages (id INTEGER PRIMARY KEY, message_list TEXT)"
        self.threads.submit(self.connection.execute, table).result()

    async def save(self, _conversation: Conversation, new: list[Any]) -> None:
        rows = [(ModelMessagesTypeAdapter.dump_json(run).decode(),) for run in _runs(new)]
        await self._do(self.connection.executemany, f"{_INSERT} (?)", rows)
        await self._do(self.connection.commit)

    async def load(self, limit: int | None = None) -> Any:
        found = await self._do(self.connection.execute, _SELECT, ((limit or -1) // 2,))
        rows = await self._do(found.fetchall)
        messages: list[Any] = []
        for row in reversed(rows):
            messages.extend(ModelMessagesTypeAdapter.validate_json(row[0]))
        return messages

    def close(self) -> None:
        self.threads.submit(self.connection.close).result()
        self.threads.shutdown()

    async def _do(self, work: Any, *given: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads, partial(work, *given))


_INSERT = "INSERT INTO messages (message_list) VALUES"
_SELECT = "SELECT message_list FROM messages ORDER BY id DESC LIMIT ?"


class _Ours:
    """This project's conversations, with the same methods as the others."""

    def __init__(self, store: EventStore, path: Path) -> None:
        self.store, self.path = store, path
        self.conversations = EventStoreConversations(store)

    async def save(self, conversation: Conversation, _new: list[Any]) -> None:
        await self.conversations.save(conversation)

    async def load(self, limit: int | None = None) -> Any:
        return await self.conversations.load("c", limit=limit)

    async def load_first(self) -> Any:
        return await EventStoreConversations(self.store).load("c")


def pydantic_ai_histories(bench: Bench) -> Iterator[Work]:
    """Measure saving a turn and loading by the length of the history, and the size on disk."""
    lengths = _LENGTHS if bench.scale.rounds >= _ROUNDS else _LENGTHS[:1]
    for length in lengths:
        with bench.fresh(SQLITE) as url, ExitStack() as stack:
            run = stack.enter_context(asyncio.Runner()).run
            path = Path(str(make_url(url).database))
            table = _Table(path.with_name(f"{path.name}.peer"))
            stack.callback(table.close)
            ours = _Ours(stack.enter_context(EventStore.open(url)), path)
            stores: dict[str, Any] = {
                _PEER: table,
                _FILE: _File(path.with_name(f"{path.name}.json")),
                _OURS: ours,
            }
            held = dict[str, Conversation]()
            for name, store in stores.items():
                held[name] = Conversation(conversation_id="c", messages=_turns(length))
                run(store.save(held[name], held[name].messages))
            amounts = [Amount(name, _size_of(store.path), "MB") for name, store in stores.items()]
            yield work(f"Pydantic AI: storage of {length:,} messages", amounts)
            yield from _times(length, min(_ROUNDS, bench.scale.rounds), run, stores, held)


def _times(
    length: int, rounds: int, run: Any, stores: dict[str, Any], held: dict[str, Conversation]
) -> Iterator[Work]:
    async def save(name: str) -> None:
        new = _turns(2)
        held[name].messages += new
        await stores[name].save(held[name], new)

    loads = {name: awaiting(run, store.load) for name, store in stores.items()}
    newest = {name: awaiting(run, partial(store.load, _NEWEST)) for name, store in stores.items()}
    measured = {
        "save a turn": {name: awaiting(run, partial(save, name)) for name in stores},
        "load all": loads | {_FIRST: awaiting(run, stores[_OURS].load_first)},
        f"load the newest {_NEWEST}": newest,
    }
    for said, candidates in measured.items():
        # Separately: the next candidate would pay for the memory that it frees.
        file = in_turns({_FILE: candidates.pop(_FILE)}, rounds)
        yield work(
            f"Pydantic AI: {said}, {length:,} messages",
            in_turns(candidates, rounds) + file,
            {_OURS: Target(ratio=1.0, against=_PEER)},
            note="SQLite, a durable transaction (FULL): the table's syncs four times, because of "
            "its rollback journal, and ours once; the file is rewritten and synced. "
            "All of them work in threads, so that the event loop is not blocked.",
        )


def _runs(messages: list[Any]) -> Iterator[list[Any]]:
    return (messages[place : place + 2] for place in range(0, len(messages), 2))


def _turns(length: int) -> list[Any]:
    made: list[Any] = []
    for place in range(length):
        text = f"{place} {_TEXT}"
        asked, said = UserPromptPart(text), TextPart(text)
        made.append(ModelResponse([said]) if place % 2 else ModelRequest([asked]))
    return made


def _size_of(file: Path) -> float:
    parts = (file.with_name(f"{file.name}{ending}") for ending in ("", "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists()) / _MB
