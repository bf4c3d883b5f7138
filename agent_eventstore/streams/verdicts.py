"""What a provider's error means, by its HTTP status and by the words of its body.

The same words stand in the body of a refused request and in an error in mid-stream. Sources, read
in November 2026: OpenAI's "Error codes" and the Responses API's list of error codes, Anthropic's
"Errors", OpenRouter's "Errors and Debugging". Which statuses are worth another try is what the
official SDKs themselves retry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eventstore.events.base import JsonObject
from eventstore.events.values import LlmErrorKind

from .base import StreamError

__all__ = ["Verdict", "by_status", "stream_error", "verdict_of"]

Verdict = tuple[LlmErrorKind, bool]
"""The kind of an error, and whether the same request may succeed later."""

_RETRIED = frozenset({408, 409, 425, 429})

_WORDS: tuple[tuple[str, Verdict], ...] = (
    ("insufficient_quota", ("rate_limit", False)),
    ("rate_limit", ("rate_limit", True)),
    ("ratelimit", ("rate_limit", True)),
    ("too_many_requests", ("rate_limit", True)),
    ("throttling", ("rate_limit", True)),
    ("resource_exhausted", ("rate_limit", True)),
    ("timeout", ("timeout", True)),
    ("deadline", ("timeout", True)),
    ("overloaded", ("provider", True)),
    ("unavailable", ("provider", True)),
    ("internal", ("provider", True)),
    ("server_error", ("provider", True)),
    ("api_error", ("provider", True)),
    ("invalid", ("invalid", False)),
    ("authentication", ("invalid", False)),
    ("unauth", ("invalid", False)),
    ("permission", ("invalid", False)),
    ("not_found", ("invalid", False)),
    ("badrequest", ("invalid", False)),
    ("bad_request", ("invalid", False)),
    ("too_large", ("invalid", False)),
    ("billing", ("invalid", False)),
    ("content_filter", ("invalid", False)),
    ("content_policy", ("invalid", False)),
    ("context_length", ("invalid", False)),
    ("tool_use_failed", ("invalid", False)),
    ("cancel", ("cancelled", False)),
)
"""Parts of error codes, the more telling first."""


def verdict_of(body: Any) -> Verdict | None:
    """Return what an error's body says, or None if it says nothing that is known."""
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        return verdict_of(body["error"])
    if not isinstance(body, dict):
        return None
    words = [body.get(key) for key in ("code", "type", "status")]
    found = _by_words(word for word in words if isinstance(word, str))
    if found is not None:
        return found
    statuses = [body.get(key) for key in ("status_code", "code", "status")]
    return next((told for told in map(by_status, statuses) if told is not None), None)


def by_status(status: Any) -> Verdict | None:
    """Return what an HTTP status says, or None if it is none of an error."""
    if isinstance(status, str) and status.isdecimal() and len(status) == 3:
        status = int(status)
    if isinstance(status, bool) or not isinstance(status, int):
        return None
    if status == 429:
        return ("rate_limit", True)
    if status == 408:
        return ("timeout", True)
    if 400 <= status < 500:
        return ("invalid", status in _RETRIED)
    return ("provider", True) if 500 <= status < 600 else None


def stream_error(error: Any, raw: JsonObject) -> StreamError:
    """Return the error that a chunk holds.

    Args:
        error: What the provider says of it: an object, a text, or nothing.
        raw: The chunk.
    """
    body = error if isinstance(error, dict) else {}
    kind, retryable = verdict_of(body) or verdict_of(raw) or ("provider", True)
    found = (body.get("message"), body.get("detail"), error, body.get("code"), body.get("type"))
    message = next((text for text in found if isinstance(text, str) and text), None)
    return StreamError(kind, message or "the provider reported an error", retryable, raw)


def _by_words(words: Iterable[str]) -> Verdict | None:
    told = [word.lower().replace(" ", "_").replace("-", "_") for word in words]
    for part, verdict in _WORDS:
        if any(part in word for word in told):
            return verdict
    return None
