"""Model requests: their messages, the tool results they contain, and token estimates.

A framework that runs tools itself reports their results only to the model, so the recorder reads
them from the next request (`sent_in`). One reader handles messages of OpenAI's Chat Completions and
Responses and of Anthropic's Messages, since no field has different meanings in them.

If a provider reports no token usage, the tokens are estimated from what was sent and received. Of a
long prompt only a part is counted and extrapolated, so an estimate takes milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from eventstore.erasure.plan import ranges
from eventstore.events import (
    ContentPart,
    OtherPart,
    Summary,
    TextPart,
    TokenUsage,
    VersionRange,
)
from eventstore.events.base import JsonObject
from projections.context import ContextView, LedgerEntry
from projections.context.compression import (
    ContextUsage,
    LlmSummary,
    SummaryRequest,
    strategy_of,
)
from projections.context.view import digest_of
from projections.providers import Partial
from projections.providers.content_blocks import content_part
from projections.providers.parser import text
from projections.providers.stream_base import plain
from projections.tokens import Count
from projections.tokens.text import estimated_tokens

__all__ = [
    "Content",
    "Request",
    "SentCall",
    "SentResult",
    "SystemTexts",
    "digest_of",
    "estimated_usage",
    "failed_summary",
    "request_of",
    "sent_in",
    "summary_of",
]

Content = str | tuple[ContentPart, ...]

_OUTPUT = "_call_output"
_ARGUMENTS = ("arguments", "input", "action", "operation")
_FAILED = frozenset({"failed", "error"})

_SYSTEM_PARTS = 256

_COUNTED = 20_000  # characters; for the rest of a text, tokens are extrapolated

_A_MESSAGE = 4
"""Tokens of a message in addition to its text."""

# Fields of a prompt that contain no text for the model.
_NO_TEXT = frozenset(
    {"data", "file_data", "file_id", "id", "call_id", "role", "tool_call_id", "type"}
)


@dataclass(frozen=True, slots=True)
class Request:
    """The result of `Turn.context`: ``messages`` to send, and how they were chosen.

    Attributes:
        messages: The messages, in the requested format.
        system: The system part, for formats that keep it separate; None if it is in ``messages``.
        tools: The tool declarations that the tool policy allows. They are included in ``tokens``,
            and recorded as sent unless others are given.
        view: The messages[] view that the request was made from.
        tokens: The tokens of the whole request, by this project's count.
        usage: The share of the budget that is used; None without a budget.
        model: The model whose tokenizer counted the tokens.
        format: The provider's format.
        versions: The events that the messages were made from.
        digest: SHA-256 of the JSON of what is sent.
        policy: The log's record of how the messages were chosen.
        notes: Deviations from the settings, such as a summary that the model failed to write.
    """

    messages: list[dict[str, Any]]
    system: str | None
    tools: tuple[dict[str, Any], ...]
    view: ContextView = field(repr=False)
    tokens: Count
    usage: ContextUsage | None
    model: str
    format: str
    versions: tuple[VersionRange, ...]
    digest: str
    policy: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        """How each group of messages was rendered."""
        return self.view.ledger

    @property
    def parameters(self) -> dict[str, Any]:
        """The call's parameters in addition to ``messages``, by the settings; see `ContextView`."""
        return self.view.parameters


def request_of(view: ContextView, at: int, note: str = "") -> Request:
    """Return the request of a messages[] view that was read at version ``at``."""
    return Request(
        messages=list(view.messages),
        system=view.system,
        tools=view.tools,
        view=view,
        tokens=view.tokens,
        usage=view.usage,
        model=view.policy["model"],
        format=view.format,
        versions=VersionRange.of(ranges(view.versions)),
        digest=view.digest,
        policy={**view.policy, "at": at},
        notes=(*view.notes, note) if note else view.notes,
    )


def summary_of(due: SummaryRequest, text: str, strategy: LlmSummary) -> Summary:
    """Return the payload of a summary that a model has written."""
    return Summary(
        text=text,
        versions=VersionRange.of(ranges(due.versions)),
        strategy=strategy.name,
        strategy_version=str(strategy.version),
    )


def failed_summary(why: str, strategy: LlmSummary) -> str:
    """Return the note about a summary that was not written."""
    base = strategy_of(strategy.base).name
    return f"no summary was written ({why}): the strategy {base} stands in for it"


@dataclass(slots=True)
class SystemTexts:
    """The composed system parts that the log already has, so that each is stored once.

    Only the last `_SYSTEM_PARTS` different ones are remembered; an older one is stored again.

    Attributes:
        versions: The version of the request that holds a system part, by the digest of its texts.
    """

    versions: dict[bytes, int] = field(default_factory=dict)

    def shared(self, policy: dict[str, Any]) -> dict[str, Any]:
        """Return the policy, with a reference instead of texts that the log already has."""
        version = self.versions.get(_digest(policy.get("system")))
        if version is None:
            return policy
        rest = {name: value for name, value in policy.items() if name != "system"}
        return {**rest, "system_of": version}

    def stored(self, policy: dict[str, Any], version: int) -> None:
        """Remember which request stores a policy's texts."""
        if "system" in policy:
            self.versions.setdefault(_digest(policy["system"]), version)
            if len(self.versions) > _SYSTEM_PARTS:
                del self.versions[next(iter(self.versions))]


def _digest(texts: Any) -> bytes:
    return sha256(repr(texts).encode()).digest()


@dataclass(frozen=True, slots=True)
class SentCall:
    """A tool call in a request's messages.

    ``key`` is the provider's id, or the tool's name if it has none.
    """

    key: str
    arguments: Any = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class SentResult:
    """A tool result in a request's messages."""

    key: str
    content: Content
    failed: bool = False

    @property
    def first_line(self) -> str:
        """The first line of the content's text; empty if it has none."""
        text = self.content
        if isinstance(text, tuple):
            text = next((part.text for part in text if isinstance(part, TextPart)), "")
        return text.partition("\n")[0]


Sent = SentCall | SentResult


def sent_in(prompt: Any) -> list[Sent]:
    """Return the tool calls and results of a prompt: a list of messages or items, or a request."""
    value = plain(prompt)
    if isinstance(value, dict):
        value = value.get("messages", value.get("input"))
    items = value if isinstance(value, list) else []
    return [found for item in items if isinstance(item, dict) for found in _of(item)]


def _of(item: JsonObject) -> Iterator[Sent]:
    kind, role = text(item.get("type")), item.get("role")
    if kind.endswith(_OUTPUT):
        yield from _result(_id(item, "call_id", "id"), item.get("output"), item.get("status"))
    elif kind.endswith("_call") and item.get("call_id"):
        arguments = next((item[key] for key in _ARGUMENTS if key in item), None)
        name = text(item.get("name")) or kind.removesuffix("_call")
        yield SentCall(text(item["call_id"]), _parsed(arguments), name)
    elif role in ("tool", "function"):
        yield from _result(_id(item, "tool_call_id", "name"), item.get("content"))
    elif role in ("assistant", "user"):
        yield from _calls(item)
        content = item.get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict):
                yield from _block(block)


def _calls(message: JsonObject) -> Iterator[SentCall]:
    calls = message.get("tool_calls")
    listed = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    if isinstance(legacy := message.get("function_call"), dict):
        listed.append({"function": legacy})
    for call in listed:
        body = call.get("function", call.get("custom"))
        body = body if isinstance(body, dict) else {}
        name = text(body.get("name"))
        if key := text(call.get("id")) or name:
            yield SentCall(key, _parsed(body.get("arguments", body.get("input"))), name)


def _block(block: JsonObject) -> Iterator[Sent]:
    if block.get("type") == "tool_use" and text(block.get("id")):
        yield SentCall(text(block.get("id")), block.get("input"), text(block.get("name")))
    elif block.get("type") == "tool_result":
        status = "failed" if block.get("is_error") is True else None
        yield from _result(_id(block, "tool_use_id"), block.get("content"), status)


def _result(key: str, content: Any, status: Any = None) -> Iterator[SentResult]:
    if key:
        yield SentResult(key, content_of(content), failed=status in _FAILED)


def content_of(value: Any) -> Content:
    """Return a result's content: its text, or its parts if it is more than one text."""
    if value is None or isinstance(value, str):
        return value or ""
    parts = tuple(_part(part) for part in (value if isinstance(value, list) else [value]))
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return parts or ""


def _part(part: Any) -> ContentPart:
    if isinstance(part, str):
        return TextPart(text=part)
    if not isinstance(part, dict):
        return OtherPart(raw=part)
    return content_part(part) or OtherPart(raw=part)


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _id(item: JsonObject, *names: str) -> str:
    return next((found for name in names if (found := text(item.get(name)))), "")


def estimated_usage(
    model: str | None, prompt: Any, counted: int | None, tools: Sequence[Any], partial: Partial
) -> TokenUsage:
    """Return a call's estimated usage, with ``reported`` false.

    Args:
        model: The model, which selects the tokenizer.
        prompt: The messages that were sent, if known.
        counted: The tokens of the request, if they were counted before it was sent.
        tools: The tool declarations that were sent.
        partial: The answer.
    """
    if counted is None:
        value = plain(prompt)
        messages = len(value) if isinstance(value, list) else 1
        texts = [*_texts(value), *(json.dumps(plain(tool)) for tool in tools)]
        counted = _tokens("\n".join(texts), model) + (_A_MESSAGE * messages if texts else 0)
    calls = (text for call in partial.tool_calls for text in (call.name or "", call.arguments_text))
    written = [partial.reasoning, partial.text, partial.refusal, *calls]
    return TokenUsage(
        prompt_tokens=counted,
        completion_tokens=sum(_tokens(text, model) for text in written),
        reported=False,
    )


def _tokens(text: str, model: str | None) -> int:
    if not text:
        return 0
    tokens = estimated_tokens([text[:_COUNTED]], model)
    return tokens if len(text) <= _COUNTED else round(tokens * len(text) / _COUNTED)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a prompt, except the data of images and files."""
    if isinstance(value, str) and not value.startswith("data:"):
        yield value
    for item in value if isinstance(value, list) else ():
        yield from _texts(item)
    for key, item in value.items() if isinstance(value, dict) else ():
        if key not in _NO_TEXT:
            yield from _texts(item)
