"""The tables that cannot be rebuilt, as SQLAlchemy metadata, for queries and for comparison.

Only the migrations create the tables; a test checks that an upgraded database equals what is
declared here. Each table is keyed by ``conversation_id`` first, except the five that hold a few
rows for the whole store (``projections``, ``projection_workers``, ``shared_tables``,
``store_epochs``, ``store_identity``).

The databases differ in one point. SQLite has a single writer, so ``position`` orders the feed
and is the primary key (never reused, thanks to ``AUTOINCREMENT``). PostgreSQL has many writers, so
the feed is ordered by ``(epoch, tx_id, position)``, see `eventstore.sql.feed`.

Derived tables are registered in the log's own: the tables of a generation in ``projections``,
others, such as token counts, in ``shared_tables`` by the code that creates them. So erasure and
grants reach all of them even in a process that has not loaded that code.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    inspect,
    select,
    text,
    types,
)

from eventstore.sql.types import Id, JsonText, SafeText, Timestamp

__all__ = ["VIEWS", "Xid8", "derived_tables", "metadata_for"]

VIEWS = ("view_lag",)
"""The store's own views, which a migration creates; projections create all others."""


class Xid8(types.UserDefinedType[int]):
    """PostgreSQL's 64-bit transaction id."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Return the SQL name of the type."""
        return "XID8"


@cache
def metadata_for(dialect: str) -> MetaData:
    """Return the declared tables for ``sqlite`` or ``postgresql``."""
    metadata = MetaData()
    _conversations(metadata)
    _events(metadata, dialect)
    Table(
        "blobs",
        metadata,
        Column("conversation_id", Id, nullable=False),
        Column("digest", Text, nullable=False),
        Column("size_bytes", BigInteger, nullable=False),
        Column("compression", Text, nullable=False),
        Column("content", LargeBinary, nullable=False),
        PrimaryKeyConstraint("conversation_id", "digest"),
    )
    Table(
        "erasures",
        metadata,
        Column("conversation_id", Id, nullable=False),
        Column("erasure_id", Id, nullable=False),
        Column("erased_at", Timestamp, nullable=False),
        Column("reason", SafeText, nullable=False),
        Column("requested_by", SafeText),
        PrimaryKeyConstraint("conversation_id", "erasure_id"),
    )
    Table(
        "erased_versions",
        metadata,
        Column("conversation_id", Id, nullable=False),
        Column("erasure_id", Id, nullable=False),
        Column("first_version", BigInteger, nullable=False),
        Column("last_version", BigInteger, nullable=False),
        PrimaryKeyConstraint("conversation_id", "first_version", "erasure_id"),
    )
    Table(
        "purges",
        metadata,
        Column("conversation_id", Id, nullable=False),
        Column("purge_id", Id, nullable=False),
        Column("purged_at", Timestamp, nullable=False),
        Column("reason", SafeText, nullable=False),
        Column("requested_by", SafeText),
        Column("event_count", BigInteger, nullable=False),
        Column("blob_count", BigInteger, nullable=False),
        Column("blob_bytes", BigInteger, nullable=False),
        Column("first_position", BigInteger, nullable=False),
        Column("last_position", BigInteger, nullable=False),
        PrimaryKeyConstraint("conversation_id", "purge_id"),
    )
    Table(
        "retired_keys",
        metadata,
        Column("conversation_id", Id, nullable=False),
        Column("key_id", Text, nullable=False),
        Column("retired_at", Timestamp, nullable=False),
        PrimaryKeyConstraint("conversation_id", "key_id"),
    )
    Table(
        "archives",
        metadata,
        Column("conversation_id", Id, nullable=False),
        Column("state", Text, nullable=False),
        Column("url", Text, nullable=False),
        Column("digest", Text, nullable=False),
        Column("size_bytes", BigInteger, nullable=False),
        Column("event_count", BigInteger, nullable=False),
        Column("erasure_count", BigInteger, nullable=False),
        Column("tenant_id", SafeText),
        Column("user_id", SafeText),
        Column("last_active_at", Timestamp, nullable=False),
        Column("archived_at", Timestamp, nullable=False),
        PrimaryKeyConstraint("conversation_id"),
    )
    Table(
        "import_sources",
        metadata,
        Column("conversation_id", Id, nullable=False),
        Column("source", Text, nullable=False),
        PrimaryKeyConstraint("conversation_id"),
        Index("ix_import_sources_source", "source"),
    )
    Table(
        "writer_leases",
        metadata,
        Column("conversation_id", Id, nullable=False),
        Column("session_id", Text, nullable=False),
        Column("process", Text, nullable=False),
        Column("who", SafeText, nullable=False),
        Column("since", Timestamp, nullable=False),
        Column("expires_at", Timestamp, nullable=False),
        PrimaryKeyConstraint("conversation_id"),
    )
    _projections(metadata)
    Table(
        "store_identity",
        metadata,
        Column("store_id", Id, nullable=False),
        PrimaryKeyConstraint("store_id"),
    )
    if dialect == "postgresql":
        Table(
            "store_epochs",
            metadata,
            Column("epoch", Integer, nullable=False, autoincrement=False),
            Column("system_identifier", Text, nullable=False),
            Column("started_at", Timestamp, nullable=False),
            PrimaryKeyConstraint("epoch"),
        )
    return metadata


def _conversations(metadata: MetaData) -> None:
    Table(
        "conversations",
        metadata,
        Column("conversation_id", Id, nullable=False),
        Column("version", BigInteger, nullable=False),
        Column("chain", LargeBinary, nullable=False),
        Column("writer_epoch", BigInteger, nullable=False),
        Column("tenant_id", SafeText),
        Column("user_id", SafeText),
        Column("created_at", Timestamp, nullable=False),
        Column("last_active_at", Timestamp, nullable=False),
        Column("parent_conversation_id", Id),
        Column("parent_version", BigInteger),
        Column("key_id", Text),
        Column("key", SafeText),
        PrimaryKeyConstraint("conversation_id"),
        Index("ix_conversations_owner", "tenant_id", "user_id", "conversation_id"),
        Index("ix_conversations_user", "user_id", "conversation_id"),
        Index(
            "ix_conversations_parent",
            "parent_conversation_id",
            sqlite_where=text("parent_conversation_id IS NOT NULL"),
            postgresql_where=text("parent_conversation_id IS NOT NULL"),
        ),
    )


def _events(metadata: MetaData, dialect: str) -> None:
    columns: list[Column[Any]] = [
        Column("conversation_id", Id, nullable=False),
        Column("version", BigInteger, nullable=False),
        Column("event_id", Id, nullable=False),
        Column("type", Text, nullable=False),
        Column("schema_version", Integer, nullable=False),
        Column("recorded_at", Timestamp, nullable=False),
        Column("data", JsonText),
        Column("meta", JsonText, nullable=False),
        Column("salt", LargeBinary),
        Column("data_digest", LargeBinary, nullable=False),
        Column("chain", LargeBinary, nullable=False),
    ]
    if dialect == "sqlite":
        Table(
            "events",
            metadata,
            Column("position", Integer, primary_key=True),
            *columns,
            UniqueConstraint("conversation_id", "version", name="uq_events_version"),
            UniqueConstraint("event_id", "conversation_id", name="uq_events_event_id"),
            sqlite_autoincrement=True,
        )
        return
    Table(
        "events",
        metadata,
        *columns,
        Column("position", BigInteger, Identity(always=True), nullable=False),
        Column("epoch", Integer, nullable=False),
        Column("tx_id", Xid8, nullable=False),
        PrimaryKeyConstraint("conversation_id", "version", name="pk_events"),
        UniqueConstraint("event_id", "conversation_id", name="uq_events_event_id"),
        Index("ix_events_feed", "epoch", "tx_id", "position"),
    )


def _projections(metadata: MetaData) -> None:
    Table(
        "projections",
        metadata,
        Column("name", Text, nullable=False),
        Column("generation", Integer, nullable=False),
        Column("version", Integer, nullable=False),
        Column("status", Text, nullable=False),
        Column("tables", JsonText, nullable=False),
        Column("cursor", Text),
        Column("created_at", Timestamp, nullable=False),
        PrimaryKeyConstraint("name", "generation"),
    )
    Table(
        "projection_heads",
        metadata,
        Column("conversation_id", Id, nullable=False),
        Column("projection", Text, nullable=False),
        Column("generation", Integer, nullable=False),
        Column("version", BigInteger, nullable=False),
        Column("state", Text, nullable=False),
        PrimaryKeyConstraint("conversation_id", "projection", "generation"),
    )
    Table(
        "projection_workers",
        metadata,
        Column("worker_id", Text, nullable=False),
        Column("task", Text, nullable=False),
        Column("host", Text, nullable=False),
        Column("process_id", Integer, nullable=False),
        # Seconds since 1970, by the database's clock.
        Column("started_at", BigInteger, nullable=False),
        Column("seen_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("worker_id"),
    )
    Table(
        "shared_tables",
        metadata,
        Column("name", Text, nullable=False),
        Column("place", Integer, nullable=False),
        PrimaryKeyConstraint("name"),
    )


def derived_tables(connection: Connection) -> list[str]:
    """Return the names of the derived tables, shared ones last, in order of registration."""
    tables = metadata_for(connection.dialect.name).tables
    registered = connection.execute(select(tables["projections"].c.tables)).scalars().all()
    shared = tables["shared_tables"].c
    names = connection.execute(select(shared.name).order_by(shared.place)).scalars().all()
    there = inspect(connection)
    return [
        *(name for each in registered for name in json.loads(each)),
        *(name for name in names if there.has_table(name)),
    ]
