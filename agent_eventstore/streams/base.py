"""What a provider's stream is turned into, and what every parser of one promises.

A parser is fed the chunks as they come and keeps everything that was received, so that at any
moment it can tell the delta of the last chunk, the message so far and what a broken stream left.
The deltas of a stream, put together, are its message: nothing is in one that is not in the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from eventstore.events import (
    AssistantMessage,
    PartialToolCall,
    TokenUsage,
    ToolCallDelta,
)
from eventstore.events.values import LlmErrorKind

__all__ = ["Delta", "Partial", "StreamError", "StreamParser"]


@dataclass(frozen=True, slots=True)
class Delta:
    """What one chunk added; false when that is nothing.

    ``index`` of a tool-call delta is the place of the call among the message's calls, whatever
    number the provider gave it. ``raw`` holds, as plain JSON, what has no other place here.
    """

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    raw: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.reasoning or self.refusal or self.tool_calls or self.raw)


@dataclass(frozen=True, slots=True)
class Partial:
    """What has been received, in the form in which a failure of the call is recorded."""

    text: str
    reasoning: str
    tool_calls: tuple[PartialToolCall, ...]
    usage: TokenUsage | None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class StreamError:
    """An error that came as a chunk of the stream; ``raw`` is the provider's object as it came."""

    kind: LlmErrorKind
    message: str
    retryable: bool
    raw: Any = None


class StreamParser(Protocol):
    """Takes the chunks of one model call."""

    @property
    def unknown(self) -> bool:
        """Whether nothing that was fed has told which specification this is."""

    @property
    def finished(self) -> bool:
        """Whether the provider said that the answer is complete; usage may still follow."""

    @property
    def error(self) -> StreamError | None:
        """The first error that came in the stream."""

    def feed(self, chunk: Any) -> Delta:
        """Take a chunk, an SDK's object or a dict, and return what it added.

        Never raises: a chunk that nobody knows, and what is no chunk at all, comes back in the
        delta's ``raw``.
        """

    def message(self, **fields: Any) -> AssistantMessage:
        """Return what has been received as the final payload; ``fields`` come before its own."""

    def partial(self) -> Partial:
        """Return what has been received as the remains of a call that failed."""
