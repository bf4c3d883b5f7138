"""Which events leave the active branch of a conversation, which come back, and where it is forked.

What is decided is one `BranchSwitch`, read from the timeline as it stands: what a turn begins with
when a message is edited or answered again, or what is written alone when a conversation is rewound
or goes back to an alternative. A fork begins at the beginning of a turn, which is shared whole or
not at all; it is found among the newest events there, however long the conversation is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from agent_eventstore.errors import BranchRefused
from agent_eventstore.machines import Branching
from eventstore import EventStore
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
from projections.engine.folding import text_of
from projections.models.branches import BranchRow

__all__ = ["edited", "fork_point", "regenerated", "rewound", "switched"]


def edited(store: EventStore, conversation_id: UUID, version: int) -> Branching:
    """Return what leaves the branch when a message is said in other words.

    Raises:
        BranchRefused: There is no message of a user's at this version of the active branch.
    """
    branches = read_branches(store, conversation_id)
    event = _active(store, branches, conversation_id, version)
    if not isinstance(event.data, UserMessage):
        said = "it was erased" if event.erased else f"it is a {event.type}"
        raise BranchRefused(conversation_id, f"version {version} is no message of a user's: {said}")
    return Branching(_from(branches, _beginning(store, event), event.meta.turn, "edit"))


def regenerated(store: EventStore, conversation_id: UUID) -> Branching:
    """Return what leaves the branch when the last message is answered again, and its text.

    Raises:
        BranchRefused: The active branch has no message of a user's.
    """
    branches = read_branches(store, conversation_id)
    version = branches.last_said
    if version is None:
        raise BranchRefused(conversation_id, "nobody has said anything that could be answered")
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
    """Return what leaves the branch with the turn that a version is in, and all after it.

    Raises:
        BranchRefused: The active branch has no such version.
    """
    branches = read_branches(store, conversation_id)
    event = _active(store, branches, conversation_id, version)
    return _from(branches, _beginning(store, event), event.meta.turn, "rewind")


def switched(store: EventStore, conversation_id: UUID, version: int) -> BranchSwitch | None:
    """Return how an alternative takes the place of the active one; None if it is that.

    Raises:
        BranchRefused: There is no such alternative on the active branch.
    """
    branches = read_branches(store, conversation_id)
    row = next((row for row in branches.rows if row.version == version), None)
    if row is None or row.after is None or branches.is_inactive(row.after):
        there = "within another alternative: go to that one first" if row else "none"
        raise BranchRefused(
            conversation_id,
            f"of an alternative at version {version} there is {there}; views.branches names those "
            "that there are",
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
            f"version {version} is on a branch that is not active: switch_branch goes to it",
        )
    return event


def _from(branches: Branches, start: int, turn: int | None, reason: str) -> BranchSwitch | None:
    """Return the switch by which everything from a version on leaves the branch."""
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
    """Return the version at which the turn of an event begins; its own if it is in none."""
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
"""Events that are read until a turn is found: most are short."""


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a fork begins, and how its parent stands there.

    Attributes:
        before: The first version that is not shared.
        mode: The mode that the conversation is in.
        turn: The number of the next turn; None if that was too far back to be found.
        tool_policy: Which tools the conversation may use, as its start says.
    """

    before: int
    mode: Mode | None
    turn: int | None
    tool_policy: ToolPolicy | None


def fork_point(store: EventStore, source: StreamId, before: int | None) -> ForkPoint:
    """Return where the turn begins that a version is in; the version itself if it is in none.

    Args:
        store: Where the conversation is.
        source: The conversation.
        before: The version, such as that of a user message; None is the end.

    Raises:
        ConversationNotFound: No conversation has this id.
    """
    end = store.get(source).version + 1
    upper = end if before is None else min(before, end)
    mode: Mode | None = None
    last, seen = 0, 0
    policy = _policy(store, source)
    for event in _newest(store, source, upper):
        seen, mode = seen + 1, mode or _mode(event)
        last = max(last, event.meta.turn or 0)
        if event.type == "turn_start":
            return ForkPoint(event.version, event.meta.mode or mode, event.meta.turn, policy)
        if event.type == "turn_end":
            return ForkPoint(before or end, mode, event.meta.turn and last + 1, policy)
    return ForkPoint(before or end, mode, last + 1 if seen < sum(_PAGES) else None, policy)


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
