"""The recorder: context managers around a product's own loop, which write ahead of it.

What a block is about to do is durable before the block runs, and what came of it is durable when
the block is left, however it is left. Made by `Conversation.turn`; the same names stand in
`agent_eventstore.turn_aio` for event loops.

While the server cannot be reached, entering a block raises and the block does not run; entering
the same object again is safe. What has happened is kept, and written once the server is back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Self, Unpack

from agent_eventstore.current import OpenTurn
from agent_eventstore.errors import NotCommitted
from agent_eventstore.journal import INTERRUPTIONS, Journal
from agent_eventstore.llm_call import LlmCall
from agent_eventstore.machines import CLOSED, CallScript, Executable, RequestedCall
from agent_eventstore.requests import Request, failed_summary, request_of, summary_of
from agent_eventstore.resuming import earlier_calls
from agent_eventstore.session import first_outcome
from agent_eventstore.stops import left
from agent_eventstore.tool_call import ToolCall
from eventstore import Appended, NewEvent
from eventstore.errors import ErrorType, Trace
from eventstore.options import require_known
from projections.context.compression import LlmSummary
from projections.context.options import ContextOptions
from projections.context.settings import strategy_for

__all__ = ["ToolCall", "Turn"]


class Turn(OpenTurn[LlmCall, Journal, ToolCall]):
    """From one input to the final answer; numbered from 1 within the conversation.

    Entering writes the turn's start and the input, in one transaction; leaving writes its end:
    ``ok``, ``error`` when an exception passes, or ``cancelled`` when somebody stops it.
    """

    form = "with conversation.turn(...) as turn:"
    _model_call, _tool_call = LlmCall, ToolCall

    def __enter__(self) -> Self:
        """Write the turn's start and the input.

        Raises:
            TurnRunning: The message was posted before, and that turn has not ended.
            BranchRefused: It is to take the place of another, and there is none.
        """
        if self.outcome is not None:
            return self
        self._enter_once()
        if not self._begun and self._posted_before():
            return self
        self._session.one_turn.take(self, self.number, self._journal.conversation_id)
        begun: list[NewEvent] = []
        try:
            begun = self._beginning()
            if self._begun:
                self._journal.settle(begun)
            elif self._connection is not None:
                self._journal.write_within(self._connection, begun)
            else:
                self._journal.write(begun)
            self._become_current()
            return self
        except BaseException as error:
            if begun and isinstance(error, INTERRUPTIONS):
                self._step_back()
                self._session.turn_ended(None)
                self._journal.abandon(begun, self._script.end(time.monotonic(), error=error))
            self._session.one_turn.leave(self)
            raise

    def begin(self) -> None:
        """Write the turn's start and the input in its connection's transaction.

        Then commit it, and enter the turn.

        Raises:
            BlockNotOpen: It was made without a connection, or has begun.
            TurnRunning: The message was posted before, and that turn has not ended.
        """
        events = self._begin_ahead()
        if not self._posted_before():
            self._journal.write_within(self._connection, events)
            self._begun = True

    def _posted_before(self) -> bool:
        posted = self._script.message_id
        return posted is not None and self._repeat(
            first_outcome(self._journal.store, self._journal.conversation_id, posted)
        )

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Trace) -> bool | None:
        """Write the turn's end; a stop goes no further.

        Raises:
            NotCommitted: The transaction that it began in was not committed.
        """
        if self.outcome is not None:
            return None
        self._step_back()
        try:
            self._end(self._cause(error))
        except NotCommitted:
            if error is None:
                raise
        finally:
            self._session.one_turn.leave(self)
        return self._is_own_stop(error) or None

    def _end(self, error: BaseException | None) -> None:
        for call in self.unfinished():
            call.cancel(left(error) or CLOSED)
        events = self._script.end(time.monotonic(), self._status, error)
        self._session.turn_ended(self._script.usage)
        self._journal.record(events)
        if error is None and self._session.titling is not None:
            self._journal.record(self._session.titled(self._script.input))
        if error is None and self._session.upkeep.due(self._journal.version):
            self._session.upkeep.run(self._journal.version)

    def context(self, **options: Unpack[ContextOptions]) -> Request:
        """Return the messages of the next request, by the options of `ContextOptions`.

        Raises:
            BudgetInfeasible: What must be sent exceeds a limit.
        """
        require_known(options, ContextOptions)
        self._within("turn.context")
        self._journal.settle(self._script.begin(self._said))
        chosen = strategy_for(options.get("strategy"), options.get("settings"))
        read = self._rendering({**options, "strategy": chosen})
        view, note = read(), ""
        if view.due is not None and isinstance(chosen, LlmSummary):
            written = chosen.write(view.due)
            note = written.failure and failed_summary(written.failure, chosen)
            if written.text:
                summary = summary_of(view.due, written.text, chosen)
                self._journal.write([self._script.event(summary)])
                view = read()
        self._script.rendered = request_of(view, self._journal.version, note)
        return self._script.rendered

    def deny(self, call: Executable, reason: str) -> None:
        """Record that a call is not executed because it is not allowed.

        Raises:
            CallAnswered: It has its result; nothing was written.
        """
        self._refuse(call, "denied", reason)

    def skip(self, call: Executable, reason: str) -> None:
        """Record that a call is not executed, for another reason; see `deny`."""
        self._refuse(call, "skipped", reason)

    def replace(self, call: RequestedCall, rest: Sequence[RequestedCall] = ()) -> bool:
        """End the turn in favour of other work, whose outcome is to be the call's result.

        One transaction: the call is begun, and waits from then on; the turn ends as ``aborted``,
        ``replaced``. A later turn brings the result, by `tool` with what `Views.open_work` has.

        Args:
            call: The call that waits.
            rest: What the model asked for besides and has no result yet: ``skipped``.

        Returns:
            Whether it was done: not if the tool policy does not allow the tool.
        """
        self._within("turn.replace")
        script = self._script.tool(call, self._journal.conversation_id, idempotent=True)
        script.require_open()
        if script.refusal is not None:
            return False
        self._journal.write(self._script.replace(time.monotonic(), script, rest))
        self._script.ended = True
        return True

    def _tell(self, script: CallScript) -> None:
        """Record results that a request is the first to tell."""
        if not script.brings_results:
            return
        if script.answers.unread:
            script.answers.earlier(
                earlier_calls(self._session.views, self._journal.conversation_id)
            )
        events, kept = script.brought(), list[Appended]()
        self._journal.record(events, kept.append)
        for done in kept:
            for event, told in zip(done.events, events, strict=True):
                self._session.outputs.keep(event, getattr(told.data, "content", None))

    def _refuse(self, call: Executable, status: str, reason: str) -> None:
        self._within("turn.skip" if status == "skipped" else "turn.deny")
        script = self._script.tool(call, self._journal.conversation_id)
        script.require_open()
        self._journal.record(script.refuse(status, reason))
