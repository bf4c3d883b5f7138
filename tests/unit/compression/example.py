"""Items and messages that the tests of compression share."""

from __future__ import annotations

import json
from typing import Any

from projections.context.compression import Item, items_of
from projections.context.compression.facts import Fact
from projections.tokens import tokenizer_for

TOKENIZER = tokenizer_for("gpt-4o")

RETAIL_ORDER = {
    "order_id": "#W2378156",
    "user_id": "yusuf_rossi_9620",
    "address": {"address1": "763 Broadway", "city": "Philadelphia", "zip": "19122"},
    "items": [
        {"name": "T-Shirt", "product_id": "9523456873", "price": 46.66, "options": {"size": "M"}},
        {"name": "Keyboard", "product_id": "1656367028", "price": 272.33, "options": {"size": "L"}},
    ],
    "status": "delivered",
}
AIRLINE_FLIGHTS = [
    {"flight_number": "HAT001", "origin": "PHL", "seats": {"economy": 10}, "delayed": False},
    {"flight_number": "HAT083", "origin": "LGA", "seats": {"economy": 0}, "delayed": True},
]


def user(text: str) -> dict[str, Any]:
    """Return a user message."""
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    """Return an assistant message without calls."""
    return {"role": "assistant", "content": text}


def called(name: str, result: object) -> list[dict[str, Any]]:
    """Return a message with one call, and its result."""
    function = {"name": name, "arguments": "{}"}
    call = {"id": "c", "type": "function", "function": function}
    content = result if isinstance(result, str) else json.dumps(result, indent=2)
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": content},
    ]


def items(*messages: dict[str, Any]) -> list[Item]:
    """Return the items of messages, counted as for gpt-4o."""
    return items_of(messages, TOKENIZER)


def item(place: int, tokens: int = 10, **changes: Any) -> Item:
    """Return an item of a chosen size, an assistant's if nothing else is said."""
    values: dict[str, Any] = {"kind": "assistant", "messages": (said(f"text {place}"),), **changes}
    values.setdefault("shorter_tokens", tokens)
    return Item(key=(place, 0), tokens=tokens, label=str(place), **values)


def identifiers(*texts: str) -> tuple[Fact, ...]:
    """Return facts of the kind identifier."""
    return tuple(Fact(text, "identifier") for text in texts)
