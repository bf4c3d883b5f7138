"""One face for both recorders, so that what they promise is written once, in calls that block.

`Blocking` runs what an asynchronous object returns to await, and wraps what it returns; a test
cannot tell it from the synchronous twin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Literal, cast

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.conversation import Conversation
from agent_eventstore.llm_call import AsyncLlmCall, LlmCall
from agent_eventstore.machines import RequestedCall
from agent_eventstore.turn import Turn
from agent_eventstore.turn_aio import AsyncToolBlock, AsyncTurn
from eventstore import AsyncEventStore, EventStore, RecordedEvent
from tests.crash.stand_in import Wanted, answer

Access = Literal["sync", "async"]
_TWINS = (AsyncConversation, AsyncTurn, AsyncLlmCall, AsyncToolBlock)


class Blocking:
    """An object of the asynchronous recorder, on an event loop that runs while it is called."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: Any) -> None:
        self.inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.inner, name)
        bound = callable(member) and not isinstance(member, str)
        return self._wrapped(member) if bound else member

    def __enter__(self) -> Any:
        self._loop.run_until_complete(self.inner.__aenter__())
        return self

    def __exit__(self, *details: Any) -> bool | None:
        kept: bool | None = self._loop.run_until_complete(self.inner.__aexit__(*details))
        return kept

    def _wrapped(self, member: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            bare = {key: getattr(value, "inner", value) for key, value in kwargs.items()}
            outcome = member(*args, **bare)
            if isawaitable(outcome):
                outcome = self._loop.run_until_complete(_awaited(outcome))
            return Blocking(self._loop, outcome) if isinstance(outcome, _TWINS) else outcome

        return call


@dataclass
class Recorder:
    """How a test records: the store to look into, and `Conversation`'s three beginnings."""

    store: EventStore
    start: Callable[..., Conversation]
    open: Callable[..., Conversation]
    fork: Callable[..., Conversation]


@contextmanager
def recorder(url: str, access: Access, **options: Any) -> Iterator[Recorder]:
    """Open a store, and give the recorder of a kind on it."""
    with EventStore.open(url, **options) as store:
        if access == "sync":

            def start(**kwargs: Any) -> Conversation:
                return Conversation.start(store, **kwargs)

            def reopen(*args: Any, **kwargs: Any) -> Conversation:
                return Conversation.open(store, *args, **kwargs)

            def branch(*args: Any, **kwargs: Any) -> Conversation:
                return Conversation.fork(store, *args, **kwargs)

            yield Recorder(store, start, reopen, branch)
            return
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            twin = AsyncEventStore(store)

            def begin(**kwargs: Any) -> Conversation:
                starting = AsyncConversation.start(twin, **kwargs)
                return cast(Conversation, Blocking(loop, loop.run_until_complete(starting)))

            def again(*args: Any, **kwargs: Any) -> Conversation:
                conversation = loop.run_until_complete(
                    AsyncConversation.open(twin, *args, **kwargs)
                )
                return cast(Conversation, Blocking(loop, conversation))

            def fork(*args: Any, **kwargs: Any) -> Conversation:
                forked = loop.run_until_complete(AsyncConversation.fork(twin, *args, **kwargs))
                return cast(Conversation, Blocking(loop, forked))

            yield Recorder(store, begin, again, fork)
            loop.run_until_complete(twin.close())


def ask(
    turn: Turn, pieces: Iterable[str] = ("Hello", " there"), calls: Iterable[Wanted] = ()
) -> LlmCall:
    """Record a whole streamed answer, and return the call."""
    with turn.llm_call(turn.context()) as call:
        for chunk in answer(list(pieces), list(calls)):
            call.feed(chunk)
    return call


def ask_for_tool(turn: Turn, name: str = "search", **arguments: Any) -> RequestedCall:
    """Record an answer that asks for a tool, and return the call of the tool."""
    return ask(turn, (), [(name, arguments)]).tool_calls[0]


def data_of(store: EventStore, conversation: Conversation, kind: str) -> list[Any]:
    """Return the payloads of one type, in order."""
    return [event.data for event in events_of(store, conversation, kind)]


def events_of(store: EventStore, conversation: Conversation, *kinds: str) -> list[RecordedEvent]:
    """Return the events of these types, or all, in order."""
    return [e for e in store.read(conversation.id) if not kinds or e.type in kinds]


async def _awaited(outcome: Any) -> Any:
    return await outcome
