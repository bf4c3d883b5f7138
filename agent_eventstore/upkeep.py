"""Keeping a long conversation quick to open, whoever reads its views or does not.

Opening folds what is new since recovery's views were last read. A product whose process lives for
thousands of events without reading them would pay for all at once, just when it comes back from a
crash; so the recorder has them caught up now and then, at the end of a turn. The tool calls of
earlier sessions are read only when somebody learns what came of one.
"""

from __future__ import annotations

from uuid import UUID

from agent_eventstore.machines.answers import KEPT
from eventstore import EventStore
from eventstore.errors import EventStoreError
from eventstore.log import get_logger
from projections import Views
from projections.engine.folding import SEALS
from projections.models.open_work import OPEN_WORK
from projections.models.runs import RUNS
from projections.models.tool_calls import ToolCallRow
from projections.reading import read_current

__all__ = ["EVERY", "Upkeep", "earlier_calls", "warm"]


EVERY = 250
"""Events; folding so many takes milliseconds."""

_log = get_logger("agent_eventstore")


def warm(store: EventStore, conversation_id: UUID) -> None:
    """Catch up the views that opening reads, in one pass over the events and one transaction.

    Raises:
        ConversationNotFound: No conversation has this id.
    """
    read_current(store, [OPEN_WORK, RUNS], conversation_id, lambda _: None)


class Upkeep:
    """Has the views that opening reads caught up, once enough events have come.

    Args:
        views: The store's views.
        conversation_id: The conversation.
        version: The version at which they are known to be current.
    """

    def __init__(self, views: Views, conversation_id: UUID, version: int) -> None:
        self._views = views
        self._conversation_id = conversation_id
        self._version = version

    def due(self, version: int) -> bool:
        """Whether it is time, now that the conversation is at this version."""
        return version - self._version >= EVERY

    def run(self, version: int) -> None:
        """Catch up, in one transaction; what fails here is logged, and done by who opens next."""
        self._version = version
        try:
            warm(self._views.store, self._conversation_id)
        except EventStoreError as error:
            _log.warning(
                "views not caught up", conversation_id=str(self._conversation_id), why=error
            )


def earlier_calls(views: Views, conversation_id: UUID) -> list[ToolCallRow]:
    """Return a conversation's calls, newest first; none if all have a result, as nearly always."""
    for status in ("requested", *SEALS):
        if views.tool_calls(conversation_id=conversation_id, status=status, limit=1):
            return views.tool_calls(conversation_id=conversation_id, limit=KEPT)
    return []
