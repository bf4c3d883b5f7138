"""Conversations to search, and what the index and memory answer of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from eventstore import EventStore
from eventstore import events as e
from projections.context import CONTEXT, ContextSettings
from projections.context.recall_search import SqlSearch
from projections.context.search_tables import search_in_memory
from projections.context.source import SqlRowSource
from projections.context_reading import bring_up
from tests.projections.support import live_of

Key = tuple[int, int]

MARKER = "Zanzibar"
FACT = f"My locker is {MARKER}-4711, please remember."
QUESTION = "Which locker is mine?"
EACH = ContextSettings(steps=False)
INTENTS = (
    QUESTION,
    "the order of the order #W2378156 in src/app.py",
    "退款状态 refund",
    "it's \"quoted\" & !odd: ('); -- % _ \\ {} <tag>",
    "nothing-of-this-was-said",
    "",
    "!?",
)
SAID = (
    FACT,
    "The order #W2378156 was shipped. The order is on its way.",
    "See src/app.py and tests/app.py:12, or write to anna.lee@example.org",
    "我的退款状态怎么样? 已经退款了。",
    "it's a 'quote' \" & ! | <-> : * \\ % _ {} ; --",
    "",
    "bytes \x00 and \ud800 halves",
    "x" * 5_000,
    "order " * 400,
    "locker",
)


def talk(store: EventStore, cid: UUID, *texts: str) -> None:
    """Append messages of the user and of the assistant in turn."""
    store.append(
        cid,
        [
            e.AssistantMessage.of(text) if place % 2 else e.UserMessage.text(text)
            for place, text in enumerate(texts)
        ],
        allow_empty=True,
    )


def small_talk(count: int) -> list[str]:
    """Return messages that have no word of the fact."""
    return [f"We spoke of weather number {number} and of nothing else." for number in range(count)]


def in_database(
    store: EventStore, cid: UUID, intent: str, *, until: Key | None = None, limit: int = 64
) -> Mapping[Key, float]:
    """Return what the index answers, once it is brought up."""
    bring_up(store, cid)
    assert_totals(store, cid)
    with store.reading(snapshot=True) as connection:
        return SqlSearch(connection, cid, until=until).scores(intent, limit)


def assert_totals(store: EventStore, cid: UUID) -> None:
    """The head has the number of the conversation's documents, and the sum of their lengths."""
    counted = "SELECT count(*), coalesce(sum(length), 0) FROM search_rows WHERE piece = 0 AND"
    stored = "SELECT documents, length FROM search_heads WHERE"
    with store.reading() as connection:
        found = [
            [*map(int, connection.exec_driver_sql(f"{each} conversation_id = '{cid}'").one())]
            for each in (counted, stored)
        ]
    assert found[0] == found[1]


def in_memory(
    store: EventStore, cid: UUID, intent: str, *, until: Key | None = None, limit: int = 64
) -> Mapping[Key, float]:
    """Return what a search over the rows themselves answers."""
    with store.reading(snapshot=True) as connection:
        table = live_of(store, CONTEXT).tables["context_messages"]
        rows = SqlRowSource(connection, table, cid).newest(10)
        return search_in_memory(rows, intent, limit, until=until)


def indexed(store: EventStore, cid: UUID) -> list[tuple[object, ...]]:
    """Return the groups in the index with what is kept of each."""
    columns = "version, part, piece, length, unsettled, words"
    query = f"SELECT {columns} FROM search_rows WHERE conversation_id = '{cid}' ORDER BY 1, 2, 3"
    with store.reading() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(query)]


def anew(store: EventStore, cid: UUID) -> list[tuple[object, ...]]:
    """Return what the index holds when it is made from nothing."""
    with store.writing() as connection:
        for table in ("search_rows", "search_heads"):
            connection.exec_driver_sql(f"DELETE FROM {table} WHERE conversation_id = '{cid}'")
    bring_up(store, cid)
    return indexed(store, cid)


class Counted:
    """An embedding that counts what it is given: the letters a to h of a text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Return how often each letter is in each text."""
        self.texts += texts
        return [[float(text.lower().count(letter)) for letter in "abcdefgh"] for text in texts]
