"""What a model call cost, by the price list of `genai_prices`, which is carried along.

Most models cost a fixed sum for each token of a kind. Those sums are asked of the list once, as
the price of a million tokens, since its own arithmetic takes longer than all folds of an event
together. Prices with tiers, and whatever else is not so simple, are asked of it each time.
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
        return listed_models().find_provider_model(model, None, provider, None)
    except LookupError:
        return None


@cache
def _tiered() -> type:
    from genai_prices.types import TieredPrices

    return TieredPrices
