"""The ways to fit a budget that every measure compares, and the one table of what all of them keep.

Each way is given twice: as a candidate, which follows a transcript call by call, and as a reader of
a long conversation with a question at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.context.candidates import Candidate, stateless
from benchmarks.context.measures import Cache, Grounding
from benchmarks.context.ours import view_of
from benchmarks.context.peers import peers
from benchmarks.context.retrieval import Follow, Found, of_reduction, ours
from benchmarks.context.varied_facts import Corrected
from eventstore import EventStore
from projections.context.settings import ContextSettings

__all__ = ["DEFAULT", "Kept", "candidates", "readers"]

DEFAULT = "messages[] view, default"

_OURS = {
    DEFAULT: ContextSettings(),
    "messages[] view, strategy window": ContextSettings(strategy="window"),
}
# They are over the budget, or near another one, and made for transcripts with tools.
_NOT_READ = ("clear old tool results, keep 3", "LangChain trim_messages, from human")


def candidates(store: EventStore) -> list[Candidate]:
    """Return each way as a candidate; the views fill the store."""
    views = [view_of(store, *each) for each in _OURS.items()]
    return [*views, *(stateless(*each) for each in peers().items())]


def readers(store: EventStore) -> dict[str, Follow]:
    """Return each way as a reader, by name; the views fill the store."""
    views = {name: ours(store, settings) for name, settings in _OURS.items()}
    others = {name: of_reduction(each) for name, each in peers().items() if name not in _NOT_READ}
    return views | others


@dataclass(frozen=True, slots=True)
class Kept:
    """All figures of one way.

    Attributes:
        held: Grounding and cache, by share of the history.
        tools: Answered questions in conversations with tools, by share.
        talk: The same without the tools' calls and results.
        varied: Facts that were asked for, and that were not, by share.
        corrected: Requests after corrections.
    """

    held: Sequence[tuple[Grounding, Cache]]
    tools: Sequence[Found]
    talk: Sequence[Found]
    varied: Sequence[tuple[Found, Found]]
    corrected: Corrected
