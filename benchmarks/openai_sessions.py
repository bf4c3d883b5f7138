"""Sessions of the OpenAI Agents SDK, compared with the SDK's own on SQLite."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from agents import SQLiteSession
from sqlalchemy import make_url

from agent_eventstore.integrations.openai_agents.history import forget
from agent_eventstore.integrations.openai_agents.session import EventStoreSession
from benchmarks.bench import SQLITE, Bench
from benchmarks.measure import Amount, awaiting, in_turns
from benchmarks.results import Target, Work, work
from eventstore import EventStore

__all__ = ["openai_sessions"]

_LENGTHS = (100, 1_000, 5_000)
_ROUNDS = 50
_NEWEST = 20
_PEER, _OURS = "SQLiteSession", "EventStoreSession"
_COLD = f"{_OURS}, nothing read yet"
_TEXT = "What the user asked, and what the model has answered to it, in a few plain words. " * 3
_MB = 1e6


def openai_sessions(bench: Bench) -> Iterator[Work]:
    """Measure adding and loading by the length of the session, and the size on disk."""
    lengths = _LENGTHS if bench.scale.rounds >= _ROUNDS else _LENGTHS[:1]
    for length in lengths:
        with bench.fresh(SQLITE) as url, ExitStack() as stack:
            run = stack.enter_context(asyncio.Runner()).run
            peer = SQLiteSession("s", f"{make_url(url).database}.peer")
            stack.enter_context(closing(peer))
            ours = EventStoreSession("s", stack.enter_context(EventStore.open(url)))
            for session in (peer, ours):
                for turn in range(length // 4):
                    for items in _turn(turn):
                        run(session.add_items(items))
            yield _sizes(length, url)
            yield from _times(length, min(_ROUNDS, bench.scale.rounds), run, peer, ours)


def _times(length: int, rounds: int, run: Any, peer: Any, ours: Any) -> Iterator[Work]:
    step = _turn(0)[1]
    for name, done in (
        ("add a step", lambda session: session.add_items(step)),
        ("load all", lambda session: session.get_items()),
        (f"load the newest {_NEWEST}", lambda session: session.get_items(_NEWEST)),
    ):
        candidates = {
            _PEER: awaiting(run, partial(done, peer)),
            _OURS: awaiting(run, partial(done, ours)),
        }
        if not name.startswith("add"):
            candidates[_COLD] = _afresh(run, done, ours)
        yield work(
            f"OpenAI Agents SDK: {name}, {length:,} items",
            in_turns(candidates, rounds),
            {_OURS: Target(ratio=1.0, against=_PEER)},
            note="SQLite, both with a write-ahead log and synchronous=FULL, both in a worker "
            "thread; a step is a call and its result.",
        )


def _afresh(run: Any, done: Any, session: Any) -> Any:
    """Return the load of a process that opens the session for the first time."""

    def load() -> Any:
        forget(session.store, session.id)
        return done(session)

    return awaiting(run, load)


def _sizes(length: int, url: str) -> Work:
    ours = Path(str(make_url(url).database))
    files = {_PEER: ours.with_name(f"{ours.name}.peer"), _OURS: ours}
    amounts = [Amount(name, _size_of(file), "MB") for name, file in files.items()]
    return work(
        f"OpenAI Agents SDK: storage of {length:,} items",
        amounts,
        note="In MB of 10^6 bytes, with the write-ahead log. Ours stores each text twice: "
        "verbatim and parsed.",
    )


def _size_of(file: Path) -> float:
    parts = (file.with_name(f"{file.name}{ending}") for ending in ("", "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists()) / _MB


def _turn(place: int) -> list[list[dict[str, Any]]]:
    text = f"{place} {_TEXT}"
    call = f"call_{place}"
    return [
        [{"role": "user", "content": text}],
        [
            {
                "id": f"fc_{place}",
                "call_id": call,
                "name": "search",
                "arguments": json.dumps({"query": text[:40]}),
                "type": "function_call",
                "status": "completed",
            },
            {"call_id": call, "output": text, "type": "function_call_output"},
        ],
        [
            {
                "id": f"msg_{place}",
                "content": [{"annotations": [], "text": text, "type": "output_text"}],
                "role": "assistant",
                "status": "completed",
                "type": "message",
            }
        ],
    ]
