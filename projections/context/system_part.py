"""The system part of a request: composed for each request, and stored nowhere.

It consists (document 000, 4.3) of the base rules by mode, the tool policy, the persona, a banner
that names the mode, and the description of a run. Pure except for the product's files: the same
texts and arguments give the same messages.

A tool policy permits some of the declared tools. Their names are found in declarations of OpenAI's
chat and Responses formats and of Anthropic's; a provider's own tool without a name is identified by
its type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eventstore.events import ToolPolicy
from eventstore.events.values import MODES, Mode, is_mode
from projections.context import prompts
from projections.context.prompt_texts import TOOL_POLICY, PromptTexts

__all__ = ["Injection", "compose", "declared_name", "mode_banner", "permitted"]


@dataclass(frozen=True, slots=True)
class Injection:
    """A system message composed for one request, and stored nowhere.

    Attributes:
        label: Its name, for errors and the ledger.
        text: Its content.
        versions: The events that it was made of; none if it is not a fact of the conversation. It
            is then placed before all events in the ledger, at 0.
    """

    label: str
    text: str
    versions: tuple[int, ...] = ()


def declared_name(tool: Any) -> str | None:
    """Return the name by which the model calls a tool; None if the declaration has none."""
    if not isinstance(tool, Mapping):
        return None
    inner = next((tool[key] for key in ("function", "custom") if key in tool), tool)
    for found in (inner.get("name") if isinstance(inner, Mapping) else None, tool.get("type")):
        if isinstance(found, str):
            return found
    return None


def permitted(tools: Iterable[Any], policy: ToolPolicy | None) -> tuple[Any, ...]:
    """Return the declarations of the permitted tools, unchanged and in order.

    A tool without a recognised name is left out if only some tools are allowed.
    """
    return tuple(tool for tool in tools if policy is None or _permits(policy, tool))


def _permits(policy: ToolPolicy, tool: Any) -> bool:
    if isinstance(tool, Mapping) and tool.get("type") == "mcp":
        return policy.server_refusal(str(tool.get("server_label"))) is None
    name = declared_name(tool)
    return policy.allowed is None if name is None else policy.refusal(name) is None


def compose(
    mode: Mode | None,
    *,
    texts: PromptTexts | None = None,
    agent: str | None = None,
    tools: Collection[Any] = (),
    policy: ToolPolicy | None = None,
    runs: Sequence[Injection] = (),
) -> tuple[Injection, ...]:
    """Return the system messages of a request, in the order in which they are sent.

    Args:
        mode: The mode of the request; None composes only ``runs``. A mode of the product has its
            own base rules, or by default those of chat.
        texts: The product's texts; None for the defaults.
        agent: The agent whose persona is included, in agent and run mode; chat has none.
        tools: The tools that the request declares; without any, their rules are left out.
        policy: The policy for tools, which follows these rules.
        runs: The description of a run; left out in chat and agent mode.

    Raises:
        ValueError: The mode's name is invalid.
        InvalidPrompt: A text of the product cannot be read.
    """
    if mode is None:
        return tuple(runs)
    if not is_mode(mode):
        raise ValueError(
            f"there is no mode {mode!r}: choose from {', '.join(MODES)}, the product's own, or None"
        )
    texts = texts or PromptTexts()
    parts = [Injection("base rules", texts.base_rules(mode))]
    told = (texts.text(TOOL_POLICY) if tools else "", prompts.tool_policy(policy) if policy else "")
    parts.append(Injection("tool policy", "\n\n".join(filter(None, told))))
    if agent and mode != "chat":
        parts.append(Injection("persona", texts.persona(agent)))
    parts.append(Injection("mode banner", mode_banner(mode)))
    return (*(part for part in parts if part.text), *(runs if mode == "run" else ()))


def mode_banner(mode: Mode) -> str:
    """Return the message that names the mode, in the words of document 000."""
    return (
        f"MODE\n- active: {mode}\n"
        "- note: history may include other modes; follow current instructions."
    )
