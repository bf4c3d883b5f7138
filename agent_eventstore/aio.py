"""`AsyncConversation`: `Conversation` for event loops, with the same names.

Starting and opening run the synchronous ones in a thread, since they happen once; what happens in
every turn is in `agent_eventstore.turn_aio`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from sqlalchemy import Connection

from agent_eventstore.artifacts import AsyncReadOutput, AsyncTools
from agent_eventstore.branching import rewound, switched
from agent_eventstore.conversation import Conversation
from agent_eventstore.current import Plan
from agent_eventstore.errors import NotCommitted
from agent_eventstore.inputs import kept_json
from agent_eventstore.journal_aio import AsyncJournal, finish
from agent_eventstore.machines import TurnScript
from agent_eventstore.opening import IfExists, SessionMode, Title
from agent_eventstore.recovery import AGAIN_S, WAIT_S, IfBusy
from agent_eventstore.runs import AsyncConversationRuns
from agent_eventstore.session import Session
from agent_eventstore.stops import left
from agent_eventstore.turn_aio import AsyncTurn
from eventstore import Appended, AsyncEventStore, EventStore
from eventstore.errors import ConversationInUse
from eventstore.events import (
    BranchSwitch,
    ConversationEnd,
    ConversationUpdate,
    Payload,
    ToolPolicy,
    UserMessage,
)
from eventstore.events.bounds import Metadata
from eventstore.events.values import Mode
from eventstore.ids import StreamId
from eventstore.leases import KEEPER, LEASE_S

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["AsyncConversation"]


class AsyncConversation(AsyncConversationRuns):
    """A conversation and the session in which this process writes to it; see `Conversation`."""

    def __init__(self, store: AsyncEventStore, session: Session) -> None:
        opened = session.journal
        journal = AsyncJournal(
            store,
            session.id,
            epoch=opened.epoch,
            version=opened.version,
            written=opened.written,
            begun=opened.begun,
        )
        super().__init__(session, journal)

    @classmethod
    async def start(
        cls,
        store: AsyncEventStore,
        *,
        mode: Mode = "chat",
        title: Title = None,
        key: str | None = None,
        if_exists: IfExists = "raise",
        conversation_id: StreamId | None = None,
        tenant_id: str | None = None,
        user_id: str | None = None,
        parent: StreamId | None = None,
        base_instructions: str | None = None,
        user_instructions: str | None = None,
        participants: Sequence[dict[str, Any]] = (),
        tool_policy: ToolPolicy | None = None,
        config: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        session_mode: SessionMode = "interactive",
        session_config: dict[str, Any] | None = None,
        state_directory: str | Path | None = None,
        agent_id: str | None = None,
        extra: dict[str, Any] | None = None,
        if_busy: IfBusy = "raise",
        lease_s: float = LEASE_S,
        connection: Connection | AsyncConnection | None = None,
    ) -> Self:
        """Begin a conversation and its first session; see `Conversation.start`."""
        starting = partial(
            Conversation.start,
            store.store,
            mode=mode,
            title=title,
            key=key,
            if_exists=if_exists,
            conversation_id=conversation_id,
            tenant_id=tenant_id,
            user_id=user_id,
            parent=parent,
            base_instructions=base_instructions,
            user_instructions=user_instructions,
            participants=participants,
            tool_policy=tool_policy,
            config=config,
            metadata=metadata,
            session_mode=session_mode,
            session_config=session_config,
            state_directory=state_directory,
            agent_id=agent_id,
            extra=extra,
            if_busy=if_busy,
            lease_s=lease_s,
        )
        if connection is None or isinstance(connection, Connection):
            made = await asyncio.to_thread(starting, connection=connection)
        else:
            made = await connection.run_sync(lambda mine: starting(connection=mine))
        return cls(store, made._session)

    @classmethod
    async def open(
        cls,
        store: AsyncEventStore,
        conversation_id: StreamId,
        *,
        tenant_id: str | None = None,
        user_id: str | None = None,
        session_mode: SessionMode = "interactive",
        session_config: dict[str, Any] | None = None,
        state_directory: str | Path | None = None,
        agent_id: str | None = None,
        extra: dict[str, Any] | None = None,
        if_busy: IfBusy = "raise",
        lease_s: float = LEASE_S,
        wait_s: float = WAIT_S,
    ) -> Self:
        """Open a conversation for writing; see `Conversation.open`.

        Whoever is cancelled while it waits for another session has changed nothing.
        """
        opening = partial(
            Conversation.open,
            store.store,
            conversation_id,
            tenant_id=tenant_id,
            user_id=user_id,
            session_mode=session_mode,
            session_config=session_config,
            state_directory=state_directory,
            agent_id=agent_id,
            extra=extra,
            if_busy="raise" if if_busy == "wait" else if_busy,
            lease_s=lease_s,
        )
        until = time.monotonic() + (wait_s if if_busy == "wait" else 0)
        while True:
            try:
                return cls(store, (await asyncio.to_thread(opening))._session)
            except ConversationInUse:
                if time.monotonic() >= until:
                    raise
            await asyncio.sleep(AGAIN_S)

    @classmethod
    async def fork(
        cls,
        store: AsyncEventStore,
        source: StreamId,
        *,
        before: int | None = None,
        title: str | None = None,
        key: str | None = None,
        conversation_id: StreamId | None = None,
        tenant_id: str | None = None,
        user_id: str | None = None,
        new_user_id: str | None = None,
        session_mode: SessionMode = "interactive",
        session_config: dict[str, Any] | None = None,
        state_directory: str | Path | None = None,
        agent_id: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Self:
        """Begin a conversation that goes on from another's turn; see `Conversation.fork`."""
        made = await asyncio.to_thread(
            Conversation.fork,
            store.store,
            source,
            before=before,
            title=title,
            key=key,
            conversation_id=conversation_id,
            tenant_id=tenant_id,
            user_id=user_id,
            new_user_id=new_user_id,
            session_mode=session_mode,
            session_config=session_config,
            state_directory=state_directory,
            agent_id=agent_id,
            extra=extra,
        )
        return cls(store, made._session)

    @property
    def tools(self) -> AsyncTools:
        """The tools that come with the conversation; see `Conversation.tools`."""
        session = self._session
        return AsyncTools(AsyncReadOutput(session.views.store, session.resolve))

    def _turn(
        self,
        script: TurnScript,
        said: UserMessage | None,
        plan: Plan | None = None,
        connection: Any = None,
    ) -> AsyncTurn:
        return AsyncTurn(self._journal, self._session, script, said, plan, connection)

    async def rewind(self, version: int) -> Appended | None:
        """Go back to before a turn; see `Conversation.rewind`."""
        return await self._switch(rewound, version)

    async def switch_branch(self, version: int) -> Appended | None:
        """Go back to an alternative; see `Conversation.switch_branch`."""
        return await self._switch(switched, version)

    async def _switch(
        self, found: Callable[[EventStore, UUID, int], BranchSwitch | None], version: int
    ) -> Appended | None:
        self._session.between_turns()
        switch = await asyncio.to_thread(found, self._journal.store.store, self.id, version)
        return None if switch is None else await self.append(switch)

    async def append(self, *payloads: Payload, in_context: bool = True) -> Appended | None:
        """Append further facts of this session."""
        return await self._journal.write(self._session.events(*payloads, in_context=in_context))

    async def rename(self, title: str) -> None:
        """Change what lists of conversations show."""
        await self.append(ConversationUpdate(title=title))

    async def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Set what lists show as ``metadata``; see `Conversation.set_metadata`."""
        kept = kept_json(Metadata, "metadata", metadata)
        await self.append(ConversationUpdate(metadata=kept))

    async def archive(self) -> None:
        """Put the conversation away; see `Conversation.archive`."""
        await self.append(ConversationUpdate(archived=True))

    async def unarchive(self) -> None:
        """Take the conversation out again; see `Conversation.unarchive`."""
        await self.append(ConversationUpdate(archived=False))

    async def destroy(self, message: str | None = None) -> None:
        """End the conversation for good; see `Conversation.destroy`."""
        await self.append(ConversationEnd(reason="destroyed", message=message))
        self._session.destroyed = True

    async def write_again(self) -> Appended | None:
        """Write again what the database has lost; see `Conversation.write_again`."""
        return await self._journal.write_again()

    async def switch_mode(self, mode: Mode, reason: str | None = None) -> None:
        """Switch the mode; the history stays as it is."""
        await self._journal.write(self._session.switching(mode, reason))
        self._session.switched(mode)

    async def resolve(self, alias: str) -> str:
        """Return the whole text of the tool result that an alias names."""
        return await asyncio.to_thread(self._session.resolve, alias)

    async def close(self, reason: str | None = None) -> None:
        """End the session; see `Conversation.close`."""
        await self._journal.close(self._session.closing(reason))
        await finish(asyncio.to_thread(KEEPER.release, self.session_id))

    async def __aenter__(self) -> Self:
        """Return the conversation itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the session."""
        with suppress(*((NotCommitted,) if error is not None else ())):
            await self.close(None if error is None else left(error) or type(error).__name__)
