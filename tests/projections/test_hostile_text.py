"""Text that looks like SQL is text: wherever a caller's words reach a statement, they are bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.errors import BlobNotFound, ConversationNotFound, InvalidCursor, InvalidEvent
from projections import Views, worker
from projections.errors import UnknownProjection, UnknownStrategy
from projections.upkeep import compare, rebuild
from tests.exhaustive import partly
from tests.feed_wait import wait_for_feed
from tests.projections.support import everything, expected, stored

HOSTILE = (
    "'; DROP TABLE events; --",
    '"; DELETE FROM conversations; --',
    "' OR '1'='1",
    "\\'; SELECT pg_sleep(9); --",
    "a\x00b",
    "\ud800",
    "\U0010fffe00ffff",
    "%s %(name)s %%",
    ":name ? $1 ::text",
    "{0} {name} %",
    "$$ END; $$",
    '{"a", NULL, b\\"}',
    "a\x1eb\x1fc",
    '"a" OR "b" AND NOT "c" NEAR(a b) words:x col*  ^a + -b (',
    "a:* & !b | 'c' <-> \\",
    "_%",
)
"""What breaks out of quotes, marks, formats, arrays, patterns and the languages of full text."""

each_text = pytest.mark.parametrize("number", partly(range(len(HOSTILE)), every=2))


@pytest.fixture
def plain(store: EventStore, views: Views) -> UUID:
    """Give a conversation that no hostile filter may find."""
    return _converse(store, "plain")


@each_text
def test_filters_find_what_they_name(
    store: EventStore, views: Views, plain: UUID, number: int
) -> None:
    """A tenant, user, tool, call or model of any name finds its own rows, and no others."""
    word = HOSTILE[number]
    assert [] == [found for ask in _questions(store, views, word).values() for found in ask()]
    mine = _converse(wait_for_feed(store), word)
    for name, ask in _questions(store, views, word).items():
        assert {mine} == set(ask()), name
    assert {plain, mine} == {info.conversation_id for info in store.list()}
    assert [word] == [total.key for total in views.usage(by="user", tenant_id=word)]
    assert 1 == views.calibration(word).calls
    assert [] == views.tool_calls(call_id=word)


@each_text
def test_what_must_be_a_name_is_refused(
    store: EventStore, views: Views, plain: UUID, number: int
) -> None:
    """Where only some words are allowed, any other is an error that says so."""
    word = HOSTILE[number]
    refusals: list[tuple[type[Exception] | tuple[type[Exception], ...], Callable[[], object]]] = [
        (InvalidCursor, lambda: store.read_all(after=word)),
        (InvalidCursor, lambda: store.read_all(after=f"s2:{word}")),
        (InvalidCursor, lambda: store.read_all(after=f"s2:1:{word}")),
        ((ConversationNotFound, InvalidEvent), lambda: store.get(word)),
        (BlobNotFound, lambda: store.blob(plain, word)),
        (UnknownProjection, lambda: rebuild(store, [word])),
        (UnknownProjection, lambda: compare(store, [word])),
        (UnknownStrategy, lambda: views.context(plain, strategy=word)),
        (ValueError, lambda: views.tool_calls(status=word)),
        (ValueError, lambda: views.context(plain, format=word)),
        (ValueError, lambda: views.context(plain, run=word)),
        (ValueError, lambda: views.usage(by=word)),  # type: ignore[arg-type]
    ]
    for kind, ask in refusals:
        with pytest.raises(kind):
            ask()


@each_text
def test_a_search_takes_any_words(
    store: EventStore, views: Views, plain: UUID, number: int
) -> None:
    """What is searched for is not a query language; no provider takes lone surrogates."""
    mine = _converse(store, HOSTILE[number])
    for cid in (plain, mine):
        store.append(cid, [e.UserMessage.text(HOSTILE[number])])
        messages = views.context(cid, max_tokens=2_000, strategy="retrieval").messages
        assert HOSTILE[number].replace("\ud800", "\ufffd") == messages[-1]["content"]


@each_text
def test_rows_hold_any_text(store: EventStore, views: Views, number: int) -> None:
    """Every text of an event comes to the tables as it is, and an erasure's reason is kept."""
    word = HOSTILE[number]
    cid = _converse(store, word)
    worker.run(wait_for_feed(store), once=True)
    store.append(cid, [e.UserMessage.text("patches rows"), _retraction()])
    worker.run(wait_for_feed(store), once=True)
    assert expected(store.read(cid)) == stored(store, cid)
    receipt = store.erase(cid, reason=word + ".", requested_by=word)
    [event] = store.read(cid, after=receipt.version - 1)
    assert isinstance(event.data, e.Erasure)
    assert (word + ".", word) == (event.data.reason, event.data.requested_by)
    assert everything(store)["events"]
    assert store.verify().ok


@each_text
def test_types_and_metadata_hold_any_text(store: EventStore, number: int) -> None:
    """An event of a type that nobody knows, and its metadata, come back or are refused."""
    word, cid = HOSTILE[number], new_id()
    meta = e.Meta(session_id=word, actor=word, agent_id=word, run_id=word, workflow_id=word)
    odd = e.UnknownEvent(word, 1, {word: word})
    store.append(cid, [e.UserMessage.text(word), e.Notebook(text=word)], meta=meta)
    if not {"\x00", "\ud800"} & set(word):
        store.append(cid, [odd], meta=meta)
        assert [odd] == [event.data for event in store.read(cid, after=2)]
    else:
        with pytest.raises(InvalidEvent):
            store.append(cid, [odd], meta=meta)
    assert [meta] * 2 == [event.meta for event in store.read(cid, before=3)]
    assert store.verify(cid).ok


def _converse(store: EventStore, word: str) -> UUID:
    """Append a conversation that has this word wherever there is a name."""
    cid = new_id()
    invocation = e.Invocation(provider=word, model=word)
    request = e.ToolCallRequest(name=word, arguments_text=word, provider_id=word)
    usage = e.TokenUsage(prompt_tokens=3, completion_tokens=1)
    events: list[e.Payload] = [
        e.ConversationStart(title=word),
        e.UserMessage.text(word),
        e.LlmRequest(llm_call_id=word, invocation=invocation, counted_tokens=4),
        e.AssistantMessage.of(word, llm_call_id=word, tool_calls=(request,), usage=usage),
        e.ToolCall(call_id="4.0", name=word, arguments={word: word}),
        e.ToolResult(call_id="4.0", name=word, content=word, error=word),
        e.RunStart(run_id=word, workflow_id=word, nodes=(e.RunNode(node_id=word),)),
        e.RunStepStart(run_id=word, node_id=word, brief=word),
    ]
    store.append(cid, events, tenant_id=word, user_id=word, meta=e.Meta(session_id=word))
    return cid


def _retraction() -> e.Retraction:
    return e.Retraction(versions=(e.VersionRange(first=2, last=2),))


def _questions(store: EventStore, views: Views, word: str) -> dict[str, Callable[[], list[UUID]]]:
    """Return questions that filter by a word, each answered with the conversations it finds."""

    def ids(rows: Any) -> list[UUID]:
        return [row.conversation_id for row in rows]

    return {
        "tenant": lambda: ids(store.list(tenant_id=word)),
        "user": lambda: ids(store.list(user_id=word)),
        "directory, tenant": lambda: ids(views.conversations(tenant_id=word)),
        "directory, user": lambda: ids(views.conversations(user_id=word)),
        "tool": lambda: ids(views.tool_calls(tool=word)),
        "usage": lambda: [
            UUID(str(total.key))
            for total in views.usage(by="conversation", tenant_id=word, user_id=word)
        ],
    }


@pytest.mark.parametrize("words", [5, b"text", ["text"]])
def test_what_is_no_text_is_refused(store: EventStore, words: Any) -> None:
    """An error of SQLAlchemy's, or of a function within, told nobody which argument it was."""
    views, cid = Views(store), new_id()
    asks: dict[str, Callable[[], object]] = {
        "text": lambda: views.search(words),
        "tool": lambda: views.tool_calls(tool=words),
        "call_id": lambda: views.tool_calls(call_id=words),
        "alias": lambda: views.tool_calls(alias=words),
        "model": lambda: views.calibration(words),
        "task_id": lambda: views.tasks(cid, task_id=words),
    }
    for name, ask in asks.items():
        with pytest.raises(TypeError, match=f"{name} must be a string, not "):
            ask()
