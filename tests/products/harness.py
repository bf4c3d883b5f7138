"""Products that are cancelled at each of their awaits, and what must be true of the log afterwards.

What the user was shown is in the log; what was begun has an end; the hash chain holds; and whoever
opens the conversation again finds nothing to seal but calls that nobody had begun.
"""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.clients import UnrecordedCall
from agent_eventstore.conversation import Conversation
from eventstore import AsyncEventStore, EventStore
from eventstore import events as e
from projections import Views
from tests.checkers import check_openai_messages
from tests.products.provider import Answer, Provider

__all__ = [
    "Scene",
    "assert_truth",
    "begin",
    "interrupted_everywhere",
    "left_everywhere",
    "outcome",
    "watched",
]

P = TypeVar("P", bound=e.Payload)

_PATIENCE_S = 30.0


@dataclass
class Scene:
    """One run of a product: its conversation, the model, and what its user was shown.

    ``session`` is the conversation for products with threads; ``leaves_after`` says after how many
    pieces of the answer the user goes away, and ``spec`` which version of ASGI the server speaks.
    """

    store: EventStore
    session: Conversation
    conversation: AsyncConversation
    provider: Provider
    leaves_after: int | None = None
    left: bool = False
    spec: str = "2.4"
    shown: list[str] = field(default_factory=list)


Product = Callable[[Scene], Coroutine[Any, Any, None]]
Check = Callable[[Scene, bool], None]


async def begin(own: AsyncEventStore, answers: Sequence[Answer], **options: Any) -> Scene:
    """Return a scene with a conversation of its own."""
    store = own.store
    session = Conversation.start(store)
    return Scene(
        store, session, AsyncConversation(own, session._session), Provider(*answers), **options
    )


class Interrupted(Coroutine[Any, Any, None]):
    """A coroutine whose task is cancelled when it awaits something for the n-th time.

    Args:
        inner: The coroutine.
        at: At which await, from 1; 0 for never.
    """

    def __init__(self, inner: Coroutine[Any, Any, None], at: int) -> None:
        self._inner = inner
        self._at = at
        self.awaits = 0

    def send(self, value: Any) -> Any:
        awaited = self._inner.send(value)
        self.awaits += 1
        if self.awaits == self._at:
            task = asyncio.current_task()
            assert task
            task.cancel()
        return awaited

    def throw(self, *details: Any) -> Any:
        return self._inner.throw(*details)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise NotImplementedError


def interrupted_everywhere(
    store: EventStore, answers: Sequence[Answer], product: Product, check: Check, every: int = 1
) -> int:
    """Run a product, cancelled at its first await, at its second, and so on until it is not.

    Args:
        store: Where the conversations are.
        answers: What the model answers in each run.
        product: The product.
        check: Told each run, and whether it came to its end.
        every: It is cancelled at each third await, if this is 3.

    Returns:
        How many awaits there were, and a few more if not each was tried.
    """

    async def run(own: AsyncEventStore, at: int) -> bool:
        scene = await begin(own, answers)
        running = Interrupted(product(scene), at)
        await _carried_out(scene, running)
        check(scene, running.awaits < at)
        return running.awaits < at

    return _everywhere(store, run, 1, every)


def left_everywhere(
    store: EventStore, answers: Sequence[Answer], product: Product, check: Check, *, spec: str
) -> int:
    """Run a product whose user leaves at once, after the first piece, and so on until the end.

    See `interrupted_everywhere`.
    """

    async def run(own: AsyncEventStore, pieces: int) -> bool:
        scene = await begin(own, answers, leaves_after=pieces, spec=spec)
        await _carried_out(scene, Interrupted(product(scene), 0))
        check(scene, not scene.left)
        return not scene.left

    return _everywhere(store, run, 0)


def _everywhere(
    store: EventStore,
    run: Callable[[AsyncEventStore, int], Coroutine[Any, Any, bool]],
    first: int,
    every: int = 1,
) -> int:
    async def main() -> int:
        place, finished = first - every, False
        async with await AsyncEventStore.open(store.url, migrate=False) as own:
            while not finished:
                place += every
                assert place < 1_000
                try:
                    finished = await run(own, place)
                except Exception as found:
                    found.add_note(f"at {place}")
                    raise
        return place

    gc.collect()
    gc.freeze()  # what is there already is not looked at again after each run
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnrecordedCall)
        return asyncio.run(main())


async def _carried_out(scene: Scene, running: Interrupted) -> None:
    """Let a product run, wait for all that it leaves behind, and look at the log."""
    before = asyncio.all_tasks()
    task = asyncio.create_task(running)
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
    del task
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        gc.collect()
        await asyncio.sleep(0)
        while left := asyncio.all_tasks() - before:
            _, waiting = await asyncio.wait(left, timeout=_PATIENCE_S)
            assert not waiting, f"still running: {waiting}"
        # What was dropped is closed by whichever thread the collector runs in.
        if time.monotonic() > deadline or not _in_a_turn(scene):
            break
    assert_truth(scene.store, scene.conversation.id, "".join(scene.shown))


def _in_a_turn(scene: Scene) -> bool:
    types = [event.type for event in scene.store.read(scene.conversation.id)]
    return types.count("turn_start") > types.count("turn_end")


def assert_truth(store: EventStore, conversation_id: UUID, shown: str) -> None:
    """What was shown is in the log, what was begun has its end, and opening again seals nothing."""
    events = [event.data for event in store.read(conversation_id)]
    assert_ended(events)
    assert content_and_call(events).startswith(shown)
    assert store.verify(conversation_id).ok
    messages = Views(store).context(conversation_id).messages
    assert [] == check_openai_messages(messages)
    recovery = Conversation.open(store, conversation_id, if_busy="take_over").recovery
    assert recovery
    *calls, last = [event.data for event in recovery.sealed]
    assert isinstance(last, e.SessionEnd)
    # What the model had asked for and nobody had begun, which is the truth of it.
    assert {"not_started"} >= {getattr(data, "status", None) for data in calls}


def assert_ended(events: Sequence[Any]) -> None:
    """Each model call, tool call and turn has one end, and nothing follows the turn's."""
    requests = [data.llm_call_id for data in events if isinstance(data, e.LlmRequest)]
    ended = [d.llm_call_id for d in events if isinstance(d, e.AssistantMessage | e.LlmError)]
    assert sorted(requests) == sorted(map(str, ended))
    wanted = [data.call_id for data in events if isinstance(data, e.ToolCall)]
    results = [data.call_id for data in events if isinstance(data, e.ToolResult)]
    assert set(wanted) <= set(results)
    assert len(results) == len(set(results))
    turns = [data.type for data in events if isinstance(data, e.TurnStart | e.TurnEnd)]
    assert turns in ([], ["turn_start", "turn_end"])
    if turns:
        assert isinstance(events[-1], e.TurnEnd)


def content_and_call(events: Iterable[Any]) -> str:
    """Return what the model has said, by the log, whole answers and broken ones."""
    said = ""
    for data in events:
        if isinstance(data, e.AssistantMessage):
            said += "".join(part.text for part in data.parts if isinstance(part, e.TextPart))
        elif isinstance(data, e.LlmError):
            said += data.partial_text
    return said


def outcome(scene: Scene) -> str | None:
    """Return how the turn ended, if it began."""
    ends = [r.data for r in scene.store.read(scene.session.id) if isinstance(r.data, e.TurnEnd)]
    return ends[0].status if ends else None


def watched(store: EventStore, conversation_id: UUID, kind: type[P]) -> P:
    """Return the first event of a kind once a server has written it."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        found = [r.data for r in store.read(conversation_id) if isinstance(r.data, kind)]
        if found:
            return found[0]
        assert time.monotonic() < deadline, f"no {kind.__name__}"
        gc.collect()  # as it comes sooner or later to what a framework has dropped
        time.sleep(0.005)  # leaves the processor to the server that is awaited
