"""Usage: one row a model call, with its tokens, latency, and cost by the price list.

What a model call cost, by the price list of `genai_prices`, which is carried along.

Most models cost a fixed sum for each token of a kind. Those sums are asked of the list once, as
the price of a million tokens, since its own arithmetic takes longer than all folds of an event
together. Prices with tiers, and whatever else is not so simple, are asked of it each time.

Tokens, cost, latency and outcome of every model call: one row each.

What the provider reported and what was estimated stand in columns of their own, and cost comes
from reported tokens only. A row belongs to an ``llm_call_id``; a message or an error without one
gets ``v<version>``. The first answer stays, and replaces an error; a new request under the id of
an ended call begins the row again. Ended calls are known among the last `folding.CLOSED_LIMIT`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    Invocation,
    LlmError,
    LlmRequest,
    RecordedEvent,
    TokenUsage,
)
from projections.engine import folding
from projections.engine.folding import CLOSED_LIMIT, Draft, Row
from projections.engine.projection import Change, ReadTable, State
from projections.tokens.estimates import EstimatedColumn, Written

__all__ = ["USAGE", "UsageProjection", "UsageRow", "cost_usd"]


if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice, Provider


_MILLION = 1_000_000


class _Rates(NamedTuple):
    """US dollars for a million tokens of each kind."""

    prompt: Decimal
    cached: Decimal
    cache_write: Decimal
    completion: Decimal


def cost_usd(
    usage: TokenUsage, provider: str | None, model: str | None, at: datetime
) -> float | None:
    """Return what a call cost in US dollars by the bundled price list, at the prices of ``at``.

    None when the list has no such provider or model, or the counts contradict each other (more
    cached tokens than prompt tokens): no cost is better than a wrong one.
    """
    found = None if not model else _model_prices(provider, model)
    if found is None:
        return None
    seller, prices = found
    cached, cache_write = usage.cached_prompt_tokens or 0, usage.cache_write_tokens or 0
    plain = usage.prompt_tokens - cached - cache_write
    rates = _rates(prices.get_prices(at), seller, prices, at)
    if rates is None or plain < 0:
        total = _by_the_list(seller, prices, at, usage)
        return None if total is None else float(total)
    total = (
        plain * rates.prompt
        + cached * rates.cached
        + cache_write * rates.cache_write
        + usage.completion_tokens * rates.completion
    )
    return float(total / _MILLION)


_RATES: dict[int, tuple[ModelPrice, _Rates | None]] = {}
"""By the identity of a price, which has no hash; as many as the list has prices."""


def _rates(price: ModelPrice, seller: Provider, prices: ModelInfo, at: datetime) -> _Rates | None:
    known = _RATES.get(id(price))
    if known is None:
        known = _RATES[id(price)] = price, _asked(price, seller, prices, at)
    return known[1]


def _asked(price: ModelPrice, seller: Provider, prices: ModelInfo, at: datetime) -> _Rates | None:
    """Return what a million tokens of each kind cost; None if the price is not the sum of these."""
    if any(isinstance(each, _tiered()) for each in vars(price).values()):
        return None
    usages = (
        TokenUsage(),
        TokenUsage(prompt_tokens=_MILLION),
        TokenUsage(prompt_tokens=_MILLION, cached_prompt_tokens=_MILLION),
        TokenUsage(prompt_tokens=_MILLION, cache_write_tokens=_MILLION),
        TokenUsage(completion_tokens=_MILLION),
    )
    costs = [_by_the_list(seller, prices, at, usage) for usage in usages]
    nothing, *sums = [cost for cost in costs if cost is not None]
    return _Rates(*sums) if nothing == 0 and len(sums) == len(_Rates._fields) else None


def _by_the_list(
    seller: Provider, prices: ModelInfo, at: datetime, usage: TokenUsage
) -> Decimal | None:
    from genai_prices import Usage

    counts = Usage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cache_read_tokens=usage.cached_prompt_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        price = prices.calc_price(counts, seller, genai_request_timestamp=at)
    except ValueError:
        return None
    return price.total_price


@lru_cache(maxsize=1024)
def _model_prices(provider: str | None, model: str) -> tuple[Provider, ModelInfo] | None:
    try:
        return _price_list().find_provider_model(model, None, provider, None)
    except LookupError:
        return None


@cache
def _price_list() -> DataSnapshot:
    # Not the package's current snapshot: a program may have set one that updates itself, and then
    # a rebuild would not give what was there.
    from genai_prices.data import providers
    from genai_prices.data_snapshot import DataSnapshot

    return DataSnapshot(providers=providers, from_auto_update=False)


@cache
def _tiered() -> type:
    from genai_prices.types import TieredPrices

    return TieredPrices


_TABLE = "usage_by_call"
_INHERITED = "inherited"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow(Row):
    """A model call.

    Attributes:
        status: ``started``, ``ok``, or the kind of the error.
        estimated_prompt_tokens: Counted before the request was sent, or told by the writer.
        estimated_completion_tokens: Counted from the answer; only when no usage was reported.
        prompt_tokens: As reported, cached ones included; like all that follow, NULL if it was not.
        completion_tokens: As reported, reasoning included.
        cost_usd: By the price list at the time of the answer; NULL if it has no such model.
        latency_ms: From the request to the end of the answer.
        first_token_ms: From the request to the first piece of the answer.
        version: Version of the first event of the call; ``end_version`` that of its last.
        day: Day of the first event in UTC, ``YYYY-MM-DD``.
    """

    llm_call_id: str
    provider: str | None = None
    model: str | None = None
    specification: str | None = None
    status: str | None = None
    estimated_prompt_tokens: int | None = None
    estimated_completion_tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None
    total_tokens: int | None = None
    cost_usd: float | None = None
    latency_ms: int | None = None
    first_token_ms: int | None = None
    error_kind: str | None = None
    attempt: int | None = None
    retry_of: str | None = None
    version: int | None = None
    end_version: int | None = None
    turn: int | None = None
    step: int | None = None
    session_id: str | None = None
    mode: str | None = None
    run_id: str | None = None
    agent_id: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    day: str | None = None


@dataclass(frozen=True, slots=True)
class UsageProjection:
    """Folds a conversation's events into ``usage_by_call``."""

    name: str = "usage"
    version: int = 1
    tables: Sequence[ReadTable] = (
        ReadTable(
            _TABLE,
            ("llm_call_id",),
            folding.columns_of(UsageRow),
            lookups=(("day", "model"),),
            counting=EstimatedColumn("estimated_completion_tokens"),
        ),
    )

    def initial(self) -> State:
        """Return the state of an empty conversation: no call is open, none ended."""
        return {"open": {}, "ended": {}}

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event, and what it changes in the table.

        A fork's rows are of its own calls: those that it shares are its parent's.
        """
        after, changes = folding.run(_HANDLERS, state, event)
        return after, [] if event.inherited else changes


def _request(draft: Draft, request: LlmRequest) -> None:
    if draft.get("ended", request.llm_call_id) == "ok":
        return
    draft.drop("ended", request.llm_call_id)
    invocation = request.invocation
    called = {
        "provider": invocation.provider,
        "model": invocation.model,
        "specification": invocation.specification,
    }
    values = _begin(draft, request.llm_call_id, called)
    values |= {
        "estimated_prompt_tokens": request.counted_tokens,
        "attempt": request.attempt,
        "retry_of": request.retry_of,
        "error_kind": None,
        "end_version": draft.event.version,
    }
    draft.put(_TABLE, (request.llm_call_id,), values)


def _is_over(draft: Draft, own_id: str) -> bool:
    """Whether a call has its answer, or is one of the parent's that a fork knows of."""
    ended, call = draft.get("ended", own_id), draft.get("open", own_id)
    if draft.event.inherited:
        return bool(ended == "ok")
    return ended in ("ok", _INHERITED) or (call is not None and _INHERITED in call)


def _chunk(draft: Draft, chunk: AssistantChunk) -> None:
    if draft.get("ended", chunk.llm_call_id) is not None or _is_over(draft, chunk.llm_call_id):
        return
    call = draft.get("open", chunk.llm_call_id)
    if call is None:
        values = _begin(draft, chunk.llm_call_id, {})
        draft.put(_TABLE, (chunk.llm_call_id,), values | {"end_version": draft.event.version})
    elif call["first"] is None:
        first = folding.elapsed_ms(call["started"], draft.event.occurred_at)
        draft.keep("open", chunk.llm_call_id, {**call, "first": first})
        draft.put(_TABLE, (chunk.llm_call_id,), {"first_token_ms": first})


def _begin(draft: Draft, own_id: str, called: dict[str, str | None]) -> dict[str, Any]:
    event = draft.event
    # Without a request the start is unknown, and a first piece tells no latency.
    started = draft.now if called else None
    call = {"started": started, "first": None, "called": called}
    draft.keep("open", own_id, {**call, _INHERITED: True} if event.inherited else call)
    return {**folding.where(event), **called, **_first_seen(event), "status": "started"}


def _message(draft: Draft, message: AssistantMessage) -> None:
    own_id = message.llm_call_id or f"v{draft.event.version}"
    if _is_over(draft, own_id):
        return
    call = draft.get("open", own_id)
    called = _called(message.invocation, call)
    values = _end(draft, own_id, call, called) | {"status": "ok", "error_kind": None}
    values |= _tokens(message.usage, called, draft.event.occurred_at)
    if message.usage is None:
        values["estimated_completion_tokens"] = Written(_said(message), called.get("model"))
    _set_times(values, draft, call, message.duration_ms)
    if message.first_token_ms is not None:
        values["first_token_ms"] = message.first_token_ms
    draft.keep("ended", own_id, "ok", CLOSED_LIMIT)
    draft.put(_TABLE, (own_id,), values)


def _error(draft: Draft, error: LlmError) -> None:
    own_id = error.llm_call_id or f"v{draft.event.version}"
    if draft.get("ended", own_id) is not None or _is_over(draft, own_id):
        return
    call = draft.get("open", own_id)
    called = _called(error.invocation, call)
    values = _end(draft, own_id, call, called)
    values |= {"status": error.kind, "error_kind": error.kind, "attempt": error.attempt}
    values |= _tokens(error.usage, called, draft.event.occurred_at)
    partial = (error.partial_reasoning, error.partial_text)
    pieces = [*partial, *(call.arguments_text for call in error.partial_tool_calls)]
    if error.usage is None and any(pieces):
        values["estimated_completion_tokens"] = Written(pieces, called.get("model"))
    _set_times(values, draft, call, error.duration_ms)
    draft.keep("ended", own_id, _INHERITED if draft.event.inherited else "error", CLOSED_LIMIT)
    draft.put(_TABLE, (own_id,), values)


def _end(
    draft: Draft, own_id: str, call: dict[str, Any] | None, called: dict[str, str | None]
) -> dict[str, Any]:
    draft.drop("open", own_id)
    event = draft.event
    values = {**called, "ended_at": event.occurred_at, "end_version": event.version}
    if call is None and draft.get("ended", own_id) is None:
        values |= folding.where(event) | _first_seen(event)
    return values


def _called(invocation: Invocation | None, call: dict[str, Any] | None) -> dict[str, str | None]:
    """Return provider, model and specification as far as they are known: the answer's first."""
    called: dict[str, str | None] = dict(call["called"]) if call else {}
    if invocation is not None:
        told = {name: getattr(invocation, name) for name in ("provider", "model", "specification")}
        called |= {name: value for name, value in told.items() if value is not None}
    return called


def _first_seen(event: RecordedEvent) -> dict[str, Any]:
    return {
        "version": event.version,
        "started_at": event.occurred_at,
        "day": folding.day_of(event.occurred_at),
    }


def _set_times(
    values: dict[str, Any], draft: Draft, call: dict[str, Any] | None, told: int | None
) -> None:
    started = call["started"] if call else None
    latency = folding.elapsed_ms(started, draft.event.occurred_at) if told is None else told
    if latency is not None:
        values["latency_ms"] = latency


def _tokens(
    usage: TokenUsage | None, called: dict[str, str | None], at: datetime
) -> dict[str, Any]:
    if usage is None:
        return {}
    if not usage.reported:
        # A zero of the writer's stands for what it did not count.
        told = {
            "estimated_prompt_tokens": usage.prompt_tokens,
            "estimated_completion_tokens": usage.completion_tokens,
        }
        return {name: count for name, count in told.items() if count}
    total = usage.total_tokens
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_prompt_tokens": usage.cached_prompt_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens if total is None else total,
        "estimated_completion_tokens": None,
        "cost_usd": cost_usd(usage, called.get("provider"), called.get("model"), at),
    }


def _said(message: AssistantMessage) -> list[str]:
    calls = (text for call in message.tool_calls for text in (call.name, call.arguments_text))
    return [folding.text_of(message.parts), *calls]


_HANDLERS: dict[type, folding.Handler] = {
    LlmRequest: _request,
    AssistantChunk: _chunk,
    AssistantMessage: _message,
    LlmError: _error,
}

USAGE = UsageProjection()
