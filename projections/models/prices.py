"""The cost of a model call, by the price list bundled with `genai_prices`.

Most models have a fixed price per token of each kind. These prices are fetched from the list once,
per million tokens, because the list's own arithmetic takes longer than all folds of an event
together. Tiered prices, tokens of audio and images, service tiers and other special cases are
computed by the list each time.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from eventstore.events import TokenUsage
from eventstore.events.base import JsonObject
from eventstore.events.billing import billing_of
from projections.tokens.text import listed_models

__all__ = ["cost_usd"]

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider


_MILLION = 1_000_000


class _Rates(NamedTuple):
    """US dollars per million tokens of each kind."""

    prompt: Decimal
    cached: Decimal
    cache_write: Decimal
    completion: Decimal


def cost_usd(
    usage: TokenUsage, provider: str | None, model: str | None, at: datetime, answer: Any = None
) -> float | None:
    """Return a call's cost in US dollars by the bundled price list, at the prices of ``at``.

    ``answer`` is the ``raw`` of the answer, which may name its service tier. If the list does not
    have the provider or model, the cost is the one that the provider reported. It is None if there
    is neither, or if the counts are contradictory (more cached tokens than prompt tokens): no cost
    is better than a wrong one.
    """
    billing = billing_of(usage.raw, answer)
    found = None if not model else _model_prices(provider, model)
    if found is None:
        reported: float | None = billing.get("cost_usd")
        return reported
    seller, prices = found
    price = prices.get_prices(at)
    cached, cache_write = usage.cached_prompt_tokens or 0, usage.cache_write_tokens or 0
    plain = usage.prompt_tokens - cached - cache_write
    special = _is_special(billing, usage, price, prices)
    rates = None if special or plain < 0 else _rates(price, seller, prices, at)
    if rates is None:
        total = _by_the_list(seller, prices, at, usage, billing)
        return None if total is None else float(total)
    total = (
        plain * rates.prompt
        + cached * rates.cached
        + cache_write * rates.cache_write
        + usage.completion_tokens * rates.completion
    )
    return float(total / _MILLION)


def _is_special(
    billing: JsonObject, usage: TokenUsage, price: ModelPrice, prices: ModelInfo
) -> bool:
    """Whether the model has a price of its own for something in this usage."""
    units, context = billing.get("units", {}), billing.get("context", {})
    if "billed_input_tokens" in units or "billed_output_tokens" in units:
        return True
    names = [*units, *(["output_reasoning_tokens"] if usage.reasoning_tokens else ())]
    keys = (name.removesuffix("_tokens") + "_mtok" for name in names)
    if any(key in vars(price) for key in (*keys, *(f"{name}_kcount" for name in names))):
        return True
    return bool(context) and any(
        all(context.get(key) == value for key, value in variant.when.items())
        for variant in prices.price_variants or ()
    )


_RATES: dict[int, tuple[ModelPrice, _Rates | None]] = {}
"""Keyed by the id of a price object, which is not hashable; at most one entry per listed price."""


def _rates(price: ModelPrice, seller: Provider, prices: ModelInfo, at: datetime) -> _Rates | None:
    known = _RATES.get(id(price))
    if known is None:
        known = _RATES[id(price)] = price, _rates_for(price, seller, prices, at)
    return known[1]


def _rates_for(
    price: ModelPrice, seller: Provider, prices: ModelInfo, at: datetime
) -> _Rates | None:
    """Return the price per million tokens of each kind; None if the cost is not such a sum."""
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
    seller: Provider,
    prices: ModelInfo,
    at: datetime,
    usage: TokenUsage,
    billing: JsonObject | None = None,
) -> Decimal | None:
    from genai_prices import Usage

    billing = billing or {}
    counts = {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "cache_read_tokens": usage.cached_prompt_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_reasoning_tokens": usage.reasoning_tokens or None,
        **billing.get("units", {}),
    }
    # Cohere bills fewer tokens than the model read and wrote.
    for name in ("input_tokens", "output_tokens"):
        counts[name] = counts.pop(f"billed_{name}", counts[name])
    try:
        price = prices.calc_price(
            Usage(**counts),
            seller,
            genai_request_timestamp=at,
            price_context=billing.get("context"),
        )
    except ValueError:
        return None
    return price.total_price


@lru_cache(maxsize=1024)
def _model_prices(provider: str | None, model: str) -> tuple[Provider, ModelInfo] | None:
    try:
        return listed_models().find_provider_model(model, None, provider, None)
    except LookupError:
        return None


@cache
def _tiered() -> type:
    from genai_prices.types import TieredPrices

    return TieredPrices
