"""Which keys, passwords and tokens are known, in which forms, and what is no secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventstore import events as e
from eventstore import redact_secrets
from eventstore.security import redaction
from eventstore.security.redaction import redacted

KEY = "sk-proj-" + "aB3" * 14
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"
JWT = f"eyJhbGciOiJIUzI1NiJ9.eyJ{'a1' * 12}.{'b2' * 12}"

TEXTS = {
    "echoed": ("Incorrect API key provided: sk-ab12****34cd. You can find", "sk-ab12****34cd"),
    "echoed whole": (f"Incorrect API key provided: {KEY}. You can", KEY),
    "other key": ("invalid api key: 0123456789abcdef0123", "0123456789abcdef0123"),
    "anthropic": ("x-api-key: sk-ant-api03-A1b2C3d4E5", "sk-ant-api03-A1b2C3d4E5"),
    "bearer": ("sent Bearer abc.def-123456", "abc.def-123456"),
    "authorization": ("{'Authorization': 'Bearer t0psecret99'}", "t0psecret99"),
    "basic": ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    "url": ("postgresql://ada:hunter2@db/x failed", "hunter2"),
    "url token": ("git clone https://0123456789abcdef0123@host/x", "0123456789abcdef0123"),
    "url query": ("GET https://host/x?password=hunter2&y=1", "hunter2"),
    "google": ("https://host/v1?key=AIza" + "x1" * 18, "AIza" + "x1" * 18),
    "sslpassword": ("postgresql://h/x?sslpassword=hunter2", "hunter2"),
    "env": ("OPENAI_API_KEY=abcdef", "abcdef"),
    "password": ("password: hunter2", "hunter2"),
    "json": ('{"api_key": "abcdef"}', "abcdef"),
    "json in json": (json.dumps({"a": json.dumps({"api_key": "abcdef"})}), "abcdef"),
    "aws": ("AKIAIOSFODNN7EXAMPLE and", "AKIAIOSFODNN7EXAMPLE"),
    "aws secret": ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI/K7MDENG"),
    "github": ("ghp_" + "a1" * 18, "ghp_" + "a1" * 18),
    "slack": ("xoxb-123456789012-abcdef", "xoxb-123456789012-abcdef"),
    "private key": (f"here: {PEM} it was", "MIIEpAIBAAKCAQEA"),
    "private key, cut off": (PEM[:45], "MIIEpAIBA"),
    "jwt": (JWT, JWT),
}


@pytest.mark.parametrize("form", TEXTS)
def test_a_secret_in_a_text_is_marked(form: str) -> None:
    """The secret is gone, what is around it stays, and a second time changes nothing."""
    text, secret = TEXTS[form]
    kept = redact_secrets(("user_message", "text"), text)
    assert secret not in kept
    assert "[redacted: " in kept
    assert kept == redact_secrets(("user_message", "text"), kept)


@pytest.mark.parametrize("form", ["json", "json in json"])
def test_json_stays_json(form: str) -> None:
    """Arguments of a tool call can still be parsed."""
    kept = redact_secrets(("assistant_message", "arguments_text"), TEXTS[form][0])
    assert "[redacted: api_key]" in str(json.loads(kept))
    number = redact_secrets(("x", "y"), '{"api_key": 123456, "n": 1}')
    assert {"api_key": "[redacted: api_key]", "n": 1} == json.loads(number)


@pytest.mark.parametrize(
    "text",
    [
        "The task-based risk-averse desk-top scikit-learn sk-learn user",
        "max_tokens: 4096, tokens=17, next_page_token: none",
        "https://example.org/path?q=1&page=2#x and ssh://git@github.com/x",
        "How do I reset my password? An API key is needed.",
        "12:30 at http://localhost:8080/x@y",
        "secretary: Ms Smith; the key: value store",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA",
        "e-mail ada@example.org",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Prose, settings and addresses are left alone."""
    assert text == redact_secrets(("user_message", "text"), text)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("api_key", "api_key"),
        ("apiKey", "api_key"),
        ("X-API-Key", "api_key"),
        ("OPENAI_API_KEY", "api_key"),
        ("Authorization", "authorization"),
        ("client_secret", "secret"),
        ("db_password", "password"),
        ("Set-Cookie", "cookie"),
    ],
)
def test_a_value_is_known_by_its_name(name: str, what: str) -> None:
    """However the name is written."""
    call = e.ToolCall(call_id="1.0", name="f", arguments={"a": [{name: "abc", "n": 1}]})
    kept = redacted(call, redact_secrets)
    assert {"a": [{name: f"[redacted: {what}]", "n": 1}]} == getattr(kept, "arguments", None)


def test_parameters_of_a_request() -> None:
    """Headers and ``extra_body`` show their names and numbers, and no text."""
    given: dict[str, Any] = {
        "temperature": 0.2,
        "extra_headers": {"X-Team": "blue", "n": 1},
        "extra_body": {"tenant": "t", "top_k": 40, "deep": [{"token": "t"}], "flag": True},
        "metadata": {"user": "ada"},
    }
    schema = {
        "type": "object",
        "properties": {"password": {"type": "string"}, "headers": {"d": "x"}},
    }
    request = e.LlmRequest(llm_call_id="c", parameters=given, tools=({"parameters": schema},))
    kept = redacted(request, redact_secrets)
    assert isinstance(kept, e.LlmRequest)
    assert {
        "temperature": 0.2,
        "extra_headers": {"X-Team": "[redacted: extra_headers]", "n": 1},
        "extra_body": {
            "tenant": "[redacted: extra_body]",
            "top_k": 40,
            "deep": [{"token": "[redacted: extra_body]"}],
            "flag": True,
        },
        "metadata": {"user": "ada"},
    } == kept.parameters
    assert ({"parameters": schema},) == kept.tools


def test_what_has_no_secret_is_the_same_object() -> None:
    """Nothing is copied, and ids, names and numbers are not asked about."""
    asked: list[Any] = []

    def redact(path: Any, value: Any) -> Any:
        asked.append(path)
        return value

    message = e.AssistantMessage.of("hi", llm_call_id="c", raw={"a": [1]}, finish_reason="stop")
    assert message is redacted(message, redact)
    assert {("parts", 0, "text"), ("raw",), ("raw", "a"), ("raw", "a", 0)} == {
        path[1:] for path in asked
    }


SIGNS = [sign for form in redaction._FORMS for each in form.signs.values() for sign in each]
PARTS = (
    "-----BEGIN RSA |PRIVATE KEY-----|-----END |live_|ada:hunter2@|user:|0123456789abcdef|?key="
    '|&sig=|a|basic |provided: |refresh_token|": "|\\\\\'|:\n |= | |_|-|.|@'
    "|7|\u4e00|\u0130|\u212a|\u03a3"
).split("|")
PIECES = [*SIGNS, *PARTS, "x" * 80, KEY, JWT, *(text for text, _ in TEXTS.values())]


@example([("ap\u0131_key=hunter2 ", str), ("x" * 80, str), (" cookie", str)])
@example([("\u017fecret=hunter2 ", str), ("x" * 80, str), (" cookie", str)])
@given(st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from([str, str.upper, str.title]))))
@settings(max_examples=200)
def test_the_same_is_found_as_by_looking_everywhere(pieces: list[tuple[str, Any]]) -> None:
    """Looking near to signs alone misses nothing, whatever they stand between."""
    text = expected = "".join(cased(piece) for piece, cased in pieces)
    for form in redaction._FORMS:
        if any(sign in text.lower() for each in form.signs.values() for sign in each):
            expected = form.pattern.sub(form.instead, expected)
    assert expected == redact_secrets(("user_message", "text"), text)
