"""`ToolPolicy`: which tools a conversation, or an agent in it, may use (documents 000 and 003).

Several merge into one that allows what each of them allows. It names tools as the model calls them;
how tools are declared is the business of requests.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field

from eventstore.events.base import Value

__all__ = ["ToolPolicy"]

_MCP = "mcp__"
"""How tools of MCP servers are named where they stand among others: ``mcp__<server>__<tool>``."""


class ToolPolicy(Value):
    """Which tools may be used; without any rule, all of them.

    Attributes:
        allowed: The only tools, and MCP servers that the provider calls, that may be used; None
            for all that are not denied.
        denied: Those that may not be used, whatever else is said.
        mcp_allowlist: The only MCP servers whose tools may be used; None for all of them.
        internal_tools: The product's own tools, switched off by False.
        text: What the model is told besides.
    """

    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()
    mcp_allowlist: tuple[str, ...] | None = None
    internal_tools: dict[str, bool] = Field(default_factory=dict)
    text: str | None = None

    @property
    def refused(self) -> tuple[str, ...]:
        """The names that may not be used: those denied, and those switched off."""
        off = (name for name, on in self.internal_tools.items() if not on)
        return tuple(dict.fromkeys((*self.denied, *off)))

    def refusal(self, name: str) -> str | None:
        """Return why the tool of this name may not be used; None if it may."""
        server, _, tool = name.removeprefix(_MCP).partition("__")
        if name.startswith(_MCP) and tool and not self._on_list(server):
            return f"the tool policy does not allow the MCP server {server}"
        return self._refusal(name)

    def server_refusal(self, server: str) -> str | None:
        """Return why this MCP server may not be used as a whole; None if it may."""
        if not self._on_list(server):
            return f"the tool policy does not allow the MCP server {server}"
        return self._refusal(server)

    def _on_list(self, server: str) -> bool:
        return self.mcp_allowlist is None or server in self.mcp_allowlist

    def _refusal(self, name: str) -> str | None:
        if name in self.refused:
            return f"the tool policy denies {name}"
        if self.allowed is not None and name not in self.allowed:
            return f"{name} is not among the tools that the tool policy allows"
        return None

    def merge(self, *others: ToolPolicy | None) -> Self:
        """Return the policy that allows what this one and all others allow; None changes nothing.

        Denials add up, lists of what is allowed intersect, a tool that one switches off is off.
        Texts follow each other, each once. What is merged already changes nothing.
        """
        merged = self
        for other in others:
            merged = merged if other is None else merged._with(other)
        return merged

    def _with(self, other: ToolPolicy) -> Self:
        mine, theirs = self.internal_tools, other.internal_tools
        told = [text for text in (self.text, other.text) if text]
        if len(told) > 1 and told[1] in told[0].split(_BETWEEN):
            del told[1]
        return type(self)(
            allowed=_common(self.allowed, other.allowed),
            denied=tuple(dict.fromkeys((*self.denied, *other.denied))),
            mcp_allowlist=_common(self.mcp_allowlist, other.mcp_allowlist),
            internal_tools={
                name: mine.get(name, True) and theirs.get(name, True)
                for name in dict.fromkeys((*mine, *theirs))
            },
            text=_BETWEEN.join(told) or None,
        )


_BETWEEN = "\n\n"


def _common(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    lists = [each for each in (one, other) if each is not None]
    if not lists:
        return None
    return tuple(name for name in dict.fromkeys(lists[0]) if name in lists[-1])
