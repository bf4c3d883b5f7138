"""Costs are those of the price list, to the last digit, whichever way they are worked out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from genai_prices import Usage
from genai_prices.types import (
    ArrayMatch,
    ClauseEquals,
    ModelInfo,
    Provider,
    UsageExtractor,
    UsageExtractorMapping,
)

from eventstore.events import TokenUsage
from eventstore.events.billing import billing_of
from projections.models import prices
from projections.models.prices import cost_usd
from projections.providers.usage import any_usage
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


_NO_CHAT = {
    *("embeddings", "ocr", "ocr_annotated", "live", "images", "realtime", "decisions"),
    *("systemone", "usage-event"),
}
"""Interfaces that are not calls of a chat model."""
_APART = {("x-ai", "default"), ("x-ai", "chat"), ("perplexity", "default")}
"""Interfaces that count reasoning besides the completion, so that the total is needed."""


def put(raw: dict[str, Any], path: Any, count: int) -> None:
    """Write a count at the place at which an extractor of the list looks for it."""
    *steps, last = [path] if isinstance(path, str) else path
    at: Any = raw
    for step, following in zip(steps, [*steps, last][1:], strict=True):
        if isinstance(step, ArrayMatch):
            assert isinstance(step.match, ClauseEquals)
            item = next((each for each in at if each[step.field] == step.match.equals), None)
            if item is None:
                at.append(item := {step.field: step.match.equals})
            at = item
        else:
            at = at.setdefault(step, [] if isinstance(following, ArrayMatch) else {})
    at[last] = count


def reported(
    provider: str, extractor: UsageExtractor, kind: UsageExtractorMapping
) -> dict[str, Any]:
    """Return a usage object of the main counts and 1,000 tokens of one kind."""
    raw: dict[str, Any] = {}
    main = {"input_tokens": 300_000, "output_tokens": 50_000}
    bigger = {"cache_write_tokens" if "_write_" in kind.dest else "cache_read_tokens"}
    if not kind.dest.startswith("cache_"):
        bigger = set()
    optional = not any(mapping.required for mapping in extractor.mappings)
    first = {mapping.dest: mapping for mapping in reversed(extractor.mappings)}
    for mapping in extractor.mappings:
        usual = optional and mapping.dest in main and first[mapping.dest] is mapping
        if mapping.required or usual:
            put(raw, mapping.path, main.get(mapping.dest, 1_000))
        elif mapping.path == kind.path or mapping.dest in bigger - {kind.dest}:
            put(raw, mapping.path, 1_000)
    if (provider, extractor.api_flavor) in _APART:
        raw |= {"total_tokens": 351_000} if "reasoning" in str(kind.path) else {}
        raw |= {"citation_tokens": 0} if provider == "perplexity" else {}
    return raw


def extractors() -> Iterator[tuple[Provider, UsageExtractor]]:
    """Yield each provider of the list with each of its interfaces for chat."""
    for provider in listed_models().providers:
        for extractor in provider.extractors or ():
            if extractor.api_flavor not in _NO_CHAT:
                yield provider, extractor


@pytest.mark.parametrize(
    ("provider", "extractor"),
    [pytest.param(*each, id=f"{each[0].id}-{each[1].api_flavor}") for each in extractors()],
)
def test_every_kind_of_token_costs_what_the_list_says(
    provider: Provider, extractor: UsageExtractor
) -> None:
    """Audio, images, cache writes by lifetime, searches: of every provider, for every model."""
    own = [model for model in provider.models if prices._model_prices(provider.id, model.id)]
    for kind in extractor.mappings:
        raw = reported(provider.id, extractor, kind)
        body: Any = raw
        for name in reversed(
            [extractor.root] if isinstance(extractor.root, str) else extractor.root
        ):
            body = {name: body}
        counted: Usage = extractor.extract(body)[1]
        ours = any_usage(body["usage"] if "billed_units" in str(extractor.root) else raw)
        assert ours is not None
        for model in own:
            seller, listed = prices._model_prices(provider.id, model.id) or (None, None)
            assert seller is not None
            assert listed is not None
            try:
                price = listed.calc_price(counted, seller, genai_request_timestamp=TIMES[1])
            except ValueError:
                continue  # the list itself finds the counts contradictory
            cost = cost_usd(ours, provider.id, model.id, TIMES[1])
            assert pytest.approx(float(price.total_price)) == cost, (model.id, raw)


@pytest.mark.parametrize(
    ("provider", "model", "raw", "answer", "context"),
    [
        ("openai", "gpt-5", {}, {"service_tier": "flex"}, {"service_tier": "flex"}),
        ("openai", "gpt-5", {}, {"service_tier": "priority"}, {"service_tier": "priority"}),
        ("openai", "gpt-5", {}, {"service_tier": "default"}, {"service_tier": "default"}),
        (
            "anthropic",
            "claude-sonnet-4-5",
            {"service_tier": "batch"},
            {},
            {"processing": "batch"},
        ),
        ("anthropic", "claude-opus-4-6", {"speed": "fast"}, {}, {"speed": "fast"}),
        (
            "google",
            "gemini-2.5-flash",
            {"trafficType": "ON_DEMAND_FLEX"},
            {},
            {"service_tier": "flex"},
        ),
    ],
)
def test_a_tier_of_service_has_its_own_price(
    provider: str, model: str, raw: Any, answer: Any, context: dict[str, str]
) -> None:
    """Flex, priority, batch and fast calls cost what the list says of them."""
    seller, listed = prices._model_prices(provider, model) or (None, None)
    assert seller is not None
    assert listed is not None
    counted = Usage(input_tokens=1_000, output_tokens=100)
    price = listed.calc_price(
        counted, seller, genai_request_timestamp=TIMES[1], price_context=context
    )
    usage = TokenUsage(prompt_tokens=1_000, completion_tokens=100, raw=raw or None)
    cost = cost_usd(usage, provider, model, TIMES[1], {"response": answer})
    assert float(price.total_price) == cost


def test_a_model_that_the_list_lacks_costs_what_the_provider_reports() -> None:
    """OpenRouter reports the cost of a call with its tokens."""
    usage = TokenUsage(prompt_tokens=10, completion_tokens=5, raw={"cost": 0.25})
    assert cost_usd(usage, "openrouter", "somebody/new-model", TIMES[1]) == 0.25


def test_a_bill_costs_the_same_as_its_call() -> None:
    """What an erasure keeps of a usage has everything that its price depends on."""
    raw = {
        "input_tokens": 4,
        "output_tokens": 23,
        "cache_creation": {"ephemeral_1h_input_tokens": 100_000},
        "service_tier": "batch",
        "cache_creation_input_tokens": 100_000,
    }
    usage = any_usage(raw)
    assert usage is not None
    billed = usage.model_copy(update={"raw": {"billing": billing_of(raw)}})
    costs = [cost_usd(each, "anthropic", "claude-sonnet-4-5", TIMES[1]) for each in (usage, billed)]
    assert costs[0] == costs[1] != None  # noqa: E711
