"""A small agent that records everything it does: the loop of model calls and tool calls.

Every fact is appended before what depends on it happens: the request before the model is called,
the pieces of the answer while they stream, the tool call before the tool runs. Each append names
the version that it expects, so a second agent on the same conversation would be noticed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from uuid import UUID

from conversations.demo.model import MODEL, ScriptedModel
from conversations.demo.stream import Answer
from conversations.demo.tools import DEFINITIONS, Workspace
from eventstore import NO_STREAM, EventStore, Meta, events, new_id
from eventstore.events import AssistantMessage, Payload, ToolCallRequest
from eventstore.events.codec import dumps
from eventstore.ids import call_id
from projections import Views
from projections.context import POLICY, ContextView

__all__ = ["Agent", "Listener"]

Listener = Callable[[str, str], None]
"""Told as it happens, with a text: user, text, said, call, result or error."""

_INVOCATION = events.Invocation(provider="openai", specification="chat.completions", model=MODEL)
_MAX_TOKENS = 8_000
_ATTEMPTS = 3
_RETRY_AFTER_S = 0.05


class Agent:
    """An agent in a conversation of its own.

    Args:
        store: Where the conversation is kept.
        model: What answers.
        workspace: What the tools work on.
        tell: Told of everything as it happens.
        tenant_id: The conversation's tenant.
        user_id: The conversation's user.
    """

    def __init__(
        self,
        store: EventStore,
        model: ScriptedModel,
        workspace: Workspace,
        *,
        tell: Listener = lambda kind, text: None,
        tenant_id: str | None = None,
        user_id: str | None = None,
    ) -> None:
        self.conversation_id: UUID = new_id()
        self._store, self._views = store, Views(store)
        self._model, self._workspace, self._tell = model, workspace, tell
        self._tenant_id, self._user_id = tenant_id, user_id
        self._session_id = str(new_id())
        self._version = self._turn = 0
        self._opened = time.monotonic()

    def open(self, title: str, instructions: str) -> None:
        """Begin the conversation and a session in it."""
        start = events.ConversationStart(title=title, mode="agent", base_instructions=instructions)
        config = {"model": MODEL, "tools": [each["function"]["name"] for each in DEFINITIONS]}
        self._append(start, events.SessionStart(mode="once", config=config), actor="agent")

    def close(self) -> None:
        """End the session."""
        end = events.SessionEnd(
            reason="done", turn_count=self._turn, duration_ms=_elapsed_ms(self._opened)
        )
        self._append(end, actor="agent")

    def turn(self, text: str) -> None:
        """Answer the user, with as many model calls and tool calls as that takes."""
        self._turn += 1
        started, step = time.monotonic(), 0
        self._append(events.TurnStart(), events.UserMessage.text(text), actor="user")
        self._tell("user", text)
        while True:
            version, message = self._answer(step)
            for index, wanted in enumerate(message.tool_calls):
                self._use_tool(call_id(version, index), wanted, step)
            step += 1
            if not message.tool_calls:
                break
        end = events.TurnEnd(status="ok", step_count=step, duration_ms=_elapsed_ms(started))
        self._append(end, actor="agent")

    def _answer(self, step: int) -> tuple[int, AssistantMessage]:
        """Call the model until it has answered; return the message and its version."""
        failed: str | None = None
        for attempt in range(1, _ATTEMPTS + 1):
            view = self._views.context(self.conversation_id, max_tokens=_MAX_TOKENS, model=MODEL)
            own_id = str(new_id())
            self._append(_request(own_id, view, attempt, failed), step=step, actor="agent")
            answer = Answer(own_id, _INVOCATION)
            try:
                for chunk in self._model.stream(view.messages):
                    said, batch = answer.feed(chunk)
                    self._tell("text", said)
                    self._append(batch, step=step, actor="model")
            except ConnectionError as error:
                failure = answer.error(error, attempt)
                self._append(answer.rest(), failure, step=step, actor="model")
                self._tell("error", f"{failure.kind}: {failure.message}")
                failed = own_id
                time.sleep(_RETRY_AFTER_S)
            else:
                message = answer.message()
                self._append(answer.rest(), message, step=step, actor="model")
                self._tell("said", "")
                return self._version, message
        raise ConnectionError(f"the model did not answer in {_ATTEMPTS} attempts")

    def _use_tool(self, own_id: str, wanted: ToolCallRequest, step: int) -> None:
        call = events.ToolCall(
            call_id=own_id,
            name=wanted.name,
            arguments=wanted.arguments,
            provider_id=wanted.provider_id,
            idempotency_key=f"{self.conversation_id}/{own_id}",
        )
        self._append(call, step=step, actor="agent")
        self._tell("call", f"{wanted.name} {wanted.arguments_text}")
        started = time.monotonic()
        status, content = self._workspace.run(wanted.name, wanted.arguments)
        result = events.ToolResult(
            call_id=own_id,
            name=wanted.name,
            status=status,
            content=content if status == "success" else None,
            error=content if status == "failed" else None,
            duration_ms=_elapsed_ms(started),
            provider_id=wanted.provider_id,
        )
        self._append(result, step=step, actor="tool")
        self._tell("result", f"{status}: {content}")

    def _append(self, *data: Payload | None, actor: str, step: int | None = None) -> None:
        """Append what is there, in one transaction, at the version that this agent knows."""
        facts = [each for each in data if each is not None]
        if not facts:
            return
        done = self._store.append(
            self.conversation_id,
            facts,
            expected_version=self._version or NO_STREAM,
            meta=Meta(
                session_id=self._session_id,
                turn=self._turn or None,
                step=step,
                mode="agent",
                actor=actor,
            ),
            tenant_id=self._tenant_id,
            user_id=self._user_id,
        )
        self._version = done.version


def _request(
    own_id: str, view: ContextView, attempt: int, retry_of: str | None
) -> events.LlmRequest:
    sent = dumps(list(view.messages))
    return events.LlmRequest(
        llm_call_id=own_id,
        invocation=_INVOCATION,
        versions=_ranges(view.versions),
        policy={**POLICY, "max_tokens": _MAX_TOKENS},
        digest=hashlib.sha256(sent.encode()).hexdigest(),
        tools=DEFINITIONS,
        parameters={"stream": True, "stream_options": {"include_usage": True}},
        counted_tokens=view.tokens.tokens,
        counted_exactly=view.tokens.exact,
        attempt=attempt,
        retry_of=retry_of,
    )


def _ranges(versions: Sequence[int]) -> tuple[events.VersionRange, ...]:
    """Return ascending versions as ranges."""
    found: list[list[int]] = []
    for version in versions:
        if found and found[-1][1] + 1 == version:
            found[-1][1] = version
        else:
            found.append([version, version])
    return tuple(events.VersionRange(first=first, last=last) for first, last in found)


def _elapsed_ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
