"""Requests whose history is searched, by words and by vectors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import inspect

from agent_eventstore.transcripts import load, loader, read_transcripts
from eventstore import EventStore
from projections import Views, context_reading
from projections.context import CONTEXT, ContextSettings, search_tables
from projections.context.compression import (
    Embedding,
    Hybrid,
    LlmSummary,
    Retrieval,
    Strategy,
    VectorSearch,
)
from projections.context.groups import groups_of
from projections.context.recall_search import SearchableRows, SearchBehind, StoredVectors
from projections.context.search_tables import item_to_search
from projections.context.source import SqlRowSource
from projections.context_reading import bring_up
from projections.errors import EmbeddingFailed
from projections.worker import run
from tests.projections.searching import (
    EACH,
    FACT,
    MARKER,
    QUESTION,
    Counted,
    small_talk,
    talk,
)
from tests.projections.support import live_of

pytestmark = pytest.mark.exhaustive_when("postgresql")


def test_nothing_is_made_without_retrieval(store: EventStore, views: Views, cid: UUID) -> None:
    """A product that never retrieves has none of the tables; one whose history fits neither."""
    talk(store, cid, *small_talk(50))
    views.context(cid, max_tokens=300, strategy="key_messages")
    views.context(cid, max_tokens=100_000)
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
    plain = views.context(cid, max_tokens=600, settings=EACH, strategy="key_messages")
    assert contents.index(FACT) >= 0
    assert str(plain.messages).count(FACT) <= 1  # as a line of the digest at most


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


@pytest.mark.parametrize("summarises", [False, True])
def test_vectors_find_by_meaning(
    store: EventStore, views: Views, cid: UUID, summarises: bool
) -> None:
    """A text without a word of the question is found, and each text was embedded once."""
    embed = Counted()
    near = "bbbb gggg"
    strategy: Strategy = Hybrid(embedding=Embedding("letters", embed))
    if summarises:
        strategy = LlmSummary(base=strategy)
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
    reason = "the embedding callable failed: OSError: no route to host"
    for strategy in (failing, LlmSummary(base=failing)):
        view = views.context(cid, max_tokens=400, settings=settings, strategy=strategy)
        assert (f"searched by words alone: {reason}",) == view.notes
        assert lesser.digest == view.digest


def test_the_worker_indexes_long_conversations(
    store: EventStore, views: Views, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of the default strategy finds the index current; once the request built it."""
    talk(store, cid, "Hello", "Hello", FACT, "Noted.", *small_talk(1_000), QUESTION)
    run(store, once=True)
    monkeypatch.setattr(context_reading, "bring_up", lambda *_: pytest.fail("built in a request"))
    assert "RECALLED" in str(views.context(cid, max_tokens=600).messages)


def test_an_import_indexes_long_conversations(
    store: EventStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request of an imported history finds its index, with no worker in between."""
    said = ("Hello", "Hello", FACT, "Noted.", *small_talk(1_000), QUESTION)
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(said)]
    file = tmp_path / "long.json"
    file.write_text(json.dumps(messages), "utf-8")
    (cid,) = load(store, read_transcripts(file)).ids
    monkeypatch.setattr(context_reading, "bring_up", lambda *_: pytest.fail("built in a request"))
    assert "RECALLED" in str(Views(store).context(cid, max_tokens=600).messages)


def test_an_import_goes_on_past_what_cannot_be_indexed(
    store: EventStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The events are stored, and so is the next conversation."""

    def broken(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(loader, "bring_up", broken)
    long, short = ([{"role": "user", "content": str(n)}] * n for n in (1_000, 1))
    file = tmp_path / "two.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in (long, short)), "utf-8")
    report = load(store, read_transcripts(file))
    assert (2, 0) == (report.conversations, report.failed)
    assert 1 == caplog.text.count("not indexed")
