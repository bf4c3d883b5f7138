"""The options of a messages[] view, defined once for views, turns, and their async twins."""

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
    """How the messages of a request are chosen; each option is optional, and overrides settings.

    Attributes:
        model: Decides how tokens are counted; ``gpt-4o`` by default.
        max_tokens: The tokens of the call, by the project's own count; by default the settings'
            value, which is ``model``: the model's window, if known. Otherwise nothing is trimmed,
            and the view's ``notes`` say so.
        reserve_for_response: How many of them are kept free for the response.
        max_messages: The most messages.
        mode: The mode of the request, for which the system part is composed. By default, the
            conversation's own, or the turn's. In ``run`` mode the request includes the active run:
            its directive and the active node's brief or, once it is completed, its directive and
            post-run protocol. None composes nothing: only the conversation's own instructions are
            in front.
        agent: The agent whose persona is included, in agent and run mode; in a turn, by default the
            conversation's.
        tools: The tool declarations sent with the request, which count too; only those that the
            conversation's tool policy permits become the view's ``tools``.
        run: Includes another run: the one with this id, or none (False). True includes the active
            one even without a mode.
        settings: Limits and choices.
        strategy: Decides what loses detail first, instead of the strategy named in the settings.
        format: ``openai_chat``, ``openai_responses``, ``anthropic_messages`` or ``neutral``.
        provider: The provider that will be called: it gets back the content meant for it only, such
            as signed thinking.
        paths: Whether the request includes the paths of outputs that it does not show in full, for
            a tool of the product that reads them. By default, a view includes them, and a turn does
            if the model can read them: ``tools`` has ``read_output``, or output files exist.
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
    """Further options for a conversation that is not open.

    Attributes:
        tool_policy: A policy for this request, merged with the conversation's.
        at: The version at which to view it, by replay, which costs as much as its events.
        tenant_id: The tenant to which the conversation must belong.
        user_id: The user to whom it must belong.
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
