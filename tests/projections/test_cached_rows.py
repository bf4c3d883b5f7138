"""Rows that are kept between two reads change nothing: a request is what it is without them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eventstore import AsyncConversation, Conversation
from eventstore import AsyncEventStore, EventStore, new_id
from eventstore import events as e
from eventstore.events import NewEvent
from eventstore.events.values import VersionRange
from projections import AsyncViews, Views
from projections.context import CONTEXT, detail, row_cache
from projections.context.compression import Item, KeyMessages, LlmSummary, Reduction
from projections.context.row_cache import CachedRows, Recent, RecentRows, RowMemory
from projections.context.rows import ContextRow
from projections.context.source import SqlRowSource
from projections.errors import BudgetInfeasible
from projections.providers.request_formats import FORMATS
from projections.tokens import Count, Tokenizer
from projections.upkeep import rebuild
from tests.projections.support import converse
from tests.properties.dense import dense_histories
from tests.scaled_settings import scaled_settings

pytestmark = pytest.mark.exhaustive_when("postgresql")

ANSWER = e.AssistantMessage.of("It is done. " * 5)


def told(views: Views, cid: UUID, **limits: Any) -> Any:
    """Return all that is said of a request, or why there is none."""
    try:
        return views.context(cid, **limits).document
    except BudgetInfeasible as error:
        return repr(error)


def told_anew(views: Views, cid: UUID, **limits: Any) -> Any:
    """Return what is said where nothing is remembered."""
    views._memory = RowMemory(1 << 26)
    return told(views, cid, **limits)


@given(entries=dense_histories, max_tokens=st.sampled_from([None, 60, 250]), skipped=st.integers(1))
@scaled_settings(15)
def test_any_history_is_read_the_same(
    store: EventStore,
    views: Views,
    entries: list[NewEvent],
    max_tokens: int | None,
    skipped: int,
) -> None:
    """Late results, retractions, summaries and new system parts are noticed, whatever was kept."""
    cid, anew = new_id(), Views(store)
    for number, entry in enumerate(entries):
        store.append(cid, [entry], allow_empty=True)
        if skipped >> (number % 16) & 1:
            expected = told_anew(anew, cid, max_tokens=max_tokens)
            assert expected == told(views, cid, max_tokens=max_tokens)


def test_a_task_that_is_sent_in_its_shorter_form(
    store: EventStore, views: Views, cid: UUID
) -> None:
    """What a step came to with the shorter form is not taken for what it is with the whole one."""
    call = e.ToolCallRequest(name="f", arguments_text="")
    task = "I am mia_li_3668. " + "It is cold today. " * 20 + "Send it to /srv/depot/a.txt!"
    rows = [{"order_id": f"#W23781{n}", "status": "delivered", "price": n * 7} for n in range(8)]
    answer = e.AssistantMessage.of("")
    results = [e.ToolResult(call_id=f"3.{n}", content="") for n in range(2)]
    calls = e.AssistantMessage.of("", tool_calls=(call, call))
    asked = e.UserMessage.text(json.dumps(rows))
    answers = [answer, calls, *results, answer]
    store.append(cid, [e.UserMessage.text(task), *answers, asked], allow_empty=True)
    before = views.context(cid, max_tokens=250)
    assert "the budget cannot hold it whole" in before.ledger[0].reason
    store.append(cid, [answer, answer], allow_empty=True)
    expected = told_anew(Views(store), cid, max_tokens=250)
    assert expected == told(views, cid, max_tokens=250)
    assert "messages" in expected


def fetched_rows(monkeypatch: pytest.MonkeyPatch) -> list[ContextRow]:
    """Return the list of rows that are read from the table from now on."""
    fetched: list[ContextRow] = []
    rows = SqlRowSource._rows

    def counted(source: SqlRowSource, *query: Any, **bound: Any) -> list[ContextRow]:
        found = rows(source, *query, **bound)
        fetched.extend(found)
        return found

    monkeypatch.setattr(SqlRowSource, "_rows", counted)
    return fetched


@pytest.mark.parametrize(("turns", "max_tokens"), [(40, 300), (150, 200_000)])
def test_a_turn_fetches_what_is_new(
    store: EventStore,
    views: Views,
    monkeypatch: pytest.MonkeyPatch,
    turns: int,
    max_tokens: int,
) -> None:
    """What a read before it has fetched is not asked for again, however large the budget."""
    cid = converse(store, turns)
    views.context(cid, max_tokens=max_tokens)
    fetched = fetched_rows(monkeypatch)
    with EventStore.open(store.engine.url) as other:
        other.append(cid, [e.UserMessage.text("and now?")])
    views.context(cid, max_tokens=max_tokens)
    assert ["and now?"] == [row.message["content"] for row in fetched]
    # What the read itself has folded is at hand before it is in the tables.
    store.append(cid, [e.UserMessage.text("and then?")])
    answer = views.context(cid, max_tokens=max_tokens)
    assert ["and now?"] == [row.message["content"] for row in fetched]
    assert answer.document == told_anew(Views(store), cid, max_tokens=max_tokens)


def test_a_conversation_that_is_opened_again_fetches_what_is_new(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A web handler opens one for each request, by its user: what others have read is at hand."""
    with Conversation.start(store, user_id="ada") as conversation:
        cid = conversation.id
    for text in ("one", "two"):
        asked(store, cid, text)
    fetched = fetched_rows(monkeypatch)
    sent = asked(store.for_owner(user_id="ada"), cid, "three")
    assert {"three"} >= {row.message["content"] for row in fetched if row.kind == "user"}
    assert sent == list(told_anew(Views(store), cid, max_tokens=4_000)["messages"])


def asked(store: EventStore, cid: UUID, text: str) -> list[dict[str, Any]]:
    """Open a conversation for one turn, and return what its request holds."""
    with Conversation.open(store, cid) as conversation, conversation.turn(text) as turn:
        return list(turn.context(max_tokens=4_000).messages)


@pytest.mark.parametrize(("kept", "most"), [(256, 0), (50, 16)])
def test_what_old_messages_leave_behind_is_read_the_same(
    store: EventStore,
    views: Views,
    cid: UUID,
    monkeypatch: pytest.MonkeyPatch,
    kept: int,
    most: int,
) -> None:
    """Of rows that are at hand nothing is fetched, of others little; a summary hides what it has.

    Where fewer rows are kept than a step looks at, each page that is fetched has few.
    """
    monkeypatch.setattr(row_cache, "_LEAST_KEPT", kept)
    if most:
        monkeypatch.setattr(row_cache, "_MOST_TOKENS", 500)

    def exchanges(first: int, count: int) -> list[e.Payload]:
        asked = (f"#W{number:07} must never be charged." for number in range(first, first + count))
        return [part for each in asked for part in (e.UserMessage.text(each), ANSWER)]

    fetched: list[int] = []
    lasting = SqlRowSource.lasting

    def counted(source: SqlRowSource, before: int, limit: int) -> list[ContextRow]:
        found = lasting(source, before, limit)
        fetched.append(len(found))
        return found

    monkeypatch.setattr(SqlRowSource, "lasting", counted)
    store.append(cid, exchanges(0, 150))
    views.context(cid, max_tokens=2_500)
    for number in range(150, 450, 50):
        for more in range(number, number + 50, 10):
            store.append(cid, exchanges(more, 10))
            fetched.clear()
            answer = told(views, cid, max_tokens=2_500)
            assert max(fetched, default=0) <= most
            assert answer == told_anew(Views(store), cid, max_tokens=2_500)
        assert "What earlier messages named" in json.dumps(answer["messages"])
        old = store.get(cid).version - 205
        some = (VersionRange(first=old, last=old + 20),)
        store.append(cid, [e.Summary(text="more of it", versions=some)])
        assert told(views, cid, max_tokens=2_500) == told_anew(Views(store), cid, max_tokens=2_500)


def test_the_digests_of_a_step_are_made_once(
    store: EventStore, views: Views, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the same in every request until the next step."""
    made: list[str] = []
    digest = detail.digest

    def counted(text: str, tokenizer: Tokenizer) -> Count:
        made.append(text)
        return digest(text, tokenizer)

    monkeypatch.setattr(detail, "digest", counted)
    steps: list[tuple[int, int] | None] = []
    for number in range(60):
        store.append(cid, [e.UserMessage.text(f"Where is order #W{number:07} now?"), ANSWER])
        if number < 40:
            continue
        made.clear()
        answer = views.context(cid, max_tokens=600)
        assert bool(made) == (answer.step not in steps[-1:])
        steps.append(answer.step)
        assert answer.document == told_anew(Views(store), cid, max_tokens=600)
    assert 1 < len(set(steps)) < len(steps)


def test_more_rows_than_are_kept(
    store: EventStore, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long history is kept in part, and what was appended at once is read in pages."""
    monkeypatch.setattr(row_cache, "_LEAST_KEPT", 50)
    monkeypatch.setattr(row_cache, "_MOST_TOKENS", 500)
    cid = converse(store, 150)
    for _ in range(3):
        assert told_anew(Views(store), cid) == told(views, cid)
        store.append(cid, [e.UserMessage.text(f"question {number}") for number in range(300)])
    assert told_anew(Views(store), cid) == told(views, cid)


def test_what_is_remembered_is_bounded_by_its_weight() -> None:
    """What was not asked for longest is forgotten, until the rest is light enough."""
    remembered: Recent[str] = Recent(10, len)
    for key, value in [("a", "aaaa"), ("b", "bbbb"), ("a", "aaaaa"), ("c", "ccccc")]:
        remembered.put(key, value)
    assert ["aaaaa", None, "ccccc"] == [remembered.get(key) for key in "abc"]
    remembered.put("d", "d" * 11)  # too heavy even alone
    remembered.put("c", "c" * 11)
    assert ["aaaaa", None, None, None] == [remembered.get(key) for key in "abcd"]


def test_a_strategy_without_a_hash_is_never_remembered(store: EventStore, views: Views) -> None:
    """A frozen dataclass with a list seems to have one; every request raised TypeError."""

    @dataclass(frozen=True)
    class Own:
        words: list[str]
        name: ClassVar[str] = "own"
        version: ClassVar[int] = 1

        def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
            return KeyMessages().reductions(items, intent)

    cid = converse(store, 40)
    expected = views.context(cid, max_tokens=300)
    for strategy in (Own([]), LlmSummary(base=Own([]))):
        for _ in range(2):
            view = views.context(cid, max_tokens=300, strategy=strategy)
            assert view.messages == expected.messages


@pytest.mark.parametrize("memory_bytes", [0, 20_000, 150_000])
def test_little_memory_changes_no_answer(store: EventStore, memory_bytes: int) -> None:
    """What does not fit is read again; heads, rows and plans together never exceed the limit."""
    views = Views(store, memory_bytes=memory_bytes)
    streams = [converse(store, 30) for _ in range(3)]
    for number in range(3):
        for cid in streams:
            store.append(cid, [e.UserMessage.text(f"question {number}")])
            expected = told(Views(store), cid, max_tokens=500)
            assert expected == told(views, cid, max_tokens=500)
            kept = views._memory._entries._values.values()
            assert sum(each.weight for each in kept) <= memory_bytes
            assert bool(kept) == (memory_bytes > 0)


def test_texts_weigh_what_they_take(store: EventStore, views: Views, cid: UUID) -> None:
    """Few large messages fill the memory as many small ones do."""
    views = Views(store, memory_bytes=2_000_000)
    store.append(cid, [e.UserMessage.text("x" * 150_000) for _ in range(9)])
    assert 9 == len(views.context(cid).messages)
    [kept] = (k for k in views._memory._entries._values.values() if isinstance(k, CachedRows))
    assert 3 == len(kept.newest)  # each once as it came and once as it is read, in half of it


def test_a_memory_below_nothing(store: EventStore) -> None:
    """A negative number of bytes is refused with the option's name."""
    with pytest.raises(ValueError, match="memory_bytes is -1"):
        Views(store, memory_bytes=-1)
    with pytest.raises(ValueError, match="memory_bytes is -1"):
        EventStore.open("sqlite://", memory_bytes=-1)


def test_the_memory_of_asynchronous_views(database_url: str) -> None:
    """The asynchronous views hand the option on to those that they are made of."""

    async def main() -> list[int]:
        async with await AsyncEventStore.open(database_url, memory_bytes=90_000) as store:
            made = AsyncViews(store, memory_bytes=70_000), AsyncViews(store)
            return [await views.run(lambda each: each._memory._entries.most) for views in made]

    assert [70_000, 90_000] == asyncio.run(main())


@pytest.mark.parametrize("memory_bytes", [0, 20_000, 150_000])
def test_the_store_says_how_much_is_remembered(database_url: str, memory_bytes: int) -> None:
    """Views and all conversations of the store keep no more, and say what others would."""
    with EventStore.open(database_url, memory_bytes=memory_bytes) as store:
        views = Views(store)
        streams = [converse(store, 30) for _ in range(3)]
        sent = [asked(store, cid, "and now?") for cid in streams]
        assert sent == [list(views.context(cid, max_tokens=4_000).messages) for cid in streams]
        conversations = Views._of_conversations(store.for_owner(user_id="ada"))
        assert conversations._memory is not views._memory
        for memory in (conversations._memory, views._memory):
            kept = memory._entries._values.values()
            assert sum(each.weight for each in kept) <= memory_bytes
            assert bool(kept) == (memory_bytes > 0)


def test_conversations_of_an_asynchronous_store(database_url: str) -> None:
    """They remember as much as their store says, as those of a synchronous one do."""

    async def main() -> tuple[int, int]:
        async with await AsyncEventStore.open(database_url, memory_bytes=90_000) as store:
            async with await AsyncConversation.start(store) as conversation:
                async with conversation.turn("one") as turn:
                    await turn.context(max_tokens=4_000)
            memory = Views._of_conversations(store.store)._memory
            return memory._entries.most, len(memory._entries._values)

    assert (90_000, 2) == asyncio.run(main())


def test_an_erasure_forgets(store: EventStore, views: Views, cid: UUID) -> None:
    """Nothing that was erased comes from memory."""
    store.append(cid, [e.UserMessage.text("secret"), e.AssistantMessage.of("told")])
    assert 2 == len(views.context(cid).messages)
    store.erase(cid, reason="asked for", versions=[1])
    assert ["told"] == [message["content"] for message in views.context(cid).messages]


def test_a_cut_over_forgets(store: EventStore, views: Views) -> None:
    """Rows of the old tables are not taken for those of the new ones."""
    cid = converse(store, 10)
    views.context(cid)
    rebuild(store, [CONTEXT.name])
    assert told_anew(Views(store), cid) == told(views, cid)


@pytest.mark.parametrize("format", FORMATS)
def test_what_a_caller_does_to_messages_stays_with_the_caller(
    store: EventStore, views: Views, cid: UUID, format: str
) -> None:
    """The next request is made of what was said, not of what became of the last one."""
    call = e.ToolCallRequest(name="look", arguments_text='{"at": [1]}', provider_id="c1")
    image = e.ImagePart(url="https://example.com/a.png", detail="low")
    store.append(
        cid,
        [
            e.UserMessage(parts=(e.TextPart(text="what is this?"), image)),
            e.AssistantMessage.of(None, tool_calls=(call,)),
            e.ToolResult(call_id="2.0", content="a lamp"),
        ],
    )
    expected = views.context(cid, format=format).digest
    spoil(list(views.context(cid, format=format).messages))
    assert expected == views.context(cid, format=format).digest


def spoil(value: Any) -> None:
    """Change everything that can be changed within a JSON value."""
    for held in list(value.values() if isinstance(value, dict) else value):
        if isinstance(held, dict | list):
            spoil(held)
    if isinstance(value, dict):
        value["spoilt"] = True
    else:
        value.append("spoilt")


def test_rows_are_of_one_version(
    postgres_url: str, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another session folds after a read has begun is not half of its answer."""
    with EventStore.open(postgres_url) as store, EventStore.open(postgres_url) as other:
        store.append(cid, [e.UserMessage.text("one")])
        views, theirs = Views(store), Views(other)
        before = views.context(cid)
        made = RecentRows.__init__

        def interfere(rows: RecentRows, *given: Any) -> None:
            monkeypatch.undo()
            other.append(cid, [e.UserMessage.text("two")])
            theirs.context(cid)
            made(rows, *given)

        monkeypatch.setattr(RecentRows, "__init__", interfere)
        during = views.context(cid)
        assert before == during
        assert 2 == len(views.context(cid).messages)
