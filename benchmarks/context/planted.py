"""Planted facts: said once and never repeated, over a thousand turns.

A conversation of a thousand turns is made of the transcripts, one task after the other. Between
turns a user says an account number or a rule, forty times in all, spread evenly. No question asks
about them at the end: what counts is whether the request contains the number or rule verbatim.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import cycle, islice

from benchmarks.context.peers import first_user_and_newest
from benchmarks.context.retrieval import Asked, Chain, Found, measured, of_reduction, ours
from benchmarks.context.transcripts import TAU_BENCH, Message
from eventstore import EventStore
from projections.context.settings import ContextSettings

__all__ = ["PLANTED_SHARES", "planted", "planted_chain"]

PLANTED_SHARES = (0.02, 0.1, 0.5, 0.9)
"""Budgets, as shares of the whole history."""

_TURNS = 1_000
_PLANTS = 40
_CITIES = ("Oslo", "Lima", "Cairo", "Quito", "Perth")
_FIRMS = ("Halden", "Brixton", "Marlow", "Tessin", "Varga", "Orlan", "Kestrel", "Dunmore")
_CURRENCIES = ("euro", "dollars", "yen")


def planted(store: EventStore, turns: int = _TURNS) -> list[tuple[str, list[Found]]]:
    """Return how many of the planted facts each reader's request still contains, at each budget.

    Args:
        store: An empty store for the messages[] view; the benchmark fills it.
        turns: Number of turns of the conversation.
    """
    chain = planted_chain(turns)
    readers = {
        "messages[] view, default": ours(store, ContextSettings()),
        "messages[] view, steps off": ours(store, ContextSettings(steps=False)),
        "newest suffix": of_reduction(first_user_and_newest),
    }
    found = []
    for name, follow in readers.items():
        read, results = follow(chain), [Found() for _ in PLANTED_SHARES]
        for share, result in zip(PLANTED_SHARES, results, strict=True):
            measured(chain, read, share, result)
        found.append((name, results))
    return found


def planted_chain(turns: int) -> Chain:
    """Return a conversation of this many turns, with its facts and one question for each."""
    records = json.loads(TAU_BENCH.read_text("utf-8"))
    tasks = (record["traj"] for record in cycle(records))
    said = (each for task in tasks for each in task if each["role"] != "system")
    every, plants = max(turns // _PLANTS, 1), list(islice(_facts(), min(_PLANTS, turns)))
    messages: list[Message] = []
    seen = 0
    for message in said:
        if message["role"] == "user":
            if seen == turns:
                break
            if seen % every == every // 2 and seen // every < len(plants):
                messages += _plant(plants[seen // every][0])
            seen += 1
        messages.append(message)
    asked = tuple(Asked("And now?", (evidence,)) for _, evidence in plants[: seen // every])
    return Chain(tuple(messages), asked)


def _facts() -> Iterator[tuple[str, str]]:
    """Yield endless sentences, each with the part that must be kept."""
    for number in range(1_000_000):
        firm = f"{_FIRMS[number % len(_FIRMS)]} {_CITIES[number // 8 % len(_CITIES)]}"
        if number % 2:
            rule = f"{firm} must never be charged in {_CURRENCIES[number % 3]}."
            yield f"One thing to remember. {rule} It caused trouble before.", rule
        else:
            account = f"{4_100 + number * 7}-{88_231 + number * 131}-{number % 10}"
            yield f"By the way, the account number of {firm} is {account}. Thanks.", account


def _plant(sentence: str) -> Sequence[Message]:
    return (
        {"role": "user", "content": sentence},
        {"role": "assistant", "content": "Thank you, I have noted that."},
    )
