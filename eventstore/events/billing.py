"""What a price list needs to know of a usage, beyond the counts of `TokenUsage`.

Providers charge differently for the tokens of audio, images and video, for cache writes by their
lifetime, for searches, and by service tier. The names here are those of the units of
``genai-prices``. Everything is read from ``raw``, so events written earlier are priced as well. An
erasure keeps the result alone, under ``billing``: it consists of numbers and a few known words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from eventstore.events.base import JsonObject
from eventstore.events.records import Meta

__all__ = ["COPY_KEY", "billing_of", "copy_key_of", "count_in"]

COPY_KEY = "copy_key"
"""The key in ``meta.extra`` of an imported call for what all copies of the call have in common."""

_COPY_KEY = re.compile(r"[0-9a-f]{32}", re.ASCII)

_LARGEST = 2**53
_DIGITS = re.compile(r"[0-9]{1,16}(\.0+)?", re.ASCII)
_DIRECTIONS = {
    "input": (
        *("prompt_tokens_details", "promptTokensDetails", "input_tokens_details"),
        *("input_token_details", "inputTokenDetails", "input_tokens_by_modality"),
        *("tool_use_prompt_tokens_details", "toolUsePromptTokensDetails"),
        "tool_use_tokens_by_modality",
    ),
    "output": (
        *("completion_tokens_details", "candidates_tokens_details", "candidatesTokensDetails"),
        *("output_tokens_details", "output_token_details", "outputTokenDetails"),
        "output_tokens_by_modality",
    ),
    "cached": ("cached_tokens_details", "cache_tokens_details", "cacheTokensDetails"),
}
_CACHED_BY_MODALITY = "cached_tokens_by_modality"
_MODALITIES = {"audio": "audio", "image": "image", "document": "image", "video": "video"}
"""A document counts as images, as in Google's price list."""
_NAMES = {
    "input": "input_{}_tokens",
    "output": "output_{}_tokens",
    "cached": "cache_{}_read_tokens",
}
_SPLITS = ("cache_creation", "cache_creation_token_details")
_LIFETIMES = {
    "cache_write_5m_tokens": "ephemeral_5m_input_tokens",
    "cache_write_1h_tokens": "ephemeral_1h_input_tokens",
}
_SEARCHES = (
    ("server_tool_use", "web_search_requests"),
    ("num_search_queries",),
    ("tool_calls_details", "search_web", "invocation"),
)
_TIERS = frozenset({"default", "flex", "priority", "fast", "batch"})
_TRAFFIC = {"ON_DEMAND_PRIORITY": "priority", "ON_DEMAND_FLEX": "flex"}
_CONTEXT = ("service_tier", "processing", "speed")
_UNITS = frozenset(
    {
        *(name.format(each) for name in _NAMES.values() for each in ("audio", "image", "video")),
        *(*_LIFETIMES, "web_searches", "output_citation_tokens"),
        *("billed_input_tokens", "billed_output_tokens"),
    }
)
_TICKS = 10**10
"""xAI reports a cost in ticks, of which a US dollar has this many."""


def copy_key_of(meta: Meta) -> str | None:
    """Return the key that all imported copies of a model call share; None if it has none."""
    extra = meta.extra
    key = extra.get(COPY_KEY) if extra else None
    return key if isinstance(key, str) and _COPY_KEY.fullmatch(key) else None


def count_in(counts: Any, *keys: str) -> int | None:
    """Return the first number under one of these keys; None if there is none.

    A number may be a text or a float. What is negative or not finite is not a count.
    """
    for key in keys:
        value = counts.get(key) if isinstance(counts, dict) else None
        if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
            value = int(value.strip().partition(".")[0])
        if isinstance(value, float) and math.isfinite(value):
            value = round(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
            return value
    return None


def billing_of(usage: Any, answer: Any = None) -> JsonObject:
    """Return what a price list needs besides the counts of `TokenUsage`; empty if nothing.

    Args:
        usage: The provider's usage object.
        answer: The ``raw`` of the answer, whose ``response`` may have the service tier.

    Returns:
        ``units``: counts by the price list's names; ``context``: what selects a variant of a price;
        ``cost_usd``: the cost that the provider itself reports.
    """
    raw = usage if isinstance(usage, dict) else {}
    if isinstance(stored := raw.get("billing"), dict):
        return _stored(stored)
    response = answer.get("response") if isinstance(answer, dict) else None
    found = {
        "units": _units(raw),
        "context": _context(raw, response if isinstance(response, dict) else {}),
        "cost_usd": _cost(raw),
    }
    return {name: value for name, value in found.items() if value}


def _stored(billing: JsonObject) -> JsonObject:
    """Return what an erasure stored; a provider's own object may have a field of this name too."""
    units = {name: count_in(billing.get("units"), name) for name in _UNITS}
    context = billing.get("context")
    context = context if isinstance(context, dict) else {}
    found = {
        "units": {name: count for name, count in units.items() if count},
        "context": {key: context[key] for key in _CONTEXT if isinstance(context.get(key), str)},
        "cost_usd": _cost({"cost": billing.get("cost_usd")}),
    }
    return {name: value for name, value in found.items() if value}


def _units(raw: JsonObject) -> dict[str, int]:
    units: dict[str, int] = {}
    for direction, names in _DIRECTIONS.items():
        for name in names:
            _add_modalities(units, direction, raw.get(name))
            if direction == "input" and isinstance(details := raw.get(name), dict):
                for cached in _DIRECTIONS["cached"]:
                    _add_modalities(units, "cached", details.get(cached))
    _add_modalities(units, "cached", raw.get(_CACHED_BY_MODALITY))
    for modality in ("audio", "image", "video"):
        for pattern in _NAMES.values():
            name = pattern.format(modality)
            units.setdefault(name, count_in(raw, name) or 0)
    for name, count in _cache_writes(raw):
        units[name] = units.get(name, 0) or count
    for path in _SEARCHES:
        units["web_searches"] = units.get("web_searches", 0) or _at(raw, path)
    units["output_citation_tokens"] = count_in(raw, "citation_tokens") or 0
    if isinstance(billed := raw.get("billed_units"), dict):
        units["billed_input_tokens"] = count_in(billed, "input_tokens") or 0
        units["billed_output_tokens"] = count_in(billed, "output_tokens") or 0
    return {name: count for name, count in units.items() if count}


def _add_modalities(units: dict[str, int], direction: str, details: Any) -> None:
    """Add counts that are listed by modality, or that stand in fields named for it."""
    for item in details if isinstance(details, list) else ():
        modality = item.get("modality") if isinstance(item, dict) else None
        unit = _MODALITIES.get(modality.lower()) if isinstance(modality, str) else None
        if unit is not None:
            name = _NAMES[direction].format(unit)
            units[name] = units.get(name, 0) + (
                count_in(item, "tokenCount", "token_count", "tokens") or 0
            )
    for modality, unit in _MODALITIES.items() if isinstance(details, dict) else ():
        count = count_in(details, f"{modality}_tokens", modality, f"{modality}Tokens")
        if count:
            units.setdefault(_NAMES[direction].format(unit), count)


def _cache_writes(raw: JsonObject) -> Iterator[tuple[str, int]]:
    """Yield the cache writes by their lifetime."""
    found = [raw, *(raw.get(name) for name in _DIRECTIONS["input"])]
    places: list[JsonObject] = [place for place in found if isinstance(place, dict)]
    for place in (*places, *(place.get(name) for place in places for name in _SPLITS)):
        for unit, name in _LIFETIMES.items():
            yield unit, count_in(place, name) or 0
    details = raw.get("cacheDetails")
    for item in details if isinstance(details, list) else ():
        lifetime = item.get("ttl") if isinstance(item, dict) else None
        if lifetime in ("5m", "1h"):
            yield f"cache_write_{lifetime}_tokens", count_in(item, "inputTokens") or 0


def _at(raw: Any, path: tuple[str, ...]) -> int:
    for name in path[:-1]:
        raw = raw.get(name) if isinstance(raw, dict) else None
    return count_in(raw, path[-1]) or 0


def _context(raw: JsonObject, response: JsonObject) -> dict[str, str]:
    traffic = raw.get("trafficType", raw.get("traffic_type"))
    tiers = [
        *(raw.get("service_tier"), raw.get("serviceTier")),
        *(response.get("service_tier"), response.get("serviceTier")),
    ]
    named = [tier.lower() for tier in tiers if isinstance(tier, str)]
    tier = _TRAFFIC.get(traffic) if isinstance(traffic, str) else None
    tier = tier or next((each for each in named if each in _TIERS), None)
    context = {} if tier is None else {"service_tier": tier}
    if tier == "batch":
        context["processing"] = tier
    if raw.get("speed") == "fast":
        context["speed"] = "fast"
    return context


def _cost(raw: JsonObject) -> float | None:
    cost = raw.get("cost")
    if isinstance(cost, dict):
        cost = cost.get("total_cost")
    if cost is None and (ticks := raw.get("cost_in_usd_ticks")) is not None:
        cost = ticks / _TICKS if isinstance(ticks, int | float) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    return float(cost) if 0 <= cost < _LARGEST else None
