"""`Conversation`: what an agent product holds while it talks.

Starting or opening one opens a session in the log; turns, model calls and tool calls are recorded
through it, and opening seals first what a process that died has left open (`recovery`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, Unpack

from sqlalchemy import Connection

from agent_eventstore.artifacts import ReadOutput, Tools
from agent_eventstore.branching import rewound, switched
from agent_eventstore.errors import NotCommitted
from agent_eventstore.inputs import kept_json
from agent_eventstore.opening import IfExists, SessionMode, Title, forked, opened, started
from agent_eventstore.recovery import IfBusy
from agent_eventstore.runs import ConversationRuns
from agent_eventstore.session import Session
from agent_eventstore.stops import left
from eventstore import Appended, EventStore
from eventstore.errors import ErrorType, Trace
from eventstore.events import ConversationEnd, ConversationUpdate, Payload, ToolPolicy
from eventstore.events.bounds import Metadata
from eventstore.events.values import Mode
from eventstore.ids import StreamId
from eventstore.leases import KEEPER
from eventstore.options import require_known, require_store
from eventstore.owners import Owned

__all__ = [
    "Conversation",
    "ForkOptions",
    "NewOptions",
    "OpenOptions",
    "SessionOptions",
    "StartOptions",
]


class SessionOptions(Owned, total=False):
    """What may be said of a session, however it begins.

    Attributes:
        session_mode: ``once`` for a process that runs a single turn; ``interactive`` by default.
        session_config: Model, temperature, working directory, tools, tokenizer.
        state_directory: Where tool outputs that are not shown whole are written as files, in a
            folder of the conversation's id.
        agent_id: Who writes, when several agents do.
        extra: A JSON object that all events of the session keep, at most 2 KB, such as the
            request's id; that of a turn adds to it.
    """

    session_mode: SessionMode
    session_config: dict[str, Any] | None
    state_directory: str | Path | None
    agent_id: str | None
    extra: dict[str, Any] | None


class OpenOptions(SessionOptions, total=False):
    """What may be said where a conversation is opened; `SessionOptions` besides.

    Attributes:
        tenant_id: Whose it must be; a key is looked up within this tenant.
        user_id: Whose it must be.
        if_busy: What to do while another session has it open and its process lives: ``raise``, as
            by default, ``wait`` until it is closed, or ``take_over``: fence it, and seal what it
            has open.
        lease_s: For how many seconds this session counts as alive without a sign of life; a thread
            of this process gives one three times as often.
        wait_s: How many seconds ``wait`` waits at most.
    """

    if_busy: IfBusy
    lease_s: float
    wait_s: float


class NewOptions(SessionOptions, total=False):
    """What names a conversation that begins.

    Attributes:
        key: The product's own name for it, by which it is found within the tenant: any text that
            is not a UUID, of at most 1,024 bytes. It stays when the content is erased.
        conversation_id: Its id, if the product has one; by default a new one, or the key's.
    """

    key: str | None
    conversation_id: StreamId | None


class StartOptions(NewOptions, total=False):
    """What may be said of a conversation that begins; `NewOptions` and `SessionOptions` besides.

    Attributes:
        mode: The mode in which it begins; ``chat`` by default.
        title: What a list of conversations shows, by default the first message; or a function that
            makes it of the first message, called once the first turn has ended well.
        if_exists: ``open`` to go on with the conversation of this key or id, as `Conversation.open`
            does, if there is one: what is said of a new one here is not looked at then.
        tenant_id: Whose product; any text of at most 1,024 bytes.
        user_id: Whose conversation; any text of at most 1,024 bytes.
        parent: The conversation that it is opened from, of the same owner: what is not said of the
            instructions is taken from there, and its tool policy holds here, too.
        base_instructions: The system part of later requests.
        user_instructions: What its user wants said there besides.
        participants: Who takes part, as the product describes them, each a JSON object.
        tool_policy: Which tools it may use: requests declare no others, and no other runs.
        config: Whatever else the product wants to keep with it.
        metadata: A JSON object that lists of conversations show, at most 16 KB.
        if_busy: As of `OpenOptions`, where that is what it comes to.
        lease_s: As of `OpenOptions`.
    """

    mode: Mode
    title: Title
    if_exists: IfExists
    parent: StreamId | None
    base_instructions: str | None
    user_instructions: str | None
    participants: Sequence[dict[str, Any]]
    tool_policy: ToolPolicy | None
    config: dict[str, Any] | None
    metadata: dict[str, Any] | None
    if_busy: IfBusy
    lease_s: float


class ForkOptions(NewOptions, total=False):
    """What may be said of a fork; `NewOptions` and `SessionOptions` besides.

    Attributes:
        before: The first version that is not shared, such as that of a user message that is to be
            said in other words; by default all turns are shared.
        title: What a list of conversations shows; by default the source's.
        tenant_id: The source must be this tenant's.
        user_id: The source must be this user's.
        new_user_id: Whose the fork is to be; by default the source's user's.
    """

    before: int | None
    title: str | None
    new_user_id: str | None


class Conversation(ConversationRuns):
    """A conversation and the session in which this process writes to it.

    Made by `start` or `open`; a context manager that closes the session. One writer at a time:
    whoever opens it fences all before. Turns follow each other; a turn's tools may run in threads.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session, session.journal)

    @classmethod
    def start(
        cls,
        store: EventStore,
        *,
        connection: Connection | None = None,
        **options: Unpack[StartOptions],
    ) -> Self:
        """Begin a conversation and its first session, in one transaction.

        Args:
            store: Where it is kept.
            connection: Begin in the transaction that it is in, of `EventStore.transaction` or the
                product's own. Commit it before anything else is done with the conversation.
            **options: Those of `StartOptions`.

        Raises:
            ConversationExists: There is a conversation of this id or key already.
            OwnerMismatch: There is one, which belongs to another tenant or user.
            ConversationNotFound: There is no such parent.
            InvalidEvent: The key is a UUID, or stands beside an id; or a name, the metadata or
                ``extra`` cannot be kept.
        """
        require_store(store, EventStore)
        require_known(options, StartOptions)
        return cls(started(store, connection=connection, **options))

    @classmethod
    def open(
        cls, store: EventStore, conversation_id: StreamId, **options: Unpack[OpenOptions]
    ) -> Self:
        """Open a conversation for writing: fence earlier writers, seal open work, begin a session.

        `recovery` then tells what was sealed, and which calls may be executed again. Files in the
        state directory whose output has been erased meanwhile are deleted.

        Args:
            store: Where it is kept.
            conversation_id: Its id, or the product's key for it.
            **options: Those of `OpenOptions`.

        Raises:
            ConversationInUse: Another session has it open.
            ConversationNotFound: No conversation has this id or key.
            OwnerMismatch: It belongs to another tenant or user.
            OSError: A file of an erased output cannot be deleted.
        """
        require_store(store, EventStore)
        require_known(options, OpenOptions)
        return cls(opened(store, conversation_id, **options))

    @classmethod
    def fork(cls, store: EventStore, source: StreamId, **options: Unpack[ForkOptions]) -> Self:
        """Begin a conversation that goes on from another's turn, and its first session.

        No event is copied: what lies before is shared, in one transaction as long as an append,
        and the source goes on as it likes. A turn is shared whole or not at all: a version within
        one stands for its beginning, and without a version a turn that is still open is left out.

        Args:
            store: Where the source is kept.
            source: The conversation to go on from.
            **options: Those of `ForkOptions`.

        Raises:
            ConversationNotFound: There is no such source.
            OwnerMismatch: It belongs to another tenant or user.
            ForkRefused: There is nothing before that version to be shared.
            ConversationExists: There is a conversation of this id or key already.
        """
        require_store(store, EventStore)
        require_known(options, ForkOptions)
        return cls(forked(store, source, **options))

    @property
    def tools(self) -> Tools:
        """The tools that come with the conversation, for the product to declare and to run."""
        return Tools(ReadOutput(self._journal.store, self._session.resolve))

    def rewind(self, version: int) -> Appended | None:
        """Go back to before a turn: it and all after it leave the active branch.

        It stays an alternative to what is said next, and `switch_branch` goes back to it.

        Args:
            version: Any version of the turn, on the active branch.

        Raises:
            TurnStillOpen: A turn is open; let it end, or stop it.
            BranchRefused: The active branch has no such version.
        """
        self._session.between_turns()
        switch = rewound(self._journal.store, self.id, version)
        return None if switch is None else self.append(switch)

    def switch_branch(self, version: int) -> Appended | None:
        """Go back to an alternative, as it was left; None if it is the active one.

        Args:
            version: By which `Views.branches` names it.

        Raises:
            TurnStillOpen: A turn is open; let it end, or stop it.
            BranchRefused: The active branch has no such alternative.
        """
        self._session.between_turns()
        switch = switched(self._journal.store, self.id, version)
        return None if switch is None else self.append(switch)

    def append(self, *payloads: Payload, in_context: bool = True) -> Appended | None:
        """Append further facts of this session: instructions, notebook, retractions, summaries."""
        return self._journal.write(self._session.events(*payloads, in_context=in_context))

    def rename(self, title: str) -> None:
        """Change what lists of conversations show."""
        self.append(ConversationUpdate(title=title))

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Set what lists of conversations show as ``metadata``, in the place of what was there.

        Raises:
            InvalidEvent: It is no JSON object of at most 16 KB.
        """
        kept = kept_json(Metadata, "metadata", metadata)
        self.append(ConversationUpdate(metadata=kept))

    def archive(self) -> None:
        """Put the conversation away: lists show it as ``archived``."""
        self.append(ConversationUpdate(archived=True))

    def unarchive(self) -> None:
        """Take the conversation out again."""
        self.append(ConversationUpdate(archived=False))

    def destroy(self, message: str | None = None) -> None:
        """End the conversation for good: it takes no more turns, and lists say ``destroyed``."""
        self.append(ConversationEnd(reason="destroyed", message=message))
        self._session.destroyed = True

    def write_again(self) -> Appended | None:
        """Write again what the database has lost of this session, after `LogWentBack`.

        The same events at the same versions; None if nothing is missing. A process remembers its
        last 256 events, four megabytes at most; beyond that, open the conversation again.

        Raises:
            WrongExpectedVersion: The log does not stand where the known events began.
            LogWentBack: Events of others are lost among them.
        """
        return self._journal.write_again()

    def switch_mode(self, mode: Mode, reason: str | None = None) -> None:
        """Switch the mode; the history stays as it is."""
        self._journal.write(self._session.switching(mode, reason))
        self._session.switched(mode)

    def resolve(self, alias: str) -> str:
        """Return the whole text that an alias names.

        Args:
            alias: Of a tool result, under ``@state/logs/tool-results/``, of a user message, under
                ``@state/logs/messages/``, or one under
                ``@project/artifacts/`` that a result was given, or an artifact of a run.

        Raises:
            UnknownAlias: It names nothing of this conversation.
        """
        return self._session.resolve(alias)

    def close(self, reason: str | None = None) -> None:
        """End the session; closing again does nothing but to write what is not written yet.

        Raises:
            FactsNotWritten: What has happened could not be written, and is kept.
        """
        self._journal.close(self._session.closing(reason))
        self._session.ended = True
        KEEPER.release(self.session_id)

    def __enter__(self) -> Self:
        """Return the conversation itself."""
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Trace) -> None:
        """End the session."""
        with suppress(*((NotCommitted,) if error is not None else ())):
            self.close(None if error is None else left(error) or type(error).__name__)
