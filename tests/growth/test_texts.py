"""Whatever a stored text holds, the time that it takes grows no faster than the text.

Each reader of stored texts is given a text that repeats one piece, and then one four times as
long. A quadratic reader takes sixteen times as long; the bound lies between, and is looked at only
where the longer text takes long enough to be measured. Then two megabytes are read, which would
take a quadratic reader hours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from eventstore import redact_secrets
from eventstore.blobs import preview_of
from eventstore.events import ToolResult
from eventstore.events.codec import decode, encode
from eventstore.sql.types import escape, is_plain, json_in, json_out, unescape
from projections.context import payload_messages, prompts
from projections.context.compression.facts import facts_of_messages, facts_of_text, json_of
from projections.context.compression.scoring import _SCANNED, _phrases_of
from projections.context.compression.search import terms
from projections.context.compression.shortening import Preview, shorten, shorten_text
from projections.context.search_tables import indexed_terms
from projections.engine.folding import one_line
from projections.tokens import tokenizer_for

_LENGTH = 6_000
_TWO_MB = 2_000_000
_TIMES = 4
_MOST = 10  # times as long as the shorter text; a linear reader takes 4, a quadratic one 16
_MEASURABLE_S = 0.05
_LONGEST_S = 60.0

PIECES = (
    *("./", "../", "a/", "a.", "a-", "a_", "a@", "a@a.", "a.a@a.a", "a+b", "a:", "~.", "@", "#"),
    *("http://", "https://a", "data:", "2020-01-01T", "1", "1 ", "1.", "key: ", "- ", "A", "Aa "),
    *("not ", "didn't ", "never ", "may ", "error ", "start ", "A. ", "! ", "? ", "a'", "aaaa "),
    *(" ", "\n", "\t", "\r\n", '"', "\\", "{", "[", '{"a":', "[1,", '[{"a":1},', "`", "~~~"),
    *(
        "\u300c",
        "\u201ca",
        "\u3002",
        "\u4e2d",
        "\u4e2d\u6587 ",
        "\u00e9",
        "e\u0301",
        "\u2026 1 more",
    ),
    *("sk-", "sk-a", "bearer ", "api key ", "api_key", "a_", "secret_", "password=", "x=&", "AKIA"),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "://", "://a:", "eyJ", "eyJaaaaaaaaaa.eyJ"),
    *("\x00", "\ud800", "\U0010fffe", "\U0010fffe000000", "\u2028"),
)
"""What expressions begin with, repeat, or look behind for."""

_tokenizer = tokenizer_for("gpt-4o")


def _of_all(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: sum(1 for _ in read(text))


def _tool(text: str) -> dict[str, str]:
    return {"role": "tool", "content": text}


_PREVIEW = Preview("find", "success", "@state/logs/tool-results/1.0.json")

READERS: dict[str, Callable[[str], Any]] = {
    "facts of prose": _of_all(facts_of_text),
    "facts of a message": lambda text: facts_of_messages([_tool(text)]),
    "shorter text": shorten_text,
    "shorter message": lambda text: shorten(_tool(text), _PREVIEW),
    "terms in memory": _of_all(terms),
    "terms of the index": _of_all(indexed_terms),
    "score": lambda text: _phrases_of.__wrapped__(text[:_SCANNED]),
    "json": json_of,
    "status": lambda text: [
        prompts.status(each, None, text) for each in prompts._STATUS if each != "success"
    ],
    "tokens": _tokenizer.count,
    "message": lambda text: payload_messages.tool(
        ToolResult(call_id="1.0", status="failed", content=text)
    ),
    "name on the wire": payload_messages.wire_name,
    "one line": one_line,
    "preview": preview_of,
    "escaped": lambda text: unescape(escape(text)),
    "plain": is_plain,
    "secrets": lambda text: redact_secrets(("user_message", "text"), text),
    "json column": lambda text: json_out(json_in({"content": text})),
    "payload": lambda text: decode(
        "tool_result", 1, encode(ToolResult(call_id="1.0", content=text))
    ),
}


def _took(read: Callable[[str], Any], piece: str, length: int) -> float:
    text = piece * (length // len(piece))
    started = time.process_time()
    read(text)
    return time.process_time() - started


@pytest.mark.parametrize("reader", READERS)
def test_time_grows_as_the_text(reader: str) -> None:
    """``./`` took facts 132 s for 100 KB, within a write transaction; ``not`` a status as long."""
    read = READERS[reader]
    _took(read, "a", 100)  # Loads what is loaded once.
    for piece in PIECES:
        longer = _took(read, piece, _TIMES * _LENGTH)
        if longer > _MEASURABLE_S:
            shorter = min(_took(read, piece, _LENGTH) for _ in range(3))
            longer = min(longer, *(_took(read, piece, _TIMES * _LENGTH) for _ in range(2)))
            assert longer < max(_MOST * shorter, _MEASURABLE_S), (piece, shorter, longer)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("piece", ["./", "not "])
def test_two_megabytes_are_read(reader: str, piece: str) -> None:
    """The bound is generous: a quadratic reader would take hours."""
    assert _took(READERS[reader], piece, _TWO_MB) < _LONGEST_S
