"""Anything at all as plain JSON."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest

from eventstore.events.codec import dumps, loads
from projections.providers.stream_base import plain


class Colour(Enum):
    """A value that some SDKs put into chunks."""

    RED = "red"


class Awkward:
    """An object that raises when it is looked at."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("not now")

    def __repr__(self) -> str:
        raise RuntimeError("not now")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (b"a\xff", "a\\xff"),
        ((1, {2}), [1, [2]]),
        ({1: "a"}, {"1": "a"}),
        (Colour.RED, "red"),
        (datetime(2026, 11, 1, tzinfo=UTC), "2026-11-01T00:00:00+00:00"),
        (Awkward(), "<Awkward>"),
        (10**5000, hex(10**5000)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_json_becomes_text(value: Any, expected: Any) -> None:
    """Nothing is refused: a value that JSON cannot express is described."""
    assert expected == plain(value)


def test_a_circle_is_cut() -> None:
    """An object that holds itself is described where it comes again."""
    circle: list[Any] = [1]
    circle.append(circle)
    assert [1, "[1, [...]]"] == plain(circle)


def test_what_is_nested_too_deeply_is_cut() -> None:
    """What no reader of JSON accepts is described, so that the rest can be kept."""
    value: Any = "x"
    for _ in range(500):
        value = [value]
    assert plain(value) == loads(dumps(plain(value)))
