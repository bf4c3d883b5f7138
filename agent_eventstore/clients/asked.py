"""What is recorded of a request and of a raw response, and what is said of a call that is not.

A request is recorded without its messages: these are in the log already, as the events they were
made of, and of them the request keeps a digest. Credentials are marked and stay out: what an
append-only log has once, it has for good.

The body of an HTTP response is read along as its bytes pass. An event stream gives its chunks as
they are complete; anything else is one JSON document, which is there at its end.

A web framework runs what was one loop in several threads and tasks, and the turn of the first is
unknown to the others. What is lost then is named once for each place where such a call is made, as
a warning of Python's (which a test turns into an error) and in the log (which a server's operator
reads).
"""

from __future__ import annotations

import codecs
import json
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

from agent_eventstore.errors import CallNotRecorded
from agent_eventstore.llm_call import AsyncLlmCall, LlmCall
from agent_eventstore.providers.base import plain
from eventstore.events.base import JsonObject
from eventstore.log import get_logger

__all__ = [
    "ENDED",
    "GOES_ON",
    "NOT_SEEN",
    "NO_TURN",
    "UNKNOWN",
    "Asked",
    "Body",
    "Guard",
    "Surface",
    "Unrecorded",
    "UnrecordedCall",
    "asked_of",
    "recorded",
    "remember",
    "seller_at",
]


_NOT_RECORDED = frozenset({"timeout"})

_LINE_END = re.compile(r"\r\n|\n|\r(?!\Z)")
"""The three of the standard; `str.splitlines` knows others, which may stand within a chunk.

After a carriage return that came last, the line feed may still follow.
"""


@dataclass(frozen=True, slots=True)
class Surface:
    """One API of a provider: what it is called in the log, and which arguments hold the prompt."""

    specification: str
    prompt: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What `Turn.llm_call` is told of a request."""

    provider: str | None
    specification: str
    model: str | None
    prompt: Any
    parameters: JsonObject
    tools: tuple[JsonObject, ...]
    tools_from_messages: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """The same as arguments."""
        return {name: getattr(self, name) for name in self.__slots__}


def asked_of(
    surface: Surface,
    arguments: dict[str, Any],
    provider: str | None,
    *,
    tools_from_messages: bool = False,
) -> Asked:
    """Return what is recorded of a request.

    Args:
        surface: The API that is called.
        arguments: Those of the SDK's method; an iterator among them is replaced by a list, since
            it can be read only once.
        provider: Who is asked.
        tools_from_messages: Whether results of tools are taken from the prompt.
    """
    for name, value in arguments.items():
        if isinstance(value, Iterator):
            arguments[name] = list(value)
    given = {name: value for name, value in arguments.items() if _is_given(value)}
    prompt = {name: plain(given.pop(name)) for name in surface.prompt if name in given}
    model, tools = given.pop("model", None), plain(given.pop("tools", None))
    kept = {name: plain(value) for name, value in given.items() if name not in _NOT_RECORDED}
    return Asked(
        provider=provider,
        specification=surface.specification,
        model=None if model is None else str(model),
        prompt=next(iter(prompt.values())) if len(prompt) == 1 else prompt or None,
        parameters=kept,
        tools=tuple(
            tool if isinstance(tool, dict) else {"raw": tool}
            for tool in (tools if isinstance(tools, list) else ())
        ),
        tools_from_messages=tools_from_messages,
    )


@cache
def seller_at(url: str) -> str | None:
    """Return who serves models at a URL, by the name that the price list has for them."""
    from genai_prices.data import providers  # takes a while, and only recording clients need it

    return next((found.id for found in providers if re.match(found.api_pattern, url)), None)


def _is_given(value: Any) -> bool:
    # Both SDKs mark what was left out by objects of these classes.
    return value is not None and type(value).__name__ not in ("NotGiven", "Omit")


class Body:
    """Reads a response's body along.

    Args:
        content_type: The header of this name.
    """

    def __init__(self, content_type: str) -> None:
        self.streamed = "event-stream" in content_type.lower()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._data: list[str] = []

    def feed(self, passed: bytes) -> list[Any]:
        """Take what has passed; return the chunks of the stream that it completes."""
        text = self._decoder.decode(passed)
        self._pieces.append(text)
        if not self.streamed or ("\n" not in text and "\r" not in text):
            return []
        *lines, rest = _LINE_END.split("".join(self._pieces))
        self._pieces = [rest]
        return [chunk for line in lines for chunk in self._line(line)]

    def whole(self) -> Any:
        """Return the document, as JSON or else as text; None if it was a stream.

        An event that a stream's end has cut off is none, as the SDKs see it.
        """
        if self.streamed:
            return None
        return _parsed("".join(self._pieces) + self._decoder.decode(b"", final=True))

    def _line(self, line: str) -> list[Any]:
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
            return []
        data, self._data = "\n".join(self._data), []
        return [_parsed(data)] if data and not data.startswith("[DONE]") else []


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


Unrecorded = Literal["warn", "raise", "ignore"]

NO_TURN = "no turn is open in this thread or task"
ENDED = "its turn has ended, or has not begun"
GOES_ON = "its turn has ended while the answer was streaming, and what follows is not recorded"
UNKNOWN = "its answer has a shape that nobody knows"
NOT_SEEN = "the recorder does not see what this method sends and receives"

_ADVICE = {
    NO_TURN: "call it within `with conversation.turn(...)`, or through `turn.client(client)`, "
    "which knows its turn in every thread and task",
    ENDED: "hold the turn open until the last call has been made",
    GOES_ON: "hold the turn open until the stream has been read or closed",
    UNKNOWN: "the log has it as an `llm_error` of kind invalid, as it came; record it with "
    "`turn.llm_call()` and `call.message(text=...)`",
    NOT_SEEN: "use create, parse or stream, or record it with `turn.llm_call()`",
}

_log = get_logger("agent_eventstore")
_told: set[tuple[str, str, str]] = set()
_telling = threading.Lock()

_calls: dict[int, LlmCall | AsyncLlmCall] = {}


class UnrecordedCall(UserWarning):
    """A recorded client was called, or a stream of it read, and nothing is recorded of that."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What is done about calls of one method that cannot be recorded."""

    method: str
    policy: Unrecorded

    def __post_init__(self) -> None:
        """Refuse a policy that does not exist.

        Raises:
            ValueError: It is not one of the three.
        """
        if self.policy not in get_args(Unrecorded):
            known = ", ".join(repr(name) for name in get_args(Unrecorded))
            raise ValueError(f"unrecorded={self.policy!r}: it is one of {known}")

    def tell(self, why: str) -> None:
        """Warn once for each place, or raise, or pass over it, as the product wants it.

        Raises:
            CallNotRecorded: The product wants that.
        """
        if self.policy == "ignore":
            return
        message = f"{self.method} is not recorded: {why}; {_ADVICE[why]}"
        if self.policy == "raise":
            raise CallNotRecorded(self.method, message)
        level, place = _caller()
        with _telling:
            known = (self.method, why, place) in _told
            _told.add((self.method, why, place))
        if not known:
            _log.warning("model call not recorded", method=self.method, why=why, place=place)
            warnings.warn(message, UnrecordedCall, stacklevel=level)


def _caller() -> tuple[int, str]:
    """Return how far up whoever called the client is, and where that is in words."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        level, frame = level + 1, frame.f_back
    return level, f"{frame.f_code.co_filename}:{frame.f_lineno}"


def recorded(result: object) -> Any:
    """Return the `LlmCall` of a stream or an answer that a wrapped client returned.

    For products that make several calls at once; otherwise `Turn.last_call` says the same. None if
    it was not recorded. The call is known for as long as the result lives.
    """
    return _calls.get(id(result))


def remember(result: object, call: LlmCall | AsyncLlmCall) -> None:
    """Have `recorded` know the call of a result."""
    try:
        gone = weakref.finalize(result, _calls.pop, id(result), None)
    except TypeError:  # what cannot be watched cannot be told from its successor at that address
        return
    gone.atexit = False
    _calls[id(result)] = call
