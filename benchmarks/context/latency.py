"""What a read of the messages[] view costs in a long conversation, warm.

Warm: the projections are caught up, and the process has read each conversation before. The
lengths take turns, so that a busy machine is busy for all of them.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from uuid import UUID

from sqlalchemy import text

from benchmarks.context.transcripts import MODEL
from benchmarks.measure import Figure
from eventstore import EventStore, NewEvent, events, new_id
from eventstore.events.records import EventData
from eventstore.ids import call_id
from projections import Views

__all__ = ["BUDGET", "LongRead", "Prepared", "long_reads", "prepare"]

BUDGET = 8_000
"""Tokens of a read's context."""

_BATCH = 1_000
_WARM_UP = 20
_PROSE = "I looked at what was booked before, and it can be changed until the evening. " * 3


@dataclass(frozen=True, slots=True)
class LongRead:
    """The times of reads of one conversation.

    Attributes:
        messages: How long it was at first.
        catch_up_s: How long the first read took, which folded all of its events.
        after_append: Reads with one new user message each.
        unchanged: Reads with nothing new.
    """

    messages: int
    catch_up_s: float
    after_append: Figure
    unchanged: Figure


@dataclass(frozen=True, slots=True)
class Prepared:
    """A conversation of this many messages, in a database, with its projections caught up."""

    conversation_id: UUID
    messages: int
    catch_up_s: float


def prepare(url: str, lengths: Sequence[int]) -> list[Prepared]:
    """Append conversations of these numbers of messages in bulk, and read each once."""
    with EventStore.open(url) as store:
        views = Views(store)
        prepared = []
        for messages in lengths:
            conversation_id = _conversation(store, messages)
            read = partial(_read, views, conversation_id)
            prepared.append(Prepared(conversation_id, messages, _timed(read)))
        with store.writing() as connection:
            # As the server's autovacuum does by itself, a little later.
            connection.execute(text("ANALYZE"))
        return prepared


def long_reads(url: str, prepared: Sequence[Prepared], rounds: int) -> list[LongRead]:
    """Time reads of conversations that were prepared in the database at ``url``, in turns."""
    with EventStore.open(url) as store:
        views = Views(store)
        times: list[tuple[list[float], list[float]]] = [([], []) for _ in prepared]
        gc.collect()
        gc.disable()
        try:
            for number in range(_WARM_UP + rounds):
                message = events.UserMessage.text(f"And what about number {number}?")
                for each, (after_append, unchanged) in zip(prepared, times, strict=True):
                    store.append(each.conversation_id, [message])
                    read = partial(_read, views, each.conversation_id)
                    after_append.append(_timed(read))
                    unchanged.append(_timed(read))
        finally:
            gc.enable()
    return [
        LongRead(
            each.messages,
            each.catch_up_s,
            Figure("after an append", tuple(after_append[_WARM_UP:])),
            Figure("unchanged", tuple(unchanged[_WARM_UP:])),
        )
        for each, (after_append, unchanged) in zip(prepared, times, strict=True)
    ]


def _read(views: Views, conversation_id: UUID) -> None:
    view = views.context(conversation_id, max_tokens=BUDGET, model=MODEL)
    assert BUDGET // 4 < view.tokens.tokens <= BUDGET


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _conversation(store: EventStore, messages: int) -> UUID:
    conversation_id = new_id()
    filling = islice(_exchanges(), messages)
    while batch := list(islice(filling, _BATCH)):
        store.append(conversation_id, batch)
    return conversation_id


def _exchanges() -> Iterator[NewEvent]:
    """Yield messages for ever, four to a turn: question, tool call, JSON result, answer."""
    for number in range(0, 1_000_000_000, 4):
        for data in _turn(number):
            yield NewEvent(data)


def _turn(number: int) -> Iterator[EventData]:
    order = f"W{number:07}"
    yield events.UserMessage.text(f"Please look at order {order}. {_PROSE}")
    arguments = json.dumps({"order_id": order})
    call = events.ToolCallRequest(
        name="get_order_details", arguments_text=arguments, provider_id=f"call_{number}"
    )
    yield events.AssistantMessage.of(None, tool_calls=(call,))
    rows = [{"item_id": f"{number}-{row}", "name": "kettle", "price": 19.5} for row in range(6)]
    found = {"order_id": order, "status": "delivered", "items": rows}
    # The versions of a conversation without other events are the numbers of its messages.
    yield events.ToolResult(call_id=call_id(number + 2, 0), content=json.dumps(found, indent=1))
    yield events.AssistantMessage.of(f"Order {order} is delivered. {_PROSE}", final=True)
