"""A turn of an agent: model calls and tool calls, step by step, until there is a final answer.

The recorder wraps each call, so that it is durable before it runs. Nothing here holds state that
the log does not have: a process that dies loses only work that it had not begun.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agent_eventstore.agents.function_tools import FunctionTool, OnToolError, ToolRefused
from agent_eventstore.agents.model_calls import ModelPort, ModelRequest, on_the_wire, pieces_of
from agent_eventstore.agents.react import ReactStream, in_tags, parse_reply, react_instructions
from agent_eventstore.agents.turn_results import ToolUse, TurnStep
from agent_eventstore.agents.widgets import screen_section
from agent_eventstore.errors import ToolDenied, UnknownResponse
from agent_eventstore.llm_call import LlmCall
from agent_eventstore.machines import RequestedCall
from agent_eventstore.machines.tool_script import NEVER_STARTED
from agent_eventstore.stops import error_text, stopped
from agent_eventstore.turn import Turn
from eventstore.errors import EventStoreError
from eventstore.events import JsonObject
from eventstore.events.codec import dumps
from projections.context import ContextSettings
from projections.context.compression import Strategy
from projections.context.payload_messages import wire_names
from projections.context.settings import DEFAULTS
from projections.payload_text import spoken
from projections.providers import StreamFailed, StreamParser, parser_for, read_response
from projections.providers.stream_base import plain
from projections.tokens.text import estimated_tokens

__all__ = ["Agent", "AgentTurn", "Interrupt", "Listener", "Protocol", "ToolFailed"]

Protocol = Literal["tools", "react"]
"""How tools are called: through the provider's API, or with tags."""

Listener = Callable[[str, str], None]
"""Called as things happen, with kind and text: thought, text, said, call, result, failed, note."""

Interrupt = Callable[[Turn, list[RequestedCall]], bool]
"""Called before a tool, with the remaining calls; returns whether it has replaced the turn."""

_TOOL_ATTEMPTS, _AGAIN_S = 3, 0.25


class ToolFailed(Exception):
    """A tool failed, and the failure ends the turn."""


@dataclass(frozen=True, slots=True)
class Agent:
    """How an agent answers: which model it calls, which tools it has, when it stops.

    Attributes:
        port: Calls the model.
        model: The model's name.
        tokenizer: The model or encoding to count tokens with.
        tools: The tools, by name.
        protocol: How tools are called.
        max_steps: Maximum number of the model's replies in one turn.
        on_tool_error: What happens if a tool fails.
        settings: How a request's messages are selected.
        max_prompt_tokens: Maximum number of tokens of a request; None for the settings' limit.
        parameters: Temperature and similar parameters.
        strategy: Which messages lose detail first; None for the default.
        attempts: Maximum attempts of a model call whose failure a retry may fix.
        tell: Called with everything as it happens.
        settle: Awaits the return value of a function, if it is awaitable.
        check: Raises if the turn should stop.
        interrupt: Replaces the turn if a tool requires it.
        routing: Returns the attributes that differ in a step, given its number.
        screen: Returns the agent's screen; None for nothing.
    """

    port: ModelPort
    model: str
    tokenizer: str
    tools: dict[str, FunctionTool] = field(default_factory=dict)
    protocol: Protocol = "tools"
    max_steps: int = 100
    on_tool_error: OnToolError = "continue"
    settings: ContextSettings = DEFAULTS
    max_prompt_tokens: int | None = None
    parameters: JsonObject = field(default_factory=dict)
    strategy: Strategy | str | None = None
    attempts: int = 3
    tell: Listener = lambda kind, text: None
    settle: Callable[[Any], Any] = lambda value: value
    check: Callable[[], None] = lambda: None
    interrupt: Interrupt = lambda turn, calls: False
    routing: Callable[[int], dict[str, Any]] = lambda step: {}
    screen: Callable[[], str | None] = lambda: None

    def at(self, step: int) -> Agent:
        """Return how the agent answers in a step of a turn."""
        changes = self.routing(step)
        return replace(self, **changes) if changes else self

    @property
    def format(self) -> str:
        """The format in which a request is rendered."""
        return "openai_chat" if self.protocol == "react" else self.port.format

    @property
    def instructions(self) -> str:
        """The text that the ReAct protocol adds to the system part."""
        return react_instructions(self.tools.values()) if self.protocol == "react" else ""

    @property
    def declared(self) -> tuple[JsonObject, ...]:
        """The tool declarations in the provider's format; none in the ReAct protocol."""
        if self.protocol == "react":
            return ()
        return tuple(tool.declaration(self.port.format) for tool in self.tools.values())

    @property
    def wire_names(self) -> dict[str, str]:
        """The names by which providers know the tools, by the tools' own names."""
        return wire_names(self.tools)

    def rendering(self) -> dict[str, Any]:
        """Return the arguments of `Views.context` that render a request.

        Raises:
            InvalidSettings: One of the agent's limits contradicts the settings.
        """
        own, changes = estimated_tokens([self.instructions], self.tokenizer), dict[str, Any]()
        if self.max_prompt_tokens is not None:
            changes["max_prompt_tokens"] = max(self.max_prompt_tokens - own, 1)
        if self.tokenizer != self.model:
            changes["tokenizer"] = self.tokenizer
        settings = self.settings.with_(**changes) if changes else self.settings
        arguments: dict[str, Any] = {
            "model": self.model,
            "tools": self.declared,
            "format": self.format,
            "strategy": self.strategy,
            "provider": self.port.provider,
            "settings": settings,
        }
        if own and isinstance(settings.max_tokens, int):
            arguments["reserve_for_response"] = settings.reserve_for_response + own
        return arguments


class AgentTurn:
    """One turn of an agent, within the block of the recorder's turn.

    Args:
        turn: The recorder's turn, entered.
        agent: How it answers.
        noted: Called whenever a new event is durable.
    """

    def __init__(self, turn: Turn, agent: Agent, noted: Callable[[], None]) -> None:
        self._turn, self._agent, self._noted = turn, agent, noted
        self.steps: list[TurnStep] = []

    def run(self) -> Literal["ok", "max_steps", "aborted"]:
        """Run steps until there is an answer, there are too many steps, or the turn is replaced.

        Raises:
            ToolFailed: A tool failed, and the failure ends the turn.
        """
        while len(self.steps) < self._agent.max_steps:
            self._agent = self._agent.at(len(self.steps))
            self._agent.check()
            call = self._ask()
            text, final = self._read(call)
            used: list[ToolUse] = []
            left = [self._named(wanted) for wanted in call.tool_calls]
            try:
                self._noted()
                self._agent.tell("said", text)
                while left:
                    self._agent.check()
                    if self._agent.interrupt(self._turn, left):
                        return "aborted"
                    used.append(self._use(left))
                    self._require_success(used[-1])
            except BaseException as error:
                self._skip(left, NEVER_STARTED.format(stopped(error) or error_text(error)))
                raise
            finally:
                tokens = call.answer.usage if call.answer else None
                self.steps.append(TurnStep(len(self.steps), text, final, tuple(used), tokens))
            if final is not None:
                return "ok"
        self._turn.max_steps()
        return "max_steps"

    def _named(self, wanted: RequestedCall) -> RequestedCall:
        """Return a call with its tool's own name, which may be one that providers reject."""
        names = (own for own, name in self._agent.wire_names.items() if name == wanted.name)
        return replace(wanted, name=next(names, wanted.name))

    def _read(self, call: LlmCall) -> tuple[str, str | None]:
        """Return a reply's text, and its final answer, if it has one."""
        text = str(call.text)
        if call.tool_calls:
            return text, None
        if self._agent.protocol == "tools":
            return text, text
        reply = parse_reply(text)
        return text, reply.of(reply.final)

    def _ask(self) -> LlmCall:
        """Call the model until it answers; raise the failure if no further attempt may fix it."""
        agent, failed = self._agent, None
        request, recorded = self._next_request()
        for attempt in range(1, agent.attempts + 1):
            call = self._call(retry_of=failed, tools=request.tools, **recorded)
            try:
                with call:
                    self._hear(call, request)
                if call.error is None:
                    return call
                problem: Exception = ConnectionError(call.error.message)
            except Exception as error:
                problem = error
            if call.error is None or not call.error.retryable or attempt == agent.attempts:
                raise problem
            failed = call
            agent.tell("failed", f"{call.error.message}: asking again")
            time.sleep(_AGAIN_S * 2 ** (attempt - 1))
        raise AssertionError("the last attempt returns or raises")

    def _next_request(self) -> tuple[ModelRequest, dict[str, Any]]:
        """Return the next request, and the arguments with which `Turn.llm_call` records it."""
        agent = self._agent
        request = self._turn.context(**agent.rendering())
        if request.usage is not None:
            agent.tell("context", request.usage.status)
        recorded: dict[str, Any] = {"request": request}
        messages, parameters = request.messages, agent.parameters
        if agent.protocol == "react":
            messages = in_tags(messages, agent.instructions)
            recorded = {"prompt": messages}
        if agent.format == agent.port.format:
            parameters = {**parameters, **request.parameters}
        names = agent.wire_names
        if "tools" in request.parameters:
            found = request.parameters["tools"]
            parameters["tools"] = [on_the_wire(each, names) for each in found]
        tools = tuple(on_the_wire(each, names) for each in request.tools)
        return ModelRequest(agent.model, messages, request.system, tools, parameters), recorded

    def _call(self, **recorded: Any) -> LlmCall:
        agent = self._agent
        return self._turn.llm_call(
            provider=agent.port.provider,
            specification=agent.port.specification,
            model=agent.model,
            parameters=agent.parameters,
            **recorded,
        )

    def _hear(self, call: LlmCall, request: ModelRequest) -> None:
        answer = self._agent.settle(self._agent.port.ask(request))
        if self._agent.protocol == "react":
            self._hear_tags(call, answer)
        elif isinstance(answer, str):
            self._agent.tell("text", answer)
            call.message(answer)
        elif isinstance(answer, dict) and answer.get("role") == "assistant":
            self._agent.tell("text", answer.get("content") or "")
            call.message(answer.get("content"), tool_calls=answer.get("tool_calls") or ())
        elif (pieces := pieces_of(answer)) is None:
            call.response(answer)
            self._agent.tell("text", str(call.text))
        else:
            self._hear_pieces(call, answer, pieces)

    def _hear_pieces(self, call: LlmCall, answer: Any, pieces: Iterator[Any]) -> None:
        parser: StreamParser | None = None
        with _closed(answer):
            for piece in pieces:
                self._agent.check()
                if isinstance(piece, str):
                    call.delta(piece)
                    self._agent.tell("text", piece)
                    continue
                call.feed(piece)
                parser = parser or parser_for(piece)
                if text := parser.feed(piece).text:
                    self._agent.tell("text", text)

    def _hear_tags(self, call: LlmCall, answer: Any) -> None:
        """Process a reply with tags: record its text, and its action as a tool call."""
        stream = ReactStream()
        parser = self._stream_tags(call, answer, stream)
        for kind, text in stream.end():
            self._agent.tell(kind, text)
        message = None if parser is None else parser.message()
        reply = parse_reply(stream.text)
        call.show(reply.ui)
        call.message(
            stream.text,
            tool_calls=self._calls_in(reply.tool, reply.of(reply.action)),
            usage=message.usage if message else None,
            finish_reason=message.finish_reason if message else None,
        )

    def _stream_tags(self, call: LlmCall, answer: Any, stream: ReactStream) -> StreamParser | None:
        parser: StreamParser | None = None
        pieces = pieces_of(answer)
        if pieces is None and not isinstance(answer, str):
            parser = read_response(answer)
            if parser.unknown:
                raise UnknownResponse(answer)
            pieces = iter([spoken(parser.message().parts, joint="")])
        with _closed(answer):
            for piece in (answer,) if pieces is None else pieces:
                self._agent.check()
                text = piece
                if not isinstance(piece, str):
                    parser = parser or parser_for(piece)
                    text = parser.feed(piece).text
                if text:
                    call.delta(text)
                    for kind, shown in stream.feed(text):
                        self._agent.tell(kind, shown)
        if parser is not None:
            parser.end(closed=True)
        if parser is not None and parser.error is not None:
            raise StreamFailed(parser.error)
        if parser is not None and not parser.finished:
            raise ConnectionError("the stream ended unfinished")
        return parser

    def _calls_in(self, tool: str | None, arguments_text: str | None) -> list[JsonObject]:
        if tool is None:
            return []
        known = self._agent.tools.get(tool)
        arguments: Any = (
            (arguments_text or "") if known is None else known.arguments_of(arguments_text or "")
        )
        return [{"name": tool or "unnamed", "arguments": arguments}]

    def _use(self, left: list[RequestedCall]) -> ToolUse:
        """Take the first call and run its tool; an error becomes the result for the model.

        The last result of a reply includes the screen.
        """
        wanted, last = left[0], len(left) == 1
        agent, tool = self._agent, self._agent.tools.get(wanted.name)
        agent.tell("call", f"{wanted.name} {wanted.arguments_text}")
        try:
            with self._turn.tool(wanted, idempotent=tool is None or tool.idempotent) as block:
                del left[0]  # only now: a stop refuses to begin a call
                self._noted()
                status, content = self._run(tool, wanted)
                screen = agent.screen() if last else None
                sections = screen_section(None, screen) if screen else None
                if status == "success":
                    block.result(content, sections=sections)
                else:
                    block.fail(content, sections=sections)
        except ToolDenied as denied:
            del left[0]
            status, content = "denied", denied.reason
        self._noted()
        text = content if isinstance(content, str) else dumps(content)
        agent.tell("result" if status == "success" else "failed", text)
        return ToolUse(wanted.name, wanted.arguments_text, text, status)

    def _require_success(self, use: ToolUse) -> None:
        tool = self._agent.tools.get(use.tool)
        policy = (tool and tool.on_error) or self._agent.on_tool_error
        if use.status == "failed" and policy == "stop":
            raise ToolFailed(f"the tool {use.tool} failed: {use.observation}")

    def _skip(self, calls: Sequence[RequestedCall], reason: str) -> None:
        """Record that calls without a result do not run; the turn's end raises what this cannot."""
        for wanted in calls:
            with suppress(EventStoreError):
                self._turn.skip(wanted, reason)

    def _run(self, tool: FunctionTool | None, wanted: RequestedCall) -> tuple[str, Any]:
        if tool is None:
            known = ", ".join(self._agent.tools) or "none"
            return "failed", f"there is no tool {wanted.name!r}: there are {known}"
        if wanted.arguments is None:
            why = "" if wanted.parse_error is None else f": {wanted.parse_error}"
            return "failed", f"the arguments are not a JSON object{why}"
        policy = tool.on_error or self._agent.on_tool_error
        failure = ""
        for _ in range(_TOOL_ATTEMPTS if policy == "retry" else 1):
            try:
                value = self._agent.settle(tool.run(wanted.arguments))
            except ToolRefused as refused:
                return "failed", refused.content
            except Exception as error:
                failure = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            else:
                return "success", "" if value is None else plain(value)
        return "failed", failure


@contextmanager
def _closed(answer: Any) -> Iterator[None]:
    """Close a stream that is not read to its end."""
    try:
        yield
    finally:
        close = getattr(answer, "close", None)
        if close is not None:
            close()
