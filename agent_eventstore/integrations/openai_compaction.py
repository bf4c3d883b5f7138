"""The end of a session's items, exchanged for what a compaction has made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agent_eventstore.integrations.openai_history import LiveItem, live_items, outdated, replacing
from agent_eventstore.integrations.openai_writing import ItemWriter, SessionEnd
from eventstore import EventStore, NewEvent

__all__ = ["replace_newest"]


def replace_newest(
    store: EventStore,
    end: SessionEnd,
    wanted: Sequence[LiveItem],
    output: Sequence[Any],
    prune: Callable[[Any], bool] | None,
) -> bool:
    """Put items in the place of the newest, in one transaction; false where these have changed.

    Args:
        store: Where the session is kept.
        end: Where it ends.
        wanted: The newest items, as they were read.
        output: What replaces them.
        prune: Tells which of the oldest items are withdrawn, too.
    """
    found = True

    def replaced(writer: ItemWriter) -> list[NewEvent]:
        nonlocal found
        live = live_items(store, end.id, None if prune else len(wanted))
        found = live[-len(wanted) :] == list(wanted)
        if not found:
            return []
        expired = () if prune is None else outdated(live[: -len(wanted)], prune)
        return replacing(store, end.id, writer, wanted, output, "compaction", also=expired)

    end.append(replaced)
    return found
