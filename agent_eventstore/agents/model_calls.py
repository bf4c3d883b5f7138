"""What an agent asks: a client of OpenAI's or Anthropic's shape, or any callable, as one thing.

Neither SDK is imported here: a client is told by its shape. What comes back is a text, a whole
response, or pieces of one, which the recorder takes as they are. With `ProviderRouter` several
models answer in one conversation, by stage (document 004); the log's ``invocation`` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_eventstore.clients.proxy import plain_client
from eventstore.events import JsonObject

__all__ = ["ModelPort", "ModelRequest", "ProviderRouter", "Route", "pieces_of", "port_of"]


MODEL_OUTPUT_TOKENS = 4_096
"""Tokens of an answer at most, where the provider wants that said."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model is asked.

    Attributes:
        model: The model's name.
        messages: In the port's format.
        system: The system part, where it stands apart.
        tools: The declarations of the tools.
        parameters: Temperature and the like, and what the settings of the context ask for, which
            may be ``system`` and ``tools`` in place of the others.
    """

    model: str
    messages: list[JsonObject]
    system: str | None = None
    tools: tuple[JsonObject, ...] = ()
    parameters: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelPort:
    """Where a model is asked, and how what it is sent is written.

    Attributes:
        ask: Returns a text, a whole response, or an iterator of chunks or pieces of text.
        format: In which messages and tools are written.
        specification: As the log names the API; None where nobody knows.
        provider: Who is asked, if it is known.
    """

    ask: Callable[[ModelRequest], Any]
    format: str = "openai_chat"
    specification: str | None = None
    provider: str | None = None


def port_of(model: Any, provider: str | None = None) -> ModelPort:
    """Return how a model is asked.

    Args:
        model: A client, recorded or not, or a callable that takes a `ModelRequest`.
        provider: Who is asked; by default told from the client's URL.

    Raises:
        TypeError: It is neither.
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
        f"{type(client).__name__} is not a model: hand in a client of OpenAI's or Anthropic's, or "
        "a callable that takes a request and returns a text, a response, or its pieces"
    )


def _seller(client: Any) -> str | None:
    from agent_eventstore.clients.asked import seller_at  # takes a while, and clients alone need it

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
        told: JsonObject = {"max_tokens": MODEL_OUTPUT_TOKENS, **request.parameters}
        messages, system = request.messages, [request.system or ""]
        # The ReAct protocol writes for everybody in OpenAI's roles.
        system += [each["content"] for each in messages if each["role"] == "system"]
        if any(system):
            told.setdefault("system", "\n\n".join(filter(None, system)))
        if request.tools:
            told.setdefault("tools", list(request.tools))
        asked = client.beta if "betas" in told else client
        return asked.messages.create(
            model=request.model,
            messages=[each for each in messages if each["role"] != "system"],
            stream=True,
            **told,
        )

    return ask


def pieces_of(answer: Any) -> Iterator[Any] | None:
    """Return the pieces of an answer that comes in pieces; None of one that is whole."""
    if isinstance(answer, list | tuple):
        return iter(answer)
    return answer if hasattr(answer, "__next__") else None


@dataclass(frozen=True, slots=True)
class Route:
    """Whom a stage asks.

    Attributes:
        client: A client or a callable, as an `AgentSession` takes it as its model.
        model: The model's name.
        parameters: Temperature and the like, as the provider's API takes them.
        provider: Who is asked; by default told from the client's URL.
    """

    client: Any
    model: str
    parameters: JsonObject = field(default_factory=dict)
    provider: str | None = None


class ProviderRouter:
    """Picks whom to ask; handed to an `AgentSession` in the place of a model.

    Args:
        routes: By the name of the stage, in order.
        strategy: Given the number of the step within its turn, from 0, returns the name of a stage;
            by default the first stage has the first step of a turn, and the last one all others.

    Raises:
        ValueError: There is no route.
    """

    def __init__(
        self, routes: Mapping[str, Route], *, strategy: Callable[[int], str] | None = None
    ) -> None:
        if not routes:
            raise ValueError("a router has at least one route: name a stage, and whom it asks")
        self.routes = dict(routes)
        self._strategy = strategy or self._first_then_last
        self._stage: str | None = None

    def use(self, stage: str | None) -> None:
        """Ask whom this stage names from the next step on; None leaves it to the strategy again.

        Raises:
            ValueError: There is no such stage.
        """
        if stage is not None:
            self._named(stage)
        self._stage = stage

    def route(self, step: int) -> Route:
        """Return whom a step asks.

        Raises:
            ValueError: The strategy names a stage that there is not.
        """
        return self._named(self._strategy(step) if self._stage is None else self._stage)

    def _named(self, stage: str) -> Route:
        if stage not in self.routes:
            raise ValueError(f"there is no stage {stage!r}: there are {', '.join(self.routes)}")
        return self.routes[stage]

    def _first_then_last(self, step: int) -> str:
        stages = list(self.routes)
        return stages[-1 if step else 0]
