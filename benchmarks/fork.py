"""Forking a conversation, compared with an append: it copies nothing, so length is irrelevant."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from agent_eventstore import Conversation
from benchmarks.bench import Bench
from benchmarks.measure import in_turns
from benchmarks.results import Target, Work, work
from benchmarks.workload import conversation
from eventstore import EventStore, new_id
from eventstore.events import UserMessage

__all__ = ["forks_by_length"]

_SHORT, _LONG = 1_000, 100_000
_PAGE = 1_000
_MOST = 2.0


def forks_by_length(bench: Bench) -> Iterator[Work]:
    """Measure a short and a long conversation on each database."""
    for database in bench.databases:
        yield _forks(bench, database)


def _forks(bench: Bench, database: str) -> Work:
    with bench.fresh(database) as url, EventStore.open(url) as store:
        sources = {}
        for count in (_SHORT, _LONG):
            told, source = list(conversation(count, Random(count))), new_id()
            for start in range(0, count, _PAGE):
                store.append(source, told[start : start + _PAGE])
            sources[count] = source
        long = sources[_LONG]
        figures = in_turns(
            {
                "append, a new conversation": lambda: store.append(
                    new_id(), UserMessage.text("hello")
                ),
                f"EventStore.fork, {_SHORT:,} events": lambda: store.fork(sources[_SHORT]),
                f"EventStore.fork, {_LONG:,} events": lambda: store.fork(long),
                f"Conversation.fork, {_LONG:,} events": lambda: Conversation.fork(store, long),
            },
            max(bench.scale.repeats, bench.scale.rounds // 10),
        )
    reach = Target(ratio=_MOST, against="append, a new conversation")
    return work(
        f"Forking a conversation, {database}",
        figures,
        {f"EventStore.fork, {_LONG:,} events": reach},
        note="Each creates a conversation with one event, in one durable transaction (FULL). "
        "`Conversation.fork` also looks up the last turn's end first, and begins a session.",
    )
