"""`EventStoreSession`: an OpenAI Agents SDK session in the store; the extra ``openai-agents``.

The SDK reads back exactly the items that it wrote, in the same order. The adapter records them as
the catalogue's events, so that timeline, usage, tool audit, messages[], search and `verify` work on
them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from agents.memory import SessionSettings
from agents.memory import session as sdk
from agents.memory.session_settings import coerce_session_settings

from agent_eventstore.integrations.conversation_events import events_after, newest_events, store_of
from agent_eventstore.integrations.openai_cache import newest_items
from agent_eventstore.integrations.openai_end import SessionEnd
from agent_eventstore.integrations.openai_history import live_items
from agent_eventstore.integrations.openai_replacing import pop_newest, replace_all, replace_newest
from agent_eventstore.integrations.openai_settling import Settling
from agent_eventstore.integrations.openai_usage import RunUsage
from agent_eventstore.integrations.openai_writing import ItemWriter
from eventstore import AsyncEventStore, EventStore, NewEvent
from eventstore.events import Meta
from eventstore.owners import Owned
from eventstore.threads import in_thread

__all__ = ["EventStoreSession"]

T = TypeVar("T")


class EventStoreSession:
    """A session whose items are events of the conversation with the key ``session_id``.

    After items were read, adding to them is refused if another writer has added, popped, cleared
    or erased items since; it is possible after reading again. Tasks and threads may share an
    object; their calls run one at a time.

    Args:
        session_id: The conversation's key or id; its first item creates the conversation.
        store: The store; it stays open.
        tenant_id: The conversation's tenant.
        user_id: The conversation's user.
        session_settings: The SDK's settings: ``limit`` is the most items that `get_items` returns.
        erase: Whether popped and cleared items are erased too; otherwise they are withdrawn and
            stay in the log.
    """

    def __init__(
        self,
        session_id: str,
        store: EventStore | AsyncEventStore,
        *,
        tenant_id: str | None = None,
        user_id: str | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        erase: bool = False,
    ) -> None:
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self.store = store_of(store)
        self.owner = Owned(tenant_id=tenant_id, user_id=user_id)
        self.erase = erase
        self._usage = RunUsage()
        self._end = SessionEnd(self.store, session_id, self.owner)
        self._settling: Settling | None = None
        self._lock = threading.RLock()

    async def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> list[Any]:
        """Return the newest items in order: ``limit``, or else the settings' number, or all."""
        return await self._run(self._get, self._most(limit))

    async def add_items(self, items: list[Any], *, wrapper: Any = None) -> None:
        """Append items, in one transaction.

        Raises:
            WrongExpectedVersion: Another writer has changed the items that this object has read.
            InvalidEvent: An item is not JSON, or is larger than an event may be.
        """
        if items:
            usage = self._usage.since(wrapper)
            await self._run(self._add, list(items), usage)

    async def pop_item(self, *, wrapper: Any = None) -> Any:
        """Withdraw the newest item and return it; None if the session has none."""
        return await self._run(self._pop)

    async def clear_session(self, *, wrapper: Any = None) -> None:
        """Withdraw all items; other events, such as the conversation's title, stay."""
        await self._run(self._replace_all, ())

    async def _atomic_replace_items(self, items: list[Any]) -> bool:
        """Replace all items, in one transaction; for the SDK's compaction."""
        await self._run(self._replace_all, items)
        return True

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> Any:
        """Return the newest items, and a function that replaces the last of them if unchanged."""
        live = await self._run(live_items, self.store, self.id, limit + 1)
        complete, live = len(live) <= limit, live[max(len(live) - limit, 0) :]

        async def replace_suffix(start: int, output: list[Any]) -> bool:
            wanted = live[start:]
            return bool(wanted) and await self._run(
                replace_newest, self.store, self._end, wanted, output, prune_prefix
            )

        return sdk._CompactionSnapshot([each.item for each in live], complete, replace_suffix)

    def attach(self, run: Meta) -> None:
        """Start matching new items with the events that a run records."""
        with self._lock:
            self._end.run = run
            self._end.move()
            newest = newest_events(self.store, self.id, 1)
            self._settling = Settling(run, newest[0].version if newest else 0)

    def detach(self, *, blocked: bool) -> None:
        """Settle a run's recorded events that have no item; withdraw what a guardrail blocked."""
        with self._lock:
            settling, self._settling = self._settling, None
            self._end.move()
            try:
                if settling is not None:
                    recorded = [*events_after(self.store, self.id, settling.after)]
                    self._end.append(lambda end: settling.left(recorded, end, blocked=blocked))
            finally:
                self._end.run = None
                self._end.move()

    @property
    def id(self) -> Any:
        """The conversation's id."""
        return self._end.id

    async def _run(self, work: Callable[..., T], *given: Any) -> T:
        """Run blocking work in a thread; it finishes even if the caller is cancelled."""

        def locked() -> T:
            with self._lock:
                return work(*given)

        return await in_thread(locked)

    def _most(self, limit: int | None) -> int | None:
        """Return the number of items to read, by default the settings' limit; None for all."""
        limit = self.session_settings.limit if limit is None else limit
        return None if limit is None or limit < 0 else limit

    def _get(self, limit: int | None) -> list[Any]:
        items, self._end.seen = newest_items(self.store, self.id, limit)
        return items

    def _add(self, items: list[Any], usage: Any) -> None:
        if (settling := self._settling) is None:
            self._end.append(lambda writer: writer.events(items, usage), compare=True)
            return

        def settled(writer: ItemWriter) -> list[NewEvent]:
            recorded = events_after(self.store, self.id, settling.after)
            return settling.events(items, recorded, writer, usage)

        settling.note(self._end.append(settled, compare=True))

    def _pop(self) -> Any:
        return pop_newest(self.store, self._end, erase=self.erase)

    def _replace_all(self, items: Sequence[Any]) -> None:
        replace_all(self.store, self._end, items, erase=self.erase)
