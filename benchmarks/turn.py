"""What a turn costs as its conversation grows: four appends, then the messages[] view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

from benchmarks.measure import Figure, in_turns
from eventstore import EventStore, NewEvent, events, new_id
from eventstore.ids import call_id
from projections import Views

__all__ = ["turns_by_length"]

_BUDGET = 4_000
# About sixty tokens, so that the budget is full at every length and the windows are alike.
_PROSE = "the quick brown fox jumps over the lazy dog and thinks about it for a while; " * 4


def turns_by_length(url: str, lengths: tuple[int, ...], rounds: int) -> list[Figure]:
    """Time turns on conversations that begin at these numbers of messages, in turns.

    Each is followed by one read of the messages[] view within 4,000 tokens, so that its projection
    is as warm as that of a conversation in use.
    """
    store = EventStore.open(url)
    views = Views(store)
    try:
        candidates = {
            f"a turn at {length:,} messages": _turn(store, views, _conversation(store, length))
            for length in lengths
        }
        for candidate in candidates.values():
            for _ in range(10):
                candidate()
        return in_turns(candidates, rounds)
    finally:
        store.close()


def _conversation(store: EventStore, messages: int) -> UUID:
    conversation_id = new_id()
    filling = _filling(messages)
    while batch := [event for _, event in zip(range(500), filling, strict=False)]:
        store.append(conversation_id, batch)
    return conversation_id


def _filling(messages: int) -> Iterator[NewEvent]:
    for number in range(messages):
        text = f"{number}: {_PROSE}"
        if number % 2:
            yield NewEvent(events.AssistantMessage.of(text, final=True))
        else:
            yield NewEvent(events.UserMessage.text(text))


def _turn(store: EventStore, views: Views, conversation_id: UUID) -> Callable[[], None]:
    version = store.get(conversation_id).version

    def turn() -> None:
        nonlocal version
        asked = events.AssistantMessage.of(
            None,
            tool_calls=(
                events.ToolCallRequest(name="search", arguments_text="{}", provider_id="call_1"),
            ),
        )
        store.append(conversation_id, [events.UserMessage.text(_PROSE)])
        store.append(conversation_id, [asked])
        result = events.ToolResult(call_id=call_id(version + 2, 0), content=_PROSE)
        store.append(conversation_id, [result])
        store.append(conversation_id, [events.AssistantMessage.of(_PROSE, final=True)])
        version += 4
        view = views.context(conversation_id, max_tokens=_BUDGET)
        assert view.messages[-1]["content"] == _PROSE

    return turn
