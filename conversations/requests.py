"""A request to a model: the messages that are sent, and what the log keeps of how they came."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eventstore.events import VersionRange
from eventstore.events.codec import dumps
from eventstore.tokens import Count
from projections.context import POLICY, ContextView, LedgerEntry

__all__ = ["Request", "digest_of", "request_of"]


@dataclass(frozen=True, slots=True)
class Request:
    """What `Turn.context` returns: ``messages`` to send, and the account of them.

    ``digest`` is the SHA-256 of the messages' JSON; ``versions`` are the events they were made of.
    """

    messages: list[dict[str, Any]]
    ledger: tuple[LedgerEntry, ...]
    tokens: Count
    model: str
    max_tokens: int | None
    versions: tuple[VersionRange, ...]
    digest: str

    @property
    def policy(self) -> dict[str, Any]:
        """What the log keeps of how the messages were chosen."""
        return {**POLICY, "max_tokens": self.max_tokens}


def request_of(view: ContextView, model: str, max_tokens: int | None) -> Request:
    """Make a request of a messages[] view."""
    messages = list(view.messages)
    return Request(
        messages=messages,
        ledger=view.ledger,
        tokens=view.tokens,
        model=model,
        max_tokens=max_tokens,
        versions=tuple(ranges(view.versions)),
        digest=digest_of(messages),
    )


def digest_of(prompt: Any) -> str:
    """Return the SHA-256 of the messages' JSON text, keys in the order in which they are sent."""
    return hashlib.sha256(dumps(prompt).encode()).hexdigest()


def ranges(versions: Iterable[int]) -> list[VersionRange]:
    """Return ascending versions as ranges without gaps."""
    found: list[VersionRange] = []
    for version in versions:
        if found and found[-1].last + 1 == version:
            found[-1] = VersionRange(first=found[-1].first, last=version)
        else:
            found.append(VersionRange(first=version, last=version))
    return found
