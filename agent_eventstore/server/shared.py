"""`Service`: what all routes share: the store, its views, the settings, and who may read what.

Calls of the store block, so routes make them with `Service.run`, in threads. The number of threads
is bounded by the store's connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, ParamSpec, TypeVar

import anyio
from anyio import to_thread
from starlette.requests import Request

from agent_eventstore.participants import Participant
from agent_eventstore.server.problems import RequestProblem
from eventstore import AsyncEventStore, EventStore
from projections import AsyncViews, Views

__all__ = ["Identity", "Service", "ServiceLimits"]

P = ParamSpec("P")
T = TypeVar("T")

_OWNERS = 1_024


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner on whose behalf a request is made; without both ids, all conversations."""

    user_id: str | None = None
    tenant_id: str | None = None

    @property
    def named(self) -> bool:
        """Whether only one owner's conversations may be reached."""
        return self.user_id is not None or self.tenant_id is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """The bounds of the service.

    Attributes:
        body_bytes: The most bytes of a request's body.
        body_s: The most seconds in which a body must have arrived.
        read_s: The most seconds that a read may take before it is answered with 504.
        page: The most entries on a page.
        followers: The most streams open at the same time.
        stream_s: The most seconds that a stream stays open; clients then reconnect by themselves.
        heartbeat_s: The seconds after which a stream without news sends a sign of life.
        long_poll_s: The most seconds that a long poll waits.
        chats: The most messages that are answered at the same time.
        chat_wait_s: The most seconds that a message waits for another one of its conversation.
        threads: The most calls of the store at the same time.
    """

    body_bytes: int = 1_048_576
    body_s: float = 30.0
    read_s: float = 60.0
    page: int = 500
    followers: int = 256
    stream_s: float = 3_600.0
    heartbeat_s: float = 10.0
    long_poll_s: float = 20.0
    chats: int = 16
    chat_wait_s: float = 120.0
    threads: int = 5


@dataclass(slots=True, eq=False, weakref_slot=True)
class Service:
    """The store and the settings of one application.

    Attributes:
        store: The store, not bound to an owner.
        models: The models that answer messages, by participant id.
        participants: The participants of new chats.
        read_only: Whether every request that writes is refused.
        limits: The bounds.
    """

    store: EventStore
    models: Mapping[str, Any] = field(default_factory=dict)
    participants: Sequence[Participant] = ()
    model_name: str | None = None
    read_only: bool = False
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    views: Views = field(init=False)
    live_views: AsyncViews = field(init=False)
    followers: int = field(init=False, default=0)
    _views_of: Callable[[Identity], Views] = field(init=False)
    _live_of: Callable[[Identity], AsyncViews] = field(init=False)
    _reading: anyio.CapacityLimiter = field(init=False)
    _answering: anyio.CapacityLimiter = field(init=False)

    def __post_init__(self) -> None:
        self.views = Views(self.store)
        threads = self.limits.threads
        self.live_views = AsyncViews(AsyncEventStore(self.store, threads=threads))
        self._views_of = lru_cache(_OWNERS)(partial(_bound, self.views))
        self._live_of = lru_cache(_OWNERS)(partial(_bound, self.live_views))
        self._reading = anyio.CapacityLimiter(threads)
        self._answering = anyio.CapacityLimiter(self.limits.chats)

    def identity_of(self, request: Request) -> Identity:
        """Return the owner on whose behalf a request is made, as the guard has found it."""
        found = request.scope["eventstore.identity"]
        assert isinstance(found, Identity)  # noqa: S101 - the guard has set it
        return found

    def views_for(self, request: Request) -> Views:
        """Return the views that a request may read; their ``store`` is bound to the same owner."""
        return self._views_of(self.identity_of(request))

    def live_views_for(self, request: Request) -> AsyncViews:
        """Return the same for an event loop, to follow conversations."""
        return self._live_of(self.identity_of(request))

    async def run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call a function that reads in a thread, and return its result.

        Raises:
            RequestProblem: It takes longer than the limit; the call goes on in its thread.
        """
        try:
            with anyio.fail_after(self.limits.read_s):
                return await to_thread.run_sync(
                    partial(call, *args, **options), abandon_on_cancel=True, limiter=self._reading
                )
        except TimeoutError as error:
            limit = f"{self.limits.read_s:g} seconds"
            raise RequestProblem(
                504, f"this read took longer than {limit}: ask for less"
            ) from error

    async def write(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call a function that writes in a thread; it is never abandoned."""
        return await to_thread.run_sync(partial(call, *args, **options), limiter=self._reading)

    async def answer(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call a function that waits for models in a thread of its own kind."""
        return await to_thread.run_sync(partial(call, *args, **options), limiter=self._answering)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Count a stream while it is open.

        Raises:
            RequestProblem: Too many are open.
        """
        if self.followers >= self.limits.followers:
            raise RequestProblem(
                503,
                f"{self.limits.followers} streams are open, which is the limit: try again later",
                headers={"Retry-After": "5"},
            )
        self.followers += 1
        try:
            yield
        finally:
            self.followers -= 1


V = TypeVar("V", Views, AsyncViews)


def _bound(views: V, identity: Identity) -> V:
    if not identity.named:
        return views
    return views.for_owner(tenant_id=identity.tenant_id, user_id=identity.user_id)
