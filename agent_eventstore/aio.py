"""`AsyncConversation`: `Conversation` for event loops, with the same names.

Starting, opening and forking run the synchronous methods in a thread, since they happen only once.
`agent_eventstore.turn_aio` has the asynchronous turns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack
from uuid import UUID

from sqlalchemy import Connection

from agent_eventstore.artifacts import AsyncReadOutput, AsyncTools
from agent_eventstore.branching import rewound, switched
from agent_eventstore.conversation import Conversation, ForkOptions, OpenOptions, StartOptions
from agent_eventstore.errors import NotCommitted
from agent_eventstore.inputs import stored_json
from agent_eventstore.journal_aio import AsyncJournal
from agent_eventstore.open_conversation import OpenConversation
from agent_eventstore.recovery import AGAIN_S, SOON_S, WAIT_S
from agent_eventstore.resuming import ResumedRun, resume
from agent_eventstore.run_blocks import AsyncRun
from agent_eventstore.session import Session, forked, opened, started
from agent_eventstore.stops import BY_SOMEBODY, stopped_or_gone
from agent_eventstore.turn_aio import AsyncTurn
from eventstore import Appended, AsyncEventStore, EventStore, new_id
from eventstore.arguments import require_known, require_store
from eventstore.errors import ConversationInUse, ErrorType, Traceback
from eventstore.events import (
    BranchSwitch,
    ConversationEnd,
    ConversationUpdate,
    Payload,
    RunNode,
)
from eventstore.events.bounds import Metadata
from eventstore.events.values import Mode
from eventstore.ids import StreamId
from eventstore.leases import ENDS_S, KEEPER
from eventstore.threads import finish, made_in_thread, to_thread
from projections.models.runs import RunRow

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["AsyncConversation"]


class AsyncConversation(OpenConversation[AsyncJournal, AsyncTurn]):
    """A conversation and the session in which this process writes to it; see `Conversation`."""

    _kind = AsyncTurn
    _waits = False

    async def start_run(
        self,
        workflow_id: str,
        *,
        directive: str = "",
        nodes: Sequence[RunNode] = (),
        post_run_protocol: str | None = None,
        config: dict[str, Any] | None = None,
        run_id: str | None = None,
    ) -> AsyncRun:
        """Begin a run of a workflow; see `Conversation.start_run`."""
        script = self._session.run_script(run_id or str(new_id()), workflow_id)
        await self._journal.write(script.begin(directive, nodes, post_run_protocol, config))
        return AsyncRun(self._journal, script, self.turn)

    async def resume_run(self, run_id: str | None = None) -> ResumedRun[AsyncRun] | None:
        """Return how to continue a run; see `Conversation.resume_run`."""
        session = self._session

        def handle(row: RunRow) -> AsyncRun:
            script = session.run_script(row.run_id, row.workflow_id)
            return AsyncRun(self._journal, script, self.turn)

        store = self._journal.store.store
        return await to_thread(resume, store, session.views, session.id, run_id, handle)

    def __init__(self, store: AsyncEventStore, session: Session) -> None:
        opened = session.journal
        journal = AsyncJournal(
            store,
            session.id,
            epoch=opened.epoch,
            version=opened.version,
            written=opened.written,
            started=opened.started,
        )
        super().__init__(session, journal)

    @classmethod
    async def start(
        cls,
        store: AsyncEventStore,
        *,
        connection: Connection | AsyncConnection | None = None,
        **options: Unpack[StartOptions],
    ) -> Self:
        """Begin a conversation and its first session, in one transaction.

        Args:
            store: The store.
            connection: Begin in the transaction of this connection; see `Conversation.start`.
            **options: ``key`` or ``conversation_id``, ``if_exists``, ``if_busy`` with ``wait_s``
                and ``lease_s``, ``message_id``; the owner: ``tenant_id``, ``user_id``; ``mode``,
                ``title``, ``base_instructions``, ``user_instructions``, ``tool_policy``,
                ``participants``, ``parent``, ``config``, ``metadata``; of the session:
                ``agent_id``, ``extra``, ``state_directory``, ``session_mode``,
                ``session_config``. `StartOptions` describes each.

        Raises:
            ConversationExists: A conversation with this id or key already exists.
            OwnerMismatch: It exists, and belongs to another tenant or user.
            ConversationNotFound: The parent does not exist.
            InvalidEvent: The key is a UUID, or both key and id are given; or a name, the metadata
                or ``extra`` cannot be stored.
        """
        require_store(store, AsyncEventStore)
        starting = partial(Conversation.start, store.store, **options)
        if connection is None:
            require_known(options, StartOptions)
            beginning = partial(started, store.store, connection=None)
            return cls(store, await _waiting(beginning, dict(options)))
        if isinstance(connection, Connection):
            made = await to_thread(starting, connection=connection)
        else:
            made = await connection.run_sync(lambda mine: starting(connection=mine))
        return cls(store, made._session)

    @classmethod
    async def open(
        cls, store: AsyncEventStore, conversation_id: StreamId, **options: Unpack[OpenOptions]
    ) -> Self:
        """Open a conversation for writing; see `Conversation.open`.

        A task that is cancelled while it waits for another session has changed nothing.
        """
        require_store(store, AsyncEventStore)
        require_known(options, OpenOptions)
        opening = partial(opened, store.store, conversation_id)
        return cls(store, await _waiting(opening, dict(options)))

    @classmethod
    async def fork(
        cls, store: AsyncEventStore, source: StreamId, **options: Unpack[ForkOptions]
    ) -> Self:
        """Begin a conversation that continues from a turn of another; see `Conversation.fork`."""
        require_store(store, AsyncEventStore)
        require_known(options, ForkOptions)
        return cls(
            store, await made_in_thread(forked, _close_unused, store.store, source, **options)
        )

    @property
    def tools(self) -> AsyncTools:
        """The tools that the conversation provides; see `Conversation.tools`."""
        session = self._session
        return AsyncTools(AsyncReadOutput(session.views.store, session.resolve))

    async def rewind(self, version: int) -> Appended | None:
        """Go back to before a turn; see `Conversation.rewind`."""
        return await self._switch(rewound, version)

    async def switch_branch(self, version: int) -> Appended | None:
        """Switch to an alternative; see `Conversation.switch_branch`."""
        return await self._switch(switched, version)

    async def _switch(
        self, found: Callable[[EventStore, UUID, int], BranchSwitch | None], version: int
    ) -> Appended | None:
        self._session.between_turns()
        switch = await to_thread(found, self._journal.store.store, self.id, version)
        return None if switch is None else await self.append(switch)

    async def append(self, *payloads: Payload, in_context: bool = True) -> Appended | None:
        """Append other events to this session; see `Conversation.append`."""
        return await self._journal.write(self._session.events(*payloads, in_context=in_context))

    async def rename(self, title: str) -> None:
        """Change the title that lists of conversations show."""
        await self.append(ConversationUpdate(title=title))

    async def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Replace the ``metadata`` that lists show; see `Conversation.set_metadata`."""
        stored = stored_json(Metadata, "metadata", metadata)
        await self.append(ConversationUpdate(metadata=stored))

    async def archive(self) -> None:
        """Archive the conversation; see `Conversation.archive`."""
        await self.append(ConversationUpdate(archived=True))

    async def unarchive(self) -> None:
        """Undo `archive`; see `Conversation.unarchive`."""
        await self.append(ConversationUpdate(archived=False))

    async def destroy(self, message: str | None = None) -> None:
        """End the conversation for good; see `Conversation.destroy`."""
        await self.append(ConversationEnd(reason="destroyed", message=message))
        self._session.destroyed = True

    async def write_again(self) -> Appended | None:
        """Append lost events again; see `Conversation.write_again`."""
        return await self._journal.write_again()

    async def switch_mode(self, mode: Mode, reason: str | None = None) -> None:
        """Switch the mode; the history is unchanged."""
        await self._journal.write(self._session.switching(mode, reason))
        self._session.switched(mode)

    async def resolve(self, alias: str) -> str:
        """Return the full text that an alias names; see `Conversation.resolve`."""
        return await to_thread(self._session.resolve, alias)

    async def close(self, reason: str | None = None) -> None:
        """End the session, even if the task is cancelled meanwhile; see `Conversation.close`."""
        await finish(self._close(reason))

    async def _close(self, reason: str | None) -> None:
        KEEPER.leave(self.session_id, ENDS_S)
        failed: BaseException | None = None
        try:
            await self._journal.close(self._session.closing(reason))
        except BaseException as error:
            failed = error
            raise
        finally:
            await to_thread(self._session.end, self._journal.successor, failed)

    async def __aenter__(self) -> Self:
        """Return the conversation itself."""
        return self

    async def __aexit__(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> None:
        """End the session."""
        with suppress(*((NotCommitted,) if error is not None else ())):
            await self.close(
                None if error is None else stopped_or_gone(error) or type(error).__name__
            )


async def _waiting(opening: Callable[..., Session], options: dict[str, Any]) -> Session:
    """Open in a thread, and wait for another session in the event loop."""
    waits = options.get("if_busy") == "wait"
    until, soon = time.monotonic(), SOON_S
    if waits:
        options["if_busy"] = "raise"
        until += options.pop("wait_s", WAIT_S)
    while True:
        try:
            return await made_in_thread(opening, _close_unused, leaving_wait=False, **options)
        except ConversationInUse as error:
            if not error.leaving and time.monotonic() >= until:
                raise
            pause = soon if error.leaving else AGAIN_S
            soon = min(2 * soon, AGAIN_S)  # many may wait, and each looks in a transaction
        await asyncio.sleep(pause)


def _close_unused(session: Session) -> None:
    """Close a session whose opening was cancelled meanwhile."""
    Conversation(session).close(BY_SOMEBODY)
