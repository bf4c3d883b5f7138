"""Upgrades: from every revision with rows in it, by one process or by many at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from eventstore import EventStore, new_id
from eventstore.errors import SchemaOutdated, SchemaTooNew, StatementRefused, TablesTaken
from eventstore.events import UserMessage
from eventstore.sql.engines import open_engine
from eventstore.sql.migrate import REVISIONS, current_revision, schema_lock, upgrade
from projections import Views
from tests.concurrency.processes import Gate, running
from tests.concurrency.writer import open_and_append
from tests.contract.plain import PlainClient
from tests.migrations.rows import CONVERSATION, INSERT, TEXTS
from tests.postgres import fresh_database

ROOT = Path(__file__).parents[2]


def config() -> Config:
    """Return Alembic's configuration, as ``alembic`` reads it."""
    found = Config(ROOT / "alembic.ini")
    found.set_main_option("script_location", str(ROOT / "migrations"))
    return found


def upgrade_to(engine: Engine, revision: str) -> None:
    """Upgrade to an older revision, as its own code did."""
    alembic = config()
    with schema_lock(engine) as connection:
        alembic.attributes["connection"] = connection
        command.upgrade(alembic, revision)


def test_revisions_are_those_of_the_scripts() -> None:
    """The list that opening a store trusts names every script, oldest first."""
    scripts = ScriptDirectory.from_config(config()).walk_revisions()

    assert REVISIONS == tuple(reversed([script.revision for script in scripts]))


def test_every_revision_has_rows_to_upgrade() -> None:
    """A new revision cannot come without rows of the one before it."""
    assert set(REVISIONS) == set(INSERT)


def test_new_tables_carry_the_rights(postgres_server_url: str) -> None:
    """A login that was granted the tables of an older version may use those that came since."""
    role = f"granted-{new_id().hex}"
    with fresh_database(postgres_server_url) as url, PlainClient(url) as client:
        client.execute(f'CREATE ROLE "{role}"')
        try:
            engine = open_engine(url)
            upgrade_to(engine, "0002")
            client.execute(f'GRANT SELECT, INSERT, UPDATE, DELETE ON projection_heads TO "{role}"')
            upgrade(engine)
            engine.dispose()
            query = "SELECT has_table_privilege(?, 'projection_workers', ?)"
            for right in ("SELECT", "INSERT", "UPDATE", "DELETE"):
                assert [(True,)] == client.execute(query, role, right)
        finally:
            client.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


def test_archive_without_files_on_the_disk(tmp_path: Path, sqlite_url: str) -> None:
    """A program that imports the package from a zip is told what is missing, and not by Alembic."""
    archive = tmp_path / "bundle.zip"
    with ZipFile(archive, "w") as bundle:
        for file in (ROOT / "eventstore").rglob("*.py"):
            bundle.write(file, file.relative_to(ROOT))
    opening = "import sys; from eventstore import EventStore; EventStore.open(sys.argv[1])"
    told = subprocess.run(
        [sys.executable, "-c", opening, sqlite_url],
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert f"{archive}/eventstore/migrations: the migrations are needed as files" in told.stderr


@pytest.mark.parametrize("revision", REVISIONS)
def test_upgrade_with_rows(engine: Engine, database_url: str, revision: str) -> None:
    """What an older version wrote is read, verified and continued by this one."""
    upgrade_to(engine, revision)
    with engine.begin() as connection:
        INSERT[revision](connection)

    with EventStore.open(database_url) as store:
        found = [event.data for event in store.read(CONVERSATION)]
        verification = store.verify(CONVERSATION)
        done = store.append(CONVERSATION, [UserMessage.text("again")], expected_version=2)
        info = store.get(CONVERSATION)

    assert [UserMessage.text(words) for words in TEXTS] == found
    assert ((), 3) == (verification.problems, done.version)
    assert ("acme", "ada") == (info.tenant_id, info.user_id)


def test_upgrading_twice_changes_nothing(engine: Engine) -> None:
    """A database that is current is left alone."""
    assert [REVISIONS[-1]] * 2 == [upgrade(engine), upgrade(engine)]


def test_a_new_database_has_no_revision(engine: Engine) -> None:
    """An empty database is told from an upgraded one."""
    with engine.connect() as connection:
        before = current_revision(connection)
    upgrade(engine)
    with engine.connect() as connection:
        assert (None, REVISIONS[-1]) == (before, current_revision(connection))


def test_tables_of_another_maker_are_left_alone(engine: Engine, database_url: str) -> None:
    """A product's own tables of these names are named, before anything is made beside them."""
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE conversations (mine INTEGER)")
        connection.exec_driver_sql("CREATE VIEW events AS SELECT mine FROM conversations")

    with pytest.raises(TablesTaken, match="its own database") as caught:
        EventStore.open(database_url)

    assert ["conversations", "events"] == caught.value.names
    assert ["conversations"] == inspect(engine).get_table_names()


def test_a_table_with_the_name_of_a_view_is_left_alone(engine: Engine, database_url: str) -> None:
    """The same for the stable names of projections, which are made later."""
    with EventStore.open(database_url) as store:
        with store.transaction() as connection:
            connection.execute(text("CREATE TABLE runs (mine INTEGER)"))

        with pytest.raises(TablesTaken) as caught:
            Views(store)

    assert ["runs"] == caught.value.names


def test_a_failing_upgrade_leaves_the_schema_as_it_was(engine: Engine) -> None:
    """One transaction: an index that stands in the way stops all, and nothing half made stays."""
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE mine (number INTEGER)")
        connection.exec_driver_sql("CREATE INDEX ix_conversations_user ON mine (number)")

    with pytest.raises(StatementRefused, match="already exists"):
        upgrade(engine)

    assert ["mine"] == inspect(engine).get_table_names()


@pytest.mark.usefixtures("fork_server")
def test_many_processes_open_a_new_database_at_once(database_url: str) -> None:
    """All succeed: one upgrades, the others wait for it."""
    gate = Gate(8)
    with running(8, open_and_append, database_url, gate) as processes:
        gate.open()
        for process in processes:
            process.join(timeout=60)
        codes = [process.exitcode for process in processes]

    assert [0] * 8 == codes
    with EventStore.open(database_url, migrate=False) as store:
        assert [1] * 8 == [info.version for info in store.list()]


def test_a_newer_schema_is_refused(engine: Engine, database_url: str) -> None:
    """Code never writes into tables that it does not know."""
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE eventstore_version SET version_num = '9999'"))

    with pytest.raises(SchemaTooNew, match=r"revision 9999.*upgrade the package"):
        EventStore.open(database_url)


@pytest.mark.parametrize("options", [{"migrate": False}, {"read_only": True}])
def test_a_missing_schema_is_not_made_unasked(
    engine: Engine, database_url: str, options: dict[str, Any]
) -> None:
    """Without leave to migrate, an empty database is an error that says what to do."""
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))

    with pytest.raises(SchemaOutdated, match="eventstore db upgrade"):
        EventStore.open(database_url, **options)

    assert [] == inspect(engine).get_table_names()
