"""One face for both stores: the contract is written once, in calls that block.

`Blocking` runs each call of an `AsyncEventStore` to its end, so that a test cannot tell it from an
`EventStore`; that both have the same names and parameters is held by ``tests/unit/test_parity.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

from eventstore import AsyncEventStore, EventStore, RecordedEvent
from eventstore.events import ToolResult, UserMessage

Access = Literal["sync", "async"]


class Blocking:
    """An `AsyncEventStore` on an event loop of its own; every call waits for its outcome."""

    def __init__(self, url: str, **options: Any) -> None:
        self._runner = asyncio.Runner()
        # Not the runner's own `run`, which exchanges the handler of SIGINT for each call: that
        # writes a description of the last outcome, and costs more than most of what is called.
        self._run = self._runner.get_loop().run_until_complete
        try:
            self._store = self._run(AsyncEventStore.open(url, **options))
        except BaseException:
            self._runner.close()
            raise

    def __getattr__(self, name: str) -> Callable[..., Any]:
        member = getattr(self._store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            outcome = member(*args, **kwargs)
            if isinstance(outcome, AsyncEventStore):
                return self._around(outcome)
            if isinstance(outcome, AsyncIterator):
                return iter(self._run(_collected(outcome)))
            return self._run(outcome)

        return call

    def _around(self, store: AsyncEventStore) -> Blocking:
        """Return the same for a store that this one has made, on the same loop."""
        made = object.__new__(Blocking)
        made._runner, made._run, made._store = self._runner, self._run, store
        return made

    def close(self) -> None:
        """Close the store and its loop."""
        self._run(self._store.close())
        self._runner.close()


@contextmanager
def opened(url: str, access: Access, **options: Any) -> Iterator[EventStore]:
    """Open a store of either kind, and close it in the end."""
    store = (
        EventStore.open(url, **options)
        if access == "sync"
        else cast(EventStore, Blocking(url, **options))
    )
    try:
        yield store
    finally:
        store.close()


def say(*texts: str) -> list[UserMessage]:
    """Return one user message for each text."""
    return [UserMessage.text(text) for text in texts]


def texts(events: Iterable[RecordedEvent]) -> list[str]:
    """Return the texts of user messages."""
    return [text_of(event) for event in events]


def text_of(event: RecordedEvent) -> str:
    """Return the text of a user message's only part."""
    assert isinstance(event.data, UserMessage)
    (part,) = event.data.parts
    assert part.kind == "text"
    return part.text


def result_of(event: RecordedEvent) -> ToolResult:
    """Return a tool result's payload."""
    assert isinstance(event.data, ToolResult)
    return event.data


async def _collected(events: AsyncIterator[RecordedEvent]) -> list[RecordedEvent]:
    return [event async for event in events]
