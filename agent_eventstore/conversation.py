"""`Conversation`: what an agent product holds while it talks.

Starting or opening one opens a session in the log; turns, model calls and tool calls are recorded
through it, and opening seals first what a process that died has left open (`recovery`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Self, Unpack

from sqlalchemy import Connection

from agent_eventstore.artifacts import ReadOutput, Tools
from agent_eventstore.branching import rewound, switched
from agent_eventstore.current import Plan
from agent_eventstore.errors import NotCommitted
from agent_eventstore.inputs import kept_json
from agent_eventstore.machines import TurnScript
from agent_eventstore.opening import (
    ForkOptions,
    OpenOptions,
    StartOptions,
    forked,
    opened,
    started,
)
from agent_eventstore.runs import ConversationRuns
from agent_eventstore.session import Session
from agent_eventstore.stops import left
from agent_eventstore.turn import Turn
from eventstore import Appended, EventStore
from eventstore.errors import ErrorType, Trace
from eventstore.events import ConversationEnd, ConversationUpdate, Payload, UserMessage
from eventstore.events.bounds import Metadata
from eventstore.events.values import Mode
from eventstore.ids import StreamId
from eventstore.leases import KEEPER

__all__ = ["Conversation"]


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
        return cls(forked(store, source, **options))

    @property
    def tools(self) -> Tools:
        """The tools that come with the conversation, for the product to declare and to run."""
        return Tools(ReadOutput(self._journal.store, self._session.resolve))

    def _turn(
        self,
        script: TurnScript,
        said: UserMessage | None,
        plan: Plan | None = None,
        connection: Any = None,
    ) -> Turn:
        return Turn(self._journal, self._session, script, said, plan, connection)

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
        KEEPER.release(self.session_id)

    def __enter__(self) -> Self:
        """Return the conversation itself."""
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Trace) -> None:
        """End the session."""
        with suppress(*((NotCommitted,) if error is not None else ())):
            self.close(None if error is None else left(error) or type(error).__name__)
