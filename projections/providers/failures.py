"""Classification of a model call's exceptions, for `LlmError` and for deciding on a retry.

Exceptions of the official SDKs and the HTTP libraries are recognised by class names and attributes,
because none of those packages needs to be installed.

A provider's error is classified by its HTTP status and the codes in its body; the body of a
rejected request and an error in mid-stream use the same codes. Sources, read in November 2026:
OpenAI's "Error codes" and the Responses API's list of error codes, Anthropic's "Errors",
OpenRouter's "Errors and Debugging". The retryable statuses are those that the official SDKs retry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from eventstore.events.base import JsonObject
from eventstore.events.values import LlmErrorKind
from projections.providers.stream_base import StreamError, attribute

__all__ = [
    "Failure",
    "StreamFailed",
    "Verdict",
    "by_status",
    "classify",
    "stream_error",
    "verdict_of",
]


Verdict = tuple[LlmErrorKind, bool]


"""The kind of an error, and whether the same request may succeed later."""


_DEEPEST = 10


"""How many errors within one another are looked into."""


_LONGEST_MESSAGE = 4_000


"""Characters; a proxy may answer with a whole page."""


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


"""Network and system errors that a retry cannot fix."""


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


"""Substrings of error codes, the more specific first."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a model call failed; ``retryable`` means that the same request may succeed later."""

    kind: LlmErrorKind
    retryable: bool
    message: str
    status_code: int | None = None
    raw: Any = None


class StreamFailed(Exception):
    """A provider reported an error within the stream of an answer.

    Attributes:
        error: The error.
    """

    def __init__(self, error: StreamError) -> None:
        self.error = error
        super().__init__(error.message)


def classify(exception: BaseException, *, stop: str | None = None) -> Failure:
    """Classify an exception by the first of itself and its causes that is recognised.

    An unknown exception is ``invalid`` and not retryable: most likely it is a bug in the product's
    own code.

    Args:
        exception: What was raised in a model call.
        stop: Who stopped the call, if the exception says so.
    """
    if isinstance(exception, StreamFailed):
        stream_error = exception.error
        return Failure(
            stream_error.kind, stream_error.retryable, stream_error.message, raw=stream_error.raw
        )
    chain = list(_chain(exception))
    status = next((found for found in map(_status, chain) if found is not None), None)
    verdicts = [verdict for verdict in map(_verdict, chain) if verdict is not None]
    kind, retryable = verdicts[0] if verdicts else ("invalid", False)
    if kind == "network" and ("timeout", True) in verdicts:
        # SDKs wrap an HTTP library's timeout in their own connection error.
        kind = "timeout"
    if stop is not None:
        return Failure("cancelled", False, stop, status)
    message = _message(exception)
    if not any(map(_by_answer, chain)):
        # The text is not from a provider but from local code, and may contain local paths.
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
    verdict = _by_answer(exception)
    if verdict is not None:
        return verdict
    if names & _TIMEOUT:
        return ("timeout", True)
    if names & _LOCAL:
        return ("invalid", False)
    return ("network", True) if names & _NETWORK else None


def _by_answer(exception: BaseException) -> Verdict | None:
    """Classify by the provider's answer: the status of a refusal, or the codes in its body.

    An error in mid-stream has a success status, so only its codes count. An exhausted quota has the
    status of a rate limit, but is not retryable.
    """
    body = attribute(exception, "body")
    words = verdict_of(body) if body is not None else None
    if words is None:
        words = verdict_of({key: attribute(exception, key) for key in ("code", "type")})
    status_verdict = by_status(_status(exception))
    if status_verdict is None:
        return words if words is not None or not _is_api_error(exception) else ("provider", True)
    return _SPENT if status_verdict[0] == "rate_limit" and words == _SPENT else status_verdict


def _is_api_error(exception: BaseException) -> bool:
    """Whether an SDK reports a provider's error, not a failure to reach the provider."""
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
        message = str(exception)
    except Exception:
        message = ""
    return (message or type(exception).__name__)[:_LONGEST_MESSAGE]


def verdict_of(body: Any) -> Verdict | None:
    """Classify an error's body, or return None if it has no known code or status."""
    for _ in range(_DEEPEST):
        if not isinstance(body, dict) or not isinstance(body.get("error"), dict):
            break
        body = body["error"]
    if not isinstance(body, dict):
        return None
    words = [body.get(key) for key in ("code", "type", "status")]
    found = _by_words(word for word in words if isinstance(word, str))
    if found is not None:
        return found
    statuses = [body.get(key) for key in ("status_code", "code", "status")]
    return next((verdict for verdict in map(by_status, statuses) if verdict is not None), None)


def by_status(status: Any) -> Verdict | None:
    """Classify an HTTP status, or return None if it is not an error status."""
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
    """Return the error in a chunk.

    Args:
        error: The provider's description of it: an object, a text, or nothing.
        raw: The chunk.
    """
    body = error if isinstance(error, dict) else {}
    kind, retryable = verdict_of(body) or verdict_of(raw) or ("provider", True)
    found = (body.get("message"), body.get("detail"), error, body.get("code"), body.get("type"))
    message = next((text for text in found if isinstance(text, str) and text), None)
    return StreamError(kind, message or "the provider reported an error", retryable, raw)


def _by_words(words: Iterable[str]) -> Verdict | None:
    keys = [word.lower().replace(" ", "_").replace("-", "_") for word in words]
    for part, verdict in _WORDS:
        if any(part in word for word in keys):
            return verdict
    return None


_LONGEST = 4_000


_ROOT = r"(?:(?:file|sqlite[+\w]*)://+(?=/)|~|[A-Za-z]:)?"


_QUOTED = re.compile(rf"(['\"]){_ROOT}[\\/][^'\"\n]*?([^\\/'\"\n]+)[\\/]*\1")


_PATH = re.compile(rf"(?<![\w.:/\\~-]){_ROOT}(?:[\\/]+[^\s\\/:'\"()\[\],;]+){{2,}}")


def without_directories(text: str) -> str:
    """Return the start of a text, with each absolute path reduced to its last component.

    >>> without_directories("[Errno 2] No such file or directory: '/srv/app/keys.json'")
    "[Errno 2] No such file or directory: 'keys.json'"
    """
    text = _QUOTED.sub(r"\1\2\1", text[:_LONGEST])
    return _PATH.sub(lambda found: re.split(r"[\\/]+", found[0].rstrip("\\/"))[-1], text)
