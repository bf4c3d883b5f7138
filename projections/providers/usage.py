"""Providers' token counts, converted to `TokenUsage`.

In `TokenUsage` the prompt includes cached tokens and the completion includes reasoning. Anthropic
counts tokens read from and written to the cache separately from the input; xAI and others count
reasoning separately from the completion, or leave it out: then the total tells. The provider's own
object is stored with the counts; what a price list needs besides is read from it
(`eventstore.events.billing`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from eventstore.events import TokenUsage
from eventstore.events.base import JsonObject
from eventstore.events.billing import billing_of, count_in

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
    "updated",
]

_READ = ("cache_read_input_tokens", "cache_read_tokens")
_WRITTEN = ("cache_creation_input_tokens", "cache_write_tokens", "cache_creation_tokens")
_APART = frozenset({"cache_read_input_tokens", "cache_creation_input_tokens"})


def chat_usage(raw: Any) -> TokenUsage | None:
    """Return the usage of a chat completion, or None if it has no counts."""
    if not isinstance(raw, dict):
        return None
    prompt = count_in(raw, "prompt_tokens", "promptTokens")
    completion = count_in(raw, "completion_tokens", "completionTokens")
    if prompt is None and completion is None:
        return responses_usage(raw)
    prompt_details = raw.get("prompt_tokens_details")
    cached = (
        count_in(prompt_details, "cached_tokens"),
        count_in(raw, "prompt_cache_hit_tokens", "cached_tokens", "cached_prompt_text_tokens"),
        count_in(raw, *_READ),
    )
    written = (
        count_in(prompt_details, "cache_write_tokens", "cache_creation_tokens"),
        count_in(raw, *_WRITTEN),
    )
    given = raw.get("completion_tokens_details")
    reasoning = _largest(count_in(given, "reasoning_tokens"), count_in(raw, "reasoning_tokens"))
    # Perplexity bills reasoning and citations besides the completion, and leaves both out of the
    # total; xAI's own SDK reports no total that includes the reasoning.
    citations = count_in(raw, "citation_tokens")
    if citations is not None or "cached_prompt_text_tokens" in raw:
        completion = (completion or 0) + (reasoning or 0) + (citations or 0)
    return _usage(
        raw,
        prompt,
        completion,
        count_in(raw, "total_tokens", "totalTokens"),
        cached=_largest(*cached),
        written=_largest(*written),
        reasoning=reasoning,
    )


def responses_usage(raw: Any) -> TokenUsage | None:
    """Return the usage of an OpenAI response, or None if it has no counts.

    Pydantic AI, LangChain and the AI SDK use the same names; their input includes cached tokens.
    """
    prompt = count_in(raw, "input_tokens", "inputTokens")
    completion = count_in(raw, "output_tokens", "outputTokens")
    if prompt is None and completion is None:
        return None
    input_details = _first_object(
        raw, "input_tokens_details", "input_token_details", "inputTokenDetails"
    )
    given = _first_object(
        raw, "output_tokens_details", "output_token_details", "outputTokenDetails", "details"
    )
    cached = (
        count_in(input_details, "cached_tokens", "cache_read", "cacheReadTokens", *_READ),
        count_in(raw, "cachedInputTokens", *_READ),
    )
    written = (
        count_in(input_details, "cache_write_tokens", "cache_creation", "cacheWriteTokens"),
        count_in(raw, *_WRITTEN),
    )
    reasoning = (
        count_in(given, "reasoning_tokens", "reasoning", "reasoningTokens", "thinking_tokens"),
        count_in(raw, "reasoning_tokens", "reasoningTokens"),
    )
    return _usage(
        raw,
        prompt,
        completion,
        count_in(raw, "total_tokens", "totalTokens"),
        cached=_largest(*cached),
        written=_largest(*written),
        reasoning=_largest(*reasoning),
    )


def anthropic_usage(raw: JsonObject) -> TokenUsage | None:
    """Return the usage of an Anthropic message, or None if it has no counts."""
    prompt, completion = count_in(raw, "input_tokens"), count_in(raw, "output_tokens")
    if prompt is None and completion is None:
        return None
    read = count_in(raw, "cache_read_input_tokens")
    written = count_in(raw, "cache_creation_input_tokens")
    if not written:
        units = billing_of(raw).get("units", {})
        split = [units.get(f"cache_write_{lifetime}_tokens", 0) for lifetime in ("5m", "1h")]
        written = sum(split) or written
    return TokenUsage(
        prompt_tokens=(prompt or 0) + (read or 0) + (written or 0),
        completion_tokens=completion or 0,
        cached_prompt_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=count_in(raw.get("output_tokens_details"), "thinking_tokens"),
        raw=raw,
    )


def gemini_usage(raw: Any) -> TokenUsage | None:
    """Return the usage of a Gemini answer, or None if it has no counts."""
    names = ("prompt", "candidates", "thoughts", "total", "cachedContent", "toolUsePrompt")
    prompt, completion, thought, total, cached, tools = (
        count_in(raw, f"{name}TokenCount", f"{snake(name)}_token_count") for name in names
    )
    if completion is None:  # the Live API's name
        completion = count_in(raw, "responseTokenCount", "response_token_count")
    if prompt is None and completion is None:
        return None
    prompt_tokens, given = (prompt or 0) + (tools or 0), completion or 0
    apart = total != prompt_tokens + given  # Qwen Code's counts include the thoughts
    return _usage(
        raw, prompt_tokens, given + (thought or 0) * apart, total, cached=cached, reasoning=thought
    )


def interactions_usage(raw: Any) -> TokenUsage | None:
    """Return the usage of a Gemini interaction, or None if it has no counts.

    Thoughts are counted separately from the output, and tool results from the input.
    """
    names = ("input", "output", "thought", "tool_use", "cached")
    prompt, completion, thought, tools, cached = (
        count_in(raw, f"total_{name}_tokens") for name in names
    )
    if prompt is None and completion is None:
        return None
    return _usage(
        raw,
        (prompt or 0) + (tools or 0),
        (completion or 0) + (thought or 0),
        count_in(raw, "total_tokens"),
        cached=cached,
        reasoning=thought,
    )


def ollama_usage(raw: Any) -> TokenUsage | None:
    """Return the usage in Ollama's last chunk, or None if it has no counts."""
    prompt, completion = count_in(raw, "prompt_eval_count"), count_in(raw, "eval_count")
    if prompt is None and completion is None:
        return None
    return TokenUsage(prompt_tokens=prompt or 0, completion_tokens=completion or 0)


def bedrock_usage(raw: Any) -> TokenUsage | None:
    """Return the usage of a Bedrock Converse answer, or None if it has no counts.

    Tokens read from and written to the cache are counted separately from the input.
    """
    prompt, completion = count_in(raw, "inputTokens"), count_in(raw, "outputTokens")
    if prompt is None and completion is None:
        return None
    read = count_in(raw, "cacheReadInputTokens", "cacheReadInputTokenCount")
    written = count_in(raw, "cacheWriteInputTokens", "cacheWriteInputTokenCount")
    return TokenUsage(
        prompt_tokens=(prompt or 0) + (read or 0) + (written or 0),
        completion_tokens=completion or 0,
        total_tokens=count_in(raw, "totalTokens") or None,
        cached_prompt_tokens=read,
        cache_write_tokens=written,
        raw=raw,
    )


def agent_usage(raw: Any) -> TokenUsage | None:
    """Return the usage recorded by Cline or Copilot, or None; the input includes cached tokens."""
    prompt, completion = count_in(raw, "inputTokens"), count_in(raw, "outputTokens")
    if prompt is None and completion is None:
        return None
    return TokenUsage(
        prompt_tokens=prompt or 0,
        completion_tokens=completion or 0,
        cached_prompt_tokens=count_in(raw, "cacheReadTokens"),
        cache_write_tokens=count_in(raw, "cacheWriteTokens"),
        raw=raw,
    )


def cohere_usage(raw: Any) -> TokenUsage | None:
    """Return the usage of a Cohere answer, or None if it has no counts; it may exceed the bill."""
    if not isinstance(raw, dict):
        return None
    for counts in (raw.get("tokens"), raw.get("billed_units")):
        prompt, completion = count_in(counts, "input_tokens"), count_in(counts, "output_tokens")
        if prompt is not None or completion is not None:
            return TokenUsage(
                prompt_tokens=prompt or 0,
                completion_tokens=completion or 0,
                cached_prompt_tokens=count_in(raw, "cached_tokens"),
                raw=raw,
            )
    return None


def any_usage(raw: Any) -> TokenUsage | None:
    """Return the usage in any provider's form, or None if it has no counts."""
    if not isinstance(raw, dict):
        return None
    # LiteLLM adds Anthropic's names to a prompt that includes the cache.
    anthropic = raw.keys() & _APART and "prompt_tokens" not in raw
    bedrock = any(name.startswith(("cacheReadInput", "cacheWriteInput")) for name in raw)
    first = anthropic_usage if anthropic else bedrock_usage if bedrock else chat_usage
    readers = (first, gemini_usage, interactions_usage, ollama_usage, cohere_usage)
    return next((usage for usage in (read(raw) for read in readers) if usage is not None), None)


def updated(totals: JsonObject, later: JsonObject) -> JsonObject:
    """Return totals with the later ones of the same answer.

    A count that a later event omits stays valid, and so does one that it resets to zero: some
    gateways fill what they do not know with zeros.
    """
    merged = dict(totals)
    for name, value in later.items():
        before = totals.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[name] = updated(before, value)
        elif value not in (None, "", 0, [], {}) or name not in totals:
            merged[name] = value
    return merged


@cache
def snake(name: str) -> str:
    """Convert a name from camel case to snake case."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _usage(
    raw: Any,
    prompt: int | None,
    completion: int | None,
    total: int | None,
    *,
    cached: int | None = None,
    written: int | None = None,
    reasoning: int | None = None,
) -> TokenUsage:
    """Return a usage whose prompt and completion make up the total, if that is larger.

    What a total has beyond both is thinking that the completion leaves out, unless it is exactly
    the cached tokens that the prompt leaves out.
    """
    prompt, completion = prompt or 0, completion or 0
    apart = (cached or 0) + (written or 0)
    beyond = (total or 0) - prompt - completion
    if beyond > 0 and apart > prompt and beyond == apart:
        prompt += beyond
    elif beyond > 0:
        completion += beyond
    elif (reasoning or 0) > completion:
        completion += reasoning or 0
    return TokenUsage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=total or None,
        cached_prompt_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
        raw=raw,
    )


def _largest(*counts: int | None) -> int | None:
    """Return the largest count: a zero beside a number is only a default."""
    return max((count for count in counts if count is not None), default=None)


def _first_object(raw: JsonObject, *names: str) -> Any:
    return next((raw[name] for name in names if isinstance(raw.get(name), dict)), None)
