"""Search over a whole conversation: the same scores from both databases and from memory."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from sqlalchemy import Connection

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.database import END
from projections import Views
from projections.context import CONTEXT, search_index, search_tables
from projections.context.recall_search import SqlSearch
from projections.context_reading import bring_up
from tests.projections.searching import (
    FACT,
    INTENTS,
    MARKER,
    QUESTION,
    SAID,
    anew,
    assert_totals,
    in_database,
    in_memory,
    indexed,
    small_talk,
    talk,
)
from tests.projections.support import in_thread, live_of, turn


@pytest.mark.parametrize("intent", INTENTS)
def test_scores_are_those_of_memory(
    store: EventStore, views: Views, cid: UUID, intent: str
) -> None:
    """To the last digit, in the same order, for every kind of text and for odd intents."""
    talk(store, cid, *SAID, *small_talk(5))
    found = in_database(store, cid, intent)
    assert list(in_memory(store, cid, intent).items()) == list(found.items())


def test_what_was_said_is_found(store: EventStore, views: Views, cid: UUID) -> None:
    """The message with the rarest words of the intent comes first."""
    talk(store, cid, *small_talk(20), f"About {MARKER}: it is warm.", *small_talk(20))
    assert (21, 0) == next(iter(in_database(store, cid, f"was {MARKER} mentioned")))


def test_another_conversation_moves_no_score(store: EventStore, views: Views, cid: UUID) -> None:
    """Neither how often it says a word, nor how long its messages are."""
    talk(store, cid, *SAID)
    before = in_database(store, cid, QUESTION)
    other = new_id()
    talk(store, other, *(["which locker is mine " * 30] * 20))
    in_database(store, other, QUESTION)
    assert before == in_database(store, cid, QUESTION)


def test_conversations_with_one_prefix_stay_apart(store: EventStore, views: Views) -> None:
    """The prefix only leads to the place in the index; ids that end alike are told apart."""
    first = UUID("018f0000-0000-7000-8000-000000000001")
    second = UUID("018f0000-0000-7000-9000-000000000001")
    assert search_tables.prefix_of(first) == search_tables.prefix_of(second)
    talk(store, first, FACT, "hello")
    talk(store, second, "locker", "locker", "mine")
    in_database(store, second, QUESTION)
    found = in_database(store, first, QUESTION)
    assert in_memory(store, first, QUESTION) == found


def test_a_search_as_of_a_place(store: EventStore, views: Views, cid: UUID) -> None:
    """What stands later is not found and moves no score."""
    talk(store, cid, *SAID)
    before = in_database(store, cid, QUESTION)
    last = (len(SAID), 0)
    talk(store, cid, QUESTION, *["which locker"] * 5)
    assert before == in_database(store, cid, QUESTION, until=last)
    assert in_memory(store, cid, QUESTION, until=(3, 0)) == in_database(
        store, cid, QUESTION, until=(3, 0)
    )


def test_the_limit_takes_the_best(store: EventStore, views: Views, cid: UUID) -> None:
    """Of equal ones the newer, as in memory."""
    talk(store, cid, *["the same words"] * 9)
    assert {(9, 0), (8, 0)} == in_database(store, cid, "same words", limit=2).keys()
    assert {} == in_database(store, cid, "same words", limit=0)


def test_a_group_is_found_by_its_results(store: EventStore, views: Views, cid: UUID) -> None:
    """An assistant message and the results of its calls are one, found at the message's place."""
    store.append(cid, turn(0, MARKER))
    found = in_database(store, cid, f"found {MARKER}")
    assert (3, 0) in found
    assert (3, 1) not in found
    assert in_memory(store, cid, f"found {MARKER}") == found


def history(cid: UUID, store: EventStore) -> dict[str, Callable[[], object]]:
    """Return what may happen to a conversation after its first turn, by name."""
    ranges = (e.VersionRange(first=1, last=2),)
    result = (e.VersionRange(first=5, last=5),)
    return {
        "a new turn": lambda: store.append(cid, turn(7, "other")),
        "a withdrawn message": lambda: store.append(cid, [e.Retraction(versions=ranges)]),
        "a withdrawn result": lambda: store.append(cid, [e.Retraction(versions=result)]),
        "a summary": lambda: store.append(cid, [e.Summary(text="in short", versions=ranges)]),
        "an erasure": lambda: store.erase(cid, reason="asked for", versions=[1]),
    }


@pytest.mark.parametrize("name", list(history(new_id(), None)))  # type: ignore[arg-type]
def test_catch_up_equals_an_index_made_anew(
    store: EventStore, views: Views, cid: UUID, name: str
) -> None:
    """Whatever has happened since, the index holds what is visible now."""
    store.append(cid, turn(0, MARKER))
    bring_up(store, cid)
    before = indexed(store, cid)
    history(cid, store)[name]()
    bring_up(store, cid)
    after = indexed(store, cid)
    assert_totals(store, cid)
    assert before != after
    assert after == anew(store, cid)


LATER = {
    "a question": (e.UserMessage.text(QUESTION),),
    "a question and a turn": (e.UserMessage.text(QUESTION), e.AssistantMessage.of("It is 4711.")),
}
REACHING = {
    "a withdrawn message": e.Retraction(versions=(e.VersionRange(first=1, last=2),)),
    "a summary": e.Summary(text="in short", versions=(e.VersionRange(first=1, last=2),)),
}


@pytest.mark.parametrize("name", LATER)
def test_what_is_later_need_not_be_indexed(
    store: EventStore, views: Views, cid: UUID, name: str
) -> None:
    """A turn's question searches the messages before it: with them, the index has all it needs."""
    talk(store, cid, *SAID, *small_talk(5))
    expected = in_database(store, cid, QUESTION)
    until = (len(SAID) + 5, END)
    store.append(cid, LATER[name])
    views.context(cid, max_tokens=100_000)
    with store.reading(snapshot=True) as connection:
        generation = live_of(store, CONTEXT)
        assert search_index.covers(connection, generation, cid, until)
        assert not search_index.covers(connection, generation, cid, (END, 0))
        assert expected == SqlSearch(connection, cid, until=until).scores(QUESTION, 64)


@pytest.mark.parametrize("name", REACHING)
def test_what_changes_earlier_messages_has_to_be_indexed(
    store: EventStore, views: Views, cid: UUID, name: str
) -> None:
    """After it, the index no longer answers for the messages before it."""
    talk(store, cid, *small_talk(5))
    bring_up(store, cid)
    store.append(cid, REACHING[name])
    views.context(cid, max_tokens=100_000)
    with store.reading() as connection:
        assert not search_index.covers(connection, live_of(store, CONTEXT), cid, (5, END))


def test_an_open_call_has_to_be_looked_at_again(store: EventStore, views: Views, cid: UUID) -> None:
    """Its result may have come, in a group that the index has without it."""
    store.append(cid, turn(0, "weather")[:4])
    bring_up(store, cid)
    store.append(cid, [e.ToolResult(call_id="3.0", name="search", content=f"It is {MARKER}")])
    views.context(cid, max_tokens=100_000)
    with store.reading() as connection:
        assert not search_index.covers(connection, live_of(store, CONTEXT), cid, (4, END))


def test_rows_that_are_not_saved_yet(store: EventStore, views: Views, cid: UUID) -> None:
    """They count as missing where the search would look for them."""
    talk(store, cid, *small_talk(5))
    bring_up(store, cid)
    with store.reading() as connection:
        generation = live_of(store, CONTEXT)
        assert search_index.covers(connection, generation, cid, (5, END), [(6, 0)])
        assert not search_index.covers(connection, generation, cid, (6, END), [(6, 0)])


def test_a_late_result_is_indexed(store: EventStore, views: Views, cid: UUID) -> None:
    """A call that had no answer yet is looked at again at every catch-up, until it has one."""
    told = turn(0, "weather")
    store.append(cid, told[:4])
    bring_up(store, cid)
    talk(store, cid, "Meanwhile", "Yes")
    bring_up(store, cid)
    store.append(cid, [e.ToolResult(call_id="3.0", name="search", content=f"It is {MARKER}")])
    assert {(3, 0)} == in_database(store, cid, MARKER).keys()
    assert indexed(store, cid) == anew(store, cid)


def test_a_failure_that_was_made_up_for_is_gone(store: EventStore, views: Views, cid: UUID) -> None:
    """The retry hides the failed call's message, which then is not found any more."""
    invocation = e.Invocation(provider="openai", model="gpt-4o")
    talk(store, cid, "Hello")
    store.append(
        cid,
        [
            e.LlmRequest(llm_call_id="a", invocation=invocation),
            e.LlmError(llm_call_id="a", kind="network", message=MARKER, retryable=True),
        ],
    )
    bring_up(store, cid)
    before = len(indexed(store, cid))
    store.append(
        cid,
        [
            e.LlmRequest(llm_call_id="b", invocation=invocation, retry_of="a"),
            e.AssistantMessage.of("Here I am", llm_call_id="b"),
        ],
    )
    bring_up(store, cid)
    assert before == len(indexed(store, cid))
    assert indexed(store, cid) == anew(store, cid)


def test_only_what_is_new_is_read(store: EventStore, views: Views, cid: UUID) -> None:
    """A later catch-up writes the rows of the new messages and no others."""
    talk(store, cid, *small_talk(30))
    bring_up(store, cid)
    with store.writing() as connection:
        spoilt = "UPDATE search_rows SET length = 999 WHERE version = 1 AND conversation_id = "
        connection.exec_driver_sql(f"{spoilt}'{cid}'")
    talk(store, cid, "one more", "and another")
    bring_up(store, cid)
    assert 32 == len(indexed(store, cid))
    assert 999 == indexed(store, cid)[0][3]


def test_a_document_of_very_many_words(postgres_url: str, cid: UUID) -> None:
    """PostgreSQL refuses a tsvector over 1 MB, so that its words stand in several rows."""
    with EventStore.open(postgres_url) as store:
        Views(store)
        words = " ".join(f"word{number:06}" for number in range(60_000))
        talk(store, cid, words, "word000001", QUESTION)
        found = in_database(store, cid, "word000001 word059999")
        assert len(indexed(store, cid)) > 3
        assert in_memory(store, cid, "word000001 word059999") == found


def test_two_readers_make_the_index_at_once(postgres_url: str, cid: UUID) -> None:
    """Both come to the same index; neither fails."""
    with EventStore.open(postgres_url) as store:
        Views(store)
        talk(store, cid, FACT, *small_talk(200))
        work = [in_thread(lambda: bring_up(store, cid)) for _ in range(3)]
        for thread, problems in work:
            thread.join(60)
            assert [] == problems
        assert indexed(store, cid) == anew(store, cid)


def test_an_index_of_another_generation_is_not_used(
    store: EventStore, views: Views, cid: UUID
) -> None:
    """What was indexed from tables that a rebuild has replaced is made anew."""
    talk(store, cid, FACT)
    bring_up(store, cid)
    with store.writing() as connection:
        connection.exec_driver_sql("UPDATE search_heads SET source = 'context_messages_g0 1'")
        connection.exec_driver_sql("UPDATE search_rows SET version = 7")
    with store.reading() as connection:
        assert not search_index.covers(connection, live_of(store, CONTEXT), cid, (END, 0))
    assert {(1, 0)} == in_database(store, cid, QUESTION).keys()


def test_an_index_is_written_in_pieces(
    store: EventStore, views: Views, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small, they come to one index."""
    talk(store, cid, FACT, *small_talk(20))
    pieces: list[int] = []
    real = search_index.IndexCatchUp.save

    def save(self: search_index.IndexCatchUp, connection: Connection) -> None:
        pieces.append(1)
        real(self, connection)

    monkeypatch.setattr(search_index, "_PAGE", 3)
    monkeypatch.setattr(search_index.IndexCatchUp, "save", save)
    bring_up(store, cid)
    assert 7 <= len(pieces) <= 8
    assert indexed(store, cid) == anew(store, cid)
    # What is new since is written in pieces too, and so is what waited for a result.
    bring_up(store, cid)
    del pieces[:]
    call = e.ToolCallRequest(name="find", arguments_text="{}")
    at = store.get(cid).version
    store.append(cid, [e.AssistantMessage(tool_calls=(call,)) for _ in range(9)])
    bring_up(store, cid)
    assert 3 <= len(pieces) <= 4
    del pieces[:]
    gone = e.VersionRange(first=2, last=10)
    store.append(cid, [e.Retraction(versions=(gone,)), e.UserMessage.text("goodbye")])
    bring_up(store, cid)
    assert 4 <= len(pieces) <= 5, "what is withdrawn leaves in pieces too"
    results = (e.ToolResult(call_id=f"{at + n}.0", content=f"ready {n}") for n in range(1, 10))
    store.append(cid, [*results, *map(e.UserMessage.text, small_talk(10))])
    del pieces[:]
    bring_up(store, cid)
    monkeypatch.undo()
    assert 7 <= len(pieces) <= 8
    assert indexed(store, cid) == anew(store, cid)


def test_an_interrupted_index_is_counted_right(
    store: EventStore, views: Views, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a search before its rows nor the next attempt takes them for counted ones."""
    talk(store, cid, *SAID)
    expected, until = in_database(store, cid, QUESTION), (len(SAID), END)
    talk(store, cid, *small_talk(8))
    real = search_index.IndexCatchUp.save

    def save(self: search_index.IndexCatchUp, connection: Connection) -> None:
        real(self, connection)
        if not self.done:
            monkeypatch.setattr(search_index.IndexCatchUp, "save", _killed)

    monkeypatch.setattr(search_index, "_PAGE", 3)
    monkeypatch.setattr(search_index.IndexCatchUp, "save", save)
    with pytest.raises(InterruptedError):
        bring_up(store, cid)
    monkeypatch.undo()
    assert len(SAID) < len(indexed(store, cid)) < len(SAID) + 8
    with store.reading(snapshot=True) as connection:
        assert search_index.covers(connection, live_of(store, CONTEXT), cid, until)
        assert expected == SqlSearch(connection, cid, until=until).scores(QUESTION, 64)
    assert in_database(store, cid, "weather") == in_memory(store, cid, "weather")


def _killed(*_: object) -> None:
    raise InterruptedError


def test_rows_that_change_while_they_are_indexed_are_looked_at_again(
    store: EventStore, views: Views, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if others come first each time: then it is done under the lock."""
    talk(store, cid, FACT, *small_talk(9))
    real, came = search_index.IndexCatchUp.look, []

    def look(self: search_index.IndexCatchUp, connection: Connection) -> None:
        real(self, connection)
        came.append(1)
        if len(came) <= search_index._ATTEMPTS:
            with EventStore.open(store.engine.url) as other:
                other.append(cid, [e.Retraction(versions=(e.VersionRange(first=1, last=1),))])
                Views(other).context(cid)

    monkeypatch.setattr(search_index.IndexCatchUp, "look", look)
    bring_up(store, cid)
    monkeypatch.undo()
    assert search_index._ATTEMPTS + 1 == len(came)
    assert {} == in_database(store, cid, QUESTION)
    assert indexed(store, cid) == anew(store, cid)


def test_what_can_no_longer_change_is_not_read_again(
    store: EventStore, views: Views, cid: UUID
) -> None:
    """A conversation of many failed calls once read all of them at every catch-up."""
    calls = [
        [
            e.LlmRequest(llm_call_id=f"call {n}", invocation=e.Invocation(model="gpt-4o")),
            e.LlmError(llm_call_id=f"call {n}", kind="network", message=f"{MARKER} {n}"),
        ]
        for n in range(80)
    ]
    call = e.ToolCallRequest(name="find", arguments_text="{}")
    store.append(cid, [e.AssistantMessage(tool_calls=(call,))])
    seal = e.ToolResult(call_id="1.0", name="find", content="Not for the model.")
    store.append(cid, [seal], meta=e.Meta(in_context=False))
    store.append(cid, [event for both in calls for event in both])
    bring_up(store, cid)
    store.append(cid, [e.LlmRequest(llm_call_id="again", retry_of="call 79")])
    bring_up(store, cid)
    store.append(cid, [e.AssistantMessage.of("Here I am", llm_call_id="again")])
    bring_up(store, cid)

    rows = indexed(store, cid)
    assert 81 == len(rows)
    assert 63 == sum(bool(row[4]) for row in rows)
    assert rows == anew(store, cid)
