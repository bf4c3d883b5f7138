"""This project's contexts: from the public API on a real store, and from each strategy alone.

A transcript is imported message by message, as it grew, and the view is read at each call, as a
product would see it. The strategies get plain messages and no store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts import Transcript as Imported
from agent_eventstore.transcripts import load, read_transcripts
from benchmarks.context.candidates import Candidate, Reader, stateless
from benchmarks.context.transcripts import (
    MODEL,
    TAU_BENCH,
    Message,
    Transcript,
    request_tokens,
    tokenizer,
)
from eventstore import EventStore, new_id
from projections import Views
from projections.context.compression import (
    Item,
    MemorySearch,
    Strategy,
    items_of,
    reduce,
    strategies,
    strategy_of,
    with_relevance,
)
from projections.context.compression.pipeline import assemble
from projections.context.settings import ContextSettings

__all__ = ["alone", "reduced", "strategies_alone", "view_of"]


def view_of(store: EventStore, name: str, settings: ContextSettings) -> Candidate:
    """Return the messages[] view of a store as a candidate; it fills the store."""
    views = Views(store)
    imported = _imported(TAU_BENCH)

    def follow(transcript: Transcript) -> Reader:
        conversation_id = new_id()
        whole = replace(imported[transcript.number], conversation_id=conversation_id)
        # The first event is the conversation's start; each other event is a message.
        assert len(whole.events) == len(transcript.messages) + 1

        def read(place: int, budget: int) -> Sequence[Message]:
            grown = replace(whole, events=whole.events[: place + 1])
            load(store, [grown], strict=True)
            view = views.context(conversation_id, max_tokens=budget, model=MODEL, settings=settings)
            assert request_tokens(view.messages) <= view.tokens.tokens <= budget
            return view.messages

        return read

    return Candidate(name, follow)


def strategies_alone() -> list[Candidate]:
    """Return every registered strategy as a candidate; without a model, none writes summaries."""
    return [alone(strategy_of(name)) for name in strategies()]


def alone(strategy: Strategy) -> Candidate:
    """Return a strategy as a candidate; `projections.context.compression` gives the answers."""
    name = f"strategy {strategy.name}"
    return stateless(name, lambda messages, budget: reduced(messages, budget, strategy))


def reduced(messages: Sequence[Message], budget: int, strategy: Strategy) -> list[Message]:
    """Return the same as ``compress``, but make the items of the same messages only once.

    Raises:
        BudgetInfeasible: The mandatory messages are over the budget.
    """
    items = _items(json.dumps(messages))
    intent = next((item.text for item in reversed(items) if item.kind == "user"), "")
    if getattr(strategy, "retrieves", False):
        items = with_relevance(items, MemorySearch(items), intent)
    reductions = strategy.reductions(items, intent)
    frame = request_tokens(())
    found = reduce(items, reductions, fixed=frame, max_tokens=budget, tokenizer=tokenizer())
    return [message for placed in assemble(items, found) for message in placed.messages]


@lru_cache(maxsize=1_000)
def _items(messages: str) -> list[Item]:
    return items_of(json.loads(messages), tokenizer())


def _imported(path: Path) -> list[Imported]:
    found = []
    for each in read_transcripts(path):
        if isinstance(each, ImportFailed):
            raise each
        found.append(each)
    return found
