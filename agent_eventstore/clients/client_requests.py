"""The recorded fields of a request, the parser of a raw response, and reports of unrecorded calls.

A request is recorded without its messages: the log already has them as events, and the request
keeps their digest. Credentials are redacted, since an append-only log would keep them for good.

The parser reads the body of an HTTP response as its bytes pass. It returns the chunks of an event
stream as they complete; any other body is one JSON document, which is complete at its end.

A web framework runs one loop in several threads and tasks, and the turn that is open in one of them
is unknown in the others. A call that is not recorded for this reason is reported once per call
site: as a Python warning, which tests can turn into an error, and in the log, for operators.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from agent_eventstore.errors import CallNotRecorded
from agent_eventstore.llm_call import AsyncLlmCall, LlmCall
from eventstore.events.base import JsonObject
from eventstore.telemetry.log import get_logger
from projections.providers.stream_base import EventLines, plain

__all__ = [
    "ENDED",
    "GOES_ON",
    "NOT_SEEN",
    "NO_TURN",
    "RETRIEVED",
    "UNKNOWN",
    "Body",
    "ClientRequest",
    "Guard",
    "Surface",
    "Unrecorded",
    "UnrecordedCall",
    "client_request",
    "recorded",
    "remember",
    "seller_at",
]


_NOT_RECORDED = frozenset({"timeout"})


@dataclass(frozen=True, slots=True)
class Surface:
    """One API of a provider: its name in the log, and the arguments that contain the prompt."""

    specification: str
    prompt: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """The arguments of `Turn.llm_call` for a request."""

    provider: str | None
    specification: str
    model: str | None
    prompt: Any
    parameters: JsonObject
    tools: tuple[JsonObject, ...]
    tools_from_messages: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """The fields as keyword arguments."""
        return {name: getattr(self, name) for name in self.__slots__}


def client_request(
    surface: Surface,
    arguments: dict[str, Any],
    provider: str | None,
    *,
    tools_from_messages: bool = False,
) -> ClientRequest:
    """Return the recorded fields of a request.

    Args:
        surface: The API that is called.
        arguments: The arguments of the SDK's method. An iterator among them is replaced by a list,
            since it can be read only once.
        provider: The provider's name.
        tools_from_messages: Whether tool results are taken from the prompt.
    """
    for name, value in arguments.items():
        if isinstance(value, Iterator):
            arguments[name] = list(value)
    given = {name: value for name, value in arguments.items() if _is_given(value)}
    prompt = {name: plain(given.pop(name)) for name in surface.prompt if name in given}
    model, tools = given.pop("model", None), plain(given.pop("tools", None))
    recorded = {name: plain(value) for name, value in given.items() if name not in _NOT_RECORDED}
    return ClientRequest(
        provider=provider,
        specification=surface.specification,
        model=None if model is None else str(model),
        prompt=next(iter(prompt.values())) if len(prompt) == 1 else prompt or None,
        parameters=recorded,
        tools=tuple(
            tool if isinstance(tool, dict) else {"raw": tool}
            for tool in (tools if isinstance(tools, list) else ())
        ),
        tools_from_messages=tools_from_messages,
    )


@lru_cache(maxsize=256)
def seller_at(url: str) -> str | None:
    """Return the provider of a URL, by its name in the price list; None if it is unknown."""
    from genai_prices.data import providers  # slow to import, and only recorded clients need it

    return next((found.id for found in providers if re.match(found.api_pattern, url)), None)


def _is_given(value: Any) -> bool:
    # Both SDKs mark an omitted argument with an object of one of these classes.
    return value is not None and type(value).__name__ not in ("NotGiven", "Omit")


class Body:
    """Parses a response's body as its bytes pass.

    Args:
        content_type: The ``Content-Type`` header.
    """

    def __init__(self, content_type: str) -> None:
        self.streamed = "event-stream" in content_type.lower()
        self._events = EventLines(strict=True)
        self._pieces: list[bytes] = []

    def feed(self, passed: bytes) -> list[Any]:
        """Take the next bytes; return the chunks of the stream that they complete."""
        if self.streamed:
            return self._events.feed(passed)
        self._pieces.append(passed)
        return []

    @property
    def is_whole(self) -> bool:
        """Whether no event has begun that the bytes so far do not complete."""
        return not self._events.within

    def whole(self) -> Any:
        """Return the document, as parsed JSON or else as text; None for a stream.

        An incomplete event at the end of a stream is ignored, as the SDKs do.
        """
        if self.streamed:
            return None
        text = b"".join(self._pieces).decode("utf-8", "replace")
        try:
            return json.loads(text.removeprefix("\ufeff"))
        except (ValueError, RecursionError):
            return text


Unrecorded = Literal["warn", "raise", "ignore"]

NO_TURN = "no turn is open in this thread or task"
ENDED = "its turn has ended, or has not begun"
GOES_ON = "its turn has ended while the answer was streaming, and what follows is not recorded"
UNKNOWN = "its answer has an unknown format"
NOT_SEEN = "the recorder does not see what this method sends and receives"
RETRIEVED = "an answer that was made in the background, or earlier, is no call of its own"

_ADVICE = {
    NO_TURN: "call it within `with conversation.turn(...)`, or through `turn.client(client)`, "
    "which is bound to its turn in every thread and task",
    ENDED: "keep the turn open until the last call has been made",
    GOES_ON: "keep the turn open until the stream has been read or closed",
    UNKNOWN: "the log has it unchanged in an `llm_error` of kind invalid; record it with "
    "`turn.llm_call()` and `call.message(text=...)`",
    RETRIEVED: "record it with `call.response()`, or its stream with `call.feed()`, in the block "
    "`with turn.llm_call() as call:`",
    NOT_SEEN: "use create, parse or stream, or record it with `turn.llm_call()`",
}

_log = get_logger("agent_eventstore")
_reported: set[tuple[str, str, str]] = set()
_telling = threading.Lock()

_calls: dict[int, LlmCall | AsyncLlmCall] = {}


class UnrecordedCall(UserWarning):
    """A call of a recorded client, or the rest of its stream, was not recorded."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Reports calls of one method that cannot be recorded."""

    method: str
    policy: Unrecorded

    def __post_init__(self) -> None:
        """Refuse an unknown policy.

        Raises:
            ValueError: The policy is not one of the three.
        """
        if self.policy not in get_args(Unrecorded):
            known = ", ".join(repr(name) for name in get_args(Unrecorded))
            raise ValueError(f"unrecorded={self.policy!r}: use one of {known}")

    def tell(self, why: str) -> None:
        """Warn once per call site, raise, or do nothing, according to the policy.

        Raises:
            CallNotRecorded: The policy is ``raise``.
        """
        if self.policy == "ignore":
            return
        message = f"{self.method} is not recorded: {why}; {_ADVICE[why]}"
        if self.policy == "raise":
            raise CallNotRecorded(self.method, message)
        level, place = _caller()
        with _telling:
            known = (self.method, why, place) in _reported
            _reported.add((self.method, why, place))
        if not known:
            _log.warning("model call not recorded", method=self.method, why=why, place=place)
            warnings.warn(message, UnrecordedCall, stacklevel=level)


def _caller() -> tuple[int, str]:
    """Return the stack level of the client's caller, and its file and line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        level, frame = level + 1, frame.f_back
    return level, f"{frame.f_code.co_filename}:{frame.f_lineno}"


def recorded(result: object) -> Any:
    """Return the `LlmCall` of a stream or an answer that a recorded client returned.

    Returns None if it was not recorded. Use it if you make several calls at once; otherwise
    `Turn.last_call` is the same. The call can be found while the result object lives.
    """
    return _calls.get(id(result))


def remember(result: object, call: LlmCall | AsyncLlmCall) -> None:
    """Register the call of a result, for `recorded`."""
    try:
        gone = weakref.finalize(result, _calls.pop, id(result), None)
    except TypeError:  # not weakly referable: a later object may get the same id
        return
    gone.atexit = False
    _calls[id(result)] = call
