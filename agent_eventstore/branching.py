"""Branch changes of a conversation: edit, regenerate, rewind, switch; and where a fork begins.

Each change is one `BranchSwitch`, computed from the current timeline. An edited or regenerated
turn begins with it; a rewind or a switch to an alternative writes it alone. A fork begins at the
start of a turn, which is shared whole or not at all; the start is found among the newest events, so
the cost does not depend on the conversation's length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from agent_eventstore.errors import BranchRefused
from agent_eventstore.machines import Branching
from eventstore import EventStore
from eventstore.database import version_of
from eventstore.events import (
    BranchSwitch,
    ConversationStart,
    ModeSwitch,
    RecordedEvent,
    ToolPolicy,
    TurnStart,
    UserMessage,
    VersionRange,
)
from eventstore.events.values import Mode
from eventstore.ids import StreamId
from projections.branch_reading import Branches, read_branches
from projections.models.branches import BranchRow
from projections.payload_text import text_of

__all__ = [
    "answered_again",
    "edited",
    "fork_point",
    "no_message",
    "regenerated",
    "rewound",
    "switched",
]


def edited(store: EventStore, conversation_id: UUID, version: int) -> Branching:
    """Return the branch change for editing a user message.

    Raises:
        BranchRefused: The active branch has no user message at this version.
    """
    branches = read_branches(store, conversation_id)
    event = _active(store, branches, conversation_id, version)
    if not isinstance(event.data, UserMessage):
        problem = "it was erased" if event.erased else f"it is a {event.type}"
        raise no_message(conversation_id, version, problem)
    return Branching(_from(branches, _beginning(store, event), event.meta.turn, "edit"))


def no_message(conversation_id: UUID, version: int, why: str) -> BranchRefused:
    """Return the error that a version to edit is not a user message."""
    return BranchRefused(conversation_id, f"version {version} is not a user message: {why}")


def regenerated(store: EventStore, conversation_id: UUID) -> Branching:
    """Return the branch change for answering the last user message again, and its text.

    Raises:
        BranchRefused: The active branch has no user message.
    """
    branches = read_branches(store, conversation_id)
    version = branches.last_user_version
    if version is None:
        raise BranchRefused(conversation_id, "it has no user message to answer again")
    return _answered_again(store, branches, conversation_id, version)


def answered_again(store: EventStore, conversation_id: UUID, message: UUID) -> Branching | None:
    """Return the branch change for answering a message again, by its event id.

    None if another message has followed, or the message is not on the active branch.
    """
    branches = read_branches(store, conversation_id)
    with store.reading() as connection:
        version = version_of(connection, conversation_id, message)
    if version is None or version != branches.last_user_version or branches.is_inactive(version):
        return None
    return _answered_again(store, branches, conversation_id, version)


def _answered_again(
    store: EventStore, branches: Branches, conversation_id: UUID, version: int
) -> Branching:
    event = _active(store, branches, conversation_id, version)
    assert isinstance(event.data, UserMessage)  # noqa: S101 - the timeline has its text
    gone = branches.active(version + 1)
    answers = [row for row in branches.rows if row.after == version and row.kind == "answer"]
    before = next((row for row in answers if row.active), None)
    switch = None
    if gone:
        switch = BranchSwitch(
            reason="regenerate",
            kind="answer",
            after=version,
            left=gone[0][0] if before is None else before.version,
            turn=event.meta.turn if before is None else before.turn,
            withdrawn=VersionRange.of(gone),
        )
    return Branching(switch, text=text_of(event.data.parts))


def rewound(store: EventStore, conversation_id: UUID, version: int) -> BranchSwitch | None:
    """Return the switch by which the turn of a version, and all after it, leave the active branch.

    None if there is nothing to leave.

    Raises:
        BranchRefused: The active branch has no such version.
    """
    branches = read_branches(store, conversation_id)
    event = _active(store, branches, conversation_id, version)
    return _from(branches, _beginning(store, event), event.meta.turn, "rewind")


def switched(store: EventStore, conversation_id: UUID, version: int) -> BranchSwitch | None:
    """Return the switch to an alternative; None if it is active already.

    Raises:
        BranchRefused: The active branch has no such alternative.
    """
    branches = read_branches(store, conversation_id)
    row = next((row for row in branches.rows if row.version == version), None)
    if row is None or row.after is None or branches.is_inactive(row.after):
        there = "within another one: switch to that first" if row else "unknown"
        raise BranchRefused(
            conversation_id,
            f"the alternative at version {version} is {there}; views.branches lists all "
            "alternatives",
        )
    if row.active:
        return None
    beside = (each for each in branches.rows if each.after == row.after and each.active)
    current: BranchRow | None = next(beside, None)
    gone = () if current is None else branches.active(current.version)
    return BranchSwitch(
        reason="switch",
        kind="answer" if row.kind == "answer" else "message",
        after=row.after,
        left=None if current is None else current.version,
        turn=None if current is None else current.turn,
        withdrawn=VersionRange.of(gone),
        taken=row.version,
        restored=VersionRange.of((first, last) for first, last in row.versions),
    )


def _active(
    store: EventStore, branches: Branches, conversation_id: UUID, version: int
) -> RecordedEvent:
    """Return the event at a version of the active branch."""
    found = store.read(conversation_id, after=max(version - 1, 0), limit=1)
    event = next(found, None) if version > 0 else None
    if event is None:
        raise BranchRefused(conversation_id, f"it has no version {version}")
    if branches.is_inactive(version):
        raise BranchRefused(
            conversation_id,
            f"version {version} is on an inactive branch: switch to it with switch_branch",
        )
    return event


def _from(branches: Branches, start: int, turn: int | None, reason: str) -> BranchSwitch | None:
    """Return the switch by which all events from a version on leave the branch; None if none do."""
    gone = branches.active(start)
    if not gone:
        return None
    row = next((row for row in branches.rows if row.version == start), None)
    known = row is not None and row.after is not None
    return BranchSwitch.model_validate(
        {
            "reason": reason,
            "kind": row.kind if row is not None and known else "message",
            "after": row.after if row is not None and known else branches.before(start),
            "left": start if known else gone[0][0],
            "turn": turn,
            "withdrawn": VersionRange.of(gone),
        }
    )


def _beginning(store: EventStore, event: RecordedEvent) -> int:
    """Return the first version of an event's turn; the event's own version if it has no turn."""
    turn, found = event.meta.turn, event.version
    if turn is None or event.type == TurnStart.type:
        return found
    for earlier in store.read(event.conversation_id, before=event.version, backward=True):
        if earlier.meta.turn != turn:
            break
        found = earlier.version
        if earlier.type == TurnStart.type:
            break
    return found


_PAGES = (16, 256, 2_000)
"""Page sizes of the search for a turn's boundary: most turns are short."""


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a fork begins, and its parent's state there.

    Attributes:
        before: The first version that is not shared.
        mode: The conversation's mode.
        turn: The number of the next turn; None if the search ended before it was found.
        tool_policy: The tool policy of the conversation's start.
    """

    before: int
    mode: Mode | None
    turn: int | None
    tool_policy: ToolPolicy | None


def fork_point(store: EventStore, source: StreamId, before: int | None) -> ForkPoint:
    """Return the start of the turn that contains a version; the version itself if no turn does.

    Args:
        store: The store of the conversation.
        source: The conversation.
        before: The version, such as that of a user message; None for the end.

    Raises:
        ConversationNotFound: No conversation has this id.
    """
    end = store.get(source).version + 1
    point = end if before is None else before
    mode: Mode | None = None
    last, seen = 0, 0
    policy = _policy(store, source)
    for event in _newest(store, source, min(point, end)):
        seen, mode = seen + 1, mode or _mode(event)
        last = max(last, event.meta.turn or 0)
        if event.type == "turn_start":
            return ForkPoint(event.version, event.meta.mode or mode, event.meta.turn, policy)
        if event.type == "turn_end":
            return ForkPoint(point, mode, event.meta.turn and last + 1, policy)
    return ForkPoint(point, mode, last + 1 if seen < sum(_PAGES) else None, policy)


def _newest(store: EventStore, source: StreamId, before: int) -> Iterator[RecordedEvent]:
    for size in _PAGES:
        for event in store.read(source, before=before, backward=True, limit=size):
            before = event.version
            yield event


def _mode(event: RecordedEvent) -> Mode | None:
    if isinstance(event.data, ModeSwitch | ConversationStart) and event.data.mode is not None:
        return event.data.mode
    return event.meta.mode


def _policy(store: EventStore, source: StreamId) -> ToolPolicy | None:
    first = next(store.read(source, limit=1), None)
    data = None if first is None else first.data
    return data.tool_policy if isinstance(data, ConversationStart) else None
