"""What is measured: anything that gives the messages of a model call within a budget.

A candidate follows one conversation as a product would: it is asked for the context of one call
after the other, and has seen every message in between when it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.context.transcripts import Message, Transcript

__all__ = ["Candidate", "Reader", "Reduction", "stateless"]

Reader = Callable[[int, int], Sequence[Message]]
"""``(place, budget)``: the messages to send when ``place`` messages were exchanged. Places ascend.

Raises ``BudgetInfeasible`` where the candidate refuses to answer.
"""

Reduction = Callable[[Sequence[Message], int], Sequence[Message]]
"""``(messages, budget)``: the messages to send instead of these."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to fit a budget.

    Attributes:
        name: As it stands in the tables.
        follow: Begins a conversation, and returns its reader.
    """

    name: str
    follow: Callable[[Transcript], Reader]


def stateless(name: str, reduction: Reduction) -> Candidate:
    """Return the candidate that reduces the messages before each call on their own."""

    def follow(transcript: Transcript) -> Reader:
        return lambda place, budget: reduction(transcript.messages[:place], budget)

    return Candidate(name, follow)
