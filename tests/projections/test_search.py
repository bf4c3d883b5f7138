"""Search over a whole conversation: the same scores from both databases and from memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Connection, inspect, make_url

from eventstore import EventStore, new_id
from eventstore import events as e
from projections import Views
from projections.context import CONTEXT, ContextSettings, search_index, search_tables
from projections.context.compression import Embedding, Hybrid, Retrieval, VectorSearch
from projections.context.plans import groups_of
from projections.context.search import SearchableRows, SearchBehind, SqlSearch, StoredVectors
from projections.context.search_tables import item_to_search, search_in_memory
from projections.context.source import SqlRowSource
from projections.context_reading import bring_up
from projections.errors import EmbeddingFailed
from tests.projections.support import everything, in_thread, live_of, turn

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
    )


def small_talk(count: int) -> list[str]:
    """Return messages that have no word of the fact."""
    return [f"We spoke of weather number {number} and of nothing else." for number in range(count)]


def in_database(
    store: EventStore, cid: UUID, intent: str, *, until: Key | None = None, limit: int = 64
) -> Mapping[Key, float]:
    """Return what the index answers, once it is brought up."""
    bring_up(store, cid)
    with store.reading(snapshot=True) as connection:
        return SqlSearch(connection, cid, until=until).scores(intent, limit)


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
    assert before != after
    assert after == anew(store, cid)


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


def test_nothing_is_made_without_retrieval(store: EventStore, views: Views, cid: UUID) -> None:
    """A product that never retrieves has none of the tables; one whose history fits neither."""
    talk(store, cid, *small_talk(50))
    views.context(cid, max_tokens=300)
    views.context(cid, max_tokens=100_000, strategy="retrieval")
    with store.reading() as connection:
        names = inspect(connection).get_table_names()
    assert [] == [name for name in names if name.startswith("search_")]


@pytest.mark.parametrize("strategy", ["retrieval", "hybrid"])
def test_a_fact_of_long_ago_is_found(
    store: EventStore, views: Views, cid: UUID, strategy: str
) -> None:
    """Said 1,000 messages ago, it is in the request that asks for it."""
    talk(store, cid, "Hello", "Hello", FACT, "Noted.", *small_talk(1_000), QUESTION)
    view = views.context(cid, max_tokens=600, strategy=strategy, settings=EACH)
    contents = [message["content"] for message in view.messages]
    assert FACT in contents
    assert contents.index(FACT) < contents.index(QUESTION)
    assert FACT not in str(views.context(cid, max_tokens=600, settings=EACH).messages)


def test_the_ledger_says_what_was_retrieved(store: EventStore, views: Views, cid: UUID) -> None:
    """With its reason; what lies between it and the newest groups is older than these."""
    talk(store, cid, "Hello", "Hello", FACT, "Noted.", *small_talk(1_000), QUESTION)
    view = views.context(cid, max_tokens=600, strategy="retrieval", settings=EACH)
    reasons = {entry.version: entry.reason for entry in view.ledger if entry.level == "full"}
    assert "retrieved: answers the latest user message" == reasons[3]


def test_a_larger_budget_never_keeps_less(store: EventStore, views: Views, cid: UUID) -> None:
    """The number of hits does not depend on the budget, from hardly anything to everything."""
    talk(store, cid, "Hello", "Hello", FACT, *small_talk(500), "my locker", QUESTION)
    kept: set[int] = set()
    for budget in (100, 200, 400, 1_000, 3_000, 5_000, 7_000, 9_000, 12_000):
        view = views.context(cid, max_tokens=budget, strategy="retrieval", settings=EACH)
        now = {entry.version for entry in view.ledger if entry.level == "full" and entry.version}
        assert kept <= now
        kept = now
    assert 505 == len(kept)


def test_a_message_limit_holds_for_what_is_retrieved(
    store: EventStore, views: Views, cid: UUID
) -> None:
    """What lies beyond a limit on messages is as if it were not there."""
    talk(store, cid, "Hello", "Hello", FACT, *small_talk(500), QUESTION)
    view = views.context(cid, max_tokens=600, max_messages=20, strategy="retrieval", settings=EACH)
    assert len(view.messages) <= 20
    assert FACT not in str(view.messages)


def test_an_earlier_request_can_be_built_again(store: EventStore, views: Views, cid: UUID) -> None:
    """The past is searched in memory, and gives the same bytes."""
    talk(store, cid, "Hello", "Hello", FACT, *small_talk(400), QUESTION)
    options = {"max_tokens": 600, "strategy": "retrieval", "settings": EACH}
    now = views.context(cid, **options)  # type: ignore[arg-type]
    talk(store, cid, "And now?")
    then = views.context(cid, at=404, **options)  # type: ignore[arg-type]
    assert now.digest == then.digest


def test_a_read_only_store_answers_alike(store: EventStore, views: Views, cid: UUID) -> None:
    """With the index where it is current, and from memory where it is not or was never made."""
    talk(store, cid, "Hello", "Hello", FACT, *small_talk(400), QUESTION)
    url = store.engine.url.render_as_string(hide_password=False)
    with EventStore.open(url, read_only=True) as replica:
        there = Views(replica)

        def both() -> tuple[str, str]:
            options = {"max_tokens": 600, "strategy": "retrieval", "settings": EACH}
            asked = there.context(cid, **options)  # type: ignore[arg-type]
            return asked.digest, views.context(cid, **options).digest  # type: ignore[arg-type]

        for _ in range(2):
            replicated, own = both()
            assert own == replicated
        talk(store, cid, f"No, which locker is {MARKER}?")
        replicated, own = both()
        assert own == replicated


def test_a_reader_that_may_not_write_says_so(store: EventStore, views: Views, cid: UUID) -> None:
    """A search in a transaction for reading asks for the index instead of making it."""
    talk(store, cid, FACT)
    views.context(cid)
    generation = live_of(store, CONTEXT)
    with store.reading(snapshot=True) as connection:
        rows = SearchableRows(connection, generation, cid, patient=False)
        with pytest.raises(SearchBehind):
            rows.search(QUESTION, 10)
        patient = SearchableRows(connection, generation, cid, patient=True)
        assert {(1, 0)} == patient.search(QUESTION, 10).keys()


def test_erasure_leaves_nothing(store: EventStore, views: Views, cid: UUID) -> None:
    """No row, no term and no vector of the conversation; those of another one stay."""
    other, strategy = new_id(), Retrieval(embedding=Embedding("letters", Counted()))
    for stream in (cid, other):
        talk(store, stream, FACT, *small_talk(300), QUESTION)
        views.context(stream, max_tokens=600, strategy=strategy, settings=EACH)
    before = in_database(store, other, QUESTION)
    store.erase(cid, reason="asked for")
    tables = {name: rows for name, rows in held(store).items() if name.startswith("search_")}
    own = {name for name, rows in tables.items() for row in rows if search_mark(cid) in row}
    assert set() == own
    assert before == in_database(store, other, QUESTION)
    views.context(cid, max_tokens=600, strategy=strategy, settings=EACH)
    assert {} == in_database(store, cid, MARKER)


def search_mark(cid: UUID) -> str:
    """Return what is in every row of a conversation's search, and in each of its terms."""
    return str(cid)[-8:]


def held(store: EventStore) -> dict[str, list[str]]:
    """Return the rows of every table; on SQLite those of the index as its terms."""
    with store.reading() as connection:
        if connection.dialect.name != "sqlite":
            return everything(store)
        names = ("search_rows", "search_heads", "search_vectors", "search_postings")
        return {name: _rows(connection, name) for name in names}


def _rows(connection: Connection, name: str) -> list[str]:
    return [repr(tuple(row)) for row in connection.exec_driver_sql(f"SELECT * FROM {name}")]


def test_no_byte_of_it_stays_in_a_sqlite_file(sqlite_url: str, cid: UUID) -> None:
    """Not in the index's segments, not of what was withdrawn before, not in a free page."""
    needle = MARKER.lower().encode()
    other = new_id()
    with EventStore.open(sqlite_url) as store:
        Views(store)
        for stream, text in ((cid, FACT), (other, "Good morning")):
            talk(store, stream, text, *small_talk(100))
            bring_up(store, stream)
        talk(store, cid, f"{MARKER} again", "yes")
        bring_up(store, cid)
        store.append(cid, [e.Retraction(versions=(e.VersionRange(first=1, last=1),))])
        bring_up(store, cid)
        assert any(needle in data for data in _files(sqlite_url))
        store.erase(cid, reason="asked for")
        bring_up(store, cid)
    assert not any(needle in data for data in _files(sqlite_url))


def _files(url: str) -> list[bytes]:
    path = Path(str(make_url(url).database))
    return [file.read_bytes() for file in path.parent.iterdir() if file.name.startswith(path.name)]


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


def test_vectors_find_by_meaning(store: EventStore, views: Views, cid: UUID) -> None:
    """A text without a word of the question is found, and each text was embedded once."""
    embed = Counted()
    near = "bbbb gggg"
    strategy = Hybrid(embedding=Embedding("letters", embed))
    talk(store, cid, "Hi", "Hi", near, *["oo uu ii"] * 401, "gbgb ggbb")
    view = views.context(cid, max_tokens=300, strategy=strategy, settings=EACH)
    assert near in [message["content"] for message in view.messages]
    talk(store, cid, "bbgg again")
    views.context(cid, max_tokens=300, strategy=strategy, settings=EACH)
    assert sorted({"Hi", near, "oo uu ii", "gbgb ggbb", "bbgg again"}) == sorted(embed.texts)


@pytest.mark.parametrize("plain", [False, True])
def test_vectors_score_as_in_memory(
    store: EventStore, views: Views, cid: UUID, monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    """By pgvector, by sqlite-vec and in plain Python: the same, to the last digit."""
    if plain:
        monkeypatch.setattr(search_tables, "_PGVECTOR", "SELECT 1")
    embedding = Embedding("letters", Counted())
    talk(store, cid, "", "abc", "aab head", *[f"{'abcdefgh'[n % 8] * n} bad" for n in range(90)])
    bring_up(store, cid, embedding)
    table = live_of(store, CONTEXT).tables["context_messages"]
    with store.reading(snapshot=True) as connection:
        rows = list(SqlRowSource(connection, table, cid).newest(50))
        items = [item_to_search(group) for group in groups_of(rows)]
        for until in (None, (40, 0)):
            stored = StoredVectors(connection, cid, embedding, until=until)
            within = [item for item in items if until is None or item.key <= until]
            memory = VectorSearch(within, embedding.embed)
            for intent in ("abc", "a head of lettuce"):
                expected = memory.scores(intent, 10)
                assert list(expected.items()) == list(stored.scores(intent, 10).items())
        expected_type = not plain and connection.dialect.name == "postgresql"
        assert expected_type == (search_tables.pgvector_type(connection) is not None)


def test_a_wrong_number_of_vectors_is_refused(store: EventStore, views: Views, cid: UUID) -> None:
    """An embedding that drops a text would give every later one another's vector."""
    talk(store, cid, "one", "two")
    with pytest.raises(EmbeddingFailed, match="1 vectors for 2 texts"):
        bring_up(store, cid, Embedding("broken", lambda texts: [[1.0]]))


def test_a_request_is_built_though_the_embedding_fails(
    store: EventStore, views: Views, cid: UUID
) -> None:
    """By words alone, as without an embedding; the view says so."""

    def broken(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        raise OSError("no route to host")

    talk(store, cid, *(f"order W{number} is late " * 9 for number in range(30)))
    settings = ContextSettings(steps=False)
    failing = Retrieval(embedding=Embedding("broken", broken))
    lesser = views.context(cid, max_tokens=400, settings=settings, strategy=Retrieval())
    view = views.context(cid, max_tokens=400, settings=settings, strategy=failing)
    reason = "the embedding callable failed: OSError: no route to host"
    assert (f"searched by words alone: {reason}",) == view.notes
    assert lesser.digest == view.digest


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
        assert not search_index.is_current(connection, live_of(store, CONTEXT), cid)
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
    monkeypatch.undo()
    assert 7 <= len(pieces) <= 8
    assert indexed(store, cid) == anew(store, cid)


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
