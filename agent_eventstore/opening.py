"""Starting a session: in a conversation that begins, is opened again, or is forked.

A conversation with a parent inherits the options that it does not set. They are read from the
parent's start event, so the cost does not depend on the parent's length.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import Connection

from agent_eventstore.branching import fork_point
from agent_eventstore.inputs import with_extra
from agent_eventstore.journal import Journal
from agent_eventstore.recovery import WAIT_S, IfBusy, claimed, end_open_work
from agent_eventstore.resuming import last_agent, left_open, standing
from agent_eventstore.session import Session, first_outcome
from agent_eventstore.unwritten import Acknowledged, patiently
from eventstore import NO_STREAM, EventStore, NewEvent, new_id
from eventstore.errors import (
    ConversationExists,
    ConversationInUse,
    ConversationNotFound,
    EventStoreError,
    InvalidEvent,
    WrongExpectedVersion,
)
from eventstore.events import ConversationStart, Meta, SessionStart, ToolPolicy
from eventstore.events.values import Mode
from eventstore.ids import StreamId, uuid_in
from eventstore.leases import KEEPER, LEASE_S, begin
from eventstore.log import get_logger
from eventstore.owners import Owned
from eventstore.sql.streams import owner_of
from eventstore.state_files import delete_erased, state_root
from projections import Views

__all__ = ["IfExists", "SessionMode", "Title", "forked", "opened", "started"]

_log = get_logger("agent_eventstore")

_LEASE_COMES_S = 1.0
_LOOK_AGAIN_S = 0.01


def owner_within(store: EventStore, parent: UUID, owner: Owned) -> Owned:
    """Return a child conversation's owner: the given one, completed from its parent's."""
    with store.reading() as connection:
        tenant_id, user_id = owner_of(connection, parent) or (None, None)
    return {
        "tenant_id": owner.get("tenant_id") or tenant_id,
        "user_id": owner.get("user_id") or user_id,
    }


def inheriting(
    store: EventStore, views: Views, parent: UUID, start: ConversationStart
) -> ConversationStart:
    """Return a conversation's start, completed from its parent's start.

    The conversation keeps its own instructions. Its tool policy is merged with the parent's, so it
    never allows more than the parent.
    """
    first = next((event.data for event in store.read(parent, limit=1)), None)
    told = first if isinstance(first, ConversationStart) else ConversationStart()
    policy = views.tool_policy(parent)
    if policy is None:
        policy = start.tool_policy
    elif start.tool_policy is not None:
        policy = policy.merge(start.tool_policy)
    return start.model_copy(
        update={
            "base_instructions": told.base_instructions
            if start.base_instructions is None
            else start.base_instructions,
            "user_instructions": told.user_instructions
            if start.user_instructions is None
            else start.user_instructions,
            "tool_policy": policy,
            "parent_conversation_id": str(parent),
            "parent_version": next(store.read(parent, backward=True, limit=1)).version,
        }
    )


def session_start(
    meta: Meta, mode: Literal["interactive", "once"], config: dict[str, Any] | None
) -> NewEvent:
    """Return the start event of a session."""
    return NewEvent(SessionStart(mode=mode, config=config or {}), new_id(), meta)


SessionMode = Literal["interactive", "once"]
IfExists = Literal["raise", "open"]
Title = str | Callable[[str], str] | None
"""A title, or a function that makes one from the first message."""


WAIT_ALONE = 'wait_s has no effect with if_busy="{}": pass if_busy="wait" too, or leave it out'


def _named(key: str | None, conversation_id: StreamId | None) -> StreamId:
    """Return the key or id of a new conversation; by default a new id."""
    if key is None:
        return new_id() if conversation_id is None else conversation_id
    if conversation_id is not None:
        raise InvalidEvent("a conversation is named by its key or by its id: pass one of them")
    if uuid_in(key) is not None:
        raise InvalidEvent(f"the key {key!r} is a UUID: pass it as conversation_id")
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writing:
    """The options of a session; see `agent_eventstore.OpenOptions`."""

    session_mode: SessionMode = "interactive"
    session_config: dict[str, Any] | None = None
    state_directory: str | Path | None = None
    agent_id: str | None = None
    extra: dict[str, Any] | None = None
    if_busy: IfBusy = "raise"
    lease_s: float = LEASE_S
    wait_s: float | None = None
    leaving_wait: bool = True
    message_id: str | None = None

    def __post_init__(self) -> None:
        """Refuse to wait if waiting was not asked for.

        Raises:
            InvalidEvent: ``wait_s`` is set, and ``if_busy`` is not ``wait``.
        """
        if self.wait_s is not None and self.if_busy != "wait":
            raise InvalidEvent(WAIT_ALONE.format(self.if_busy), field="wait_s")

    @property
    def waits_s(self) -> float:
        """The most seconds to wait."""
        return WAIT_S if self.wait_s is None else self.wait_s

    @property
    def files(self) -> Path | None:
        """The state directory."""
        return None if self.state_directory is None else state_root(self.state_directory)

    def meta(self, mode: Mode | None, session_id: str | None = None) -> Meta:
        """Return the metadata of the session's events, in this mode."""
        own = Meta(session_id=session_id or str(new_id()), mode=mode, agent_id=self.agent_id)
        return with_extra(own, self.extra)

    def first(self, meta: Meta) -> NewEvent:
        """Return the start event of the session."""
        return session_start(meta, self.session_mode, self.session_config)


def started(
    store: EventStore,
    *,
    connection: Connection | None,
    if_exists: IfExists = "raise",
    key: str | None = None,
    conversation_id: StreamId | None = None,
    tenant_id: str | None = None,
    user_id: str | None = None,
    mode: Mode = "chat",
    title: Title = None,
    parent: StreamId | None = None,
    participants: Sequence[dict[str, Any]] = (),
    config: dict[str, Any] | None = None,
    base_instructions: str | None = None,
    user_instructions: str | None = None,
    tool_policy: ToolPolicy | None = None,
    metadata: dict[str, Any] | None = None,
    **how: Any,
) -> Session:
    """Begin a conversation and its first session; see `Conversation.start`."""
    writing = _Writing(**how)
    views = patiently(
        partial(Views._of_conversations, store)
    )  # before the append: it may create tables
    owner: Owned = {"tenant_id": tenant_id, "user_id": user_id}
    if parent is not None:
        parent = store.stream(parent, **owner)
        owner = owner_within(store, parent, owner)
    chosen = _named(key, conversation_id)
    stream = store.stream(chosen, **owner)
    meta = writing.meta(mode)
    start = ConversationStart(
        mode=mode,
        title=None if callable(title) else title,
        base_instructions=base_instructions,
        user_instructions=user_instructions,
        participants=tuple(participants),
        tool_policy=tool_policy,
        config=config or {},
        metadata=metadata,
    )
    if parent is not None:
        start = inheriting(store, views, parent, start)
    events = [NewEvent(start, new_id(), meta), writing.first(meta)]
    append = partial(store.append, chosen, events, expected_version=NO_STREAM, **owner)
    try:
        done = append(connection=connection) if connection is not None else patiently(append)
    except WrongExpectedVersion as error:
        if if_exists == "open" and connection is None:
            if error.actual == len(events):
                _await_lease(store, stream)
            return _opened(store, store.stream(stream, **owner), writing)
        raise ConversationExists(stream, error.actual, key) from None
    # Epoch 0, a new stream's, and not the current one: another process may have opened it since.
    lease = (store, stream, str(meta.session_id), writing.lease_s)
    try:
        if connection is None:
            written = Acknowledged(done.anchor)
            journal = Journal(store, stream, epoch=0, version=done.version, written=written)
            begin(*lease)
        else:
            journal = Journal(store, stream, epoch=0)
            journal.begun_within(events, done, lambda _: begin(*lease))
        session = Session(
            journal,
            views,
            meta,
            next_turn=1,
            state_directory=writing.files,
            tool_policy=start.tool_policy,
        )
        if callable(title):
            session.titling = title
        return _kept(session, writing)
    except BaseException:
        KEEPER.abandon(*lease)
        raise


def _await_lease(store: EventStore, stream: UUID) -> None:
    """Wait up to a second if another process has just begun a conversation but has no lease yet.

    The lease follows the start in a transaction of its own. If the process was killed in between,
    this waits in vain once: the next session has a lease.
    """
    until = time.monotonic() + _LEASE_COMES_S
    while time.monotonic() < until and store.writer(stream) is None:
        begun = [event.data for event in store.read(stream, after=1, limit=2)]
        if len(begun) != 1 or not isinstance(begun[0], SessionStart):
            return
        time.sleep(_LOOK_AGAIN_S)


def opened(
    store: EventStore,
    conversation_id: StreamId,
    *,
    tenant_id: str | None = None,
    user_id: str | None = None,
    **how: Any,
) -> Session:
    """Open a conversation for writing; see `Conversation.open`."""
    stream = store.stream(conversation_id, tenant_id=tenant_id, user_id=user_id)
    return _opened(store, stream, _Writing(**how))


def _opened(store: EventStore, stream: UUID, writing: _Writing) -> Session:
    session_id, state = str(new_id()), writing.files
    writing.meta(None)  # refuses invalid options before any change
    claim = partial(
        claimed,
        store,
        stream,
        session_id,
        writing.if_busy,
        writing.lease_s,
        writing.waits_s,
        leaving_wait=writing.leaving_wait,
    )
    try:
        epoch = patiently(claim)
        views = patiently(partial(Views._of_conversations, store))
        look = partial(patiently, partial(left_open, store, stream))
        recovery = end_open_work(store, look, epoch)
        mode, turn, policy = patiently(partial(standing, store, stream))
        if writing.agent_id is None:
            writing = replace(writing, agent_id=patiently(partial(last_agent, store, stream)))
        meta = writing.meta(mode, session_id)
        journal = Journal(store, stream, epoch=epoch)
        journal.write([writing.first(meta)])
        if state is not None:
            _delete_files(store, stream, state)
        session = Session(
            journal,
            views,
            meta,
            next_turn=turn,
            state_directory=state,
            recovery=recovery,
            tool_policy=policy,
        )
        return _kept(session, writing)
    except ConversationNotFound:  # of `claimed`, which has no lease then
        raise
    except ConversationInUse as error:
        if writing.message_id is not None and not error.leaving:
            first_outcome(Views._of_conversations(store), stream, writing.message_id)
        raise
    except BaseException:
        KEEPER.abandon(store, stream, session_id, writing.lease_s)
        raise


def _delete_files(store: EventStore, stream: UUID, state: Path) -> None:
    """Delete files that were erased meanwhile; what prevents it does not prevent the session."""
    try:
        delete_erased(store, stream, state)
    except EventStoreError as error:
        said = "files of erased outputs were not deleted: erase again when they can go"
        _log.warning(said, conversation_id=stream, error=str(error))


def forked(
    store: EventStore,
    source: StreamId,
    *,
    before: int | None = None,
    title: str | None = None,
    key: str | None = None,
    conversation_id: StreamId | None = None,
    tenant_id: str | None = None,
    user_id: str | None = None,
    new_user_id: str | None = None,
    **how: Any,
) -> Session:
    """Begin a conversation that continues from a turn of another; see `Conversation.fork`."""
    writing = _Writing(**how)
    owner: Owned = {"tenant_id": tenant_id, "user_id": user_id}
    parent = store.stream(source, **owner)
    views, point = Views._of_conversations(store), fork_point(store, parent, before)
    meta = writing.meta(point.mode)
    try:
        done = store.fork(
            parent,
            before=point.before,
            conversation_id=_named(key, conversation_id),
            title=title,
            new_user_id=new_user_id,
            events=[writing.first(meta)],
            meta=meta,
            **owner,
        )
    except WrongExpectedVersion as error:
        raise ConversationExists(error.conversation_id, error.actual, key) from None
    stream = done.conversation_id
    written = Acknowledged(done.anchor)
    lease = (store, stream, str(meta.session_id), writing.lease_s)
    try:
        session = Session(
            Journal(store, stream, epoch=0, version=done.version, written=written),
            views,
            meta,
            next_turn=point.turn or (views.run_state(stream).last_turn or 0) + 1,
            state_directory=writing.files,
            tool_policy=point.tool_policy,
        )
        session.answers.unread = True
        begin(*lease)
        return _kept(session, writing)
    except BaseException:
        KEEPER.abandon(*lease)
        raise


def _kept(session: Session, writing: _Writing) -> Session:
    """Renew the session's lease for as long as the session object lives."""
    store, session_id = session.journal.store, str(session.meta.session_id)
    KEEPER.keep(store, session.id, session_id, writing.lease_s, session)
    return session
