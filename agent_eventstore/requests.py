"""A request to a model: the messages that are sent, and what the log keeps of how they came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from eventstore.events import Summary, VersionRange
from eventstore.tokens import Count
from projections.compression import (
    ContextUsage,
    LlmSummary,
    Strategy,
    SummaryRequest,
    strategy_of,
)
from projections.context import ContextSettings, ContextView, LedgerEntry
from projections.context.view import digest_of

__all__ = [
    "Request",
    "SystemTexts",
    "digest_of",
    "failed_summary",
    "request_of",
    "strategy_for",
    "summary_of",
]


@dataclass(frozen=True, slots=True)
class Request:
    """What `Turn.context` returns: ``messages`` to send, and the account of them.

    Attributes:
        messages: In the format that was asked for.
        system: The system part, for formats that want it apart; None where it is in ``messages``.
        tools: The tool declarations that were counted, those that the tool policy lets through;
            sent along unless others are given.
        view: The messages[] view that it was made of.
        tokens: Of the whole request, by this project's count.
        usage: How much of the budget that is; None without a budget.
        model: What was counted for.
        format: The provider's format.
        versions: The events that the messages were made of.
        digest: SHA-256 of the JSON of what is sent.
        policy: What the log keeps of how the messages were chosen.
        notes: What did not go as it was asked, such as a summary that the model failed to write.
    """

    messages: list[dict[str, Any]]
    system: str | None
    tools: tuple[dict[str, Any], ...]
    view: ContextView = field(repr=False)
    tokens: Count
    usage: ContextUsage | None
    model: str
    format: str
    versions: tuple[VersionRange, ...]
    digest: str
    policy: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        """What became of each group of messages."""
        return self.view.ledger


def request_of(view: ContextView, at: int, note: str = "") -> Request:
    """Make a request of a messages[] view that was read at a version of the conversation."""
    return Request(
        messages=list(view.messages),
        system=view.system,
        tools=view.tools,
        view=view,
        tokens=view.tokens,
        usage=view.usage,
        model=view.policy["model"],
        format=view.format,
        versions=tuple(ranges(view.versions)),
        digest=view.digest,
        policy={**view.policy, "at": at},
        notes=(*view.notes, note) if note else view.notes,
    )


def strategy_for(settings: ContextSettings | None, strategy: Strategy | str | None) -> Strategy:
    """Return the strategy of a request: the one that is given, or that of the settings."""
    if strategy is not None:
        return strategy_of(strategy)
    chosen = settings or ContextSettings()
    return strategy_of(chosen.strategy, **chosen.strategy_options)


def summary_of(due: SummaryRequest, text: str, strategy: LlmSummary) -> Summary:
    """Return the event of a summary that a model has written."""
    return Summary(
        text=text,
        versions=tuple(ranges(due.versions)),
        strategy=strategy.name,
        strategy_version=str(strategy.version),
    )


def failed_summary(why: str, strategy: LlmSummary) -> str:
    """Return the note on a summary that was not written."""
    base = strategy_of(strategy.base).name
    return f"no summary was written ({why}): the strategy {base} stands in for it"


@dataclass(slots=True)
class SystemTexts:
    """Where in the log the composed system parts of requests stand, so that each stands there once.

    Attributes:
        versions: Of the request that holds it, by the texts.
    """

    versions: dict[str, int] = field(default_factory=dict)

    def shared(self, policy: dict[str, Any]) -> dict[str, Any]:
        """Return the policy with a reference in place of texts that the log has already."""
        version = self.versions.get(str(policy.get("system")))
        if version is None:
            return policy
        rest = {name: value for name, value in policy.items() if name != "system"}
        return {**rest, "system_of": version}

    def stored(self, policy: dict[str, Any], version: int) -> None:
        """Remember the request that a policy's texts stand in."""
        if "system" in policy:
            self.versions.setdefault(str(policy["system"]), version)


def ranges(versions: Iterable[int]) -> list[VersionRange]:
    """Return ascending versions as ranges without gaps."""
    found: list[VersionRange] = []
    for version in versions:
        if found and found[-1].last + 1 == version:
            found[-1] = VersionRange(first=found[-1].first, last=version)
        else:
            found.append(VersionRange(first=version, last=version))
    return found
