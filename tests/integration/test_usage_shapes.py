"""Token counts of every provider, router and framework mean the same in `TokenUsage`."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai.usage import RequestUsage

from eventstore.events import TokenUsage
from eventstore.events.billing import billing_of
from projections.providers.anthropic.stream import AnthropicParser
from projections.providers.openai_chat.stream import OpenAIChatParser
from projections.providers.parser import ByHand
from projections.providers.usage import any_usage

SHAPES: dict[str, tuple[Any, tuple[int | None, ...]]] = {
    # What a product passes; then prompt, completion, cached, written, reasoning.
    "litellm": (
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "cache_read_input_tokens": 4,
            "cache_creation_input_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_creation_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
        (10, 5, 4, 3, 2),
    ),
    "cohere v1": ({"billed_units": {"input_tokens": 1, "output_tokens": 2}}, (1, 2)),
    "cohere v2": (
        {
            "billed_units": {"input_tokens": 1, "output_tokens": 2},
            "tokens": {"input_tokens": 11, "output_tokens": 2},
            "cached_tokens": 6,
        },
        (11, 2, 6),
    ),
    "cohere without tokens": (
        {"tokens": {}, "billed_units": {"input_tokens": 1, "output_tokens": 2}},
        (1, 2),
    ),
    "interactions": (
        {
            "total_input_tokens": 3,
            "total_output_tokens": 4,
            "total_thought_tokens": 5,
            "total_tokens": 12,
        },
        (3, 9, None, None, 5),
    ),
    "converse": (
        {
            "inputTokens": 3,
            "outputTokens": 4,
            "totalTokens": 16,
            "cacheReadInputTokens": 8,
            "cacheWriteInputTokens": 1,
        },
        (12, 4, 8, 1),
    ),
    "ollama": ({"prompt_eval_count": 7, "eval_count": 9}, (7, 9)),
    "mistral": ({"prompt_tokens": 7, "completion_tokens": 9, "prompt_audio_seconds": None}, (7, 9)),
    "gemini": (
        {
            "promptTokenCount": 10,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 20,
            "toolUsePromptTokenCount": 3,
            "totalTokenCount": 38,
            "cachedContentTokenCount": 2,
        },
        (13, 25, 2, None, 20),
    ),
    "gemini, snake case": (
        {"prompt_token_count": 10, "candidates_token_count": 5, "total_token_count": 15},
        (10, 5),
    ),
    "gemini, hidden thinking": (
        {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 40},
        (10, 30),
    ),
    "deepseek": (
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "prompt_cache_hit_tokens": 6,
            "prompt_cache_miss_tokens": 4,
        },
        (10, 5, 6),
    ),
    "xai": (
        {
            "prompt_tokens": 32,
            "completion_tokens": 9,
            "total_tokens": 135,
            "completion_tokens_details": {"reasoning_tokens": 94},
        },
        (32, 103, None, None, 94),
    ),
    "xai, its SDK": (
        {
            "prompt_tokens": 32,
            "completion_tokens": 9,
            "reasoning_tokens": 4,
            "cached_prompt_text_tokens": 6,
        },
        (32, 13, 6, None, 4),
    ),
    "perplexity": (
        {
            "prompt_tokens": 33,
            "completion_tokens": 71,
            "total_tokens": 104,
            "citation_tokens": 20,
            "reasoning_tokens": 73,
            "num_search_queries": 18,
        },
        (33, 164, None, None, 73),
    ),
    "hidden thinking": (
        {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109},
        (35, 74),
    ),
    "hidden thinking of a response": (
        {"input_tokens": 35, "output_tokens": 12, "total_tokens": 109},
        (35, 74),
    ),
    "a prompt without its cache": (
        {
            "prompt_tokens": 3,
            "completion_tokens": 5,
            "total_tokens": 108,
            "cache_read_input_tokens": 100,
        },
        (103, 5, 100),
    ),
    "a smaller total": (
        {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 0},
        (35, 12),
    ),
    "pydantic ai": (
        RequestUsage(
            input_tokens=10,
            output_tokens=5,
            cache_read_tokens=4,
            cache_write_tokens=3,
            details={"reasoning_tokens": 2},
        ),
        (10, 5, 4, 3, 2),
    ),
    "ai sdk 4": ({"promptTokens": 10, "completionTokens": 5, "totalTokens": 15}, (10, 5)),
    "ai sdk 5": (
        {
            "inputTokens": 10,
            "outputTokens": 5,
            "totalTokens": 15,
            "reasoningTokens": 2,
            "cachedInputTokens": 4,
        },
        (10, 5, 4, None, 2),
    ),
    "ai sdk 6": (
        {
            "inputTokens": 10,
            "outputTokens": 5,
            "inputTokenDetails": {"cacheReadTokens": 4, "cacheWriteTokens": 3},
            "outputTokenDetails": {"reasoningTokens": 2},
        },
        (10, 5, 4, 3, 2),
    ),
    "langchain": (
        {
            "input_tokens": 10,
            "output_tokens": 5,
            "total_tokens": 15,
            "input_token_details": {"cache_read": 4, "cache_creation": 3},
            "output_token_details": {"reasoning": 2},
        },
        (10, 5, 4, 3, 2),
    ),
    "an object of attributes": (SimpleNamespace(prompt_tokens=10, completion_tokens=5), (10, 5)),
    "texts and floats": ({"prompt_tokens": "10", "completion_tokens": 5.0}, (10, 5)),
    "nulls": (
        {"prompt_tokens": 10, "completion_tokens": None, "total_tokens": None},
        (10, 0),
    ),
    "a negative count": ({"prompt_tokens": 10, "completion_tokens": -1}, (10, 0)),
}


def counts(usage: TokenUsage | None) -> tuple[int | None, ...]:
    """Return the counts that the table of shapes lists."""
    assert usage is not None
    return (
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_prompt_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
    )


@pytest.mark.parametrize("name", SHAPES)
def test_usage_by_hand_is_read_in_every_shape(name: str) -> None:
    """A product passes the usage object that its SDK or framework gave it, whatever its names."""
    shape, expected = SHAPES[name]
    parser = ByHand()
    parser.tell("hi", None, (), shape, None)
    read = parser.message().usage
    assert (*expected, None, None, None)[:5] == tuple(
        None if count == 0 and place > 1 else count for place, count in enumerate(counts(read))
    )


def test_usage_of_a_dataclass_is_read() -> None:
    """Frameworks define their usage as dataclasses, some with slots."""

    @dataclass(slots=True)
    class Usage:
        input_tokens: int = 10
        output_tokens: int = 5
        details: dict[str, int] = field(default_factory=dict)

    parser = ByHand()
    parser.tell("hi", None, (), Usage(), None)
    assert (10, 5) == counts(parser.message().usage)[:2]


def test_zeros_of_a_later_event_leave_real_counts() -> None:
    """A gateway ends Anthropic's stream with zeros for all that it does not know."""
    parser = AnthropicParser()
    known = {
        "input_tokens": 100,
        "cache_read_input_tokens": 50,
        "cache_creation_input_tokens": 7,
        "cache_creation": {"ephemeral_1h_input_tokens": 7},
    }
    parser.feed({"type": "message_start", "message": {"id": "m", "content": [], "usage": known}})
    zeros = dict.fromkeys(known, 0) | {"output_tokens": 9, "cache_creation": {"ephemeral_1h": 0}}
    parser.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": zeros})
    usage = parser.message().usage
    assert (157, 9, 50, 7) == counts(usage)[:4]
    assert usage is not None
    assert {"cache_write_1h_tokens": 7} == billing_of(usage.raw)["units"]


def test_zeros_of_a_last_chunk_leave_real_counts() -> None:
    """A server that reports totals with every chunk ends with a chunk of zeros."""
    parser = OpenAIChatParser()
    for totals in ({"prompt_tokens": 10, "completion_tokens": 5}, {"prompt_tokens": 0}):
        parser.feed({"id": "x", "choices": [], "usage": totals})
    assert (10, 5) == counts(parser.message().usage)[:2]


@pytest.mark.parametrize("raw", [{}, {"total_tokens": 7}, {"prompt_tokens": None}, [], "7", 7])
def test_an_object_without_counts_is_no_usage(raw: Any) -> None:
    """Zero tokens are not the same as unknown ones."""
    assert any_usage(raw) is None


@pytest.mark.parametrize("raw", [{"billing": {"units": "x", "context": 3, "cost_usd": "y"}}, []])
def test_a_strange_usage_object_has_no_billing(raw: Any) -> None:
    """A provider's object may have any field; none of them harms the usage table."""
    assert billing_of(raw, {"response": {"service_tier": ["flex"]}}) == {}
