"""Events as an agent product writes them: turns of eleven events of eight types.

Events are seeded, so that every run and every candidate gets the same. Texts are drawn from a list
of words, so that no two payloads are alike and each is about 300 bytes of JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

from eventstore import EventStore, NewEvent, events, new_id
from eventstore.events import Meta
from eventstore.ids import call_id

__all__ = ["conversation", "fill", "text", "turn"]

WORDS = (
    "account agree answer april bridge budget button cargo change client column context copper "
    "credit daily delay detail draft early engine error event every field final flight forest "
    "garden given glass green handle harbour height hotel index invoice island january journal "
    "kitchen label later ledger letter level light limit little market measure message middle "
    "minute model morning mountain naming never number offer office orange order other packet "
    "paper parcel party people pilot plain planet point policy price process quarter question "
    "quick rather reason record refund report result river sample screen second service shadow "
    "shelf signal silver simple small spring station still storage street summer supply table "
    "ticket today token total travel under update value vendor version video village voice "
    "waiting water weather window winter within writer yellow yesterday"
).split()
_BYTES_A_WORD = sum(len(word) + 1 for word in WORDS) / len(WORDS)
_TURN = 11
_LONG = 5_000
_PIECE = 1_000


def text(rng: Random, size: int = 230) -> str:
    """Return words with about this many bytes in total."""
    return " ".join(rng.choices(WORDS, k=max(1, round(size / _BYTES_A_WORD))))


def conversation(length: int, rng: Random) -> Iterator[NewEvent]:
    """Yield a conversation with exactly this many events: its start, then turns."""
    yield from islice(_story(rng), length)


def _story(rng: Random) -> Iterator[NewEvent]:
    yield NewEvent(events.ConversationStart(title=text(rng, 40), mode="agent"))
    number = 0
    while True:
        number += 1
        yield from turn(number, 2 + (number - 1) * _TURN, rng)


def turn(number: int, first: int, rng: Random) -> list[NewEvent]:
    """Return turn ``number`` whose first event is version ``first``: one tool call, one answer."""
    where = Meta(session_id="s1", turn=number)
    steps = [Meta(session_id="s1", turn=number, step=step) for step in (0, 1)]
    asked, answered = f"c{first}", f"c{first}b"
    own_id = call_id(first + 4, 0)
    said, found = text(rng), text(rng)
    wanted = events.ToolCallRequest(
        name="search",
        arguments_text=f'{{"query": "{said[:60]}"}}',
        arguments={"query": said[:60]},
        provider_id=f"call_{first}",
    )
    policy = {"max_tokens": 8_000, "strategy": "level_of_detail"}
    usage = events.TokenUsage(prompt_tokens=900 + number, completion_tokens=60)
    model = events.Invocation(provider="openai", specification="chat", model="gpt-4o")

    def request(llm_call_id: str) -> events.LlmRequest:
        return events.LlmRequest(
            llm_call_id=llm_call_id, invocation=model, policy=policy, digest=f"{first:064x}"
        )

    final = text(rng)
    return [
        NewEvent(events.TurnStart(), meta=where),
        NewEvent(events.UserMessage.text(said), meta=where),
        NewEvent(request(asked), meta=steps[0]),
        NewEvent(events.AssistantChunk(llm_call_id=asked, index=0, text=said), meta=steps[0]),
        NewEvent(
            events.AssistantMessage.of(said, llm_call_id=asked, tool_calls=(wanted,), usage=usage),
            meta=steps[0],
        ),
        NewEvent(
            events.ToolCall(
                call_id=own_id,
                name="search",
                arguments={"query": said[:60]},
                idempotency_key=own_id,
            ),
            meta=steps[0],
        ),
        NewEvent(
            events.ToolResult(call_id=own_id, name="search", content=found, duration_ms=12),
            meta=steps[0],
        ),
        NewEvent(request(answered), meta=steps[1]),
        NewEvent(events.AssistantChunk(llm_call_id=answered, index=0, text=final), meta=steps[1]),
        NewEvent(
            events.AssistantMessage.of(final, llm_call_id=answered, final=True, usage=usage),
            meta=steps[1],
        ),
        NewEvent(events.TurnEnd(status="ok", step_count=2, duration_ms=900), meta=where),
    ]


def fill(store: EventStore, total: int, seed: int = 1) -> None:
    """Append conversations with this many events in total: mostly 50 to 200 each, a few longer."""
    rng, left = Random(seed), total
    long_ones = [min(_LONG, total // 10)] * 2
    while left > 0:
        length = min(left, long_ones.pop() if long_ones else rng.randint(50, 200))
        left -= length
        conversation_id, told = new_id(), conversation(length, rng)
        while piece := list(islice(told, _PIECE)):
            store.append(conversation_id, piece, user_id="u1")
