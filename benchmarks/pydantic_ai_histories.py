"""Conversations of Pydantic AI, beside a file that is written anew after each run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
from sqlalchemy import make_url

from agent_eventstore.integrations.pydantic_ai import EventStoreConversations
from benchmarks.bench import SQLITE, Bench
from benchmarks.measure import Amount, in_turns
from benchmarks.results import Target, Work, work
from eventstore import EventStore

__all__ = ["pydantic_ai_histories"]

_LENGTHS = (100, 1_000, 5_000)
_ROUNDS = 30
_NEWEST = 20
_PEER, _OURS = "a JSON file", "EventStoreConversations"
_TEXT = "What the user asked, and what the model has answered to it, in a few plain words. " * 3
_MB = 1e6


class _File:
    """What Pydantic AI's page on persistence shows: the conversation as one JSON, durably."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, conversation: Conversation) -> None:
        new = self.path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(ConversationTypeAdapter.dump_json(conversation))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)

    def load(self) -> Conversation:
        return ConversationTypeAdapter.validate_json(self.path.read_bytes())


def pydantic_ai_histories(bench: Bench) -> Iterator[Work]:
    """Measure saving a turn and loading by the length of the history, and what it takes on disk."""
    lengths = _LENGTHS if bench.scale.rounds >= _ROUNDS else _LENGTHS[:1]
    for length in lengths:
        with bench.fresh(SQLITE) as url, ExitStack() as stack:
            run = stack.enter_context(asyncio.Runner()).run
            ours = EventStoreConversations(stack.enter_context(EventStore.open(url)))
            path = Path(str(make_url(url).database))
            peer = _File(path.with_name(f"{path.name}.json"))
            conversation = Conversation(conversation_id="c", messages=_turns(length))
            peer.save(conversation)
            run(ours.save(conversation))
            amounts = [
                Amount(_PEER, _size_of(peer.path), "MB"),
                Amount(_OURS, _size_of(path), "MB"),
            ]
            yield work(f"Pydantic AI: storage of {length:,} messages", amounts)
            yield from _times(length, min(_ROUNDS, bench.scale.rounds), run, peer, ours)


def _times(length: int, rounds: int, run: Any, peer: _File, ours: Any) -> Iterator[Work]:
    theirs, mine = peer.load(), run(ours.load("c"))

    def save_to_file() -> None:
        theirs.messages += _turns(2)
        peer.save(theirs)

    def save() -> None:
        mine.messages += _turns(2)
        run(ours.save(mine))

    measured = {
        "save a turn": {_PEER: save_to_file, _OURS: save},
        "load all": {_PEER: peer.load, _OURS: lambda: run(ours.load("c"))},
        f"load the newest {_NEWEST}": {
            _PEER: peer.load,
            _OURS: lambda: run(ours.load("c", limit=_NEWEST)),
        },
    }
    for said, candidates in measured.items():
        yield work(
            f"Pydantic AI: {said}, {length:,} messages",
            in_turns(candidates, rounds),
            {_OURS: Target(ratio=1.0, against=_PEER)},
            note="SQLite, a durable transaction (FULL); the file is written anew and synced.",
        )


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
