"""The cost of reading the messages[] view, by length of the conversation: warm and first reads.

A warm read happens in a process that has read the conversation before: it follows an append, as
before the next model call. The very first read folds every event. The first read of a process
finds the rows in the database, and nothing in memory.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count, islice

from sqlalchemy import text

from benchmarks import measure
from benchmarks.bench import SQLITE, Bench
from benchmarks.context.transcripts import MODEL, TAU_BENCH
from benchmarks.measure import Figure
from benchmarks.results import Target, Work, work
from benchmarks.turn import real_messages
from eventstore import EventStore, NewEvent, events, new_id
from eventstore.events.values import ImagePart, TextPart
from eventstore.ids import call_id
from projections import Views
from projections.context.settings import ContextSettings
from projections.context_reading import bring_up, long_conversations

__all__ = ["context_reads"]

_P99_MS = {8_000: 10.0, 200_000: 30.0}
"""Maximum milliseconds of a warm read, by budget in tokens."""

_SECTIONS = ContextSettings(section_budgets={"tools": 0.4, "user": 0.3, "digest": 500})
_MOST_ON_POSTGRESQL = 10_000  # messages
_UNUSUAL = 100  # messages of the other kinds of conversations
_BATCH = 1_000
_WARM_UP = 8
_REMEMBERED_BY_NOBODY = 20  # reads

Story = Callable[[], Iterator[NewEvent]]
"""Yields the messages of an endless conversation; the first becomes version 1."""


def context_reads(bench: Bench) -> Iterator[Work]:
    """Measure reads of conversations of real transcripts, and of less usual kinds."""
    for database in bench.databases:
        with ExitStack() as stack:
            url = stack.enter_context(bench.fresh(database))
            store = stack.enter_context(EventStore.open(url))
            if TAU_BENCH.exists():
                yield from _of_transcripts(bench, database, store)
            length = min(_UNUSUAL, bench.scale.read_lengths[-1])
            kept = [_Kept(store, length, *each) for each in _STORIES.items()]
            yield _warm(bench, f"{length} messages of other kinds, {database}", kept, 8_000)


def _of_transcripts(bench: Bench, database: str, store: EventStore) -> Iterator[Work]:
    most = None if database == SQLITE else _MOST_ON_POSTGRESQL
    kept = [
        _Kept(store, length, f"at {length:,} messages", partial(real_messages, forever=True))
        for length in bench.scale.read_lengths
        if most is None or length <= most
    ]
    for each in kept:
        each.renew()
    with store.writing() as connection:
        # As the server's autovacuum would do a little later.
        connection.execute(text("ANALYZE"))
    for budget in _P99_MS:
        yield _warm(bench, database, kept, budget)
    yield _warm(bench, f"with section budgets, {database}", kept, 200_000, _SECTIONS)
    yield _first(bench, database, store, kept)


class _Kept:
    """A conversation of about constant length; replaced once it has grown by a tenth.

    Args:
        store: Where it is stored.
        length: Its initial number of messages.
        name: Name of the conversations.
        story: Yields their messages.

    Attributes:
        first: Duration of the first read of each, in seconds.
    """

    def __init__(self, store: EventStore, length: int, name: str, story: Story) -> None:
        self.name, self.first = name, list[float]()
        self._store, self._length, self._story = store, length, story
        self._views, self._left = Views(store), 0

    def renew(self) -> None:
        """Append a new conversation in bulk, and time its first read."""
        self._id, self._coming = new_id(), self._story()
        filling = islice(self._coming, self._length)
        while batch := list(islice(filling, _BATCH)):
            self._store.append(self._id, batch)
        self._left = max(self._length // 10, 1)
        self.first.append(self.unremembered())
        self._index()

    def warm(self, budget: int, settings: ContextSettings | None) -> float:
        """Append messages up to the next model call, and time the read, in seconds."""
        if self._left <= 0:
            self.renew()
            self._read(self._views, budget, settings)
        for event in self._coming:
            if isinstance(event.data, events.UserMessage):
                self._index()
            self._store.append(self._id, [event])
            self._left -= 1
            if isinstance(event.data, events.UserMessage | events.ToolResult):
                break
        return self._read(self._views, budget, settings)

    def _index(self) -> None:
        """Do what a session does at the end of each turn, and a worker."""
        for each in long_conversations(self._store, [self._id]):
            bring_up(self._store, each)

    def unremembered(self) -> float:
        """Time a read with nothing in memory, in seconds."""
        return self._read(Views(self._store), 8_000, None)

    def _read(self, views: Views, budget: int, settings: ContextSettings | None) -> float:
        started = measure.clock()
        view = views.context(self._id, max_tokens=budget, model=MODEL, settings=settings)
        took = measure.clock() - started
        assert 0 < view.tokens.tokens <= budget
        return took


def _warm(
    bench: Bench,
    where: str,
    kept: Sequence[_Kept],
    budget: int,
    settings: ContextSettings | None = None,
) -> Work:
    """Measure reads after an append, with the conversations in turns."""
    rounds = max(bench.scale.rounds // 8, 1)
    times: dict[str, list[float]] = {each.name: [] for each in kept}
    gc.collect()
    gc.disable()
    try:
        for number in range(-min(rounds, _WARM_UP), rounds):
            for each in kept:
                took = each.warm(budget, settings)
                if number >= 0:
                    times[each.name].append(took)
    finally:
        gc.enable()
    return work(
        f"A warm read of messages[] within {budget:,} tokens, {where}",
        [Figure(name, tuple(found)) for name, found in times.items()],
        {name: Target(p99_ms=_P99_MS[budget]) for name in times},
        note="The read before a model call is timed. The messages since the previous call were "
        "appended before it, one by one, in the same process; the search index of a long one was "
        "brought up at the end of its last turn, as sessions do. A conversation that has grown by "
        "a tenth is replaced by another one, which is read twice first. Transcripts are "
        "tau-bench's airline conversations, one after the other.",
    )


def _first(bench: Bench, database: str, store: EventStore, kept: Sequence[_Kept]) -> Work:
    """Return the durations of first reads; those of a process are measured now."""
    reads = range(min(_REMEMBERED_BY_NOBODY, bench.scale.rounds))
    figures = [Figure(f"of all, {each.name}", tuple(each.first)) for each in kept]
    figures += [
        Figure(f"of a process, {each.name}", tuple(each.unremembered() for _ in reads))
        for each in kept
    ]
    return work(
        f"A first read of messages[] within 8,000 tokens, {database}",
        figures,
        note="The very first read folds the whole conversation; the first read of a process finds "
        "the rows in the database, and nothing in memory.",
    )


def _exchanges(said: str, found: str, picture: str = "") -> Iterator[NewEvent]:
    """Yield messages endlessly, four per turn: question, tool call, result, answer."""
    for number in count(0, 4):
        asked = f"{number}: {said}"
        parts = (TextPart(text=asked), *((ImagePart(url=picture),) if picture else ()))
        yield NewEvent(events.UserMessage(parts=parts))
        wanted = events.ToolCallRequest(
            name="look", arguments_text=json.dumps({"n": number}), provider_id=f"call_{number}"
        )
        yield NewEvent(events.AssistantMessage.of(None, tool_calls=(wanted,)))
        result = json.dumps({"number": number, "found": found}, ensure_ascii=False)
        yield NewEvent(events.ToolResult(call_id=call_id(number + 2, 0), content=result))
        yield NewEvent(events.AssistantMessage.of(asked, final=True))


_PROSE = "I looked at what was booked before, and it can be changed until the evening. "
_CHINESE = "我查看了之前的预订。今晚之前都可以更改。如有需要请告诉我您的订单编号。"
_PICTURE = f"data:image/png;base64,{'iVBORw0KGgo' * 2_000}"
_STORIES: dict[str, Story] = {
    "Chinese": partial(_exchanges, _CHINESE * 6, _CHINESE * 12),
    "images": partial(_exchanges, _PROSE, _PROSE, _PICTURE),
    "results of 1 MB": partial(_exchanges, _PROSE, _PROSE * 13_000),
}
