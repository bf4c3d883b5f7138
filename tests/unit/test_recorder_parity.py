"""The two recorders are twins: who knows one knows the other."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.conversation import Conversation
from agent_eventstore.llm_call import AsyncLlmCall, LlmCall
from agent_eventstore.turn import ToolBlock, Turn
from agent_eventstore.turn_aio import AsyncToolBlock, AsyncTurn

TWINS: list[tuple[type[Any], type[Any]]] = [
    (Conversation, AsyncConversation),
    (Turn, AsyncTurn),
    (LlmCall, AsyncLlmCall),
    (ToolBlock, AsyncToolBlock),
]


def public(cls: type[Any]) -> set[str]:
    """Return the names that a product may use."""
    return {name for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize(("sync", "twin"), TWINS)
def test_names_are_the_same(sync: type[Any], twin: type[Any]) -> None:
    """What one has, the other has."""
    assert public(sync) == public(twin)


@pytest.mark.parametrize(("sync", "twin"), TWINS)
def test_parameters_are_the_same(sync: type[Any], twin: type[Any]) -> None:
    """Methods take the same names, kinds and defaults."""
    for name in sorted(public(sync)):
        method = getattr(sync, name, None)
        if callable(method):
            assert shape(method) == shape(getattr(twin, name)), name


def shape(method: Any) -> list[tuple[str, Any, Any]]:
    """Return name, kind and default of each parameter."""
    found = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default) for each in found]
