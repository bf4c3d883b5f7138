"""LangGraph: a checkpointer and a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventstore.lazy import exports

if TYPE_CHECKING:
    from agent_eventstore.integrations.langgraph.saver import EventStoreSaver
    from agent_eventstore.integrations.langgraph.store import EventStoreStore

__all__ = ["EventStoreSaver", "EventStoreStore"]


__getattr__ = exports(
    __name__,
    {
        "EventStoreSaver": f"{__name__}.saver",
        "EventStoreStore": f"{__name__}.store",
    },
)
