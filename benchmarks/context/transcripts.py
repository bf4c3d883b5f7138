"""The transcripts, the tool calls in them, and the values that their arguments need.

These are tau-bench's airline conversations: real model calls with real tools. Tokens are counted
with this project's own count for one model, so that all candidates have the same budgets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from projections.tokens import Tokenizer, count_message, tokenizer_for

__all__ = [
    "MODEL",
    "TAU_BENCH",
    "Message",
    "ToolUse",
    "Transcript",
    "broken",
    "message_tokens",
    "read_tau_bench",
    "request_tokens",
    "said",
    "tokenizer",
    "tool_uses",
]

Message = Mapping[str, Any]

MODEL = "gpt-4o"
TAU_BENCH = (
    Path(__file__).parents[2].parent / "shared" / "data" / "tau-bench" / "airline-even-tasks.json"
)

_REPLY = 3  # tokens that start the reply, in addition to those of the messages
_LEAST_CHARACTERS = 4
_LEAST_TOKENS = 2_500


@dataclass(frozen=True, slots=True)
class Transcript:
    """One conversation; ``number`` is its position in the file, from 0."""

    number: int
    messages: tuple[Message, ...]

    @property
    def calls(self) -> list[int]:
        """The positions of the assistant's messages: each answers the messages before it."""
        return [place for place, each in enumerate(self.messages) if each["role"] == "assistant"]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """An assistant message with tool calls, which a context has to make possible.

    Attributes:
        transcript: The conversation.
        place: Number of messages before it.
        tokens: Tokens of a request with all of those.
        values: Strings of its arguments that occur in them, as often as the arguments use them.
    """

    transcript: Transcript
    place: int
    tokens: int
    values: tuple[str, ...]


def read_tau_bench(conversations: int | None = None) -> list[Transcript]:
    """Return the first conversations of the file, by default all."""
    records = json.loads(TAU_BENCH.read_text("utf-8"))[:conversations]
    return [Transcript(number, tuple(each["traj"])) for number, each in enumerate(records)]


def tool_uses(transcript: Transcript, least_tokens: int = _LEAST_TOKENS) -> Iterator[ToolUse]:
    """Yield the tool uses of a transcript that need values from a prefix with enough tokens."""
    for place, message in enumerate(transcript.messages):
        before = transcript.messages[:place]
        if not message.get("tool_calls") or request_tokens(before) < least_tokens:
            continue
        text = said(before)
        values = [value for value in _argument_values(message) if value in text]
        if values:
            yield ToolUse(transcript, place, request_tokens(before), tuple(values))


def said(messages: Iterable[Message]) -> str:
    """Return all that a model sees of messages: contents, names and arguments of tool calls."""
    return "\n".join(text for message in messages for text in _texts(message))


def broken(messages: Sequence[Message]) -> bool:
    """Whether some tool call lacks its results, or some result lacks its call.

    Ids are ignored: providers have issued the same id twice, as the transcripts show.
    """
    waiting = 0
    for message in messages:
        if message["role"] == "tool":
            waiting -= 1
            if waiting < 0:
                return True
        elif waiting:
            return True
        else:
            waiting = len(message.get("tool_calls") or ())
    return waiting > 0


def request_tokens(messages: Iterable[Message]) -> int:
    """Return the prompt tokens of a request, as ``projections.tokens.count_messages`` counts it."""
    return _REPLY + sum(map(message_tokens, messages))


def message_tokens(message: Message) -> int:
    """Return the tokens of one message within a request."""
    return _counted(json.dumps(message, sort_keys=True))


@cache
def tokenizer() -> Tokenizer:
    """Return the tokenizer for all counts here."""
    return tokenizer_for(MODEL)


@lru_cache(maxsize=1 << 16)
def _counted(message: str) -> int:
    return count_message(json.loads(message), tokenizer()).tokens


def _texts(message: Message) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif content:
        yield from (part["text"] for part in content if isinstance(part.get("text"), str))
    for call in message.get("tool_calls") or ():
        yield call["function"]["name"]
        yield call["function"]["arguments"]


def _argument_values(message: Message) -> Iterator[str]:
    for call in message["tool_calls"]:
        try:
            arguments = json.loads(call["function"]["arguments"])
        except ValueError:
            continue
        yield from (text for text in _strings(arguments) if len(text) >= _LEAST_CHARACTERS)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for held in value.values():
            yield from _strings(held)
    elif isinstance(value, list):
        for held in value:
            yield from _strings(held)
