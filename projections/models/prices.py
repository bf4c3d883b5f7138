"""The cost of a model call, by the price list bundled with `genai_prices`.

Most models have a fixed price per token of each kind. These prices are fetched from the list once,
per million tokens, because the list's own arithmetic takes longer than all folds of an event
together. Tiered prices and other special cases are computed by the list each time.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from eventstore.events import TokenUsage
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
    usage: TokenUsage, provider: str | None, model: str | None, at: datetime
) -> float | None:
    """Return a call's cost in US dollars by the bundled price list, at the prices of ``at``.

    None if the list does not have the provider or model, or if the counts are contradictory (more
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
"""Keyed by the id of a price object, which is not hashable; at most one entry per listed price."""


def _rates(price: ModelPrice, seller: Provider, prices: ModelInfo, at: datetime) -> _Rates | None:
    known = _RATES.get(id(price))
    if known is None:
        known = _RATES[id(price)] = price, _asked(price, seller, prices, at)
    return known[1]


def _asked(price: ModelPrice, seller: Provider, prices: ModelInfo, at: datetime) -> _Rates | None:
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
        return listed_models().find_provider_model(model, None, provider, None)
    except LookupError:
        return None


@cache
def _tiered() -> type:
    from genai_prices.types import TieredPrices

    return TieredPrices
