"""The session in which a process writes to a conversation; both recorders use it.

`Session` makes a session's events and keeps its mode, its turns and their tokens. The journal of a
`Conversation` or an `AsyncConversation` writes the events.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from uuid import UUID

from sqlalchemy import Connection

from agent_eventstore.artifacts import ToolOutputs, read_alias
from agent_eventstore.branching import answered_again, fork_point
from agent_eventstore.errors import BlockNotOpen, ConversationEnded, TurnRunning, TurnStillOpen
from agent_eventstore.inputs import with_extra
from agent_eventstore.journal import Acknowledged, Journal, patiently
from agent_eventstore.journal_aio import AsyncJournal
from agent_eventstore.machines import Answers, Branching, TurnScript, add_usage
from agent_eventstore.machines.answers import milliseconds
from agent_eventstore.machines.run_script import RunScript
from agent_eventstore.recovery import WAIT_S, IfBusy, Recovery, claimed, end_open_work
from agent_eventstore.requests import SystemTexts
from agent_eventstore.resuming import FoundAtOpening, Upkeep, left_open
from agent_eventstore.stops import stopped_or_gone
from eventstore import NO_STREAM, EventStore, NewEvent, new_id
from eventstore.database import owner_of, require_content, seen_version, version_of
from eventstore.erasure.purge import delete_erased, state_root
from eventstore.errors import (
    ConversationExists,
    ConversationInUse,
    ConversationNotFound,
    EventStoreError,
    InvalidEvent,
    WrongExpectedVersion,
)
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    ConversationUpdate,
    Meta,
    ModeSwitch,
    Payload,
    SessionEnd,
    SessionStart,
    TokenUsage,
    ToolPolicy,
    TurnEnd,
)
from eventstore.events.bounds import LONGEST_NAME
from eventstore.events.values import Mode
from eventstore.ids import StreamId, derived_id, to_owner, uuid_in
from eventstore.leases import KEEPER, LEASE_S, begin
from eventstore.outbox import OUTBOX
from eventstore.owners import Owned
from eventstore.telemetry.log import get_logger
from projections import Views
from projections.models.open_items import OpenWork
from projections.payload_text import spoken

__all__ = [
    "IfExists",
    "JournalT",
    "OneTurn",
    "Session",
    "SessionMode",
    "Title",
    "TurnOutcome",
    "first_outcome",
    "forked",
    "opened",
    "started",
]


LEAVES_S = 1.0


"""How long an opening waits for a session of this process whose turn was stopped, in seconds."""


_MOST_ATTEMPTS = 100


_log = get_logger("agent_eventstore")


def leave_unwritten(journal: Journal, session_id: str, reason: str) -> None:
    """Leave a session's unwritten facts to the process's outbox, if there are any."""
    if journal.unwritten:
        store = journal.store
        OUTBOX.add(
            store,
            journal.conversation_id,
            session_id,
            journal,
            reason,
            on_unwritten=store.on_unwritten,
        )


class OneTurn:
    """Keeps at most one turn of a conversation open; a garbage-collected turn counts as closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: tuple[weakref.ref[object], int] | None = None

    def take(self, turn: object, number: int, conversation_id: UUID) -> None:
        """Make a turn the open one.

        Raises:
            TurnStillOpen: Another turn is open.
        """
        with self._lock:
            if self._open is not None and self._open[0]() not in (None, turn):
                raise TurnStillOpen(conversation_id, self._open[1], number)
            self._open = (weakref.ref(turn), number)

    def none(self, conversation_id: UUID, number: int) -> None:
        """Raise unless no turn is open.

        Raises:
            TurnStillOpen: A turn is open.
        """
        with self._lock:
            if self._open is not None and self._open[0]() is not None:
                raise TurnStillOpen(conversation_id, self._open[1], number)

    @property
    def is_open(self) -> bool:
        """Whether a turn is open; takes no lock."""
        found = self._open
        return found is not None and found[0]() is not None

    def leave(self, turn: object) -> None:
        """Allow the next turn to be opened."""
        with self._lock:
            if self._open is not None and self._open[0]() in (None, turn):
                self._open = None


class Session:
    """The state of a session, and the maker of its events.

    Args:
        journal: The journal that wrote the session's start.
        views: The store's views.
        meta: The metadata of all its events: session, mode, agent.
        next_turn: The number of the next turn.
        state_directory: The directory to which tool outputs are written as files.
        recovery: The recovery that opening ran; None in a new conversation.
        tool_policy: The tools that the conversation may use.
    """

    def __init__(
        self,
        journal: Journal,
        views: Views,
        meta: Meta,
        *,
        next_turn: int,
        state_directory: Path | None,
        recovery: Recovery | None = None,
        tool_policy: ToolPolicy | None = None,
    ) -> None:
        self.journal = journal
        self.id = journal.conversation_id
        self.meta = meta
        self.views = views
        self.recovery = recovery
        self.usage: TokenUsage | None = None
        self.one_turn = OneTurn()
        self.titling: Callable[[str], str] | None = None
        self.outputs = ToolOutputs(state_directory, self.id)
        if state_directory is not None:
            journal.store.state_directories.add(state_directory)
        self.upkeep = Upkeep(views, self.id, journal.version)
        self.answers = Answers(unread=recovery is not None)
        self._next_turn = next_turn
        self._numbering = threading.Lock()
        self._tool_policy = tool_policy
        self._systems = SystemTexts()
        self._started_at = time.monotonic()
        self._turns = 0
        self._closed = False
        self.ended = False
        """Whether the session's end is written; a fenced session never writes it."""
        self.destroyed = recovery is not None and recovery.found.destroyed

    def resolve(self, alias: str) -> str:
        """Return the full text that an alias names; see `Conversation.resolve`."""
        return read_alias(self.journal.store, self.views, self.id, alias)

    def turn_script(
        self,
        run_id: str | None,
        workflow_id: str | None,
        tool_policy: ToolPolicy | None = None,
        actor: str | None = None,
        message_id: str | None = None,
        extra: dict[str, Any] | None = None,
        agent_id: str | None = None,
    ) -> TurnScript:
        """Return the script of the next turn.

        Raises:
            ConversationEnded: The conversation was destroyed.
            BlockNotOpen: The conversation was closed, so its session no longer holds the lease.
        """
        if self.destroyed:
            raise ConversationEnded(self.id)
        if self.ended:
            advice = "begin turns before that, or open it again"
            raise BlockNotOpen(f"conversation {self.id} was closed: {advice}")
        for name, text in (("run_id", run_id), ("workflow_id", workflow_id)):
            if text is not None and not isinstance(text, str):
                raise InvalidEvent(f"{name} must be text, not {text!r:.80}")
        if tool_policy is not None and not isinstance(tool_policy, ToolPolicy):
            raise TypeError(f"tool_policy must be a ToolPolicy, not {tool_policy!r:.80}")
        own = with_extra(self.meta, extra)
        names = (("actor", actor), ("message_id", message_id), ("agent_id", agent_id))
        for name, value in names:
            if len(to_owner(name, value) or "") > LONGEST_NAME:
                raise InvalidEvent(f"{name} must have at most {LONGEST_NAME} characters")
        ids = None if message_id is None else posted_ids(self.id, message_id)
        with self._numbering:
            number, self._next_turn = self._next_turn, self._next_turn + 1
        where = {"turn": number, "run_id": run_id, "workflow_id": workflow_id}
        if agent_id is not None:
            where["agent_id"] = agent_id
        if run_id is not None:
            where["mode"] = "run"
        meta = own.model_copy(update=where)
        started = time.monotonic()
        policy = tool_policy if self._tool_policy is None else self._tool_policy.merge(tool_policy)
        script = TurnScript(meta, started, policy, systems=self._systems, answers=self.answers)
        script.actor, script.message_id, script.ids = actor, message_id, ids
        script.conversation_id = self.id
        return script

    def between_turns(self) -> None:
        """Refuse to change the branch while a turn is open.

        Raises:
            TurnStillOpen: A turn is open.
        """
        self.one_turn.none(self.id, self._next_turn)

    def run_script(self, run_id: str, workflow_id: str | None) -> RunScript:
        """Return the script of a run, to begin or to continue it."""
        return RunScript.of(self.meta, run_id, workflow_id)

    def events(self, *payloads: Payload, in_context: bool = True) -> list[NewEvent]:
        """Return payloads as events of this session, with new ids.

        Raises:
            InvalidEvent: A message has no content.
        """
        for payload in payloads:
            require_content(payload)
        meta = self.meta if in_context else self.meta.model_copy(update={"in_context": False})
        return [NewEvent(payload, new_id(), meta) for payload in payloads]

    def switching(self, mode: Mode, reason: str | None) -> list[NewEvent]:
        """Return the event of a mode switch."""
        switch = ModeSwitch(mode=mode, previous=self.meta.mode, reason=reason)
        return [NewEvent(switch, new_id(), self.meta.model_copy(update={"mode": mode}))]

    def switched(self, mode: Mode) -> None:
        """Use this mode for all later events."""
        self.meta = self.meta.model_copy(update={"mode": mode})

    def titled(self, title_text: str) -> list[NewEvent]:
        """Return the event with the title that the product makes from the first message, once.

        An exception is logged, not raised: lists then show the message itself.
        """
        if self.titling is None or not title_text.strip():
            return []
        make, self.titling = self.titling, None
        try:
            title = make(title_text)
            return self.events(ConversationUpdate(title=title)) if title else []
        except Exception as error:
            _log.warning("no title made", conversation_id=str(self.id), why=repr(error))
            return []

    def turn_ended(self, usage: TokenUsage | None) -> None:
        """Add a turn's tokens to the session's."""
        self._turns += 1
        self.usage = add_usage(self.usage, usage)

    def leaving(self, error: BaseException | None) -> None:
        """Have openings in this process wait a moment if a block is left because of a stop.

        Such a session ends next: its client has gone away, and may be back before it has ended.
        """
        if stopped_or_gone(error) is not None:
            KEEPER.leave(self.session_id, LEAVES_S)

    def end(self, journal: Journal, error: BaseException | None) -> None:
        """Let go of the lease, and fold what was written into the tables of the views.

        Events that are not written go to the process's outbox, which lets go of the lease once they
        are: whoever opened the conversation before that would fence them.
        """
        self.ended = True
        if journal.unwritten:
            leave_unwritten(journal, self.session_id, str(error))
        else:
            KEEPER.release(self.session_id, unwritten=self.one_turn.is_open)
            if error is None and self.upkeep.has_new(journal.version):
                self.upkeep.run(journal.version, at_end=True)

    @property
    def is_working(self) -> bool:
        """Whether a turn is open; `eventstore.leases.Keeper` reads this."""
        return self.one_turn.is_open

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.meta.session_id or ""

    def closing(self, reason: str | None) -> list[NewEvent]:
        """Return the event of the session's end, or nothing if it was returned before."""
        if self._closed:
            return []
        self._closed = True
        return self.events(
            SessionEnd(
                reason=reason,
                turn_count=self._turns,
                duration_ms=milliseconds(time.monotonic() - self._started_at),
                tokens=self.usage,
            )
        )


JournalT = TypeVar("JournalT", Journal, AsyncJournal)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """The outcome of a turn.

    Attributes:
        turn: The turn's number.
        version: The version of its first event.
        status: How it ended: ``ok``, ``error``, ``max_steps``, ``cancelled`` or
            ``aborted``; None if erased.
        text: The text of its last answer; empty if it had none, or the answer was erased.
        error: The error message, if any.
        tokens: The tokens of its model calls.
        reason: Why it was aborted: ``replaced`` or ``interrupted``.
    """

    turn: int | None
    version: int
    status: Literal["ok", "error", "max_steps", "cancelled", "aborted"] | None
    text: str = ""
    error: str | None = None
    tokens: TokenUsage | None = None
    reason: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the turn ended without an answer, so that it may be tried again."""
        return self.status in ("error", "cancelled") or (
            self.status == "aborted" and self.reason != "replaced"
        )


def posted_ids(conversation_id: UUID, message_id: str, attempt: int = 1) -> tuple[UUID, UUID]:
    """Return the event ids of a posted message: of its turn's start, and of the message."""
    which = "turn of" if attempt == 1 else f"turn {attempt} of"
    return (
        derived_id(conversation_id, which, message_id),
        derived_id(conversation_id, "message", message_id),
    )


@dataclass(frozen=True, slots=True)
class Retry:
    """How a message whose turn has failed is answered again: its event ids, and the branch."""

    ids: tuple[UUID, UUID]
    branching: Branching


def first_outcome(views: Views, conversation_id: UUID, message_id: str) -> TurnOutcome | None:
    """Return the outcome of a posted message's last turn; None if the message was not posted yet.

    Whether the turn is open is read from the open work, not from all its events.

    Raises:
        TurnRunning: The turn has not ended.
    """
    version, _ = _last_attempt(views, conversation_id, message_id)
    return None if version is None else _outcome(views, conversation_id, message_id, version)


def posted_before(
    views: Views, conversation_id: UUID, message_id: str, *, retry: bool
) -> TurnOutcome | Retry | None:
    """Return the outcome of a posted message, or how to answer it again; None if it is new.

    With ``retry`` it is answered again if its turn failed, and no other message has followed.

    Raises:
        TurnRunning: The turn has not ended.
    """
    version, attempt = _last_attempt(views, conversation_id, message_id)
    if version is None:
        return None
    outcome = _outcome(views, conversation_id, message_id, version)
    if not retry or not outcome.failed or attempt >= _MOST_ATTEMPTS:
        return outcome
    ids = posted_ids(conversation_id, message_id, attempt + 1)
    branching = answered_again(views.store, conversation_id, ids[1])
    return outcome if branching is None else Retry(ids, branching)


def _last_attempt(views: Views, conversation_id: UUID, message_id: str) -> tuple[int | None, int]:
    """Return where the last turn of a message begins, and which attempt it is."""
    version: int | None = None
    with views.store.reading() as connection:
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            start, _ = posted_ids(conversation_id, message_id, attempt)
            found = version_of(connection, conversation_id, start)
            if found is None:
                return version, attempt - 1
            version = found
    return version, _MOST_ATTEMPTS


def _outcome(views: Views, conversation_id: UUID, message_id: str, version: int) -> TurnOutcome:
    running = views.open_work(conversation_id).turn
    if running is not None and running.version == version:
        raise TurnRunning(conversation_id, running.turn, message_id)
    turn, text = None, ""
    for event in views.store.read(conversation_id, after=version - 1):
        turn = event.meta.turn if event.version == version else turn
        if event.meta.turn != turn:
            continue
        if isinstance(event.data, AssistantMessage):
            text = spoken(event.data.parts, joint="")
        if event.type == TurnEnd.type:
            end = event.data
            return TurnOutcome(
                turn=turn,
                version=version,
                status=end.status if isinstance(end, TurnEnd) else None,
                text=text,
                error=end.error if isinstance(end, TurnEnd) else None,
                tokens=end.tokens if isinstance(end, TurnEnd) else None,
                reason=end.reason if isinstance(end, TurnEnd) else None,
            )
    raise TurnRunning(conversation_id, turn, message_id)


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
    inherited = first if isinstance(first, ConversationStart) else ConversationStart()
    policy = views.tool_policy(parent)
    if policy is None:
        policy = start.tool_policy
    elif start.tool_policy is not None:
        policy = policy.merge(start.tool_policy)
    return start.model_copy(
        update={
            "base_instructions": inherited.base_instructions
            if start.base_instructions is None
            else start.base_instructions,
            "user_instructions": inherited.user_instructions
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
    mode: Mode | None = None,
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
    if if_exists == "open" and connection is None and seen_version(store, stream) > len(events):
        with suppress(ConversationNotFound):  # purged since
            return _opened(store, store.stream(stream, **owner), writing)
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
            journal.started_within(events, done, lambda _: begin(*lease))
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
        return _with_lease(session, writing)
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
        first_payloads = [event.data for event in store.read(stream, after=1, limit=2)]
        if len(first_payloads) != 1 or not isinstance(first_payloads[0], SessionStart):
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
        looks: list[FoundAtOpening] = []

        def look() -> OpenWork:
            looks.append(patiently(partial(left_open, store, stream)))
            return looks[-1].work

        recovery = end_open_work(store, look, epoch)
        if recovery.sealed:
            look()
        found = looks[-1]
        if writing.agent_id is None:
            writing = replace(writing, agent_id=found.agent_id)
        meta = writing.meta(found.mode, session_id)
        journal = Journal(store, stream, epoch=epoch)
        journal.write([writing.first(meta)])
        if state is not None:
            _delete_files(store, stream, state)
        session = Session(
            journal,
            views,
            meta,
            next_turn=found.next_turn,
            state_directory=state,
            recovery=recovery,
            tool_policy=found.tool_policy,
        )
        return _with_lease(session, writing)
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
        delete_erased(store, store.read, stream, state)
    except EventStoreError as error:
        message = "files of erased outputs were not deleted: erase again when they can go"
        _log.warning(message, conversation_id=stream, error=str(error))


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
        return _with_lease(session, writing)
    except BaseException:
        KEEPER.abandon(*lease)
        raise


def _with_lease(session: Session, writing: _Writing) -> Session:
    """Renew the session's lease for as long as the session object lives."""
    store, session_id = session.journal.store, str(session.meta.session_id)
    KEEPER.keep(store, session.id, session_id, writing.lease_s, session)
    return session
