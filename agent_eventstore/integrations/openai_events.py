"""Events of the OpenAI Agents SDK's own kinds, readable without the SDK."""

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
"""The branch that a session begins in."""


@register_event
class OpenAIItem(Payload):
    """An item that nobody interprets: a compaction, a reference, or a kind yet unknown.

    Attributes:
        item: The item as it came.
    """

    type: ClassVar[str] = "openai_agents.item"

    item: Any


@register_event
class OpenAIItems(Payload):
    """How the runner keeps what was recorded while it happened, as items in its own order.

    Attributes:
        items: The items.
        told: The events that they stand for, whose own items are not told again.
    """

    type: ClassVar[str] = "openai_agents.items"

    items: tuple[Any, ...]
    told: tuple[VersionRange, ...] = ()


@register_event
class OpenAIBranch(Payload):
    """A branch of a session was begun, or deleted; its events stand in a fork.

    Attributes:
        name: The branch.
        parent: The branch that it goes on from.
        turn: The turn before which it begins.
        deleted: Whether it is no more.
        cleared: Whether it was deleted with all others, and the session begins anew.
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
        from_agent: The name of who was asked so far.
        to_agent: The name of who goes on.
    """

    type: ClassVar[str] = "openai_agents.handoff"

    from_agent: str
    to_agent: str


@register_event
class OpenAIGuardrail(Payload):
    """A guardrail has looked at what a user or an agent says.

    Attributes:
        name: The guardrail.
        triggered: Whether it has stopped the run.
        error: What it has failed with instead of an answer.
    """

    type: ClassVar[str] = "openai_agents.guardrail"

    name: str
    triggered: bool
    error: str | None = None


@register_event
class OpenAISpan(Payload):
    """A span of a product's own has ended.

    Attributes:
        name: The span.
        started_at: When it began, as the SDK writes it.
        ended_at: When it ended.
        data: What the product told with it.
        error: What it has failed with.
    """

    type: ClassVar[str] = "openai_agents.span"

    name: str
    started_at: str | None = None
    ended_at: str | None = None
    data: Any = None
    error: str | None = None
