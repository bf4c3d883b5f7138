"""`AsyncViews`: `Views` for asyncio, with the same names and signatures.

Each method makes one hop into the asynchronous store's executor. `Views` documents what each
method does, accepts and raises.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from eventstore import AsyncEventStore
from eventstore.arguments import require_store
from eventstore.ids import StreamId
from eventstore.owners import Owned
from projections.catalogue import PROJECTIONS, ProjectionSet
from projections.follow import Follower, Waits
from projections.models.timeline_changes import TimelineUpdate
from projections.pulse import pulse_of
from projections.views import Views

__all__ = ["AsyncViews"]

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[Views, P], T],
) -> Callable[Concatenate[AsyncViews, P], Coroutine[Any, Any, T]]:
    """Return a `Views` method as a coroutine method."""

    @wraps(method)
    async def call(self: AsyncViews, /, *args: P.args, **options: P.kwargs) -> T:
        return await self.run(lambda views: method(views, *args, **options))

    return call


class AsyncViews:
    """`Views` for asyncio; the first method call creates the tables.

    Args:
        store: The asynchronous store.
        projections: The projections, including the product's own, if any.
        memory_bytes: See `Views`.
    """

    def __init__(
        self,
        store: AsyncEventStore,
        projections: ProjectionSet = PROJECTIONS,
        *,
        memory_bytes: int | None = None,
    ) -> None:
        require_store(store, AsyncEventStore)
        self.store = store
        self.projections = projections
        self._views: Views | None = None
        self._making = threading.RLock()
        self._make: Callable[[], Views] = lambda: Views(
            store.store, projections, memory_bytes=memory_bytes
        )

    def for_owner(self, *, tenant_id: str | None = None, user_id: str | None = None) -> Self:
        """Return the views of one owner's conversations; see `EventStore.for_owner`.

        Raises:
            OwnerMismatch: The store is already bound to another owner.
        """
        bound = copy.copy(self)
        bound.store = self.store.for_owner(tenant_id=tenant_id, user_id=user_id)
        bound._views = None
        bound._make = lambda: self._made().for_owner(tenant_id=tenant_id, user_id=user_id)
        return bound

    async def run(self, read: Callable[[Views], T]) -> T:
        """Call a function with the synchronous views in a thread, and return its result."""
        return await self.store._run(lambda: read(self._made()))

    def _made(self) -> Views:
        with self._making:
            if self._views is None:
                self._views = self._make()
            return self._views

    timeline = _awaited(Views.timeline)
    timeline_page = _awaited(Views.timeline_page)
    branches = _awaited(Views.branches)
    context = _awaited(Views.context)
    tool_policy = _awaited(Views.tool_policy)
    read_batches = _awaited(Views.read_batches)
    context_of = _awaited(Views.context_of)
    why = _awaited(Views.why)
    neutral = _awaited(Views.neutral)
    usage = _awaited(Views.usage)
    model_calls = _awaited(Views.model_calls)
    calibration = _awaited(Views.calibration)
    tool_calls = _awaited(Views.tool_calls)
    run_state = _awaited(Views.run_state)
    state_at = _awaited(Views.state_at)
    open_work = _awaited(Views.open_work)
    tasks = _awaited(Views.tasks)
    conversations_with_open_work = _awaited(Views.conversations_with_open_work)
    conversations = _awaited(Views.conversations)
    search = _awaited(Views.search)
    rows = _awaited(Views.rows)

    async def follow(
        self,
        conversation_id: StreamId,
        *,
        after: int = 0,
        heartbeat_s: float | None = None,
        timeout_s: float | None = None,
        **owner: Unpack[Owned],
    ) -> AsyncGenerator[TimelineUpdate, None]:
        """Yield changes to a conversation's timeline; see `Views.follow`.

        Errors are raised at the first update. Also ends when its task is cancelled.
        """
        store = self.store.store
        stream = await self.store._run(lambda: store.stream(conversation_id, **owner))
        follower, waits = Follower(store, stream, after), Waits(heartbeat_s, timeout_s)
        woken, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

        pulse = pulse_of(store.engine)
        me = pulse.join(stream, wake)
        try:
            while True:
                woken.clear()
                before = follower.version
                for update in await self.store._run(follower.news):
                    yield update
                if follower.version != before:
                    waits.notify()
                if follower.behind:
                    continue
                try:
                    await asyncio.wait_for(woken.wait(), waits.left_s)
                except TimeoutError:
                    if waits.over:
                        return
                    waits.beat()
                    yield TimelineUpdate(version=follower.version)
        finally:
            # In a thread, because the last follower to leave waits. Closing the store waits for it.
            try:
                self.store._executor.submit(pulse.leave, me)
            except RuntimeError:  # The store is closed, and its threads are gone.
                pulse.leave(me)
