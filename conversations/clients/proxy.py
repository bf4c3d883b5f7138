"""`record`: a client of the same shape, whose model calls go through the recorder.

The wrapper hands every attribute on to the client, and steps in for a handful of methods. So all
that the SDK can do stays as it is, but ``isinstance`` no longer holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from conversations.clients import calls, calls_aio
from conversations.clients.asked import Surface, asked_of, seller_at
from conversations.current import OpenTurn, current_turn
from conversations.recorder import Turn
from conversations.recorder_aio import AsyncTurn

__all__ = ["RecordedClient", "record"]

C = TypeVar("C")

Path = tuple[str, ...]

_CHAT = Surface("openai_chat", ("messages",))
_RESPONSES = Surface("openai_responses", ("instructions", "input"))
_MESSAGES = Surface("anthropic_messages", ("system", "messages"))

_OPENAI: dict[Path, Surface] = {
    ("chat", "completions"): _CHAT,
    ("beta", "chat", "completions"): _CHAT,
    ("responses",): _RESPONSES,
}
_ANTHROPIC: dict[Path, Surface] = {("messages",): _MESSAGES, ("beta", "messages"): _MESSAGES}

_METHODS = frozenset({"create", "parse", "stream"})
_COPIES = frozenset({"copy", "with_options"})


def record(client: C, *, provider: str | None = None) -> C:
    """Return a client that records its model calls into the turn that is open where they are made.

    Recorded are ``chat.completions`` and ``responses`` of OpenAI's clients (and of those of the
    same shape), ``messages`` of Anthropic's: ``create``, streamed or not, ``parse`` and ``stream``.
    All else is passed on untouched, and so are calls where no turn is open. Chunks, answers and
    exceptions reach the caller unchanged.

    Args:
        client: A synchronous client for `Turn`, an asynchronous one for `AsyncTurn`.
        provider: Who is asked; by default told from the client's URL.

    Raises:
        TypeError: The client has none of these methods.
    """
    anthropic = hasattr(client, "messages")
    if not anthropic and not hasattr(client, "chat") and not hasattr(client, "responses"):
        raise TypeError(f"{type(client).__name__} is no client of OpenAI's or Anthropic's shape")
    surfaces = _ANTHROPIC if anthropic else _OPENAI
    return cast(C, RecordedClient(_Wrapping(client, surfaces, provider)))


@dataclass(frozen=True, slots=True)
class _Wrapping:
    """The client, and how its calls are recorded."""

    client: Any
    surfaces: dict[Path, Surface]
    provider: str | None

    def seller(self) -> str | None:
        """Return who is asked, as far as that is known before the answer."""
        known = self.provider or seller_at(str(getattr(self.client, "base_url", "")))
        return known or ("anthropic" if self.surfaces is _ANTHROPIC else None)

    def is_async(self) -> bool:
        """Whether the client's methods are to be awaited."""
        return any(cls.__name__.startswith("Async") for cls in type(self.client).__mro__)


class RecordedClient:
    """A client, or one of its resources, whose model calls are recorded; made by `record`."""

    __slots__ = ("__weakref__", "_path", "_target", "_wrapping")

    def __init__(self, wrapping: _Wrapping, target: Any = None, path: Path = ()) -> None:
        object.__setattr__(self, "_wrapping", wrapping)
        object.__setattr__(self, "_target", target if path else wrapping.client)
        object.__setattr__(self, "_path", path)

    def __getattr__(self, name: str) -> Any:
        value, path = getattr(self._target, name), (*self._path, name)
        surface = self._wrapping.surfaces.get(self._path)
        if surface is not None and name in _METHODS:
            return _recording(self._wrapping, surface, name, value)
        if any(known[: len(path)] == path for known in self._wrapping.surfaces):
            return RecordedClient(self._wrapping, value, path)
        return self._copying(value) if not self._path and name in _COPIES else value

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client."""
        self._target.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        """Enter the client."""
        await self._target.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client."""
        await self._target.__aexit__(kind, error, trace)

    def _copying(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def copy(*args: Any, **options: Any) -> Any:
            return record(method(*args, **options), provider=self._wrapping.provider)

        return copy


def _recording(
    wrapping: _Wrapping, surface: Surface, name: str, method: Callable[..., Any]
) -> Callable[..., Any]:
    """Return the method with the recorder around it."""

    @functools.wraps(method)
    def recording(*args: Any, **arguments: Any) -> Any:
        turn = current_turn()
        if turn is None:
            return method(*args, **arguments)
        own = _own_kind(turn, wrapping)
        asked = asked_of(surface, arguments, wrapping.seller())
        send = functools.partial(method, *args, **arguments)
        if isinstance(own, AsyncTurn):
            if name == "stream":
                return calls_aio.AsyncRecordedManager(own, asked, send)
            return calls_aio.call(own, asked, send)
        return (calls.RecordedManager if name == "stream" else calls.call)(own, asked, send)

    return recording


def _own_kind(turn: OpenTurn[Any], wrapping: _Wrapping) -> Turn | AsyncTurn:
    """Return the turn if this kind of client can be recorded in it.

    Raises:
        TypeError: One of them is for event loops, and the other is not.
    """
    if isinstance(turn, AsyncTurn if wrapping.is_async() else Turn):
        return turn
    kinds = f"{type(wrapping.client).__name__} cannot be recorded in {type(turn).__name__}"
    raise TypeError(f"{kinds}: use an asynchronous client in an asynchronous conversation")
