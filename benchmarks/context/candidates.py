"""Candidates: anything that returns the messages of a model call within a budget.

A candidate follows one conversation as a product would: it returns the context of one call after
the other, and sees every message in between first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.context.transcripts import Message, Transcript

__all__ = ["Candidate", "Reader", "Reduction", "stateless"]

Reader = Callable[[int, int], Sequence[Message]]
"""``(place, budget)``: the messages to send after ``place`` messages. Places ascend.

Raises ``BudgetInfeasible`` if the candidate cannot meet the budget.
"""

Reduction = Callable[[Sequence[Message], int], Sequence[Message]]
"""``(messages, budget)``: the messages to send instead of these."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to fit a budget.

    Attributes:
        name: Its name in the tables.
        follow: Begins a conversation, and returns its reader.
    """

    name: str
    follow: Callable[[Transcript], Reader]


def stateless(name: str, reduction: Reduction) -> Candidate:
    """Return a candidate that reduces the messages before each call independently."""

    def follow(transcript: Transcript) -> Reader:
        return lambda place, budget: reduction(transcript.messages[:place], budget)

    return Candidate(name, follow)
