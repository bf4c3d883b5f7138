"""Erasing a message reaches what holds the same words, and the receipt names it."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from eventstore import EventStore, Meta, NewEvent
from eventstore import events as e
from eventstore.errors import EventDamaged
from eventstore.events.records import EventData
from eventstore.events.values import VersionRange
from tests.contract.plain import PlainClient

ASKED = "my account number is DE02120300000000202051"
ANSWER = "I shall look for the account of that number."
ARGUMENTS = {"query": "DE02120300000000202051 of the customer"}
SUMMARY = "Somebody asked for the balance of an account."
EVENTS: list[NewEvent | EventData] = [
    e.ConversationStart(title="x"),
    NewEvent(e.TurnStart(input=ASKED), meta=Meta(turn=1)),
    NewEvent(e.UserMessage.text(ASKED), meta=Meta(turn=1)),
    e.LlmRequest(llm_call_id="a", versions=(e.VersionRange(first=3, last=3),), digest="d"),
    e.AssistantChunk(llm_call_id="a", index=0, text=ANSWER),
    e.AssistantMessage.of(
        ANSWER,
        llm_call_id="a",
        tool_calls=(
            e.ToolCallRequest(
                name="find", arguments_text=json.dumps(ARGUMENTS), arguments=ARGUMENTS
            ),
        ),
    ),
    e.ToolCall(call_id="6.0", name="find", arguments=ARGUMENTS),
    e.ToolResult(call_id="6.0", content="The balance of this account is 12 euros."),
    NewEvent(e.UserMessage.text("thanks"), meta=Meta(turn=2)),
    e.LlmRequest(llm_call_id="b", versions=(e.VersionRange(first=8, last=9),), digest="d"),
    e.AssistantMessage.of("You are welcome.", llm_call_id="b"),
    e.Summary(text=SUMMARY, versions=(e.VersionRange(first=2, last=8),), llm_call_id="s"),
    e.AssistantChunk(llm_call_id="s", index=0, text=SUMMARY),
    e.LlmRequest(llm_call_id="c", versions=(e.VersionRange(first=12, last=12),), digest="d"),
    e.LlmRequest(llm_call_id="d", policy={"system": [["note", f"Mind: {ASKED}"]]}),
    e.AssistantMessage.of(f"You said: {ASKED}"),
    NewEvent(e.UserMessage.text(ASKED[:5]), meta=Meta(turn=1)),
]
AFTER_A_SUMMARY = {"summary": [12], "answer": [13], "request": [14]}


def told(found: tuple[e.Quoting, ...]) -> dict[str, list[int]]:
    """Return what a receipt says, by what the versions are."""
    return {
        each.what: [v for r in each.versions for v in range(r.first, r.last + 1)] for each in found
    }


@pytest.mark.parametrize(
    ("version", "derived", "quoted_by"),
    [
        (3, {**AFTER_A_SUMMARY, "input": [2, 17], "request": [4, 14, 15]}, {"quotation": [16]}),
        (2, {**AFTER_A_SUMMARY, "input": [3, 17], "request": [4, 14, 15]}, {"quotation": [16]}),
        (5, {**AFTER_A_SUMMARY, "answer": [6, 13], "call": [7]}, {}),
        (7, {**AFTER_A_SUMMARY, "answer": [5, 13], "call": [6]}, {}),
        (8, {**AFTER_A_SUMMARY, "request": [10, 14]}, {}),
        (9, {"request": [10]}, {}),
        (11, {}, {}),
        (12, {"answer": [13], "request": [14]}, {}),
        (1, {}, {}),
    ],
)
def test_what_goes_along(
    store: EventStore,
    cid: UUID,
    version: int,
    derived: dict[str, list[int]],
    quoted_by: dict[str, list[int]],
) -> None:
    """Each copy, by its place or its words; what only quotes is named, and stays."""
    store.append(cid, EVENTS)

    receipt = store.erase(cid, reason="asked for", versions=[version])

    assert (derived, quoted_by) == (told(receipt.derived), told(receipt.quoted_by))
    gone = {version}.union(*derived.values())
    assert tuple(sorted(gone)) == receipt.versions
    assert gone == {event.version for event in store.read(cid) if event.erased}
    *_, event = store.read(cid, after=len(EVENTS))
    assert isinstance(event.data, e.Erasure)
    assert (receipt.derived, receipt.quoted_by) == (event.data.derived, event.data.quoted_by)
    assert store.verify(cid).ok


def test_exactly_what_was_asked_for(store: EventStore, cid: UUID) -> None:
    """Whoever insists has nothing else erased, and is told where the words still stand."""
    store.append(cid, EVENTS)

    receipt = store.erase(cid, reason="asked for", versions=[3], derived=False)

    assert ((3,), ()) == (receipt.versions, receipt.derived)
    named = {version for each in told(receipt.quoted_by).values() for version in each}
    assert {2, 4, 12, 13, 14, 15, 16, 17} == named


def test_no_row_has_the_words(fresh: EventStore, plain: PlainClient, cid: UUID) -> None:
    """Erasing a message and what quotes it leaves the words nowhere in the log."""
    fresh.append(cid, EVENTS)
    first = fresh.erase(cid, reason="asked for", versions=[3])
    quoting = [v for each in told(first.quoted_by).values() for v in each]
    fresh.erase(cid, reason="asked for", versions=quoting)

    assert ASKED.encode() not in plain.dump()


def test_an_answer_of_many_pieces(store: EventStore, cid: UUID) -> None:
    """Pieces, error and answer of one call go together, and those of others stay."""
    pieces = [e.AssistantChunk(llm_call_id="a", index=n, text="x") for n in range(300)]
    others = [e.AssistantChunk(llm_call_id="b", index=n, text="x") for n in range(300)]
    failed = e.LlmError(llm_call_id="a", kind="network", message="x", partial_text="x" * 300)
    store.append(cid, [*pieces, *others, failed])

    receipt = store.erase(cid, reason="asked for", versions=[7])

    assert (e.Quoting(what="answer", versions=_except(7)),) == receipt.derived


def _except(version: int) -> tuple[VersionRange, ...]:
    places = ((1, version - 1), (version + 1, 300), (601, 601))
    return tuple(VersionRange(first=first, last=last) for first, last in places)


def test_an_event_that_cannot_be_read_is_named(
    fresh: EventStore, plain: PlainClient, cid: UUID
) -> None:
    """Nothing of the conversation could be erased because of it; its own copies are unknown."""
    fresh.append(cid, [e.UserMessage.text(ASKED), e.AssistantMessage.of("large " * 10_000)])
    fresh.append(cid, e.AssistantMessage.of(f"You said: {ASKED}"))
    plain.execute("DELETE FROM blobs")

    with pytest.raises(EventDamaged, match="event 2 of"):
        fresh.erase(cid, reason="asked for", versions=[1, 2])
    receipt = fresh.erase(cid, reason="asked for", versions=[1])

    assert (1,) == receipt.versions
    assert {"quotation": [3], "unreadable": [2]} == told(receipt.quoted_by)


def test_a_damaged_reference_to_a_blob(fresh: EventStore, plain: PlainClient, cid: UUID) -> None:
    """A validation error of another package ended the erasure of any other message."""
    fresh.append(cid, [e.UserMessage.text(ASKED), e.ToolResult(call_id="1.0", content="x" * 9)])
    fresh.append(cid, e.AssistantMessage.of("large " * 10_000))
    plain.disarm()
    plain.execute("""UPDATE events SET data = '{"$blob": 5}' WHERE version = 2""")

    receipt = fresh.erase(cid, reason="asked for", versions=[1])

    assert {"unreadable": [2]} == told(receipt.quoted_by)
    assert 0 == receipt.blob_count


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "change",
    ["data = CAST(x'7bff7d' AS TEXT)", "data = x'ff'", "type = x'ff'", "event_id = 'nobody'"],
)
def test_a_row_that_is_no_text(
    fresh: EventStore, plain: PlainClient, cid: UUID, change: str
) -> None:
    """The search for blobs that are still in use ended with `NotADatabase`, though the file is."""
    fresh.append(cid, [e.UserMessage.text(ASKED), e.UserMessage.text("something else")])
    kept = fresh.append(cid, e.AssistantMessage.of("large " * 10_000)).version
    plain.disarm()
    plain.execute(f"UPDATE events SET {change} WHERE version = 2")

    receipt = fresh.erase(cid, reason="asked for", versions=[1])

    assert {"unreadable": [2]} == told(receipt.quoted_by)
    assert 0 == receipt.blob_count
    assert "large" in str([*fresh.read(cid, after=2, before=kept + 1)])
