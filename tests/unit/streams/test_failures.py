"""What the exceptions of SDKs, HTTP libraries and Python mean."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from pydantic import TypeAdapter, ValidationError

from projections.providers import classify

REQUEST = httpx2.Request("POST", "https://example.org/v1")


def _refused(module: Any, status: int, body: Any = None) -> Exception:
    response = httpx2.Response(status, request=REQUEST)
    client = module.OpenAI if module is openai else module.Anthropic
    error: Exception = client(api_key="k")._make_status_error("no", body=body, response=response)
    return error


def _caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def _validation() -> Exception:
    try:
        TypeAdapter(int).validate_python("x")
    except ValidationError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("module", [openai, anthropic])
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, ("invalid", False)),
        (401, ("invalid", False)),
        (403, ("invalid", False)),
        (404, ("invalid", False)),
        (408, ("timeout", True)),
        (409, ("invalid", True)),
        (413, ("invalid", False)),
        (422, ("invalid", False)),
        (429, ("rate_limit", True)),
        (500, ("provider", True)),
        (503, ("provider", True)),
        (529, ("provider", True)),
    ],
)
def test_a_refusal_is_told_by_its_status(module: Any, status: int, expected: Any) -> None:
    """Both SDKs' exceptions carry the status."""
    found = classify(_refused(module, status))
    assert (*expected, status) == (found.kind, found.retryable, found.status_code)


def test_a_quota_that_is_used_up_is_not_worth_another_try() -> None:
    """It has the status of a rate limit, but will not pass."""
    found = classify(_refused(openai, 429, {"code": "insufficient_quota", "message": "pay"}))
    assert ("rate_limit", False) == (found.kind, found.retryable)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (openai.APITimeoutError(request=REQUEST), ("timeout", True)),
        (anthropic.APITimeoutError(request=REQUEST), ("timeout", True)),
        (openai.APIConnectionError(request=REQUEST), ("network", True)),
        (anthropic.APIConnectionError(request=REQUEST), ("network", True)),
        (httpx2.ReadTimeout("slow"), ("timeout", True)),
        (httpx2.ConnectError("refused"), ("network", True)),
        (httpx2.RemoteProtocolError("peer closed"), ("network", True)),
        (httpx2.UnsupportedProtocol("ftp"), ("invalid", False)),
        (openai.APIError("broke", REQUEST, body={"code": "server_error"}), ("provider", True)),
        (openai.APIError("broke", REQUEST, body=None), ("provider", True)),
        (openai.APIError("no", REQUEST, body={"code": "content_filter"}), ("invalid", False)),
        (openai.OpenAIError("no key"), ("invalid", False)),
        (asyncio.CancelledError(), ("cancelled", False)),
        (KeyboardInterrupt(), ("cancelled", False)),
        (GeneratorExit(), ("cancelled", False)),
        (SystemExit(500), ("cancelled", False)),
        (TimeoutError(), ("timeout", True)),
        (ConnectionResetError("reset"), ("network", True)),
        (OSError("unreachable"), ("network", True)),
        (FileNotFoundError("certificate"), ("invalid", False)),
        (json.JSONDecodeError("no", "", 0), ("invalid", False)),
        (_validation(), ("invalid", False)),
        (KeyError("bug"), ("invalid", False)),
        (
            _caused(RuntimeError("failed"), openai.APITimeoutError(request=REQUEST)),
            ("timeout", True),
        ),
        (_caused(ValueError("failed"), _refused(anthropic, 529)), ("provider", True)),
        (
            _caused(openai.APIConnectionError(request=REQUEST), httpx2.ReadTimeout("slow")),
            ("timeout", True),
        ),
        (ExceptionGroup("many", [ConnectionError("reset")]), ("network", True)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_other_exceptions(error: BaseException, expected: tuple[str, bool]) -> None:
    """An exception, or the first of its causes that tells, says what happened."""
    found = classify(error)
    assert expected == (found.kind, found.retryable)


def test_an_error_in_mid_stream_is_told_by_its_words() -> None:
    """Anthropic's SDK raises it under the status 200 of the stream."""
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    found = classify(_refused(anthropic, 200, body))
    assert ("provider", True, None) == (found.kind, found.retryable, found.status_code)


def test_a_cause_that_is_itself_ends_the_search() -> None:
    """Causes in a circle are looked at once each."""
    error = RuntimeError("a")
    assert "invalid" == classify(_caused(error, _caused(RuntimeError("b"), error))).kind


def test_an_exception_without_words_is_named() -> None:
    """The message is never empty."""
    assert "TimeoutError" == classify(TimeoutError()).message


def test_an_exception_that_cannot_be_looked_at_is_classified() -> None:
    """Foreign exceptions may raise when they are asked for anything."""

    class Awkward(Exception):
        @property
        def body(self) -> Any:
            raise RuntimeError("not now")

        def __str__(self) -> str:
            raise RuntimeError("not now")

    assert ("invalid", "Awkward") == (classify(Awkward()).kind, classify(Awkward()).message)


def test_errors_within_errors_end_somewhere() -> None:
    """A server's answer that nests them too deeply raised RecursionError in the classification."""
    body: dict[str, Any] = {"code": "rate_limit_exceeded"}
    for _ in range(10_000):
        body = {"error": body}
    assert "invalid" == classify(_refused(openai, 400, body)).kind
    assert (
        "rate_limit"
        == classify(_refused(openai, 200, {"error": {"error": {"code": "rate_limit"}}})).kind
    )
