"""The OpenAI Agents SDK's own event types, readable without the SDK."""

from __future__ import annotations

from typing import Any, ClassVar

from eventstore.events import Payload, VersionRange, register_event

__all__ = [
    "MAIN",
    "OpenAIBranch",
    "OpenAIGuardrail",
    "OpenAIHandoff",
    "OpenAIItem",
    "OpenAIItems",
    "OpenAISpan",
]

MAIN = "main"
"""The branch that a session begins with."""


@register_event
class OpenAIItem(Payload):
    """An item that is not interpreted: a compaction, a reference, or an unknown kind.

    Attributes:
        item: The item, verbatim.
    """

    type: ClassVar[str] = "openai_agents.item"

    item: Any


@register_event
class OpenAIItems(Payload):
    """Items as the runner stored them, in its order; a recorded run had already recorded them.

    Attributes:
        items: The items.
        told: The recorded events that these items replace when the session is read.
    """

    type: ClassVar[str] = "openai_agents.items"

    items: tuple[Any, ...]
    replaces: tuple[VersionRange, ...] = ()


@register_event
class OpenAIBranch(Payload):
    """A branch of a session was created or deleted; a fork holds its events.

    Attributes:
        name: The branch.
        parent: The branch that it was created from.
        turn: The turn before which it begins.
        deleted: Whether it was deleted.
        cleared: Whether it was deleted because the whole session was cleared.
    """

    type: ClassVar[str] = "openai_agents.branch"

    name: str
    parent: str = MAIN
    turn: int = 1
    deleted: bool = False
    cleared: bool = False


@register_event
class OpenAIHandoff(Payload):
    """One agent has handed over to another.

    Attributes:
        from_agent: The name of the agent that hands over.
        to_agent: The name of the agent that continues.
    """

    type: ClassVar[str] = "openai_agents.handoff"

    from_agent: str
    to_agent: str


@register_event
class OpenAIGuardrail(Payload):
    """A guardrail has checked the input or output of an agent.

    Attributes:
        name: The guardrail.
        triggered: Whether it stopped the run.
        error: The error, if it failed.
    """

    type: ClassVar[str] = "openai_agents.guardrail"

    name: str
    triggered: bool
    error: str | None = None


@register_event
class OpenAISpan(Payload):
    """A span that the product created has ended.

    Attributes:
        name: The span.
        started_at: When it began, as the SDK writes it.
        ended_at: When it ended.
        data: The data that the product attached to it.
        error: The error, if it failed.
    """

    type: ClassVar[str] = "openai_agents.span"

    name: str
    started_at: str | None = None
    ended_at: str | None = None
    data: Any = None
    error: str | None = None
