"""The preview of a large text: JSON keeps its shape, keys, numbers and short texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventstore.blobs import PREVIEW_CHARS, preview_of


def orders(count: int) -> list[dict[str, Any]]:
    """Return records with an identifier, a number and prose."""
    return [{"id": f"#W{n:07}", "price": n, "note": "It is so. " * 40} for n in range(count)]


def test_json_stays_json_with_identifiers_and_numbers_before_prose() -> None:
    """A list is cut before its last entry, and says by how much; entries keep what is short."""
    shown = json.loads(preview_of(json.dumps(orders(500))))
    assert [shown[0]["id"], shown[0]["price"]] == ["#W0000000", 0]
    assert "…" in shown[0]["note"]
    assert shown[-2] == f"… {500 - len(shown) + 1} more"
    assert shown[-1]["id"] == "#W0000499"


@pytest.mark.parametrize(
    "value",
    [
        {f"key_{n}": {"a": [n] * 50} for n in range(900)},
        [[[[[[[[[[[["deep"] * 900]]]]]]]]]]],
        {"text": "x" * 90_000},
        orders(3_000),
    ],
    ids=["wide", "deep", "long", "many"],
)
def test_every_preview_is_short_and_parses(value: Any) -> None:
    """Whatever is large in it: entries, depth or texts."""
    shown = preview_of(json.dumps(value))
    assert len(shown) <= PREVIEW_CHARS
    assert type(json.loads(shown)) is type(value)


@pytest.mark.parametrize("text", ["plain text " * 900, "[1, 2" * 900, "{" * 9_000, ""])
def test_what_is_no_json_is_cut(text: str) -> None:
    """Its start and its end, as they are: what went wrong often stands in the last lines."""
    shown = preview_of(text)
    assert len(shown) <= PREVIEW_CHARS
    assert (text[:1_000], text[-400:]) == (shown[:1_000], shown[-400:])
