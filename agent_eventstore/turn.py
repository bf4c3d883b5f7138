"""The recorder: context managers around a product's own loop, with write-ahead logging.

Entering a block commits the events of what it is about to do; leaving it commits the events of the
outcome, even after an exception. `Conversation.turn` returns a turn; `agent_eventstore.turn_aio`
has the same names for event loops.

While the server is unreachable, entering a block raises and the block does not run; entering the
same object again is safe. Outcomes are kept in memory, and written once the server is back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Self, Unpack

from agent_eventstore.current import Block, TurnBlock
from agent_eventstore.errors import NotCommitted
from agent_eventstore.journal import INTERRUPTIONS, Journal, patiently
from agent_eventstore.llm_call import LlmCall
from agent_eventstore.machines import CLOSED, CallScript, Executable, RequestedCall
from agent_eventstore.requests import Request, failed_summary, request_of, summary_of
from agent_eventstore.resuming import earlier_calls
from agent_eventstore.session import posted_before
from agent_eventstore.stops import stopped_or_gone
from agent_eventstore.tool_call import ToolBlock
from eventstore import Appended, NewEvent
from eventstore.arguments import require_known
from eventstore.errors import ErrorType, Traceback
from projections.context.compression import LlmSummary
from projections.context.settings import ContextOptions, strategy_for

__all__ = ["ToolBlock", "Turn"]


class Turn(TurnBlock[LlmCall, Journal, ToolBlock]):
    """A turn: one input and the work until its final answer; numbered from 1 per conversation.

    Entering writes the turn's start and the input, in one transaction. Leaving writes its end:
    ``ok``, ``error`` after an exception, or ``cancelled`` after a stop.
    """

    _form = "with conversation.turn(...) as turn:"
    _model_call, _tool_call = LlmCall, ToolBlock

    def __enter__(self) -> Self:
        """Write the turn's start and the input.

        Raises:
            TurnRunning: The message was posted before, and its turn has not ended.
            BranchRefused: The turn to edit or answer again does not exist.
        """
        if self.outcome is not None:
            return self
        self._enter_once()
        if not self._started and self._posted_before():
            return self
        self._start()
        self._become_current()
        return self

    def _start(self) -> None:
        """Write the turn's start and the input, unless `begin` has."""
        self._session.one_turn.take(self, self.number, self._journal.conversation_id)
        started: list[NewEvent] = []
        try:
            started = self._beginning()
            if self._started:
                self._journal.settle(started)
            elif self._connection is not None:
                self._journal.write_within(self._connection, started)
            else:
                self._journal.write(started)
        except BaseException as error:
            within = self._connection is not None and not self._started
            if started and not within and isinstance(error, INTERRUPTIONS):
                self._step_back()
                self._session.turn_ended(None)
                self._journal.abandon(started, self._script.end(time.monotonic(), error=error))
            else:
                self._script.tracing.fail(error)
            self._session.one_turn.leave(self)
            raise

    def begin(self) -> None:
        """Write the turn's start and the input now; enter the turn later.

        What is wrong with the turn is raised here: call this before a response begins that the
        turn's block will stream. If the turn has a connection, it is written in its transaction:
        commit that next. If the turn is never entered, the next opening ends it.

        Raises:
            BlockNotOpen: The turn has begun.
            TurnRunning: The message was posted before, and its turn has not ended.
            BranchRefused: The turn to edit or answer again does not exist.
        """
        self._require_beginnable()
        if self._posted_before():
            return
        if self._connection is None:
            self._start()
        else:
            try:
                self._journal.write_within(self._connection, self._beginning())
            except BaseException as error:
                self._script.tracing.fail(error)
                raise
        self._started = True

    def _posted_before(self) -> bool:
        posted = self._script.message_id
        if posted is None:
            return False
        session = self._session
        look = partial(posted_before, session.views, session.id, posted, retry=self._retries)
        return self._repeat(patiently(look))

    def __exit__(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> bool | None:
        """Write the turn's end; suppress the exception of this turn's own stop.

        Raises:
            NotCommitted: The transaction that the turn began in was not committed.
        """
        if self.outcome is not None:
            return None
        self._step_back()
        self._session.leaving(error)
        try:
            self._end(self._cause(error))
        except NotCommitted:
            if error is None:
                raise
        finally:
            self._session.leaving(error)
            self._session.one_turn.leave(self)
        return self._is_own_stop(error) or None

    def _end(self, error: BaseException | None) -> None:
        for call in self._unfinished():
            call.cancel(stopped_or_gone(error) or CLOSED)
        events = self._script.end(time.monotonic(), self._status, error)
        self._session.turn_ended(self._script.usage)
        self._journal.record(events)
        if error is None and self._session.titling is not None:
            self._journal.record(self._session.titled(self._script.input))
        if error is None and self._session.upkeep.due(self._journal.version):
            self._session.upkeep.after_turn(self._journal.version)

    def context(self, **options: Unpack[ContextOptions]) -> Request:
        """Return the next request, rendered with `ContextOptions`.

        While the server is unreachable, this is repeated for five seconds.

        Raises:
            BudgetInfeasible: The mandatory messages exceed a limit.
            CannotConnect: The server is unreachable. The turn is still open: try again, or leave
                its block, which ends it as ``error``.
        """
        require_known(options, ContextOptions)
        self._within("turn.context")
        self._journal.settle(self._script.begin(self._message))
        chosen = strategy_for(options.get("strategy"), options.get("settings"))
        read = self._rendering({**options, "strategy": chosen})
        view, note = patiently(read), ""
        if view.due is not None and isinstance(chosen, LlmSummary):
            written = chosen.write(view.due)
            note = written.failure and failed_summary(written.failure, chosen)
            if written.text:
                summary = summary_of(view.due, written.text, chosen)
                self._journal.write([self._script.event(summary)])
                view = patiently(read)
        self._script.rendered = request_of(view, self._journal.version, note)
        return self._script.rendered

    def deny(self, call: Executable, reason: str) -> None:
        """Record that a tool call is not executed because it is not allowed.

        Raises:
            CallAnswered: The call already has a result; nothing was written.
            TurnStopped: The turn was stopped; this was written.
        """
        self._refuse(call, "denied", reason)

    def skip(self, call: Executable, reason: str) -> None:
        """Record that a tool call is not executed, for any other reason; see `deny`."""
        self._refuse(call, "skipped", reason)

    def replace(self, call: RequestedCall, rest: Sequence[RequestedCall] = ()) -> bool:
        """End the turn so that other work can run, whose outcome becomes the call's result.

        One transaction starts the call, which then waits for its result, and ends the turn as
        ``aborted`` with the reason ``replaced``. A later turn records the result, by `tool` with
        the call from `Views.open_work`.

        Args:
            call: The call that waits.
            rest: The model's other calls without a result; recorded as ``skipped``.

        Returns:
            False if the tool policy does not allow the tool; nothing was written then.
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
        """Record the tool results that the log learns only from this request."""
        if not script.brings_results:
            return
        if script.answers.unread:
            script.answers.earlier(
                earlier_calls(self._session.views, self._journal.conversation_id)
            )
        events, recorded = script.take_pending(), list[Appended]()
        self._journal.record(events, recorded.append)
        for done in recorded:
            for event, new_event in zip(done.events, events, strict=True):
                self._session.outputs.keep(event, getattr(new_event.data, "content", None))

    def _refuse(self, call: Executable, status: str, reason: str) -> None:
        Block._within(self, "turn.skip" if status == "skipped" else "turn.deny")
        script = self._script.tool(call, self._journal.conversation_id)
        script.require_open()
        self._journal.record(script.refuse(status, reason))
        self._going()
