"""Costs are those of the price list, to the last digit, whichever way they are worked out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random

from genai_prices.types import ModelInfo, Provider

from eventstore.events import TokenUsage
from projections.models import prices
from projections.models.prices import cost_usd
from projections.tokens.text import listed_models

TIMES = (datetime(2025, 1, 1, 3, tzinfo=UTC), datetime(2026, 6, 1, 18, 30, tzinfo=UTC))


def models() -> Iterator[tuple[str, str, Provider, ModelInfo]]:
    """Yield the models that are found by their names, and how they are called."""
    for provider in listed_models().providers:
        for model in provider.models:
            found = prices._model_prices(provider.id, model.id)
            if found is not None:
                yield provider.id, model.id, *found


def usages(chance: Random) -> Iterator[TokenUsage]:
    """Yield counts of tokens, among them some that contradict each other."""
    for most in (0, 10, 5_000, 2_000_000):
        prompt, completion = chance.randint(0, most), chance.randint(0, most)
        cached = chance.choice([None, 0, chance.randint(0, most)])
        written = chance.choice([None, 0, chance.randint(0, most)])
        yield TokenUsage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_prompt_tokens=cached,
            cache_write_tokens=written,
        )


def test_every_model_costs_what_the_list_says() -> None:
    """Fixed sums and tiers, at every time, and no cost where the list gives none."""
    chance = Random(1)  # noqa: S311 - test data
    simple = 0
    for provider_id, model_id, seller, listed in models():
        for at in TIMES:
            simple += prices._rates(listed.get_prices(at), seller, listed, at) is not None
            for used in usages(chance):
                cost = prices._by_the_list(seller, listed, at, used)
                expected = None if cost is None else float(cost)
                assert expected == cost_usd(used, provider_id, model_id, at), (model_id, used)
    assert simple > 100
