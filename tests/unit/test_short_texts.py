"""Bounds of payloads whose JSON text is known: a short one is not walked through, and tells all."""

from __future__ import annotations

from typing import Any

import pytest

from eventstore.events import TextPart, UserMessage
from eventstore.events.bounds import DEEPEST, LONGEST_NAME, excesses
from eventstore.events.codec import encode


def _nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "raw",
    [
        _nested(DEEPEST - 4),
        _nested(DEEPEST),
        _nested(DEEPEST + 1),
        {"n": 2**13_000 - 1},
        {"n": -(2**13_000)},
        {"n": 10**3_950},
        {"text": "{" * 200},
        [{"a": 1}] * 150,
    ],
    ids=lambda raw: str(raw)[:12],
)
@pytest.mark.parametrize("name", ["ada", "a" * LONGEST_NAME, "a" * (LONGEST_NAME + 1)])
def test_the_text_changes_nothing(raw: Any, name: str) -> None:
    """What lies beyond its bound is found with the text as without."""
    payload = UserMessage(parts=(TextPart(text="hi"),), name=name, raw=raw)

    assert excesses(payload) == excesses(payload, encode(payload))
