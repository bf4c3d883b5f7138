"""A process that remembers a conversation sends what one that remembers nothing would send.

Otherwise two workers that serve one conversation in turn would break each other's cached prefix.
"""

from __future__ import annotations

import json
import random
from uuid import UUID

import pytest

from eventstore import EventStore
from eventstore import events as e
from eventstore.database import has_table
from projections import Views

pytestmark = pytest.mark.exhaustive_when("postgresql")

ORDERS = json.dumps([{"order_id": f"#W23781{n}", "status": "delivered"} for n in range(9)])


def message(chance: random.Random, number: int) -> e.UserMessage | e.AssistantMessage:
    """Return a message of any length up to some hundred tokens."""
    if chance.random() < 0.5:
        return e.UserMessage.text(f"{ORDERS[: chance.randint(20, 400)]} of u_{number}?")
    return e.AssistantMessage.of(f"It is {number}. " + "Word and word. " * chance.randint(1, 60))


@pytest.mark.parametrize(("strategy", "most"), [("key_messages", 2_000), ("hybrid", 3_000)])
@pytest.mark.parametrize("seed", [4, 5])
def test_every_request_is_the_same(
    store: EventStore, cid: UUID, strategy: str, most: int, seed: int
) -> None:
    """Also where a step falls on the last message before an anchor, at every 64th one."""
    chance = random.Random(seed)  # noqa: S311 - test data
    views, steps = Views(store), set()
    for number in range(200):
        store.append(cid, [message(chance, number)])
        view = views.context(cid, max_tokens=most, strategy=strategy)
        steps.add(view.step)
        if number > 50:
            fresh = Views(store).context(cid, max_tokens=most, strategy=strategy)
            assert view.messages == fresh.messages
    assert len(steps) > 10


def test_a_search_in_memory_and_one_by_the_index_send_the_same(
    store: EventStore, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversation with long texts has an index, however few its messages are."""
    chance = random.Random(7)  # noqa: S311 - test data
    store.append(cid, [e.AssistantMessage.of("The password of the harbour gate is heron.")])
    store.append(cid, [message(chance, number) for number in range(150)])
    store.append(cid, [e.UserMessage.text("What was the password of the harbour gate?")])
    in_memory = Views(store).context(cid, max_tokens=3_000)
    with store.reading() as connection:
        assert not has_table(connection, "search_heads")

    monkeypatch.setattr("projections.context.row_cache._LONGEST_SEARCHED", 10_000)
    indexed = Views(store).context(cid, max_tokens=3_000)
    with store.reading() as connection:
        assert has_table(connection, "search_heads")
    assert indexed.messages == in_memory.messages
    assert any("heron" in str(each["content"]) for each in indexed.messages)
