"""Providers' token counts, converted to `TokenUsage`.

In `TokenUsage` the prompt includes cached tokens and the completion includes reasoning. Anthropic
counts tokens read from and written to the cache separately from the input; xAI counts reasoning
separately from the completion. The provider's own object is stored with the counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from eventstore.events import TokenUsage
from eventstore.events.base import JsonObject

__all__ = [
    "agent_usage",
    "anthropic_usage",
    "any_usage",
    "bedrock_usage",
    "chat_usage",
    "cohere_usage",
    "gemini_usage",
    "interactions_usage",
    "ollama_usage",
    "responses_usage",
    "snake",
]

_LARGEST = 2**53


def chat_usage(raw: Any) -> TokenUsage | None:
    """Return the usage of a chat completion, or None if it has no counts."""
    if not isinstance(raw, dict):
        return None
    if "prompt_tokens" not in raw and "completion_tokens" not in raw:
        return responses_usage(raw)
    prompt, completion = _count(raw, "prompt_tokens"), _count(raw, "completion_tokens")
    total = _count(raw, "total_tokens")
    if prompt is None and completion is None:
        return None
    asked, given = raw.get("prompt_tokens_details"), raw.get("completion_tokens_details")
    reasoning = _first(_count(given, "reasoning_tokens"), _count(raw, "reasoning_tokens"))
    prompt, completion = prompt or 0, completion or 0
    if reasoning and total == prompt + completion + reasoning:
        completion += reasoning
    return TokenUsage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=total,
        cached_prompt_tokens=_first(
            _count(asked, "cached_tokens"),
            _count(raw, "prompt_cache_hit_tokens"),
            _count(raw, "cached_tokens"),
        ),
        cache_write_tokens=_count(asked, "cache_write_tokens"),
        reasoning_tokens=reasoning,
        raw=raw,
    )


def responses_usage(raw: Any) -> TokenUsage | None:
    """Return the usage of an OpenAI response, or None if it has no counts."""
    prompt, completion = _count(raw, "input_tokens"), _count(raw, "output_tokens")
    if prompt is None and completion is None:
        return None
    asked, given = raw.get("input_tokens_details"), raw.get("output_tokens_details")
    return TokenUsage(
        prompt_tokens=prompt or 0,
        completion_tokens=completion or 0,
        total_tokens=_count(raw, "total_tokens"),
        cached_prompt_tokens=_count(asked, "cached_tokens"),
        cache_write_tokens=_count(asked, "cache_write_tokens"),
        reasoning_tokens=_count(given, "reasoning_tokens"),
        raw=raw,
    )


def anthropic_usage(raw: JsonObject) -> TokenUsage | None:
    """Return the usage of an Anthropic message, or None if it has no counts."""
    prompt, completion = _count(raw, "input_tokens"), _count(raw, "output_tokens")
    if prompt is None and completion is None:
        return None
    read = _count(raw, "cache_read_input_tokens")
    written = _count(raw, "cache_creation_input_tokens")
    return TokenUsage(
        prompt_tokens=(prompt or 0) + (read or 0) + (written or 0),
        completion_tokens=completion or 0,
        cached_prompt_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=_count(raw.get("output_tokens_details"), "thinking_tokens"),
        raw=raw,
    )


def gemini_usage(raw: Any) -> TokenUsage | None:
    """Return the usage of a Gemini answer, or None if it has no counts."""
    names = ("prompt", "candidates", "thoughts", "total", "cachedContent", "toolUsePrompt")
    prompt, said, thought, total, cached, tools = (
        _first(_count(raw, f"{name}TokenCount"), _count(raw, f"{snake(name)}_token_count"))
        for name in names
    )
    if prompt is None and said is None:
        return None
    asked, given = (prompt or 0) + (tools or 0), said or 0
    apart = total != asked + given  # Qwen Code's counts include the thoughts
    return TokenUsage(
        prompt_tokens=asked,
        completion_tokens=given + (thought or 0) * apart,
        total_tokens=total,
        cached_prompt_tokens=cached,
        reasoning_tokens=thought,
        raw=raw,
    )


def interactions_usage(raw: Any) -> TokenUsage | None:
    """Return the usage of a Gemini interaction, or None if it has no counts.

    Thoughts are counted separately from the output, and tool results from the input.
    """
    names = ("input", "output", "thought", "tool_use", "cached")
    prompt, said, thought, tools, cached = (_count(raw, f"total_{name}_tokens") for name in names)
    if prompt is None and said is None:
        return None
    return TokenUsage(
        prompt_tokens=(prompt or 0) + (tools or 0),
        completion_tokens=(said or 0) + (thought or 0),
        total_tokens=_count(raw, "total_tokens"),
        cached_prompt_tokens=cached,
        reasoning_tokens=thought,
        raw=raw,
    )


def ollama_usage(raw: Any) -> TokenUsage | None:
    """Return the usage in Ollama's last chunk, or None if it has no counts."""
    prompt, completion = _count(raw, "prompt_eval_count"), _count(raw, "eval_count")
    if prompt is None and completion is None:
        return None
    return TokenUsage(prompt_tokens=prompt or 0, completion_tokens=completion or 0)


def bedrock_usage(raw: Any) -> TokenUsage | None:
    """Return the usage of a Bedrock Converse answer, or None if it has no counts.

    Tokens read from and written to the cache are counted separately from the input.
    """
    prompt, completion = _count(raw, "inputTokens"), _count(raw, "outputTokens")
    if prompt is None and completion is None:
        return None
    read, written = _count(raw, "cacheReadInputTokens"), _count(raw, "cacheWriteInputTokens")
    return TokenUsage(
        prompt_tokens=(prompt or 0) + (read or 0) + (written or 0),
        completion_tokens=completion or 0,
        total_tokens=_count(raw, "totalTokens"),
        cached_prompt_tokens=read,
        cache_write_tokens=written,
        raw=raw,
    )


def agent_usage(raw: Any) -> TokenUsage | None:
    """Return the usage recorded by Cline or Copilot, or None; the input includes cached tokens."""
    prompt, completion = _count(raw, "inputTokens"), _count(raw, "outputTokens")
    if prompt is None and completion is None:
        return None
    return TokenUsage(
        prompt_tokens=prompt or 0,
        completion_tokens=completion or 0,
        cached_prompt_tokens=_count(raw, "cacheReadTokens"),
        cache_write_tokens=_count(raw, "cacheWriteTokens"),
        raw=raw,
    )


def cohere_usage(raw: Any) -> TokenUsage | None:
    """Return the usage of a Cohere answer, or None if it has no counts; it may exceed the bill."""
    counts = raw.get("tokens") or raw.get("billed_units") if isinstance(raw, dict) else None
    prompt, completion = _count(counts, "input_tokens"), _count(counts, "output_tokens")
    if prompt is None and completion is None:
        return None
    return TokenUsage(
        prompt_tokens=prompt or 0,
        completion_tokens=completion or 0,
        cached_prompt_tokens=_count(raw, "cached_tokens"),
        raw=raw,
    )


def any_usage(raw: Any) -> TokenUsage | None:
    """Return the usage in any provider's form, or None if it has no counts."""
    if not isinstance(raw, dict):
        return None
    apart = raw.keys() & {"cache_read_input_tokens", "cache_creation_input_tokens"}
    readers: tuple[Callable[[Any], TokenUsage | None], ...] = (
        anthropic_usage if apart else chat_usage,
        gemini_usage,
        bedrock_usage,
        ollama_usage,
    )
    return next((usage for usage in (read(raw) for read in readers) if usage is not None), None)


@cache
def snake(name: str) -> str:
    """Convert a name from camel case to snake case."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _count(counts: Any, key: str) -> int | None:
    value = counts.get(key) if isinstance(counts, dict) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < _LARGEST else None


def _first(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)
