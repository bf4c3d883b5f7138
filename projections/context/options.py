"""What may be asked of a messages[] view: one definition, for views, turns, and their twins."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from eventstore.events import ToolPolicy
from eventstore.owners import Owned
from projections.context.compression.strategy import Strategy
from projections.context.settings import ContextSettings
from projections.context.state import AskedMode

__all__ = ["Asked", "AskedContext", "ContextOptions"]


class ContextOptions(TypedDict, total=False):
    """How the messages of a request are chosen; each may be left out, and goes before settings.

    Attributes:
        model: Decides how tokens are counted; ``gpt-4o`` by default.
        max_tokens: Tokens of the call, by the project's own count; by default the settings', which
            is ``model``: its window, where that is known. Otherwise nothing is trimmed, and the
            view's ``notes`` say so.
        reserve_for_response: How many of them are kept free for the response.
        max_messages: Upper limit for the number of messages.
        mode: The mode that the request is made in: composes the system part for it. By default,
            the conversation's own, or the turn's. In ``run`` mode the request is told of the active
            run: its directive and the active node's brief or, once it is completed, its directive
            and post-run protocol. None composes nothing: the conversation's own instructions are
            all that is in front.
        agent: Whose persona is told, in agent and run mode; a turn has its conversation's.
        tools: The tool declarations that are sent along, which count too: those that the
            conversation's tool policy lets through, which the view's ``tools`` then are.
        run: Of which run instead: of the one of this id, or of none (False). Without a mode, True
            asks for the active one all the same.
        settings: Limits and choices.
        strategy: What loses detail first, instead of the one that the settings name.
        format: ``openai_chat``, ``openai_responses``, ``anthropic_messages`` or ``neutral``.
        provider: Who will be asked: gets back what it made for itself, such as signed thoughts.
        paths: Whether the request tells the paths of outputs that it does not show whole, for a
            tool of the product's that reads them. By default a view tells them, and a turn where
            the model can read them: ``tools`` has ``read_output``, or there are their files.
    """

    model: str
    max_tokens: int | Literal["model"] | None
    reserve_for_response: int | None
    max_messages: int | None
    mode: AskedMode
    agent: str | None
    tools: Collection[Any]
    run: bool | str | None
    settings: ContextSettings | None
    strategy: Strategy | str | None
    format: str
    provider: str | None
    paths: bool | None


class AskedContext(ContextOptions, Owned, total=False):
    """What else may be asked of a conversation that nobody has open.

    Attributes:
        tool_policy: A policy for this request, merged with the conversation's.
        at: As it was at this version, by replay: costs what its events cost.
        tenant_id: Whose the conversation must be.
        user_id: As this.
    """

    tool_policy: ToolPolicy | None
    at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options with their defaults; see `ContextOptions`."""

    model: str = "gpt-4o"
    max_tokens: int | Literal["model"] | None = None
    reserve_for_response: int | None = None
    max_messages: int | None = None
    mode: AskedMode = "active"
    agent: str | None = None
    tools: Collection[Any] = ()
    tool_policy: ToolPolicy | None = None
    run: bool | str | None = None
    settings: ContextSettings | None = None
    strategy: Strategy | str | None = None
    format: str = "openai_chat"
    provider: str | None = None
    paths: bool | None = None
    at: int | None = None
