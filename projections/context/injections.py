"""What a request is told beside its history: made for one request, and stored nowhere."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Injection"]


@dataclass(frozen=True, slots=True)
class Injection:
    """A system message that is made for one request, and stored nowhere.

    Attributes:
        label: What it is, for errors and the ledger.
        text: Its content.
        versions: The events that it was made of; none for what is no fact of the conversation. In
            the ledger it stands before all events, at 0.
    """

    label: str
    text: str
    versions: tuple[int, ...] = ()
