"""How soon a stalled stream's text is durable while other conversations are locked."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from uuid import UUID

import psycopg
from sqlalchemy import make_url

from agent_eventstore import Conversation, EventStore
from agent_eventstore.llm_call import LlmCall
from benchmarks.bench import POSTGRESQL, Bench
from benchmarks.measure import Figure
from benchmarks.results import Target, Work, work

__all__ = ["locked_neighbours"]

LOCKED = 12


def locked_neighbours(bench: Bench) -> Iterator[Work]:
    """Measure from `feed` to a committed event, with and without twelve locked streams."""
    if POSTGRESQL not in bench.databases:
        return
    rounds = max(bench.scale.rounds // 20, 3)
    with bench.fresh(POSTGRESQL) as url:
        beside = f"beside {LOCKED} streams of locked conversations"
        yield work(
            f"A stalled stream's text is durable, {POSTGRESQL}",
            [
                Figure("no lock", tuple(_delays(url, rounds, locked=False))),
                Figure(beside, tuple(_delays(url, rounds, locked=True))),
            ],
            {beside: Target(ratio=1.2)},
            note="A delta is fed and no other follows: it is held for 100 ms, then written.",
        )


def _delays(url: str, rounds: int, *, locked: bool) -> Iterator[float]:
    with ExitStack() as stack:
        store = stack.enter_context(EventStore.open(url))
        watching = stack.enter_context(EventStore.open(url))
        # Left first: the others write what they hold back when they are unlocked.
        calls = [_begun(store, stack) for _ in range(LOCKED + 1)]
        *others, (free, call) = calls
        if locked:
            stack.enter_context(_locks(url, [conversation_id for conversation_id, _ in others]))
            for _, other in others:
                other.feed(_chunk())
        for _ in range(rounds):
            before = watching.get(free).version
            begun = time.perf_counter()
            call.feed(_chunk())
            while watching.get(free).version == before:
                time.sleep(0.001)
            yield time.perf_counter() - begun


def _begun(store: EventStore, stack: ExitStack) -> tuple[UUID, LlmCall]:
    conversation = stack.enter_context(Conversation.start(store))
    turn = stack.enter_context(conversation.turn("hello"))
    call = stack.enter_context(turn.llm_call(model="gpt-4o"))
    call.feed(_chunk())
    return conversation.id, call


@contextmanager
def _locks(url: str, ids: Sequence[UUID]) -> Iterator[None]:
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address) as other:
        query = "SELECT FROM conversations WHERE conversation_id = ANY(%s) FOR UPDATE"
        other.execute(query, [list(ids)])
        yield
        other.rollback()


def _chunk() -> dict[str, object]:
    choice = {"index": 0, "delta": {"content": "more "}, "finish_reason": None}
    return {"object": "chat.completion.chunk", "model": "gpt-4o", "choices": [choice]}
