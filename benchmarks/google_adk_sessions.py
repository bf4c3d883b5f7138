"""Google ADK sessions, compared with the ADK's own on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from google.adk.events import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from sqlalchemy import make_url

from agent_eventstore.integrations.google_adk.service import EventStoreSessionService
from benchmarks.bench import SQLITE, Bench
from benchmarks.measure import Amount, awaiting, in_turns
from benchmarks.results import Target, Work, work
from eventstore import EventStore

__all__ = ["google_adk_sessions"]

_LENGTHS = (100, 1_000, 5_000)
_ROUNDS = 30
_NEWEST = 20
_PEER, _OURS = "SqliteSessionService", "EventStoreSessionService"
_FIRST = "EventStoreSessionService, first load"
_TEXT = "What the user asked, and what the model has answered to it, in a few plain words. " * 3
_NAMED = {"app_name": "app", "user_id": "ada", "session_id": "s"}
_MB = 1e6


def google_adk_sessions(bench: Bench) -> Iterator[Work]:
    """Measure appending and loading by the length of the session, and the size on disk."""
    lengths = _LENGTHS if bench.scale.rounds >= _ROUNDS else _LENGTHS[:1]
    for length in lengths:
        with bench.fresh(SQLITE) as url, ExitStack() as stack:
            run = stack.enter_context(asyncio.Runner()).run
            ours = EventStoreSessionService(stack.enter_context(EventStore.open(url)))
            services = {_PEER: SqliteSessionService(f"{make_url(url).database}.peer"), _OURS: ours}
            filled = {name: run(_filled(each, length)) for name, each in services.items()}
            yield _sizes(length, url)
            yield from _times(length, min(_ROUNDS, bench.scale.rounds), run, services, filled)


async def _filled(service: Any, length: int) -> Any:
    session = await service.create_session(**_NAMED)
    for place in range(length):
        await service.append_event(session, _event(place))
    return session


def _event(place: int) -> Event:
    part = types.Part(text=f"{place} {_TEXT}")
    content = types.Content(role="model" if place % 2 else "user", parts=[part])
    return Event(author="clerk" if place % 2 else "user", invocation_id="i", content=content)


def _times(
    length: int, rounds: int, run: Any, services: dict[str, Any], filled: dict[str, Any]
) -> Iterator[Work]:
    newest = GetSessionConfig(num_recent_events=_NEWEST)
    appending, loading, recent = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for name, service in services.items():
        read = partial(service.get_session, **_NAMED)
        appending[name] = awaiting(run, partial(_appended, service, filled[name]))
        loading[name] = awaiting(run, read)
        recent[name] = awaiting(run, partial(read, config=newest))
    store = services[_OURS].store
    loading[_FIRST] = awaiting(run, lambda: EventStoreSessionService(store).get_session(**_NAMED))
    for said, candidates in (
        ("append an event", appending),
        ("load all", loading),
        (f"load the newest {_NEWEST}", recent),
    ):
        yield work(
            f"Google ADK: {said}, {length:,} events",
            in_turns(candidates, rounds),
            {_OURS: Target(ratio=1.0, against=_PEER)},
            note="SQLite, one durable transaction (FULL) each. The ADK's own service opens the "
            "file again for each call, with a rollback journal: it syncs four times, a "
            "write-ahead log once.",
        )


def _appended(service: Any, session: Any) -> Any:
    return service.append_event(session, _event(0))


def _sizes(length: int, url: str) -> Work:
    ours = Path(str(make_url(url).database))
    files = {_PEER: ours.with_name(f"{ours.name}.peer"), _OURS: ours}
    amounts = [Amount(name, _size_of(file), "MB") for name, file in files.items()]
    return work(
        f"Google ADK: storage of {length:,} events",
        amounts,
        note="In MB of 10^6 bytes, with the write-ahead log. Ours stores each text twice: "
        "verbatim and parsed.",
    )


def _size_of(file: Path) -> float:
    parts = (file.with_name(f"{file.name}{ending}") for ending in ("", "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists()) / _MB
