"""Model calls of an agent: clients with OpenAI's or Anthropic's interface, or any callable.

Neither SDK is imported here: a client is recognised by its interface. The answer is a text, a whole
response, or pieces of one, which the recorder accepts unchanged. With `ProviderRouter`, several
models answer in one conversation, by stage (document 004); the log's ``invocation`` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_eventstore.clients.proxy import plain_client
from eventstore.events import JsonObject
from projections.context.payload_messages import wire_name
from projections.providers.provider_limits import LIMITS

__all__ = [
    "ModelPort",
    "ModelRequest",
    "ProviderRouter",
    "Route",
    "on_the_wire",
    "pieces_of",
    "port_of",
    "require_tools_fit",
]


MODEL_OUTPUT_TOKENS = 4_096
"""Maximum tokens of an answer, for providers that require a limit."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The request of a model call.

    Attributes:
        model: The model's name.
        messages: The messages, in the port's format.
        system: The system part, if the format keeps it separate.
        tools: The declarations of the tools.
        parameters: Temperature and similar parameters, and those that the context settings add,
            which may include ``system`` and ``tools`` in place of the attributes.
    """

    model: str
    messages: list[JsonObject]
    system: str | None = None
    tools: tuple[JsonObject, ...] = ()
    parameters: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelPort:
    """How a model is called, and the format of its requests.

    Attributes:
        ask: Returns a text, a whole response, or an iterator of chunks or pieces of text.
        format: The format of messages and tools.
        specification: The log's name of the API; None if it is unknown.
        provider: The provider's name, if known.
    """

    ask: Callable[[ModelRequest], Any]
    format: str = "openai_chat"
    specification: str | None = None
    provider: str | None = None


def port_of(model: Any, provider: str | None = None) -> ModelPort:
    """Return how to call a model.

    Args:
        model: A client, recorded or not, or a callable that takes a `ModelRequest`.
        provider: The provider's name; by default derived from the client's URL.

    Raises:
        TypeError: The model is neither a client nor a callable.
    """
    client = plain_client(model)
    if hasattr(client, "chat"):
        seller = provider or _seller(client)
        return ModelPort(_openai(client), "openai_chat", "openai_chat", seller)
    if hasattr(client, "messages"):
        seller = provider or _seller(client) or "anthropic"
        return ModelPort(_anthropic(client), "anthropic_messages", "anthropic_messages", seller)
    if callable(client):
        return ModelPort(client, provider=provider)
    raise TypeError(
        f"{type(client).__name__} is not a model: pass an OpenAI or Anthropic client, or a "
        "callable that takes a request and returns a text, a response, or its pieces"
    )


def _seller(client: Any) -> str | None:
    from agent_eventstore.clients.client_requests import (
        seller_at,  # slow to import, and only clients need it
    )

    return seller_at(str(getattr(client, "base_url", "")))


def _openai(client: Any) -> Callable[[ModelRequest], Any]:
    def ask(request: ModelRequest) -> Any:
        tools = {"tools": list(request.tools)} if request.tools else {}
        return client.chat.completions.create(
            model=request.model,
            messages=request.messages,
            stream=True,
            stream_options={"include_usage": True},
            **tools,
            **request.parameters,
        )

    return ask


def _anthropic(client: Any) -> Callable[[ModelRequest], Any]:
    def ask(request: ModelRequest) -> Any:
        arguments: JsonObject = {"max_tokens": MODEL_OUTPUT_TOKENS, **request.parameters}
        messages, system = request.messages, [request.system or ""]
        # The ReAct protocol uses OpenAI's roles for every provider.
        system += [each["content"] for each in messages if each["role"] == "system"]
        if any(system):
            arguments.setdefault("system", "\n\n".join(filter(None, system)))
        if request.tools:
            arguments.setdefault("tools", list(request.tools))
        api = client.beta if "betas" in arguments else client
        return api.messages.create(
            model=request.model,
            messages=[each for each in messages if each["role"] != "system"],
            stream=True,
            **arguments,
        )

    return ask


def on_the_wire(declaration: JsonObject, names: Mapping[str, str]) -> JsonObject:
    """Return a tool's declaration with a name that providers accept.

    Args:
        declaration: The declaration with the tool's own name.
        names: The names on the wire of the agent's tools.
    """
    function = declaration.get("function")
    if isinstance(function, dict):
        return {**declaration, "function": on_the_wire(function, names)}
    own = declaration["name"]
    return {**declaration, "name": names.get(own) or wire_name(own)}


def require_tools_fit(port: ModelPort, tools: int) -> None:
    """Refuse more tools than OpenAI takes; other servers of its format have limits of their own.

    Raises:
        ValueError: There are too many.
    """
    limits = LIMITS.get(port.specification or "")
    most = None if limits is None or port.provider not in _LIMITED else limits.tools
    if most is not None and tools > most:
        raise ValueError(
            f"{tools} tools are declared, and {port.provider} takes {most} in a request: leave "
            'some out, or use protocol="react"'
        )


_LIMITED = ("openai", "azure", "azure-openai")


def pieces_of(answer: Any) -> Iterator[Any] | None:
    """Return the pieces of an answer that comes in pieces; None for a whole answer."""
    if isinstance(answer, list | tuple):
        return iter(answer)
    return answer if hasattr(answer, "__next__") else None


@dataclass(frozen=True, slots=True)
class Route:
    """The model of a stage.

    Attributes:
        client: A client or a callable, as for the model of an `AgentSession`.
        model: The model's name.
        parameters: Temperature and similar parameters of the provider's API.
        provider: The provider's name; by default derived from the client's URL.
    """

    client: Any
    model: str
    parameters: JsonObject = field(default_factory=dict)
    provider: str | None = None


class ProviderRouter:
    """Selects the model of each step; pass it to an `AgentSession` as its model.

    Args:
        routes: Routes by the name of the stage, in order.
        strategy: Takes the number of the step within its turn, from 0, and returns the name of a
            stage; by default, the first stage handles the first step of a turn, the last one all
            others.

    Raises:
        ValueError: There are no routes.
    """

    def __init__(
        self, routes: Mapping[str, Route], *, strategy: Callable[[int], str] | None = None
    ) -> None:
        if not routes:
            raise ValueError("a router needs at least one route: name a stage and its model")
        self.routes = dict(routes)
        self._strategy = strategy or self._first_then_last
        self._stage: str | None = None

    def use(self, stage: str | None) -> None:
        """Use this stage from the next step on; None returns the choice to the strategy.

        Raises:
            ValueError: The stage is unknown.
        """
        if stage is not None:
            self._named(stage)
        self._stage = stage

    def route(self, step: int) -> Route:
        """Return the route of a step.

        Raises:
            ValueError: The strategy names an unknown stage.
        """
        return self._named(self._strategy(step) if self._stage is None else self._stage)

    def _named(self, stage: str) -> Route:
        if stage not in self.routes:
            raise ValueError(f"unknown stage {stage!r}; known stages: {', '.join(self.routes)}")
        return self.routes[stage]

    def _first_then_last(self, step: int) -> str:
        stages = list(self.routes)
        return stages[-1 if step else 0]
