"""What a request is built to: its messages, and everything that can be said of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eventstore.events.codec import dumps
from eventstore.tokens import Count
from projections.compression.llm_summary import SummaryRequest
from projections.compression.monitor import ContextUsage
from projections.context.ledger import Account, LedgerEntry
from projections.context.paths import in_part

__all__ = ["ContextView", "digest_of"]


@dataclass(frozen=True)
class ContextView:
    """The messages of one request, and the account of how they were chosen.

    Attributes:
        messages: In the format that was asked for, ready to be sent.
        system: The system part, for formats that want it apart; None where it is in ``messages``.
        tokens: Of the whole request, tool declarations included, as this project counts it.
        usage: How much of the budget is used; None without a budget.
        encoding: The encoding that was counted with.
        complete: Whether nothing visible lost detail.
        versions: The events that the messages were made of, ascending.
        account: What became of each group of messages; ``ledger`` tells it in words.
        policy: How they were chosen, as an ``llm_request`` records it: with it, the events before
            give the same bytes again.
        format: The provider's format.
        tools: The tool declarations to be sent along: those that the tool policy lets through.
        notes: What did not go as it was asked, such as an embedding that failed.
        due: With the strategy ``llm_summary``, the summary that the dropped part should get.
    """

    messages: tuple[dict[str, Any], ...]
    system: str | None
    tokens: Count
    usage: ContextUsage | None
    encoding: str
    complete: bool
    versions: tuple[int, ...]
    account: Account
    policy: dict[str, Any]
    format: str
    tools: tuple[Any, ...] = ()
    due: SummaryRequest | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        """What became of each group of messages; made when it is first asked for."""
        return self.account.entries()

    @property
    def in_part(self) -> tuple[tuple[str, int, bool], ...]:
        """Call id and version of results told of but not shown whole; whether by the digest."""
        return tuple(in_part(self.account.history))

    @property
    def step(self) -> tuple[int, int] | None:
        """The place of the newest message before the last step; None if none fell."""
        return self.account.history.step

    @property
    def document(self) -> dict[str, Any]:
        """What can be said of the view as one JSON object."""
        told = ("messages", "system", "ledger", "tokens", "usage", "encoding", "complete")
        more = ("versions", "step", "policy", "format", "digest", "tools", "notes")
        return {name: getattr(self, name) for name in (*told, *more)}

    @property
    def prompt(self) -> Any:
        """What is digested: the messages; with the system part, where that stands apart."""
        listed = list(self.messages)
        return listed if self.system is None else {"system": self.system, "messages": listed}

    @property
    def digest(self) -> str:
        """The SHA-256 of the prompt's JSON, as an ``llm_request`` records it."""
        return digest_of(self.prompt)


def digest_of(prompt: Any) -> str:
    """Return the SHA-256 of a prompt's JSON text, keys in the order in which they are sent."""
    return hashlib.sha256(dumps(prompt).encode()).hexdigest()
