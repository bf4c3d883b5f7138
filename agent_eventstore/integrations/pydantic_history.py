"""The messages of Pydantic AI's conversations, each of which refers to the one before it.

They are read from the newest backwards, so that reading a few costs only these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from pydantic_ai.conversation_store import ConversationEntry

from agent_eventstore.integrations.conversation_events import Head, events_before, news_of
from agent_eventstore.integrations.conversation_finding import place_of
from agent_eventstore.integrations.conversation_memory import Memory, Objects
from agent_eventstore.integrations.pydantic_kept import message_in
from agent_eventstore.integrations.pydantic_messages import PydanticAIRecord
from eventstore import EventStore
from eventstore.events import BranchSwitch, VersionRange
from eventstore.sql.read import EventText
from projections.engine.folding import joined

__all__ = ["Histories", "MessageNotFound"]


class MessageNotFound(LookupError):
    """No message has an id, or it was erased. A `KeyError` of a bug is not one of these."""


class _Read(NamedTuple):
    """The cached newest messages up to one; each one's parent is the one before it.

    Attributes:
        complete: Whether these are all messages up to it.
    """

    head: Head
    ids: list[str]
    entries: Objects
    complete: bool

    def up_to(self, head_id: str, head: Head, page: Iterable[EventText]) -> _Read | None:
        """Return the messages up to one of these or of newer events; None if it is in neither."""
        new = [entry for entry, _ in _back(reversed([*page]), head_id)]
        wanted = new[-1].parent_id if new else head_id
        if not new and wanted == self.ids[-1]:
            return self if self.head == head else self._replace(head=head)
        if self.ids[-1] != wanted and wanted not in self.ids:
            return None
        count = len(self.ids) if self.ids[-1] == wanted else self.ids.index(wanted) + 1
        entries = self.entries.first(count).followed_by(new[::-1])
        ids = [*self.ids[:count], *(each.id for each in reversed(new))]
        return _Read(head, ids, entries, self.complete)


class Histories:
    """The messages of a store's conversations, and a cache of recently read ones.

    Attributes:
        streams: The conversation of each recently used newest message, by the message's id.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._memory: Memory[_Read] = Memory()
        self.streams: Memory[UUID] = Memory()

    def up_to(
        self, head_id: str | None, limit: int | None, head: Head | None = None
    ) -> list[ConversationEntry]:
        """Return the messages up to one, in order; with ``limit``, the newest of them.

        ``head`` is the conversation's head, if the caller has just read it.

        Raises:
            MessageNotFound: No message has this id, or it was erased.
        """
        if head_id is None or limit == 0:
            return []
        stream = self.streams.get(head_id) or self._place(head_id)[0]
        known = self._memory.get(stream)
        page: list[EventText] | None = []
        if head is None or known is None or known.head != head:
            with self._store._on_driver() as connection:
                head, page = news_of(connection, stream, known and known.head)
        read = known.up_to(head_id, head, page) if known and page is not None else None
        if read is not None and (read.complete or (limit and limit <= len(read.ids))):
            entries = read.entries.newest(limit)
        else:
            before = head.version + 1
            found = [entry for entry, _ in self.chain(head_id, limit, (stream, before))]
            entries, read = found[::-1], None
            if not head.is_fork and self._memory.asked_again(stream):
                ids, complete = [each.id for each in entries], entries[0].parent_id is None
                read = _Read(head, ids, Objects().followed_by(entries), complete)
        if read is not None:
            self._memory.keep(stream, read, None if read is known else read.entries.size)
        return entries

    def forget(self, stream: UUID) -> None:
        """Remove a conversation from the cache."""
        self._memory.take(stream)

    def _place(self, entry_id: str) -> tuple[UUID, int]:
        place = place_of(self._store, entry_id)
        if place is None:
            raise MessageNotFound(f"no message has the id {entry_id}")
        return place

    def chain(
        self, head_id: str, limit: int | None, end: tuple[UUID, int]
    ) -> Iterator[tuple[ConversationEntry, tuple[int, int]]]:
        """Yield messages from one back to the first, and the range of each one's versions.

        ``end`` is a conversation that has the message, and a version after it.
        """
        missing: str | None = head_id
        events = events_before(self._store, *end, first=limit and 2 * limit)
        for entry, versions in islice(_back(events, head_id), limit):
            yield entry, versions
            missing, limit = entry.parent_id, limit and limit - 1
        if missing is not None and limit != 0:
            raise MessageNotFound(f"the message {missing} was erased")

    def switch(self, end: tuple[UUID, int], left: str | None, taken: str | None) -> BranchSwitch:
        """Return the event that withdraws the messages up to one and restores those up to another.

        Args:
            end: The conversation, and the version after its last event.
            left: The last message to withdraw; None if there is none.
            taken: The last message to restore; None if there is none.

        Raises:
            MessageNotFound: The conversation has no message with one of these ids.
        """
        before, after = (
            {versions for _, versions in self.chain(each, None, end)} if each else set()
            for each in (left, taken)
        )
        shared = before & after
        gone, back = (VersionRange.of(joined(each - shared)) for each in (before, after))
        return BranchSwitch(
            reason="switch" if back else "rewind",
            kind="message",
            after=max((last for _, last in shared), default=0),
            left=gone[0].first if gone else None,
            withdrawn=gone,
            taken=back[0].first if back else None,
            restored=back,
        )


def _back(
    events: Iterable[EventText], wanted: str | None
) -> Iterator[tuple[ConversationEntry, tuple[int, int]]]:
    """Yield messages from one back, and each one's versions, from events given newest first."""
    for event in events:
        if wanted is None:
            return
        if event.text is None or event.type == PydanticAIRecord.type or wanted not in event.text:
            continue
        kept = message_in(event.text)
        if kept is not None and kept["id"] == wanted:
            wanted = kept["parent"]
            entry = ConversationEntry(id=kept["id"], parent_id=wanted, message=kept["message"])
            yield entry, (event.version - kept["span"] + 1, event.version)
