"""The base of `Conversation` and `AsyncConversation`: properties, and methods that return turns.

Nothing here is awaited: the product enters the returned turn. A turn begins with a new input, an
edited message, or the last message, to be answered again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from uuid import UUID

from sqlalchemy import Connection

from agent_eventstore.branching import edited, no_message, regenerated
from agent_eventstore.current import Plan, TurnBlock
from agent_eventstore.inputs import UserInput, message_of
from agent_eventstore.machines import Branching, TurnScript
from agent_eventstore.recovery import Recovery
from agent_eventstore.session import JournalT, Session, first_outcome, leave_unwritten
from eventstore.database import require_connection
from eventstore.events import TokenUsage, ToolPolicy, UserMessage
from eventstore.events.values import Mode
from projections import Views

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["OpenConversation", "TurnT"]

TurnT = TypeVar("TurnT", bound=TurnBlock[Any, Any, Any])


class OpenConversation(Generic[JournalT, TurnT]):
    """An open conversation: its properties, and its turns."""

    _kind: ClassVar[Callable[..., Any]]
    """The class of its turns."""
    _waits: ClassVar[bool]
    """Whether its methods may wait for the database."""

    def __init__(self, session: Session, journal: JournalT) -> None:
        self._session = session
        self._journal: JournalT = journal
        # What a session that is dropped without being closed has not written is not lost with it.
        weakref.finalize(
            session, leave_unwritten, journal.successor, session.session_id, "dropped, not closed"
        ).atexit = False

    @property
    def id(self) -> UUID:
        """The conversation's id."""
        return self._session.id

    @property
    def version(self) -> int:
        """The version of the last event that this session has written."""
        return self._journal.version

    @property
    def mode(self) -> Mode | None:
        """The mode of later turns."""
        return self._session.meta.mode

    @property
    def epoch(self) -> int | None:
        """This writer's epoch; a newer one fences it."""
        return self._journal.epoch

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._session.session_id

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of the session's turns so far; not ``reported`` if some are estimates."""
        return self._session.usage

    @property
    def views(self) -> Views:
        """The read models; their methods block, so call them in a thread if an event loop runs."""
        return self._session.views

    @property
    def recovery(self) -> Recovery | None:
        """The recovery that opening ran; None in a new conversation."""
        return self._session.recovery

    def turn(
        self,
        user_input: UserInput,
        *,
        actor: str | None = None,
        message_id: str | None = None,
        run_id: str | None = None,
        workflow_id: str | None = None,
        tool_policy: ToolPolicy | None = None,
        extra: dict[str, Any] | None = None,
        agent_id: str | None = None,
        connection: Connection | AsyncConnection | None = None,
    ) -> TurnT:
        """Return a turn; enter it around all work that the input causes.

        Args:
            user_input: The input: text, a `UserMessage`, or parts, which may be a provider's
                dictionaries.
            actor: The author of the input, if there are several people or programs.
            message_id: Your product's own id of the message, at most 512 characters. If a message
                with this id was posted before, in any process, entering writes nothing, and the
                turn's ``outcome`` is that of the first post; the block can do nothing else. But if
                that turn failed, was cancelled or interrupted, and no other message has followed,
                the message is answered again: the failed answer leaves the active branch.
            run_id: The run of the turn, which then has the mode ``run``.
            workflow_id: The workflow of that run.
            tool_policy: The tools that the turn may use, for example those of its agent. It is
                merged with the conversation's policy, so it can only restrict it.
            extra: A JSON object stored with all events of the turn, in addition to the session's;
                both together at most 2 KB.
            agent_id: The agent that acts in this turn, whose persona its requests contain; by
                default the session's.
            connection: Write the turn's start and the input in the transaction of this connection,
                together with your product's own rows: when the turn is entered, or earlier by
                ``begin()``. Commit it before you call a model; otherwise the recorder raises
                `NotCommitted`.

        Raises:
            InvalidEvent: The input is not valid, or one of its parts has an unknown format; or the
                actor or message id is not text, is empty or too long; or ``extra`` is too large.
        """
        if connection is not None and not hasattr(connection, "run_sync"):
            require_connection(connection)
        message = message_of(user_input)  # first: a refused input must not use up a turn number
        script = self._session.turn_script(
            run_id, workflow_id, tool_policy, actor, message_id, extra, agent_id
        )
        return self._turn(script, message, connection=connection)

    def continuation(self, *, message_id: str | None = None) -> TurnT:
        """Return a turn that records the result of a call whose turn was replaced, and continues.

        It has no input. Record the call's result with ``turn.tool`` and the ``awaited`` call of
        `Views.open_work`.

        Args:
            message_id: Your product's own id of the turn, which then runs only once; see `turn`.
        """
        return self._turn(self._session.turn_script(None, None, message_id=message_id), None)

    def answering(self, text: str, *, tool_policy: ToolPolicy | None = None) -> TurnT:
        """Return a turn that completes the answer to the last message.

        The message and the events after it are unchanged; the turn has no new input.

        Args:
            text: The text that the turn's start names as its input.
            tool_policy: The tools that the turn may use.

        Raises:
            TurnStillOpen: A turn is open; let it end, or stop it.
        """
        self._session.between_turns()
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, not {text!r:.80}")
        script = self._session.turn_script(None, None, tool_policy)
        return self._turn(script, None, partial(Branching, None, text))

    def edit(
        self,
        version: int,
        user_input: UserInput,
        *,
        actor: str | None = None,
        message_id: str | None = None,
        tool_policy: ToolPolicy | None = None,
        extra: dict[str, Any] | None = None,
    ) -> TurnT:
        """Return a turn that answers an edited message.

        Entering, or `begin`, removes the message's turn and all later events from the active
        branch, and writes the new turn's start, in one transaction; nothing changes before that.
        The removed events remain an alternative: `Views.branches` lists it, `switch_branch` returns
        to it.

        Args:
            version: The version of the user message, on the active branch.
            user_input: The whole new message: pass an image again.
            actor: The author of the message; see `turn`.
            message_id: Your product's own id of the new message; see `turn`.
            tool_policy: The tools that the turn may use.
            extra: A JSON object stored with all its events.

        Raises:
            TurnStillOpen: A turn is open; let it end, or stop it.
            BranchRefused: That version is not a user message. An `AsyncConversation`, which does
                not wait for the database here, raises it at once if the version does not exist, or
                is one of the last 256 events that this session has written; otherwise when the turn
                begins.
            InvalidEvent: See `turn`.
        """
        self._session.between_turns()
        if not isinstance(version, int) or isinstance(version, bool):
            raise TypeError(f"version must be an integer, not {version!r:.80}")
        message = message_of(user_input)
        known = self._session.journal.written.at(version)
        if known is not None and not isinstance(known.data, UserMessage):
            raise no_message(self.id, version, f"it is a {known.data.type}")
        plan = partial(edited, self._session.journal.store, self.id, version)
        if not 0 < version <= self.version or (self._waits and not self._posted(message_id)):
            plan()  # a wrong version is refused here, not when a response has begun
        script = self._session.turn_script(None, None, tool_policy, actor, message_id, extra)
        return self._turn(script, message, plan)

    def regenerate(self, *, tool_policy: ToolPolicy | None = None) -> TurnT:
        """Return a turn that answers the last message again.

        Entering removes the events after the message from the active branch; the message stays.
        Otherwise it works as `edit` does.

        Args:
            tool_policy: The tools that the turn may use.

        Raises:
            TurnStillOpen: A turn is open; let it end, or stop it.
            BranchRefused: The active branch has no user message; see `edit`.
        """
        self._session.between_turns()
        plan = partial(regenerated, self._session.journal.store, self.id)
        if self._waits:
            plan()
        script = self._session.turn_script(None, None, tool_policy)
        return self._turn(script, None, plan)

    def _posted(self, message_id: str | None) -> bool:
        """Whether a message was posted before: its own version may have left the branch since."""
        if message_id is None:
            return False
        return first_outcome(self._session.views, self.id, message_id) is not None

    def _turn(
        self,
        script: TurnScript,
        message: UserMessage | None,
        plan: Plan | None = None,
        connection: Any = None,
    ) -> TurnT:
        made: TurnT = self._kind(self._journal, self._session, script, message, plan, connection)
        return made
