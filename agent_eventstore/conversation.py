"""`Conversation`: the object through which an agent product records a conversation.

Starting or opening a conversation begins a session in the log, in which turns, model calls and tool
calls are recorded. Opening first seals the work that a dead process left open (`recovery`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, Unpack

from sqlalchemy import Connection

from agent_eventstore.artifacts import ReadOutput, Tools
from agent_eventstore.branching import rewound, switched
from agent_eventstore.errors import NotCommitted
from agent_eventstore.inputs import stored_json
from agent_eventstore.journal import Journal
from agent_eventstore.open_conversation import OpenConversation
from agent_eventstore.recovery import IfBusy
from agent_eventstore.resuming import ResumedRun, resume
from agent_eventstore.run_blocks import Run
from agent_eventstore.session import (
    IfExists,
    Session,
    SessionMode,
    Title,
    forked,
    opened,
    started,
)
from agent_eventstore.stops import error_text, stopped_or_gone
from agent_eventstore.turn import Turn
from eventstore import Appended, EventStore, new_id
from eventstore.arguments import require_known, require_store
from eventstore.errors import ErrorType, EventStoreError, Traceback
from eventstore.events import (
    ConversationEnd,
    ConversationUpdate,
    Payload,
    RunNode,
    ToolPolicy,
)
from eventstore.events.bounds import Metadata
from eventstore.events.values import Mode
from eventstore.ids import StreamId
from eventstore.leases import ENDS_S, KEEPER
from eventstore.owners import Owned
from projections.models.runs import RunRow

__all__ = [
    "Conversation",
    "ForkOptions",
    "NewOptions",
    "OpenOptions",
    "SessionOptions",
    "StartOptions",
    "closed_on_error",
]


class SessionOptions(Owned, total=False):
    """Options of a session.

    Attributes:
        session_mode: ``once`` for a process that runs a single turn; ``interactive`` by default.
        session_config: Model, temperature, working directory, tools, tokenizer.
        state_directory: The directory to which tool outputs that are not shown in full are written
            as files, in a folder named by the conversation's id.
        agent_id: The agent that writes, if there are several. Opening a conversation restores the
            agent of its last session, and so its persona.
        extra: A JSON object stored with all events of the session, such as the request's id, at
            most 2 KB; a turn's ``extra`` adds to it.
    """

    session_mode: SessionMode
    session_config: dict[str, Any] | None
    state_directory: str | Path | None
    agent_id: str | None
    extra: dict[str, Any] | None


class OpenOptions(SessionOptions, total=False):
    """Options for opening a conversation, in addition to `SessionOptions`.

    Attributes:
        tenant_id: The tenant that must own it; a key is looked up within this tenant.
        user_id: The user that must own it.
        if_busy: What to do if another session with a live process has it open: ``raise`` (the
            default), ``wait`` until it is closed, or ``take_over``: fence it and seal its open
            work.
        lease_s: The length of this session's lease, in seconds; a thread of this process renews it
            after every third of that time.
        wait_s: The most seconds that ``wait`` waits; refused with any other ``if_busy``.
        message_id: The id of the message that is about to be posted; see `Conversation.turn`. If
            its turn runs in the other session, in any process, opening raises `TurnRunning`
            instead of `ConversationInUse`.
    """

    if_busy: IfBusy
    lease_s: float
    wait_s: float
    message_id: str | None


class NewOptions(SessionOptions, total=False):
    """Options that name a new conversation.

    Attributes:
        key: Your product's own name for it, unique within the tenant: any text that is not a UUID,
            of at most 1,024 bytes. It remains when the content is erased.
        conversation_id: Its id, if your product has one; by default a new id, or one derived from
            the key.
    """

    key: str | None
    conversation_id: StreamId | None


class StartOptions(NewOptions, total=False):
    """Options of a new conversation, in addition to `NewOptions` and `SessionOptions`.

    Attributes:
        mode: The mode in which it begins, such as ``chat``: its requests begin with a system part
            for it. By default it has none, and nothing is added to its requests.
        title: The title in lists of conversations, by default the first message; or a function
            that makes it from the first message, called when the first turn has succeeded.
        if_exists: ``open`` to open an existing conversation with this key or id, as
            `Conversation.open` does; the options of a new one are then ignored.
        tenant_id: The tenant that owns it; any text of at most 1,024 bytes.
        user_id: The user that owns it; any text of at most 1,024 bytes.
        parent: The conversation that it is opened from, of the same owner: instructions that are
            not given are inherited, and the parent's tool policy applies too.
        base_instructions: The system part of later requests.
        user_instructions: The user's instructions, added to the system part.
        participants: The participants, as your product describes them, each a JSON object.
        tool_policy: The tools it may use: requests declare no others, and no others run.
        config: Any other data that your product wants to store with it.
        metadata: A JSON object that lists of conversations show, at most 16 KB.
        if_busy: See `OpenOptions`; applies if an existing conversation is opened, as do
            ``wait_s`` and ``message_id``.
        lease_s: See `OpenOptions`.
    """

    mode: Mode | None
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
    wait_s: float
    message_id: str | None


class ForkOptions(NewOptions, total=False):
    """Options of a fork, in addition to `NewOptions` and `SessionOptions`.

    Attributes:
        before: The first version that is not shared, such as that of a user message to reword; by
            default all turns are shared.
        title: The title in lists of conversations; by default the source's.
        tenant_id: The tenant that must own the source.
        user_id: The user that must own the source.
        new_user_id: The user that owns the fork; by default the source's.
    """

    before: int | None
    title: str | None
    new_user_id: str | None


class Conversation(OpenConversation[Journal, Turn]):
    """A conversation and the session in which this process writes to it.

    `start`, `open` and `fork` return one; it is a context manager that closes the session. A
    conversation has one writer at a time: opening it fences all earlier writers. Turns run one
    after the other; a turn's tools may run in threads.
    """

    _kind = Turn
    _waits = True

    def start_run(
        self,
        workflow_id: str,
        *,
        directive: str = "",
        nodes: Sequence[RunNode] = (),
        post_run_protocol: str | None = None,
        config: dict[str, Any] | None = None,
        run_id: str | None = None,
    ) -> Run:
        """Begin a run of a workflow; its start is durable when this returns.

        Args:
            workflow_id: The workflow.
            directive: The run's instructions, which requests in Run mode contain.
            nodes: The workflow's nodes, in order.
            post_run_protocol: Further instructions, which requests contain once the run is
                completed.
            config: Other data that your product needs when it resumes the run.
            run_id: The run's id, if your product has one; by default a new one.
        """
        script = self._session.run_script(run_id or str(new_id()), workflow_id)
        self._journal.write(script.begin(directive, nodes, post_run_protocol, config))
        return Run(self._journal, script, self.turn)

    def resume_run(self, run_id: str | None = None) -> ResumedRun[Run] | None:
        """Return how to continue a run; None if it has ended, or if no run is open.

        Args:
            run_id: The run; by default the one that was begun or stepped through last.

        Raises:
            ValueError: The conversation has no run with this id.
        """

        def handle(row: RunRow) -> Run:
            script = self._session.run_script(row.run_id, row.workflow_id)
            return Run(self._journal, script, self.turn)

        store = self._journal.store
        return resume(store, self.views, self.id, run_id, handle)

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
            store: The store.
            connection: Begin in the transaction of this connection, which is from
                `EventStore.transaction` or your product's own. Commit it before you do anything
                else with the conversation.
            **options: Those of `StartOptions`.

        Raises:
            ConversationExists: A conversation with this id or key already exists.
            OwnerMismatch: It exists, and belongs to another tenant or user.
            ConversationNotFound: The parent does not exist.
            InvalidEvent: The key is a UUID, or both key and id are given; or a name, the metadata
                or ``extra`` cannot be stored.
        """
        require_store(store, EventStore)
        require_known(options, StartOptions)
        return cls(started(store, connection=connection, **options))

    @classmethod
    def open(
        cls, store: EventStore, conversation_id: StreamId, **options: Unpack[OpenOptions]
    ) -> Self:
        """Open a conversation for writing: fence earlier writers, seal open work, begin a session.

        `recovery` then returns what was sealed, and which calls may be executed again. Files in the
        state directory whose output has been erased meanwhile are deleted.

        Args:
            store: The store.
            conversation_id: Its id, or your product's key for it.
            **options: Those of `OpenOptions`.

        Raises:
            ConversationInUse: Another session has it open. One of this process that is about to
                end, because its client has gone away, is waited for first.
            TurnRunning: That session runs the turn of ``message_id``.
            ConversationNotFound: No conversation has this id or key.
            OwnerMismatch: It belongs to another tenant or user.
            OSError: A file of an erased output cannot be deleted.
        """
        require_store(store, EventStore)
        require_known(options, OpenOptions)
        return cls(opened(store, conversation_id, **options))

    @classmethod
    def fork(cls, store: EventStore, source: StreamId, **options: Unpack[ForkOptions]) -> Self:
        """Begin a conversation that continues from a turn of another one, and its first session.

        No event is copied: the fork shares the earlier events. This takes one transaction, as short
        as an append, and does not affect the source. A turn is shared whole or not at all: a
        version within a turn counts as its start, and without a version an open turn is left out.

        Args:
            store: The store of the source.
            source: The conversation to continue from.
            **options: Those of `ForkOptions`.

        Raises:
            ConversationNotFound: The source does not exist.
            OwnerMismatch: The source belongs to another tenant or user.
            ForkRefused: There is nothing to share before that version.
            ConversationExists: A conversation with this id or key already exists.
        """
        require_store(store, EventStore)
        require_known(options, ForkOptions)
        return cls(forked(store, source, **options))

    @property
    def tools(self) -> Tools:
        """The tools that the conversation provides, for your product to declare and to run."""
        return Tools(ReadOutput(self._journal.store, self._session.resolve))

    def rewind(self, version: int) -> Appended | None:
        """Go back to before a turn: it and all later events leave the active branch.

        The turn remains an alternative to the next message; `switch_branch` returns to it.

        Args:
            version: Any version of the turn, on the active branch.

        Returns:
            The append, or None if there was nothing to rewind.

        Raises:
            TurnStillOpen: A turn is open; let it end, or stop it.
            BranchRefused: The active branch has no such version.
        """
        self._session.between_turns()
        switch = rewound(self._journal.store, self.id, version)
        return None if switch is None else self.append(switch)

    def switch_branch(self, version: int) -> Appended | None:
        """Switch to an alternative, as it was left; return None if it is active already.

        Args:
            version: The alternative's version in `Views.branches`.

        Raises:
            TurnStillOpen: A turn is open; let it end, or stop it.
            BranchRefused: The active branch has no such alternative.
        """
        self._session.between_turns()
        switch = switched(self._journal.store, self.id, version)
        return None if switch is None else self.append(switch)

    def append(self, *payloads: Payload, in_context: bool = True) -> Appended | None:
        """Append other events to this session: instructions, notebook, retractions, summaries."""
        return self._journal.write(self._session.events(*payloads, in_context=in_context))

    def rename(self, title: str) -> None:
        """Change the title that lists of conversations show."""
        self.append(ConversationUpdate(title=title))

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Replace the ``metadata`` that lists of conversations show.

        Raises:
            InvalidEvent: It is not a JSON object of at most 16 KB.
        """
        stored = stored_json(Metadata, "metadata", metadata)
        self.append(ConversationUpdate(metadata=stored))

    def archive(self) -> None:
        """Archive the conversation: lists show it as ``archived``."""
        self.append(ConversationUpdate(archived=True))

    def unarchive(self) -> None:
        """Undo `archive`."""
        self.append(ConversationUpdate(archived=False))

    def destroy(self, message: str | None = None) -> None:
        """End the conversation for good: it accepts no more turns; lists say ``destroyed``."""
        self.append(ConversationEnd(reason="destroyed", message=message))
        self._session.destroyed = True

    def write_again(self) -> Appended | None:
        """Append again the events of this session that the database has lost, after `LogWentBack`.

        It appends the same events at the same versions; it returns None if nothing is missing. A
        process remembers its last 256 events, up to four megabytes; if more are lost, open the
        conversation again.

        Raises:
            WrongExpectedVersion: The log is not at the version before the first remembered event.
            LogWentBack: Events of other writers are lost among them.
        """
        return self._journal.write_again()

    def switch_mode(self, mode: Mode, reason: str | None = None) -> None:
        """Switch the mode; the history is unchanged."""
        self._journal.write(self._session.switching(mode, reason))
        self._session.switched(mode)

    def resolve(self, alias: str) -> str:
        """Return the full text that an alias names.

        Args:
            alias: The alias of a tool result, under ``@state/logs/tool-results/``; of a user
                message, under ``@state/logs/messages/``; or, under ``@project/artifacts/``, of a
                tool result that was recorded with it, or of a run's artifact.

        Raises:
            UnknownAlias: It names nothing in this conversation.
        """
        return self._session.resolve(alias)

    def close(self, reason: str | None = None) -> None:
        """End the session; closing again only writes events that are not written yet.

        The session lets go of its lease in any case, so that the conversation can be opened again.

        Raises:
            FactsNotWritten: Some events could not be written; they are kept in memory, and written
                once the database answers.
        """
        KEEPER.leave(self.session_id, ENDS_S)
        failed: BaseException | None = None
        try:
            self._journal.close(self._session.closing(reason))
        except BaseException as error:
            failed = error
            raise
        finally:
            self._session.end(self._journal, failed)

    def __enter__(self) -> Self:
        """Return the conversation itself."""
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """End the session."""
        with suppress(*((NotCommitted,) if error is not None else ())):
            self.close(None if error is None else stopped_or_gone(error) or type(error).__name__)


@contextmanager
def closed_on_error(conversation: Conversation) -> Iterator[None]:
    """Close a conversation if the block that builds something around it raises."""
    try:
        yield
    except BaseException as error:
        with suppress(EventStoreError):
            conversation.close(error_text(error))
        raise
