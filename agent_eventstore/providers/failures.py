"""What an exception of a model call means, for `LlmError` and for who decides on another try.

Exceptions of the official SDKs and of the HTTP libraries are told by the names of their classes
and by what they carry, since none of those packages needs to be installed.

A provider's error is told by its HTTP status and by the words of its body; the same words stand in
the body of a refused request and in an error in mid-stream. Sources, read in November 2026:
OpenAI's "Error codes" and the Responses API's list of error codes, Anthropic's "Errors",
OpenRouter's "Errors and Debugging". Which statuses are worth another try is what the official SDKs
themselves retry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from agent_eventstore.providers.base import StreamError, attribute
from agent_eventstore.stops import stopped, without_directories
from eventstore.events.base import JsonObject
from eventstore.events.values import LlmErrorKind

__all__ = ["Failure", "Verdict", "by_status", "classify", "stream_error", "verdict_of"]

Verdict = tuple[LlmErrorKind, bool]
"""The kind of an error, and whether the same request may succeed later."""

_LONGEST_MESSAGE = 4_000
"""Characters; a proxy answers with whole pages."""

_CANCELLED = frozenset(
    {"CancelledError", "Cancelled", "GeneratorExit", "KeyboardInterrupt", "SystemExit"}
)
_TIMEOUT = frozenset(
    {"APITimeoutError", "Timeout", "TimeoutError", "TimeoutException", "ServerTimeoutError"}
)
_UNREADABLE = frozenset(
    {
        *("APIResponseValidationError", "ContentFilterFinishReasonError", "DecodingError"),
        *("JSONDecodeError", "LengthFinishReasonError", "UnicodeError", "ValidationError"),
    }
)
_NETWORK = frozenset(
    {
        *("APIConnectionError", "ChunkedEncodingError", "ClientConnectionError"),
        *("ClientPayloadError", "ConnectionError", "HTTPException", "IncompleteRead"),
        *("NetworkError", "OSError", "ProtocolError", "StreamError", "TransportError"),
    }
)
_LOCAL = frozenset(
    {
        *("FileNotFoundError", "InvalidURL", "IsADirectoryError", "LocalProtocolError"),
        *("NotADirectoryError", "PermissionError", "UnsupportedProtocol"),
    }
)
"""Among the errors of network and system, those that another try cannot mend."""

_SPENT: Verdict = ("rate_limit", False)

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


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a model call failed; ``retryable`` says that the same request may succeed later."""

    kind: LlmErrorKind
    retryable: bool
    message: str
    status_code: int | None = None


def classify(exception: BaseException) -> Failure:
    """Return what an exception means: of it and its causes, the first that tells decides.

    What nobody knows is ``invalid`` and not worth another try: most likely it is an error in the
    product's own code.
    """
    chain = list(_chain(exception))
    status = next((found for found in map(_status, chain) if found is not None), None)
    verdicts = [verdict for verdict in map(_verdict, chain) if verdict is not None]
    kind, retryable = verdicts[0] if verdicts else ("invalid", False)
    if kind == "network" and ("timeout", True) in verdicts:
        # SDKs wrap a timeout of the HTTP library in their own error of connection.
        kind = "timeout"
    stop = stopped(exception)
    if stop is not None:
        return Failure("cancelled", False, stop, status)
    message = _message(exception)
    if not any(map(_by_answer, chain)):
        # No words of a provider, but of the product's own code or of this machine's.
        message = without_directories(message)
    return Failure(kind, retryable, message, status)


def _chain(exception: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    found: BaseException | None = exception
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        inner = getattr(found, "exceptions", None)
        if isinstance(found, BaseExceptionGroup) and inner:
            found = inner[0]
        else:
            found = found.__cause__


def _verdict(exception: BaseException) -> Verdict | None:
    names = frozenset(cls.__name__ for cls in type(exception).__mro__)
    if names & _CANCELLED:
        return ("cancelled", False)
    if names & _UNREADABLE:
        return ("invalid", False)
    told = _by_answer(exception)
    if told is not None:
        return told
    if names & _TIMEOUT:
        return ("timeout", True)
    if names & _LOCAL:
        return ("invalid", False)
    return ("network", True) if names & _NETWORK else None


def _by_answer(exception: BaseException) -> Verdict | None:
    """Return what the provider's answer says: a refusal's status, or the words of its body.

    An error in mid-stream comes under the status of success, so there the words alone tell; and a
    quota that is used up has the status of a rate limit, but will not pass.
    """
    body = attribute(exception, "body")
    words = verdict_of(body) if body is not None else None
    if words is None:
        words = verdict_of({key: attribute(exception, key) for key in ("code", "type")})
    told = by_status(_status(exception))
    if told is None:
        return words if words is not None or not _is_api_error(exception) else ("provider", True)
    return _SPENT if told[0] == "rate_limit" and words == _SPENT else told


def _is_api_error(exception: BaseException) -> bool:
    """Whether an SDK reports what the provider said, and not that it could not be reached."""
    names = frozenset(cls.__name__ for cls in type(exception).__mro__)
    return "APIError" in names and not names & (_NETWORK | _TIMEOUT)


def _status(exception: BaseException) -> int | None:
    response = attribute(exception, "response")
    found = [attribute(exception, "status_code"), attribute(response, "status_code")]
    if isinstance(response, dict):
        metadata = response.get("ResponseMetadata")
        found.append(metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None)
    found += [attribute(exception, "status"), attribute(exception, "code")]
    return next((code for code in found if type(code) is int and 400 <= code < 600), None)


def _message(exception: BaseException) -> str:
    try:
        told = str(exception)
    except Exception:
        told = ""
    return (told or type(exception).__name__)[:_LONGEST_MESSAGE]


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
    """Return what an HTTP status says, or None if it is not that of an error."""
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
