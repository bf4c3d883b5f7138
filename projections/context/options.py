"""The options of a messages[] view: one definition for views and turns, sync and async."""

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
    """How the messages of a request are chosen; all optional, and each overrides the settings.

    Attributes:
        model: Decides how tokens are counted; ``gpt-4o`` by default.
        max_tokens: Tokens of the whole call, by the project's own count; by default the setting,
            whose default ``model`` means the model's context window. If the window is unknown,
            nothing is trimmed, and the view's ``notes`` say so.
        reserve_for_response: How many of ``max_tokens`` are kept free for the response.
        max_messages: Upper limit for the number of messages.
        mode: The mode for which the system part is composed; by default the conversation's or the
            turn's. In ``run`` mode the system part describes the active run: its directive and the
            active node's brief or, once the run is completed, its directive and post-run protocol.
            None composes nothing: only the conversation's own instructions are sent.
        agent: The agent whose persona is sent in agent and run mode; in a turn, by default the
            conversation's.
        tools: The tool declarations to send, which count towards the budget. The view's ``tools``
            are those that the conversation's tool policy permits.
        run: The id of the run to describe instead of the active one, or False for none; runs are
            described in ``run`` mode only. Without a mode, True describes the active run.
        settings: Limits and choices.
        strategy: The strategy to use instead of the one that the settings name.
        format: ``openai_chat``, ``openai_responses``, ``anthropic_messages`` or ``neutral``.
        provider: The provider that will be called: gets back the content made for its own use, such
            as signed thinking.
        paths: Whether the request shows the paths of outputs that it does not contain whole, for a
            tool of the product that reads them. By default a view shows them, and a turn shows them
            if the model can read them: if ``tools`` contains ``read_output``, or the outputs exist
            as files.
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
    """`ContextOptions`, and the options for a view of a conversation that is not open.

    Attributes:
        tool_policy: A policy for this request, merged with the conversation's.
        at: The version to show, by replay; the cost grows with the number of events.
        tenant_id: The tenant that the conversation must have.
        user_id: The user that the conversation must have.
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
