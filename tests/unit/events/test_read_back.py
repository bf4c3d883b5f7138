"""Classes of adapters whose events an append does not read back are read back all the same."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eventstore.integrations.langgraph.events import (
    GrownList,
    LanggraphCheckpoint,
    LanggraphValues,
    LanggraphWrites,
    PackedValue,
    TaskWrite,
)
from agent_eventstore.integrations.pydantic_ai.messages import PydanticAIRecord
from eventstore.events import Payload
from eventstore.events.codec import decode, encode
from eventstore.events.own import READ_BACK
from eventstore.events.registry import REGISTRY

PACKED = PackedValue.of(("msgpack", b"\x00\xff"))
ODD = "\x00 \ud800 \U0001f600"
LISTS = (PACKED, GrownList(), GrownList(base=2**60, same_count=9, added=(0, 2**60)))
NAMED: dict[str, Any] = {"namespace": ODD, "checkpoint_id": ODD}
CHECKPOINT = LanggraphCheckpoint(state=PACKED, metadata=PACKED, channels=((ODD, 2**60),), **NAMED)
WRITE = TaskWrite(index=-4, channel=ODD, value=PACKED)
EVENTS: list[Payload] = [
    LanggraphValues(values=LISTS),
    LanggraphValues(values=()),
    CHECKPOINT,
    CHECKPOINT.model_copy(update={"parent_id": ODD, "channels": ()}),
    LanggraphWrites(task_id=ODD, task_path=ODD, replaces=True, writes=(WRITE,), **NAMED),
    LanggraphWrites(task_id="", writes=(), **NAMED),
    PydanticAIRecord(record={ODD: [None, 1.5, 10**300, {"a": {}}], "none": None}),
    PydanticAIRecord(record=[ODD]),
    PydanticAIRecord(),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_odd_values_come_back(event: Payload) -> None:
    """Texts that UTF-8 cannot carry, large numbers, and fields that are left out."""
    assert event == decode(event.type, event.schema_version, encode(event))


def test_each_such_class_is_tested() -> None:
    """Those of the catalogue are elsewhere."""
    assert {*map(type, EVENTS)} == READ_BACK - {*REGISTRY.values()}
