"""Options of a session or chat, which say how agents answer, and the agents made from them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from agent_eventstore.agents.agent_turns import Agent, Interrupt, Listener, Protocol
from agent_eventstore.agents.function_tools import FunctionTool, OnToolError, tools_by_name
from agent_eventstore.agents.model_calls import ProviderRouter, port_of, require_tools_fit
from agent_eventstore.agents.sinks import HistorySink
from agent_eventstore.agents.widgets import Widget, live_screen, widget_tools
from agent_eventstore.participants import Participant
from eventstore.arguments import require_known
from eventstore.events import JsonObject
from projections.context import ContextSettings
from projections.context.compression import Strategy
from projections.context.settings import settings_of, strategy_for
from projections.tokens import require_tokenizer, tokenizer_for

__all__ = ["MODEL_NAME", "AgentOptions", "ChatOptions", "agent_of", "agents_for", "config_of"]

MODEL_NAME = "gpt-4o"
"""The model that is called if none is named."""


OverMaxPrompt = Literal["refuse", "trim"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "protocol": get_args(Protocol),
    "on_tool_error": get_args(OnToolError),
    "over_max_prompt": get_args(OverMaxPrompt),
}


class AgentOptions(TypedDict, total=False):
    """How an agent answers; all options have defaults.

    Attributes:
        model_name: Name of the model, ``gpt-4o`` by default; determines how tokens are counted.
        tools: Functions, or `FunctionTool`; ``read_output`` is added to them.
        widgets: The widgets on the agent's screen; their tools are added.
        protocol: ``tools``, or ``react`` for models that call tools with tags.
        max_steps: Maximum number of the model's replies in one turn; 100 by default.
        on_tool_error: ``continue`` sends the error to the model, ``stop`` ends the turn, ``retry``
            runs the tool up to three times before the model sees the error.
        settings: How a request's messages are selected; options of this class take precedence.
        max_prompt_tokens: Maximum number of tokens of a request.
        over_max_prompt: ``refuse`` a longer one before anything is written, or ``trim`` it.
        strategy: Which messages lose detail first: see `ContextOptions`;
            ``LevelOfDetail(live_only_newest=True)`` shows only the newest input or tool result with
            its screen.
        warn_prompt_tokens: Number of tokens from which a turn begins with a note; by default the
            settings' value.
        parameters: Temperature and similar parameters of the provider's API.
        attempts: Maximum attempts of a model call whose failure a retry may fix; 3 by default.
        provider: Name of the provider; by default derived from the client's URL.
        tokenizer_model: The model or encoding to count tokens with; by default the settings'
            tokenizer, else the model.
        sinks: Receive the history in addition to the log, such as a `JsonlHistorySink`.
        listener: Called with everything as it happens, as kind and text; before each request
            with ``context`` and its status: ``normal``, ``warning`` or ``compressing``.
        settle: Takes the return value of a model or tool, and returns its result: for bridges to
            event loops.
        check: Called between pieces of an answer and before tools; an exception stops the turn.
        interrupt: Called before each tool; returns whether it replaced the turn: for schedulers.
    """

    model_name: str
    tools: Iterable[FunctionTool | Callable[..., Any]]
    widgets: Sequence[Widget]
    protocol: Protocol
    max_steps: int
    on_tool_error: OnToolError
    settings: ContextSettings | None
    max_prompt_tokens: int | None
    over_max_prompt: OverMaxPrompt
    strategy: Strategy | str | None
    warn_prompt_tokens: int | None
    parameters: JsonObject
    attempts: int
    provider: str | None
    tokenizer_model: str | None
    sinks: Iterable[HistorySink]
    listener: Listener
    settle: Callable[[Any], Any]
    check: Callable[[], None]
    interrupt: Interrupt


class ChatOptions(TypedDict, total=False):
    """How participants answer; all options have defaults.

    Attributes:
        models: Models by participant id, for participants that do not use the session's model.
        model_name: Name of the model for participants that name none; ``gpt-4o`` by default.
        parameters: Temperature and similar parameters of the provider's API.
        attempts: Maximum attempts of a model call whose failure a retry may fix; 3 by default.
        settings: How the history for participants is selected, such as a limit of tokens; by
            default it is whole.
        history: Maximum number of messages of that history for each participant; 20 by default.
        listener: Called with everything as it happens, as participant, kind and text; in threads.
    """

    models: Mapping[str, Any]
    model_name: str
    parameters: JsonObject
    attempts: int
    settings: ContextSettings | None
    history: int
    listener: Callable[[str, str, str], None]


def agent_of(model: Any, options: AgentOptions) -> Agent:
    """Return the agent for a model and options.

    Raises:
        TypeError: The model is not valid, an option is unknown or has another type, or a tool
            cannot be declared.
        ValueError: Two tools have the same name, there are more than the provider takes, a number
            is below 1, a choice does not exist, or an option contradicts the settings.
        UnknownStrategy: No strategy has this name.
    """
    require_known(options, AgentOptions)
    _require_sound(options)
    name, widgets = options.get("model_name", MODEL_NAME), tuple(options.get("widgets", ()))
    agent = Agent(
        **_model_arguments(model, name, options),
        tools=tools_by_name([*options.get("tools", ()), *widget_tools(widgets)]),
        screen=lambda: live_screen(widgets),
        protocol=options.get("protocol", "tools"),
        max_steps=options.get("max_steps", 100),
        on_tool_error=options.get("on_tool_error", "continue"),
        settings=settings_of(options.get("settings")),
        max_prompt_tokens=options.get("max_prompt_tokens"),
        strategy=options.get("strategy"),
        attempts=options.get("attempts", 3),
        tell=options.get("listener", lambda kind, text: None),
        settle=options.get("settle", _as_it_is),
        check=options.get("check", lambda: None),
        interrupt=options.get("interrupt", lambda turn, calls: False),
    )
    if agent.protocol == "tools":
        routes = model.routes.values() if isinstance(model, ProviderRouter) else ()
        for port in (agent.port, *(port_of(each.client, each.provider) for each in routes)):
            require_tools_fit(port, len(agent.tools))
    agent.rendering()  # rejects options that contradict the settings
    strategy_for(agent.strategy, agent.settings)  # rejects a strategy that does not exist
    return agent


def _require_sound(options: AgentOptions) -> None:
    """Refuse numbers, choices and names that would be ignored or fail in the first turn."""
    for name in ("max_steps", "attempts", "max_prompt_tokens", "warn_prompt_tokens"):
        _require_number(name, options.get(name), 1)
    for name, choices in _CHOICES.items():
        if name in options and options.get(name) not in choices:
            raise ValueError(f"{name} must be {' or '.join(choices)}, not {options.get(name)!r}")
    for name in ("model_name", "tokenizer_model"):
        text = options.get(name, "")
        if not (isinstance(text, str) or (text is None and name == "tokenizer_model")):
            raise TypeError(f"{name} must be a string, not {text!r}")
    if tokenizer := options.get("tokenizer_model"):
        require_tokenizer(tokenizer)


def _require_number(name: str, number: object, least: int) -> None:
    if number is not None and not isinstance(number, int):
        raise TypeError(f"{name} must be an integer, not {number!r}")
    if number is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, not {number}")


def _model_arguments(model: Any, name: str, options: AgentOptions) -> dict[str, Any]:
    """Return the model of the first step and, if there is a router, the models of the others."""
    parameters, settings = options.get("parameters", {}), settings_of(options.get("settings"))
    tokenizer = options.get("tokenizer_model") or settings.tokenizer
    if not isinstance(model, ProviderRouter):
        port = port_of(model, options.get("provider"))
        named: JsonObject = {"port": port, "model": name, "parameters": parameters}
        return {**named, "tokenizer": tokenizer or name}
    ports = {id(each): port_of(each.client, each.provider) for each in model.routes.values()}

    def routing(step: int) -> dict[str, Any]:
        route = model.route(step)
        call_options = {"port": ports[id(route)], "parameters": {**parameters, **route.parameters}}
        return {**call_options, "model": route.model, "tokenizer": tokenizer or route.model}

    return {**routing(0), "routing": routing}


def _as_it_is(value: Any) -> Any:
    """Return a value that is not awaitable.

    Raises:
        TypeError: It is awaitable.
    """
    if inspect.isawaitable(value) or hasattr(value, "__anext__"):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError(
            "what the model or the tool returned is to be awaited: use AsyncAgentSession"
        )
    return value


def agents_for(
    participants: Sequence[Participant], model: Any, options: ChatOptions
) -> dict[str, Agent]:
    """Return the agents that answer for the participants of a chat, by participant id.

    Raises:
        TypeError: The model or the settings are not valid.
        ValueError: A number is too low, or ``models`` names somebody else.
    """
    _require_number("history", options.get("history"), 0)
    known = [each.id for each in participants]
    if unknown := [name for name in options.get("models", {}) if name not in known]:
        there = ", ".join(known)
        raise ValueError(f"models names no participant: {unknown[0]!r}; participants: {there}")
    return {each.id: _agent_for(each, model, options) for each in participants}


def _agent_for(participant: Participant, model: Any, options: ChatOptions) -> Agent:
    def tell(kind: str, text: str) -> None:
        if (listener := options.get("listener")) is not None:
            listener(participant.id, kind, text)

    return agent_of(
        options.get("models", {}).get(participant.id, model),
        {
            "model_name": participant.model or options.get("model_name", MODEL_NAME),
            "settings": options.get("settings"),
            "parameters": options.get("parameters", {}),
            "attempts": options.get("attempts", 3),
            "listener": tell,
        },
    )


def config_of(model: Any, options: AgentOptions, config: JsonObject | None) -> JsonObject:
    """Return what the session's start records about the agent."""
    agent = agent_of(model, options)
    limits = ("max_prompt_tokens", "warn_prompt_tokens")
    optional = {
        "parameters": dict(agent.parameters),
        **{name: options.get(name) or getattr(agent.settings, name) for name in limits},
    }
    return {
        "model": agent.model,
        "tokenizer": tokenizer_for(agent.tokenizer).name,
        "protocol": agent.protocol,
        "max_steps": agent.max_steps,
        "tools": list(agent.tools),
        "cwd": str(Path.cwd()),
        **{name: value for name, value in optional.items() if value},
        **(config or {}),
    }
