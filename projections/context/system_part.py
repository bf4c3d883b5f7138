"""What stands in front of the history: composed for one request, and stored nowhere.

That is (document 000, 4.3) the base rules by mode, the tool policy, the persona, a banner that
names the mode, and what a run is told. Pure but for the product's files; the same texts and
arguments give the same messages.

A tool policy lets some of the declared tools through. Their names stand where OpenAI's chat and
Responses formats and Anthropic's have them; a provider's own tool without a name is called by its
type.
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
    """A system message that is made for one request, and stored nowhere.

    Attributes:
        label: What it is, for errors and the ledger.
        text: Its content.
        versions: The events that it was made of; none for what is not a fact of the conversation.
            In the ledger it stands before all events, at 0.
    """

    label: str
    text: str
    versions: tuple[int, ...] = ()


def declared_name(tool: Any) -> str | None:
    """Return what a tool is called by the model; None if the declaration does not say."""
    if not isinstance(tool, Mapping):
        return None
    inner = next((tool[key] for key in ("function", "custom") if key in tool), tool)
    for found in (inner.get("name") if isinstance(inner, Mapping) else None, tool.get("type")):
        if isinstance(found, str):
            return found
    return None


def permitted(tools: Iterable[Any], policy: ToolPolicy | None) -> tuple[Any, ...]:
    """Return the declarations of the tools that may be used, as they are and in their order.

    One whose name nobody can tell is left out where only some tools are allowed.
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
        mode: The mode of the request. None composes nothing but ``runs``. A mode of the product's
            own has its own base rules, or else those of chat.
        texts: The product's texts; None stands for the defaults.
        agent: Whose persona is told, in agent and run mode; chat has none.
        tools: The tools that the request declares; without any there is no word on their use.
        policy: Which tools may be used: told behind that.
        runs: What is told of a run; left out in chat and agent mode.

    Raises:
        ValueError: No mode can be called so.
        InvalidPrompt: A text of the product's cannot be read.
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
