"""`record`: wrap a client, so that its model calls are recorded.

The wrapper passes every attribute on to the client, and intercepts only a few methods, so the whole
SDK remains usable. Its ``__class__`` is the client's class, since some frameworks silently use a
client of their own if ``isinstance`` fails.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType, MethodType
from typing import Any, Self, TypeVar, cast

from agent_eventstore.clients import calls
from agent_eventstore.clients.client_requests import (
    ENDED,
    NO_TURN,
    NOT_SEEN,
    RETRIEVED,
    Guard,
    Surface,
    Unrecorded,
    client_request,
    seller_at,
)
from agent_eventstore.current import TurnBlock, current_turn, is_open
from agent_eventstore.turn import Turn
from agent_eventstore.turn_aio import AsyncTurn
from eventstore.errors import ErrorType, Traceback

__all__ = ["RecordedClient", "plain_client", "record"]

C = TypeVar("C")

Path = tuple[str, ...]

_CHAT = Surface("openai_chat", ("messages",))
_RESPONSES = Surface("openai_responses", ("instructions", "input"))
_MESSAGES = Surface("anthropic_messages", ("system", "messages"))

_OPENAI: dict[Path, Surface] = {
    ("chat", "completions"): _CHAT,
    ("beta", "chat", "completions"): _CHAT,
    ("responses",): _RESPONSES,
    ("beta", "responses"): _RESPONSES,
}
_ANTHROPIC: dict[Path, Surface] = {("messages",): _MESSAGES, ("beta", "messages"): _MESSAGES}

_METHODS = frozenset({"create", "parse", "stream"})
_LOOPS = frozenset({"thread", "tool_runner"})
"""Helpers of the SDK that call the model themselves, through the client that they are given."""

_UNSEEN: frozenset[Path] = frozenset(
    {
        ("post",),
        ("request",),
        ("completions", "create"),
        ("decisions", "create"),
        ("responses", "connect"),
        ("responses", "compact"),
        ("beta", "responses", "connect"),
        ("beta", "responses", "compact"),
        ("realtime", "connect"),
        ("beta", "realtime", "connect"),
        ("live", "connect"),
        ("live", "forks", "connect"),
        ("live", "sideband", "connect"),
    }
)
"""Methods that call the model but cannot be recorded."""

_RETRIEVED: frozenset[Path] = frozenset(
    {("responses", "retrieve"), ("beta", "responses", "retrieve")}
)
"""Methods that return an answer of an earlier request."""

_RAW, _STREAMING = "with_raw_response", "with_streaming_response"
_COPIES = frozenset({"copy", "with_middleware", "with_options"})


def record(
    client: C,
    *,
    provider: str | None = None,
    unrecorded: Unrecorded = "warn",
    tools_from_messages: bool = True,
) -> C:
    """Return a client whose model calls are recorded in the open turn of the calling context.

    Calls of ``create`` (streamed or not), ``parse`` and ``stream`` are recorded, also through
    ``with_raw_response`` and ``with_streaming_response``: those of ``chat.completions`` and
    ``responses`` of OpenAI's clients, and of ``messages`` of Anthropic's, also under ``beta``, and
    of clients with the same interfaces. All other methods are passed on unrecorded. Chunks, answers
    and exceptions reach the caller unchanged.

    Args:
        client: A synchronous client for `Turn`, an asynchronous one for `AsyncTurn`. A client that
            is already recorded gets these options; its calls are still recorded only once.
        provider: The provider's name; by default derived from the client's URL.
        unrecorded: What to do with a call that cannot be recorded because no turn is open:
            ``warn`` passes it on and reports it once per call site, as an `UnrecordedCall` and in
            the log; ``raise`` refuses it; ``ignore`` passes it on silently.
        tools_from_messages: Whether to record tool results from a request's messages if `Turn.tool`
            did not record them, for frameworks that run tools themselves. False if all tools run
            with `Turn.tool`.

    Raises:
        TypeError: The client has none of these methods, or is another library's wrapper.
        ValueError: ``unrecorded`` is not one of the three.
    """
    Guard("", unrecorded)
    wrapping = replace(_wrapping(client, provider), unrecorded=unrecorded)
    return cast(C, RecordedClient(replace(wrapping, tools_from_messages=tools_from_messages)))


def _bound(client: C, turn: TurnBlock[Any, Any, Any], provider: str | None) -> C:
    """Return a client whose calls are recorded in a turn; see `OpenTurn.client`."""
    wrapping = replace(_wrapping(client, provider), turn=turn)
    _own_kind(turn, wrapping)
    return cast(C, RecordedClient(wrapping))


TurnBlock.bind = staticmethod(_bound)


def plain_client(client: C) -> C:
    """Return the client that a recorded client wraps; any other client unchanged."""
    return cast(C, cast(Any, client)._wrapping.client) if type(client) is RecordedClient else client


def _wrapping(client: Any, provider: str | None) -> _Wrapping:
    if type(client) is RecordedClient and not client._path:
        known: _Wrapping = client._wrapping
        return replace(known, provider=provider or known.provider)
    if isinstance(client, type):
        raise TypeError(f"{client.__name__} is a class: pass an instance of it")
    name = type(client).__name__
    if getattr(client, "chat", None) is client:  # such as instructor's, with its own parameters
        raise TypeError(f"{name} wraps a client: record that client, and wrap the result")
    surfaces = dict(_ANTHROPIC) if hasattr(client, "messages") else {}
    if hasattr(client, "chat") or hasattr(client, "responses"):
        surfaces |= _OPENAI  # a gateway's client may have both
    if not surfaces:
        raise TypeError(f"{name} is not a client with OpenAI's or Anthropic's interface")
    return _Wrapping(client, surfaces, provider)


@dataclass(frozen=True, slots=True)
class _Wrapping:
    """A client and how its calls are recorded; ``turn`` is None to use the current turn."""

    client: Any
    surfaces: dict[Path, Surface]
    provider: str | None
    unrecorded: Unrecorded = "warn"
    turn: TurnBlock[Any, Any, Any] | None = None
    tools_from_messages: bool = True

    def seller(self) -> str | None:
        """Return the provider's name, if it is known before the answer."""
        known = self.provider or seller_at(str(getattr(self.client, "base_url", "")))
        return known or ("anthropic" if self.surfaces == _ANTHROPIC else None)

    def is_async(self) -> bool:
        """Whether the client is asynchronous, by how it is entered, otherwise by its methods."""
        kind = type(self.client)
        enters, awaits = hasattr(kind, "__enter__"), hasattr(kind, "__aenter__")
        if enters != awaits:
            return awaits
        return any(_is_coroutine(self.client, (*path, "create")) for path in self.surfaces)

    def guard(self, method: Path) -> Guard:
        """Return the guard that reports unrecorded calls of a method."""
        return Guard(".".join((type(self.client).__name__, *method)), self.unrecorded)

    def added(self, name: str) -> FunctionType | None:
        """Return a method that the product's own subclass adds to an SDK's client, if any."""
        roots, found = {path[0] for path in self.surfaces}, None
        for cls in type(self.client).__mro__:
            if roots & {*vars(cls), *vars(cls).get("__annotations__", ())}:
                return found if isinstance(found, FunctionType) else None
            found = found or vars(cls).get(name)
        return None

    def open_turn(self, guard: Guard) -> TurnBlock[Any, Any, Any] | None:
        """Return the turn to record in; if none is open, report that and return None.

        Raises:
            CallNotRecorded: No turn is open, and the policy is ``raise``.
        """
        turn = current_turn() if self.turn is None else self.turn
        if turn is not None and is_open(turn):
            return turn
        guard.tell(NO_TURN if self.turn is None else ENDED)
        return None


def _is_coroutine(client: Any, path: Path) -> bool:
    method = functools.reduce(lambda found, name: getattr(found, name, None), path, client)
    return callable(method) and inspect.iscoroutinefunction(inspect.unwrap(method))


class RecordedClient:
    """A client, or one of its resources, whose model calls are recorded; made by `record`."""

    __slots__ = ("__weakref__", "_path", "_raw", "_target", "_wrapping")

    def __init__(
        self, wrapping: _Wrapping, target: Any = None, path: Path = (), raw: str | None = None
    ) -> None:
        object.__setattr__(self, "_wrapping", wrapping)
        object.__setattr__(self, "_target", wrapping.client if target is None else target)
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_raw", raw)

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:
        """The client's class, for ``isinstance``."""
        return type(self._target)

    def __getattr__(self, name: str) -> Any:
        if name in RecordedClient.__slots__:  # not set yet: made without `__init__`, as by copy
            raise AttributeError(name)
        wrapping, path = self._wrapping, (*self._path, name)
        value = getattr(self._target, name)
        if name in (_RAW, _STREAMING):
            return RecordedClient(wrapping, value, self._path, name)
        surface = wrapping.surfaces.get(self._path)
        if surface is not None and name in _METHODS:
            managed = name == "stream" or self._raw == _STREAMING
            return _recording(wrapping, surface, wrapping.guard(path), value, managed)
        if path in _UNSEEN:
            return _telling(wrapping.guard(path), value)
        if path in _RETRIEVED:
            return _telling(wrapping.guard(path), value, RETRIEVED)
        if surface is not None and name in _LOOPS:
            return functools.partial(getattr(type(self._target), name), self)
        if any(known[: len(path)] == path for known in (*wrapping.surfaces, *_UNSEEN)):
            return RecordedClient(wrapping, value, path, self._raw)
        if name == "_client" and self._path:
            return RecordedClient(wrapping)
        if self._path:
            return value
        return self._copying(value) if name in _COPIES else self._added(name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._target, name, value)

    def __dir__(self) -> list[str]:
        return dir(self._target)

    def __repr__(self) -> str:
        return f"record({self._target!r})"

    def __enter__(self) -> Self:
        """Enter the client."""
        self._target.__enter__()
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """Close the client."""
        self._target.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        """Enter the client."""
        await self._target.__aenter__()
        return self

    async def __aexit__(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> None:
        """Close the client."""
        await self._target.__aexit__(kind, error, trace)

    def __copy__(self) -> RecordedClient:
        """Return a recorded copy of the client."""
        if self._path:
            return RecordedClient(self._wrapping, copy.copy(self._target), self._path, self._raw)
        return RecordedClient(replace(self._wrapping, client=copy.copy(self._target)))

    def _added(self, name: str, value: Any) -> Any:
        """Bind a method of the product's own subclass to this wrapper, to record its calls."""
        method = None if name.startswith("_") else self._wrapping.added(name)
        if method is None:
            return value
        if "__class__" in method.__code__.co_freevars:  # super() does not accept this wrapper
            return _telling(self._wrapping.guard((name,)), value)
        return MethodType(method, self)

    def _copying(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def copying(*args: Any, **options: Any) -> Any:
            return RecordedClient(replace(self._wrapping, client=method(*args, **options)))

        return copying


def _recording(
    wrapping: _Wrapping,
    surface: Surface,
    guard: Guard,
    method: Callable[..., Any],
    managed: bool,
) -> Callable[..., Any]:
    """Return the recorded method; ``managed`` if it returns a context manager."""

    @functools.wraps(method)
    def recording(*args: Any, **arguments: Any) -> Any:
        turn = wrapping.open_turn(guard)
        if turn is None:
            return method(*args, **arguments)
        own = _own_kind(turn, wrapping)
        request = client_request(
            surface,
            arguments,
            wrapping.seller(),
            tools_from_messages=wrapping.tools_from_messages,
        )
        send = functools.partial(method, *args, **arguments)
        if isinstance(own, AsyncTurn):
            if managed:
                return calls.AsyncRecordedManager(own, request, send, guard)
            return calls.call_async(own, request, send, guard)
        return (calls.RecordedManager if managed else calls.call)(own, request, send, guard)

    return recording


def _telling(guard: Guard, method: Callable[..., Any], why: str = NOT_SEEN) -> Callable[..., Any]:
    """Return an unrecorded method that reports its calls."""

    @functools.wraps(method)
    def telling(*args: Any, **arguments: Any) -> Any:
        guard.tell(why)
        return method(*args, **arguments)

    return telling


def _own_kind(turn: TurnBlock[Any, Any, Any], wrapping: _Wrapping) -> Turn | AsyncTurn:
    """Return the turn if the client can be recorded in it.

    Raises:
        TypeError: One of them is asynchronous, and the other is not.
    """
    if isinstance(turn, AsyncTurn if wrapping.is_async() else Turn):
        return turn
    kinds = f"{type(wrapping.client).__name__} cannot be recorded in {type(turn).__name__}"
    raise TypeError(f"{kinds}: use an asynchronous client in an asynchronous conversation")
