"""A stand-in for a model: recorded replies, streamed as OpenAI's chat-completion chunks.

It answers as the chat endpoint does with ``stream`` and ``include_usage``, each chunk as a dict;
usage is counted from what it is really sent, and from what it says.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from eventstore.events import JsonObject
from eventstore.tokens import count_messages, count_tools, tokenizer_for

__all__ = ["MODEL", "Reply", "ScriptedModel", "Wanted", "text_of"]

MODEL = "gpt-4o"

_SNAPSHOT = "gpt-4o-2024-08-06"
_PIECES = re.compile(r"[\u3000-\u9fff\uff00-\uffef]|\s*[^\s\u3000-\u9fff\uff00-\uffef]+|\s+")
_ARGUMENT_PIECES = re.compile(r".{1,12}", re.DOTALL)


@dataclass(frozen=True, slots=True, init=False)
class Wanted:
    """A tool call that the model asks for."""

    name: str
    arguments: JsonObject = field(default_factory=dict)

    def __init__(self, name: str, **arguments: Any) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", arguments)


@dataclass(frozen=True, slots=True)
class Reply:
    """A recorded reply; ``breaks_off`` is the network's error that ends its stream early."""

    text: str
    calls: tuple[Wanted, ...] = ()
    breaks_off: str | None = None


class ScriptedModel:
    """Gives one reply a call, in order.

    Args:
        replies: What to say.
        delay_s: How long a piece takes, in seconds.
        tools: The declarations that it is sent along with the messages, which it bills too.
    """

    def __init__(
        self,
        replies: Sequence[Reply],
        *,
        delay_s: float = 0.004,
        tools: Sequence[JsonObject] = (),
    ) -> None:
        self._replies = iter(replies)
        self._tools = tools
        self._delay_s = delay_s
        self._answers = 0

    def stream(self, messages: Sequence[JsonObject]) -> Iterator[JsonObject]:
        """Yield the chunks of the next reply.

        Raises:
            ConnectionError: The reply is one that breaks off.
        """
        reply = next(self._replies)
        self._answers += 1
        yield self._chunk({"role": "assistant", "content": ""})
        deltas = [{"content": piece} for piece in _PIECES.findall(reply.text)]
        for index, wanted in enumerate(reply.calls):
            deltas += self._call_deltas(index, wanted)
        for delta in deltas:
            time.sleep(self._delay_s)
            yield self._chunk(delta)
        if reply.breaks_off is not None:
            raise ConnectionError(reply.breaks_off)
        yield self._chunk({}, finish_reason="tool_calls" if reply.calls else "stop")
        yield {**self._chunk({}), "choices": [], "usage": _usage(messages, self._tools, reply)}

    def _call_deltas(self, index: int, wanted: Wanted) -> list[JsonObject]:
        digest = hashlib.sha256(f"{self._answers}.{index}".encode()).hexdigest()
        function = {"name": wanted.name, "arguments": ""}
        first = {"index": index, "id": f"call_{digest[:24]}", "type": "function"}
        rest = (
            {"index": index, "function": {"arguments": piece}}
            for piece in _ARGUMENT_PIECES.findall(_arguments(wanted))
        )
        return [{"tool_calls": [each]} for each in ({**first, "function": function}, *rest)]

    def _chunk(self, delta: JsonObject, finish_reason: str | None = None) -> JsonObject:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {
            "id": f"chatcmpl-demo-{self._answers:04}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": _SNAPSHOT,
            "choices": [choice],
            "usage": None,
        }


def text_of(chunk: JsonObject) -> str:
    """Return the text that a chunk adds to the answer."""
    return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])


def _arguments(wanted: Wanted) -> str:
    return json.dumps(wanted.arguments, ensure_ascii=False)


def _usage(messages: Sequence[JsonObject], tools: Sequence[JsonObject], reply: Reply) -> JsonObject:
    tokenizer = tokenizer_for(MODEL)
    written = (reply.text, *(f"{each.name}{_arguments(each)}" for each in reply.calls))
    prompt = (count_messages(messages, tokenizer) + count_tools(tools, tokenizer)).tokens
    completion = sum(tokenizer.count(text).tokens for text in written)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
