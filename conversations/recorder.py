"""The recorder: context managers around a product's own loop, which write ahead of it.

What a block is about to do is durable before the block runs, and what came of it is durable when
the block is left, however it is left. Made by `Conversation.turn`; the same names stand in
`conversations.recorder_aio` for event loops.

While the server cannot be reached, entering a block raises and the block does not run; entering
the same object again is safe. What has happened is kept, and written once the server is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from conversations.artifacts import ToolOutputs
from conversations.current import OpenTurn
from conversations.journal import Journal
from conversations.requests import (
    Request,
    failed_summary,
    request_of,
    strategy_for,
    summary_of,
)
from conversations.scripts import CallFacts, CallScript, Executable, ToolScript, TurnScript
from conversations.stalls import Stalls
from conversations.upkeep import Upkeep
from eventstore import Appended, NewEvent
from eventstore.events import ContentPart, Sections, TokenUsage, UserMessage
from eventstore.events.values import Mode
from projections import Views
from projections.compression import LlmSummary, Strategy
from projections.context import ContextSettings, ContextView

__all__ = ["LlmCall", "ToolCall", "Turn"]

Said = str | UserMessage | Sequence[ContentPart]


class Turn(OpenTurn["LlmCall"]):
    """From one input to the final answer; numbered from 1 within the conversation.

    Entering writes the turn's start and the input, in one transaction; leaving writes its end:
    ``ok``, or ``error`` when an exception passes, or ``aborted`` when the process is told to stop.
    """

    def __init__(
        self,
        journal: Journal,
        views: Views,
        script: TurnScript,
        said: Said,
        outputs: ToolOutputs,
        upkeep: Upkeep,
        ended: Callable[[TokenUsage | None], None],
    ) -> None:
        self._journal = journal
        super().__init__()
        self._views = views
        self._script = script
        self._said = said
        self._outputs = outputs
        self._upkeep = upkeep
        self._ended = ended
        self._status: Literal["ok", "max_steps"] = "ok"

    @property
    def number(self) -> int:
        """The turn's number, from 1."""
        return self._script.meta.turn or 0

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of the turn's model calls so far, as reported."""
        return self._script.usage

    def __enter__(self) -> Self:
        """Write the turn's start and the input."""
        self._journal.write(self._script.begin(self._said))
        self._become_current()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the turn's end."""
        self._step_back()
        for call in self.unfinished():
            call.cancel()
        events = self._script.end(time.monotonic(), self._status, error)
        self._ended(self._script.usage)
        self._journal.record(events)
        if error is None and self._upkeep.due(self._journal.version):
            self._upkeep.run(self._journal.version)

    def context(
        self,
        *,
        model: str = "gpt-4o",
        max_tokens: int | None = None,
        reserve_for_response: int | None = None,
        max_messages: int | None = None,
        mode: Mode | None = None,
        agent: str | None = None,
        tools: Sequence[dict[str, Any]] = (),
        run: bool | str | None = None,
        settings: ContextSettings | None = None,
        strategy: Strategy | str | None = None,
        format: str = "openai_chat",
        provider: str | None = None,
    ) -> Request:
        """Return the messages of the next request; see `Views.context` for what each argument does.

        Args:
            model: Decides how tokens are counted.
            max_tokens: Tokens of the call, by the project's own count.
            reserve_for_response: How many of them are kept free for the response.
            max_messages: Upper limit for the number of messages.
            mode: By default the turn's.
            agent: Whose persona is told; by default the conversation's agent.
            tools: The tool declarations that are sent along.
            run: Of which run a request in Run mode is told; by default of the turn's, or of the
                active one.
            settings: Limits and choices.
            strategy: What loses detail first.
            format: The provider's format.
            provider: Who will be asked.

        Raises:
            BudgetInfeasible: What must be sent exceeds a limit.
        """
        chosen = strategy_for(settings, strategy)

        def read() -> ContextView:
            return self._views.context(
                self._journal.conversation_id,
                model=model,
                max_tokens=max_tokens,
                reserve_for_response=reserve_for_response,
                max_messages=max_messages,
                tools=tools,
                settings=settings,
                strategy=chosen,
                format=format,
                provider=provider,
                **self._script.rendering(mode, run, agent),
            )

        view, note = read(), ""
        if view.due is not None and isinstance(chosen, LlmSummary):
            written = chosen.write(view.due)
            note = written.failure and failed_summary(written.failure, chosen)
            if written.text:
                summary = summary_of(view.due, written.text, chosen)
                self._journal.write([self._script.event(summary)])
                view = read()
        self._script.rendered = request_of(view, self._journal.version, tools, note)
        return self._script.rendered

    def llm_call(
        self,
        request: Request | None = None,
        *,
        provider: str | None = None,
        specification: str | None = None,
        model: str | None = None,
        prompt: Any = None,
        parameters: dict[str, Any] | None = None,
        tools: Sequence[dict[str, Any]] = (),
        retry_of: LlmCall | None = None,
    ) -> LlmCall:
        """Return a model call to be entered around the request to the provider.

        Args:
            request: What `context` returned, if that is what is sent.
            provider: Who is asked, for example ``openai``.
            specification: Which API is called: ``openai_chat``, ``openai_responses``,
                ``anthropic_messages``.
            model: Which model; by default the request's.
            prompt: What is sent, if not a request; the log keeps its digest. One that equals the
                last request stands for it, and one that has failed in this turn is a retry.
            parameters: Whatever else is sent: temperature and the like.
            tools: The tool declarations that are sent.
            retry_of: The failed call that this one repeats.
        """
        script = self._script.call(
            request,
            provider=provider,
            specification=specification,
            model=model,
            prompt=prompt,
            parameters=parameters,
            tools=tools,
            retry_of=retry_of,
        )
        self.last_call = LlmCall(self._journal, script, self._script.count)
        return self.last_call

    def tool(self, call: Executable, *, idempotent: bool = False) -> ToolCall:
        """Return a tool call to be entered around the tool's execution; threads may share a turn.

        Args:
            call: One of `LlmCall.tool_calls`, or of `Recovery.re_executable`.
            idempotent: Whether executing it twice with the same key is harmless; after a crash
                only such calls are offered for execution again.
        """
        script = self._script.tool(call, self._journal.conversation_id, idempotent=idempotent)
        return ToolCall(self._journal, script, self._outputs)

    def deny(self, call: Executable, reason: str) -> None:
        """Record that a call is not executed because it is not allowed."""
        self._refuse(call, "denied", reason)

    def skip(self, call: Executable, reason: str) -> None:
        """Record that a call is not executed, for another reason."""
        self._refuse(call, "skipped", reason)

    def max_steps(self) -> None:
        """Let the turn end as one that reached its limit of steps."""
        self._status = "max_steps"

    def _refuse(self, call: Executable, status: str, reason: str) -> None:
        script = self._script.tool(call, self._journal.conversation_id)
        self._journal.record(script.refuse(status, reason))


class LlmCall(CallFacts):
    """A call of a model: its request, what streams back, its message or its error.

    Entering writes the request. Leaving writes the message, or the error with all that had
    arrived: an exception is classified and goes on to the caller, and a stream that ended before
    the provider said so is a ``network`` error.
    """

    def __init__(
        self, journal: Journal, script: CallScript, ended: Callable[[TokenUsage | None], None]
    ) -> None:
        self._journal = journal
        self._script = script
        self._ended = ended
        self._stalls = Stalls(self._flush)
        self._counted = False

    def __enter__(self) -> Self:
        """Write the request."""
        done = self._journal.write(self._script.begin())
        self._script.begun(done, time.monotonic())
        return self

    def feed(self, chunk: Any) -> None:
        """Take a chunk of the stream, as the provider's SDK yields it or as a dict.

        Most chunks cost no write: see `conversations.batching`.

        Raises:
            WriterFenced: A newer writer has opened the conversation.
        """
        with self._stalls.lock:
            self._stalls.check()
            self._write(self._script.feed(chunk, time.monotonic()))
            self._stalls.watch(self._script.due_at)

    def response(self, response: Any) -> None:
        """Take a whole response that was not streamed, an SDK's object or a dict."""
        with self._stalls.lock:
            self._write(self._script.respond(response, time.monotonic()))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the message or the error."""
        self._end(error)

    def cancel(self) -> None:
        """Record that no more of the stream is wanted; an answer that is whole stands as it is."""
        self._end(None, cancelled=True)

    def _end(self, error: BaseException | None, *, cancelled: bool = False) -> None:
        with self._stalls.lock:
            self._stalls.stop()
            events = self._script.end(time.monotonic(), error, cancelled=cancelled)
            if not self._counted:
                self._counted = True
                self._ended(self._script.usage)
            self._write(events)
        if error is None:
            self._stalls.check()

    def _flush(self) -> None:
        self._write(self._script.flush(time.monotonic()))

    def _write(self, events: list[NewEvent]) -> None:
        if events:
            self._journal.record(events, self._script.recorded)


class ToolCall:
    """The execution of a tool call.

    Entering makes the call durable; only then may the tool run. Leaving without a result records
    an empty success; an exception is recorded as the failure, and goes on to the caller.
    """

    def __init__(self, journal: Journal, script: ToolScript, outputs: ToolOutputs) -> None:
        self._journal = journal
        self._script = script
        self._outputs = outputs

    @property
    def call_id(self) -> str:
        """Our own id of the call."""
        return self._script.call.call_id

    @property
    def idempotency_key(self) -> str:
        """What the tool may use to recognise a second execution of this call."""
        return self._script.idempotency_key

    def __enter__(self) -> Self:
        """Write the call."""
        self._journal.write(self._script.begin())
        # What follows is timed, not the write.
        self._script.started_at = time.monotonic()
        return self

    def result(
        self,
        content: str | Sequence[ContentPart] | None,
        *,
        preview: str | None = None,
        sections: Sections | None = None,
    ) -> None:
        """Record what the tool returned; large text goes to a blob.

        Args:
            content: Text, or content parts.
            preview: What to show in place of text that is too large; by default its start.
            sections: The same at several levels of detail.
        """
        kept = content if content is None or isinstance(content, str) else tuple(content)
        self._end(status="success", content=kept, preview=preview, sections=sections)

    def fail(self, error: str) -> None:
        """Record that the tool failed, in words for the model."""
        self._end(status="failed", content=error, error=error)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Record the failure, or an empty success, if nothing was recorded yet."""
        self._journal.record(self._script.leave(time.monotonic(), error))

    def _end(self, **result: Any) -> None:
        kept: list[Appended] = []
        self._journal.record(self._script.end(time.monotonic(), **result), kept.append)
        for done in kept:
            self._outputs.keep(done.events[-1], result.get("content"))
