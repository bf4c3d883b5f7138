"""What PostgreSQL keeps beside rows: the planner's statistics, and the pages of what was erased."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import make_url

from eventstore import EventStore
from eventstore import events as e
from eventstore.errors import DatabaseBusy, NotWritable
from eventstore.sql import residues
from projections import Views
from projections.context.compression.search import Embedding
from projections.context_reading import bring_up
from tests.contract.plain import PlainClient
from tests.projections.support import converse, everything, read_all_views
from tests.projections.test_erasure import MARKER, marked

SHORT = Embedding("short", lambda texts: [[float(len(text)), 1.0] for text in texts])
FILES = """
    SELECT relname, pg_read_binary_file(pg_relation_filepath(oid))
    FROM pg_class WHERE relkind IN ('r', 'i', 't') AND relfilenode <> 0
    """


def spread(store: EventStore, cid: UUID) -> None:
    """Have a conversation's words in every kind of table and index, and others beside them."""
    other = converse(store, 1)
    read_all_views(Views(store), other)
    bring_up(store, other, SHORT)
    marked(store, cid)
    for _ in range(3):
        store.append(cid, [e.UserMessage.text(f"who was in {MARKER}?")])
        read_all_views(Views(store), cid)
        bring_up(store, cid, SHORT)


def in_statistics(client: PlainClient) -> list[str]:
    """Return the columns of whose values the planner knows the marker."""
    client.execute("VACUUM ANALYZE")
    rows = client.execute("SELECT tablename, attname, s::text FROM pg_stats AS s")
    return [f"{table}.{column}" for table, column, said in rows if MARKER.lower() in said.lower()]


def in_files(client: PlainClient) -> list[str]:
    """Return the tables and indexes in whose files the marker stands."""
    client.execute("CHECKPOINT")
    rows = client.execute(FILES)
    return [name for name, content in rows if MARKER.lower().encode() in content.lower()]


def test_statistics_never_hold_it(postgres_url: str, cid: UUID) -> None:
    """ANALYZE, whoever calls it, collects no texts of the log, of views or of the index."""
    with EventStore.open(postgres_url) as store, PlainClient(postgres_url) as client:
        spread(store, cid)
        assert [] == in_statistics(client)


@pytest.mark.parametrize("can_clear", [True, False])
def test_statistics_that_were_collected_are_cleared(
    postgres_url: str, cid: UUID, monkeypatch: pytest.MonkeyPatch, can_clear: bool
) -> None:
    """Also where somebody had turned them on, on servers of either kind."""
    monkeypatch.setattr(residues, "_CLEARS", 18 if can_clear else 99)
    with EventStore.open(postgres_url) as store, PlainClient(postgres_url) as client:
        spread(store, cid)
        [(table,)] = client.execute(
            "SELECT relname FROM pg_class WHERE relname ~ '^timeline_items_g[0-9]+$'"
        )
        for of in ("search_rows ALTER words", f'"{table}" ALTER text'):
            client.execute(f"ALTER TABLE {of} SET STATISTICS 100")
        assert [f"{table}.text", "search_rows.words"] == sorted(in_statistics(client), reverse=True)
        for of in ("search_rows ALTER words", f'"{table}" ALTER text'):
            client.execute(f"ALTER TABLE {of} SET STATISTICS 0")

        store.erase(cid, reason="asked for")

        held = "SELECT tablename FROM pg_stats AS s WHERE s::text ILIKE ?"
        assert [] == client.execute(held, f"%{MARKER}%")


@pytest.mark.parametrize("each", [False, True])
def test_no_file_of_a_table_holds_it(fresh_postgres_url: str, cid: UUID, each: bool) -> None:
    """A vacuum rewrites tables and indexes, with their overflow, and loses nothing else."""
    url = fresh_postgres_url  # files of a used database hold what other tests have deleted
    with EventStore.open(url, blob_threshold=2_500) as store:
        with PlainClient(url) as client:
            spread(store, cid)
            assert {"events", "ix_search_rows_words"} <= set(in_files(client))
            versions = range(1, store.get(cid).version + 1) if each else None
            store.erase(cid, reason="asked for", versions=versions)
            before = everything(store)

            store.vacuum()

            assert [] == in_files(client)
            assert before == everything(store)
            assert store.verify().ok


def test_what_cannot_be_rewritten_is_told(postgres_url: str, cid: UUID) -> None:
    """A role that does not own the tables learns that they are as they were."""
    with EventStore.open(postgres_url) as store, PlainClient(postgres_url) as client:
        spread(store, cid)
        client.execute("CREATE ROLE guest")
        rights = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public"
        client.execute(f"GRANT {rights} TO guest")
        try:
            with EventStore.open(
                store.engine.url.update_query_dict({"options": "-c role=guest"}), migrate=False
            ) as guest:
                guest.erase(cid, reason="asked for")
                with pytest.raises(NotWritable, match=r"permission denied to vacuum \"events\""):
                    guest.vacuum()
        finally:
            client.execute("DROP OWNED BY guest")
            client.execute("DROP ROLE guest")


def test_a_vacuum_beside_a_reader(postgres_url: str, cid: UUID) -> None:
    """It says that the erasure stands: busy alone means that nothing was written."""
    hasty = make_url(postgres_url).update_query_dict({"lock_timeout": "50ms"})
    with EventStore.open(hasty) as store:
        marked(store, cid)
        with EventStore.open(postgres_url) as other, other.reading() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM events")
            with pytest.raises(DatabaseBusy, match="the erasure is committed"):
                store.erase(cid, reason="asked for", vacuum=True)

        assert "erasure" == [event.type for event in store.read(cid)][-1]
