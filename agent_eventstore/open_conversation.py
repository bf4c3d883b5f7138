"""What both kinds of conversation are made of, where nothing need be awaited.

The turns that they return are entered by the product; how they begin is told here, be it with a new
input, a message in other words, or the last one's answer again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from uuid import UUID

from sqlalchemy import Connection

from agent_eventstore.branching import edited, regenerated
from agent_eventstore.current import OpenTurn, Plan
from agent_eventstore.inputs import Said, message_of
from agent_eventstore.machines import Branching, TurnScript
from agent_eventstore.recovery import Recovery
from agent_eventstore.session import JournalT, Session
from eventstore.events import TokenUsage, ToolPolicy, UserMessage
from eventstore.events.values import Mode
from projections import Views

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["OpenConversation", "TurnT"]

TurnT = TypeVar("TurnT", bound=OpenTurn[Any, Any, Any])


class OpenConversation(Generic[JournalT, TurnT]):
    """What may be asked of a conversation that is open, however it is written to."""

    _kind: ClassVar[Callable[..., Any]]
    """Makes the turns."""

    def __init__(self, session: Session, journal: JournalT) -> None:
        self._session = session
        self._journal: JournalT = journal

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
        """The mode in which later turns are recorded."""
        return self._session.meta.mode

    @property
    def epoch(self) -> int | None:
        """This writer's epoch; a newer one fences it."""
        return self._journal.epoch

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._session.meta.session_id or ""

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of the session's turns so far; not ``reported`` if some are estimates."""
        return self._session.usage

    @property
    def views(self) -> Views:
        """The read models; their methods block, so call them in a thread where a loop runs."""
        return self._session.views

    @property
    def recovery(self) -> Recovery | None:
        """What opening has sealed; None in a new conversation."""
        return self._session.recovery

    def turn(
        self,
        said: Said,
        *,
        actor: str | None = None,
        message_id: str | None = None,
        run_id: str | None = None,
        workflow_id: str | None = None,
        tool_policy: ToolPolicy | None = None,
        extra: dict[str, Any] | None = None,
        connection: Connection | AsyncConnection | None = None,
    ) -> TurnT:
        """Return a turn to be entered around all that one input sets off.

        Args:
            said: The input: text, a `UserMessage`, or parts, also as dictionaries of a provider's.
            actor: Who says it, if several people or programs do.
            message_id: The product's own id of the message, at most 512 characters. If it was
                posted before, in whichever process, entering writes nothing, and the turn's
                ``outcome`` is what came of the first post; nothing else may be done in the block.
            run_id: The run that it belongs to; it is then a turn in Run mode.
            workflow_id: The workflow of that run.
            tool_policy: Which tools it may use, for instance those of its agent: merged with the
                conversation's policy, so that it can only take away.
            extra: A JSON object that all events of the turn keep beside the session's, both
                together at most 2 KB.
            connection: Write the turn's start and the input in the transaction that it is in, with
                the product's own rows: when the turn is entered, or ahead of that by ``begin()``.
                Commit it before a model is called; without that nothing goes on (`NotCommitted`).

        Raises:
            InvalidEvent: The input is none, or one of its parts is of no known shape; or actor or
                message id is not text, is empty or too long; or ``extra`` is.
        """
        message = message_of(said)  # ahead of the number: a refused input uses up none
        script = self._session.turn_script(
            run_id, workflow_id, tool_policy, actor, message_id, extra
        )
        return self._turn(script, message, connection=connection)

    def continuation(self, *, message_id: str | None = None) -> TurnT:
        """Return a turn to be entered around what comes of a call whose turn was replaced.

        It has no input: the call's result takes its place, recorded by ``turn.tool`` with the call
        as `Views.open_work` has it, ``awaited``.

        Args:
            message_id: The product's own id of the turn; it is gone through once, as in `turn`.
        """
        return self._turn(self._session.turn_script(None, None, message_id=message_id), None)

    def answering(self, text: str, *, tool_policy: ToolPolicy | None = None) -> TurnT:
        """Return a turn to be entered around what the last message's answer still lacks.

        The message stays as it is, and so does what came after it; nothing is said anew.

        Args:
            text: What the turn's start says that it answers.
            tool_policy: Which tools the turn may use.

        Raises:
            TurnStillOpen: A turn is open; let it end, or stop it.
        """
        self._session.between_turns()
        script = self._session.turn_script(None, None, tool_policy)
        return self._turn(script, None, partial(Branching, None, text))

    def edit(
        self,
        version: int,
        said: Said,
        *,
        actor: str | None = None,
        message_id: str | None = None,
        tool_policy: ToolPolicy | None = None,
        extra: dict[str, Any] | None = None,
    ) -> TurnT:
        """Return a turn to be entered around the answer to a message in other words.

        Entering takes the message's turn and all that came after it off the active branch, and
        writes the new turn's start, in one transaction; until then nothing has changed. What was
        left stays an alternative: `Views.branches` names it, `switch_branch` goes back to it.

        Args:
            version: The version of the user's message, on the active branch.
            said: What stands in its place, as a whole: an image is handed in again.
            actor: As of `turn`, and so are those that follow.
            message_id: The product's own id of the new message.
            tool_policy: Which tools the turn may use.
            extra: A JSON object that all its events keep.

        Raises:
            TurnStillOpen: A turn is open; let it end, or stop it.
            BranchRefused: By entering: there is no message of a user's at that version.
            InvalidEvent: As of `turn`.
        """
        self._session.between_turns()
        message = message_of(said)
        script = self._session.turn_script(None, None, tool_policy, actor, message_id, extra)
        plan = partial(edited, self._session.journal.store, self.id, version)
        return self._turn(script, message, plan)

    def regenerate(self, *, tool_policy: ToolPolicy | None = None) -> TurnT:
        """Return a turn to be entered around another answer to the last message.

        Entering takes what came after the message off the active branch; the message stays. See
        `edit` for the rest.

        Args:
            tool_policy: Which tools the turn may use.

        Raises:
            TurnStillOpen: A turn is open; let it end, or stop it.
            BranchRefused: By entering: nobody has said anything yet.
        """
        self._session.between_turns()
        script = self._session.turn_script(None, None, tool_policy)
        return self._turn(script, None, partial(regenerated, self._session.journal.store, self.id))

    def _turn(
        self,
        script: TurnScript,
        said: UserMessage | None,
        plan: Plan | None = None,
        connection: Any = None,
    ) -> TurnT:
        made: TurnT = self._kind(self._journal, self._session, script, said, plan, connection)
        return made
