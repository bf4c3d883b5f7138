"""`ProviderRouter`: one conversation, several models: who is asked, by stage (document 004).

The conversation is rendered in the format of whoever is asked next, so that one may plan and
another carry out; the log's ``invocation`` says who it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eventstore.events import JsonObject

__all__ = ["ProviderRouter", "Route"]


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
