"""The schema: what the migrations make is what the code declares, whichever way they are run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Engine, Index, Integer, MetaData, Table, Text

from eventstore import EventStore
from eventstore.sql.engines import open_engine
from eventstore.sql.migrate import upgrade
from eventstore.sql.schema import metadata_for
from tests.migrations.describe import declared, described, differences, fingerprint
from tests.postgres import fresh_database

ROOT = Path(__file__).parents[2]


def test_upgraded_schema_equals_the_declared_one(engine: Engine, inspected: Connection) -> None:
    """Tables, columns, types, nullability, keys and indexes are those of the metadata."""
    metadata = metadata_for(engine.dialect.name)
    upgrade(engine)

    assert declared(inspected, metadata) == described(inspected)
    assert [] == differences(inspected, metadata)


def copied(connection: Connection) -> MetaData:
    """Return a copy of the declared metadata that a test may spoil."""
    copy = MetaData()
    for table in metadata_for(connection.dialect.name).tables.values():
        table.to_metadata(copy)
    return copy


def without_column(metadata: MetaData) -> None:
    """Forget a column of the declaration."""
    table = metadata.tables["blobs"]
    metadata.remove(table)
    kept = [column for column in table.columns if column.name != "size_bytes"]
    Table("blobs", metadata, *(Column(c.name, c.type, nullable=c.nullable) for c in kept))


def with_column(metadata: MetaData) -> None:
    """Declare a column that no migration adds."""
    metadata.tables["events"].append_column(Column("colour", Text))


def other_type(metadata: MetaData) -> None:
    """Declare a column of another type."""
    metadata.tables["erasures"].c.reason.type = Integer()


def nullable(metadata: MetaData) -> None:
    """Declare that a column may be empty."""
    metadata.tables["conversations"].c.chain.nullable = True


def with_index(metadata: MetaData) -> None:
    """Declare an index that no migration makes."""
    Index("ix_new", metadata.tables["events"].c.type)


def without_table(metadata: MetaData) -> None:
    """Forget a table."""
    metadata.remove(metadata.tables["erasures"])


@pytest.mark.parametrize(
    "spoil", [without_column, with_column, other_type, nullable, with_index, without_table]
)
def test_the_comparison_can_fail(upgraded: Connection, spoil: Callable[[MetaData], None]) -> None:
    """Any difference between declaration and database is seen, by both comparisons."""
    metadata = copied(upgraded)
    spoil(metadata)

    assert declared(upgraded, metadata) != described(upgraded)
    assert [] != differences(upgraded, metadata)


def test_an_untouched_copy_is_equal(upgraded: Connection) -> None:
    """The comparison fails for what was spoiled, not for being given a copy."""
    assert [] == differences(upgraded, copied(upgraded))


def by_alembic(url: str) -> None:
    """Upgrade as an operator does, in a process of its own."""
    subprocess.run(
        [sys.executable, "-m", "alembic", "upgrade", "head"],
        cwd=ROOT,
        env={**os.environ, "EVENTSTORE_URL": url},
        check=True,
        capture_output=True,
    )


def by_upgrade(url: str) -> None:
    """Upgrade as the command line does."""
    engine = open_engine(url)
    upgrade(engine)
    engine.dispose()


def by_opening(url: str) -> None:
    """Upgrade by opening a store."""
    EventStore.open(url).close()


def catalogue(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return all that the database says of its schema."""
    engine = open_engine(url)
    with engine.connect() as connection:
        found = fingerprint(connection)
    engine.dispose()
    return found


@pytest.mark.parametrize("way", [by_alembic, by_upgrade])
def test_every_way_makes_the_same_sqlite_schema(
    tmp_path: Path, sqlite_url: str, way: Callable[[str], None]
) -> None:
    """``alembic upgrade head``, the command line and opening leave no difference."""
    other_url = f"sqlite:///{tmp_path / 'other.db'}"
    by_opening(sqlite_url)
    way(other_url)

    assert catalogue(sqlite_url) == catalogue(other_url)


@pytest.mark.parametrize("way", [by_alembic, by_upgrade])
def test_every_way_makes_the_same_postgresql_schema(
    postgres_server_url: str, postgres_url: str, way: Callable[[str], None]
) -> None:
    """The same on PostgreSQL, triggers and functions included."""
    with fresh_database(postgres_server_url) as other_url:
        by_opening(postgres_url)
        way(other_url)

        assert catalogue(postgres_url) == catalogue(other_url)


def test_the_catalogue_sees_triggers(engine: Engine, database_url: str) -> None:
    """A schema without the triggers that keep events immutable is another schema."""
    upgrade(engine)
    before = catalogue(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql(_drop_a_trigger(connection))

    assert before != catalogue(database_url)


def _drop_a_trigger(connection: Connection) -> str:
    if connection.dialect.name == "sqlite":
        return "DROP TRIGGER events_refuse_delete"
    return "DROP TRIGGER events_refuse_truncate ON events"
