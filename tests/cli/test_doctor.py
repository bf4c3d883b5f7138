"""``doctor``: each thing that can be wrong is found, named and left as it is."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url, text

from agent_eventstore.cli.program import FOUND, WRONG_USE
from eventstore import EventStore, events, new_id
from eventstore.checks import event_log, postgresql_checks, sqlite_checks
from projections import checks as projection_checks
from projections.engine.generations import start_building
from projections.models.timeline import TIMELINE
from tests.cli.program import run
from tests.contract.plain import PlainClient
from tests.postgres import PostgresServer, fresh_database, place_of_many_files

OK, WARNING, PROBLEM = "ok", "warning", "problem"


def examined(url: str, *options: str) -> dict[str, Any]:
    """Return what the doctor finds, by the check's name."""
    done = run("doctor", "--json", *options, url=url)
    found = {each["name"]: each for each in done.document["checks"]}
    worst = {each["status"] for each in found.values()}
    assert (FOUND if PROBLEM in worst else 0) == done.status
    assert (PROBLEM not in worst) == done.document["ok"]
    return found


def finding(url: str, name: str, *options: str) -> tuple[str, str]:
    """Return the status of one check and what it found; whatever is wrong comes with advice."""
    found = examined(url, *options)[name]
    assert (found["status"] == OK) == (found["advice"] == "")
    return found["status"], found["found"]


@pytest.fixture(autouse=True)
def sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the SQLite that is there for one without its known bug, as it may be an older one."""
    monkeypatch.setattr(sqlite_checks, "SOUND", (3,))


@pytest.fixture(scope="module")
def warm_file(tmp_path_factory: pytest.TempPathFactory, untouched_file: Path) -> Path:
    """Path of a SQLite store whose projections hold everything, to be copied."""
    path = tmp_path_factory.mktemp("warm") / "store.db"
    shutil.copy(untouched_file, path)
    _fold(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="module")
def warm_database(postgres_server_url: str, untouched_database: str) -> Iterator[str]:
    """Name of a PostgreSQL store whose projections hold everything, to be copied."""
    with fresh_database(postgres_server_url, template=untouched_database) as url:
        _fold(url)
        yield str(make_url(url).database)


def _fold(url: str) -> None:
    assert 0 == run("projections", "run", "--once", url=url).status


@pytest.fixture(params=["sqlite", "postgresql"])
def warm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a store whose projections hold everything, to be changed, once for each backend."""
    if request.param == "sqlite":
        path = shutil.copy(request.getfixturevalue("warm_file"), tmp_path / "store.db")
        yield f"sqlite:///{path}"
        return
    server_url = request.getfixturevalue("postgres_server_url")
    template = request.getfixturevalue("warm_database")
    with fresh_database(server_url, template=template) as url:
        yield url


@pytest.fixture
def plain(warm: str) -> Iterator[PlainClient]:
    """Give a plain SQL client, to break that store with."""
    with PlainClient(warm) as client:
        yield client


class TestWhole:
    """A database that is well, and the ways to ask."""

    def test_nothing_is_wrong(self, warm: str) -> None:
        """Every check of a store that works is passed."""
        assert {OK} == {each["status"] for each in examined(warm).values()}

    def test_nothing_is_wrong_before_the_first_read(
        self, own_anywhere: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """That nobody has read yet is not a fault, however long that has been so."""
        monkeypatch.setattr(projection_checks, "_LATE_S", 0.0)
        assert {OK} == {each["status"] for each in examined(own_anywhere).values()}

    def test_a_table_in_words(self, warm: str, plain: PlainClient) -> None:
        """Each check is a line, with what to do below what was found."""
        plain.execute("CREATE TABLE timeline_items_g99 (n INTEGER)")
        done = run("doctor", url=warm)
        assert 0 == done.status
        assert "not part of any generation: timeline_items_g99" in " ".join(done.out.split())
        assert "→ drop them: DROP TABLE" in done.out
        assert done.out.splitlines()[-1].endswith("checks: 0 problems, 1 warning")

    def test_nothing_is_written(self, warm: str, plain: PlainClient) -> None:
        """Not a row of any table changes."""
        before = hashlib.sha256(plain.dump()).hexdigest()
        examined(warm, "--all")
        assert before == hashlib.sha256(plain.dump()).hexdigest()

    def test_read_only(self, warm: str) -> None:
        """It needs no right to write."""
        assert 0 == run("--read-only", "doctor", url=warm).status

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        """Then there is nothing to be checked, and nothing is made."""
        done = run("doctor", url=f"sqlite:///{tmp_path / 'none.db'}")
        assert (WRONG_USE, 1) == (done.status, len(done.err.splitlines()))
        assert not (tmp_path / "none.db").exists()

    def test_a_server_that_is_not_there(self, tmp_path: Path) -> None:
        """A server that cannot be reached is not a finding."""
        done = run("doctor", url=f"postgresql://ada@/agents?host={tmp_path}")
        assert (WRONG_USE, 1) == (done.status, len(done.err.splitlines()))


class TestLog:
    """Schema, triggers, chains and the feed."""

    def test_no_schema(self, database_url: str) -> None:
        """Without one only the file or the server is checked."""
        with PlainClient(database_url) as client:
            client.execute("CREATE TABLE notes (n INTEGER)")
        found = examined(database_url)
        assert (PROBLEM, "no schema") == (
            found["schema"]["status"],
            found["schema"]["found"],
        )
        assert "chain" not in found
        assert OK == found["size"]["status"]

    def test_a_schema_of_a_newer_version(self, warm: str, plain: PlainClient) -> None:
        """It is told to be unknown."""
        plain.execute("UPDATE eventstore_version SET version_num = '9999'")
        assert (PROBLEM, "this version does not know revision 9999") == finding(warm, "schema")

    def test_an_index_is_missing(self, warm: str, plain: PlainClient) -> None:
        """It is named."""
        plain.execute("DROP INDEX ix_conversations_user")
        assert (PROBLEM, "missing: ix_conversations_user") == finding(warm, "tables")

    def test_a_table_and_a_column_are_missing(self, warm: str, plain: PlainClient) -> None:
        """Both are named."""
        plain.execute("ALTER TABLE blobs DROP COLUMN compression")
        plain.execute("DROP TABLE erasures")
        assert (PROBLEM, "missing: blobs.compression, erasures") == finding(warm, "tables")

    def test_triggers_are_taken_away(self, warm: str, plain: PlainClient) -> None:
        """Events that could be changed are a problem, even if none was."""
        plain.disarm()
        status, found = finding(warm, "triggers")
        assert PROBLEM == status
        assert found.startswith("missing, changed or disabled: events_refuse_")

    def test_a_trigger_is_another(self, warm: str, plain: PlainClient) -> None:
        """One of the same name that lets everything pass is found."""
        if plain.dialect == "sqlite":
            plain.execute("DROP TRIGGER events_refuse_delete")
            plain.execute(
                "CREATE TRIGGER events_refuse_delete BEFORE DELETE ON events BEGIN SELECT 1; END"
            )
        else:
            plain.execute(
                "CREATE OR REPLACE FUNCTION events_refuse_change() RETURNS trigger "
                "LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$"
            )
        status, found = finding(warm, "triggers")
        assert PROBLEM == status
        assert "refuse" in found

    def test_an_event_was_altered(self, warm: str, plain: PlainClient) -> None:
        """A sample that holds it tells the conversation and the version."""
        alter(plain)
        status, found = finding(warm, "chain")
        assert PROBLEM == status
        assert "at version 2 (header_altered)" in found

    def test_all_conversations_or_a_few(self, warm: str, plain: PlainClient) -> None:
        """The sample is as large as asked for; ``--all`` leaves nothing out."""
        alter(plain)
        assert OK == finding(warm, "chain", "--sample", "0")[0]
        assert PROBLEM == finding(warm, "chain", "--all")[0]

    def test_the_feed_is_held_back(
        self, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whose transaction it is, is told."""
        monkeypatch.setattr(event_log, "_LONG_DELAY_S", 0.0)
        url = make_url(postgres_url).update_query_dict({"application_name": "the-culprit"})
        with EventStore.open(url) as store, store.writing() as connection:
            connection.execute(text("SELECT pg_current_xact_id()"))
            status, found = finding(postgres_url, "feed")
            assert (WARNING, True) == (status, found.startswith("nothing is held back yet"))
            store.append(new_id(), [events.UserMessage.text("hello")])
            status, found = finding(postgres_url, "feed")
        assert WARNING == status
        assert "1 event held back" in found
        assert "(the-culprit, idle in transaction" in found


def alter(client: PlainClient) -> None:
    """Change the type of an event of every conversation, as the owner of the tables can."""
    client.disarm()
    client.execute("UPDATE events SET type = 'notebook' WHERE version = 2")


class TestProjections:
    """Lag, generations and what was set aside."""

    def test_lag(self, warm: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """What nobody has folded for a while is a warning."""
        with EventStore.open(warm) as store:
            store.append(new_id(), [events.UserMessage.text("hello")])
        assert OK == finding(warm, "lag")[0]
        monkeypatch.setattr(projection_checks, "_LATE_S", 0.0)
        status, found = finding(warm, "lag")
        assert WARNING == status
        assert "lacks 1 events" in found

    def test_a_dead_generation(self, warm: str, plain: PlainClient) -> None:
        """One whose tables a rebuild has not dropped is named."""
        plain.execute("UPDATE projections SET status = 'dead' WHERE name = 'usage'")
        assert (WARNING, "dead, with their tables: usage 1") == finding(warm, "generations")

    def test_a_half_built_generation(self, warm: str) -> None:
        """A rebuild that was begun and not ended is named."""
        with EventStore.open(warm) as store, store.writing() as connection:
            start_building(connection, TIMELINE, None)
        assert (WARNING, "unfinished: timeline 2") == finding(warm, "generations")

    def test_an_orphaned_table(self, warm: str, plain: PlainClient) -> None:
        """A table of a projection that no generation has is named."""
        plain.execute("CREATE TABLE usage_by_call_g7 (n INTEGER)")
        plain.execute("CREATE TABLE timeline_items_g8 (n INTEGER)")
        plain.execute("CREATE TABLE a_product_g9 (n INTEGER)")
        found = "not part of any generation: timeline_items_g8, usage_by_call_g7"
        assert (WARNING, found) == finding(warm, "projection tables")

    def test_a_missing_table(self, warm: str, plain: PlainClient) -> None:
        """A live generation without its table, and the view on it, cannot be read."""
        plain.execute("DROP VIEW tool_calls")
        plain.execute("DROP TABLE tool_calls_g1")
        assert (PROBLEM, "missing: tool_calls, tool_calls_g1") == finding(warm, "projection tables")

    def test_a_conversation_that_was_set_aside(self, warm: str, plain: PlainClient) -> None:
        """It cannot be read, so it is a problem."""
        cid = new_id()
        with EventStore.open(warm) as store:
            store.append(cid, [events.UserMessage.text("x" * 100_000)])
        plain.execute("UPDATE blobs SET content = substr(content, 1, 8)")
        run("projections", "run", "--once", url=warm)
        status, found = finding(warm, "set aside")
        assert PROBLEM == status
        assert f"first {cid} at version 1" in found


class TestSqlite:
    """What only a file can have."""

    def test_a_damaged_page(self, own: str) -> None:
        """Pages that are no longer what they were are found, and the other checks are made."""
        run("projections", "run", "--once", url=own)
        path = Path(str(make_url(own).database))
        with sqlite3.connect(path) as connection:
            [root] = connection.execute(
                "SELECT rootpage FROM sqlite_master WHERE name = 'tool_calls_g1'"
            ).fetchone()
            [size] = connection.execute("PRAGMA page_size").fetchone()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        with path.open("r+b") as file:
            file.seek((root - 1) * size)
            file.write(b"\x55" * size)
        found = examined(own)
        assert (PROBLEM, OK) == (found["integrity"]["status"], found["triggers"]["status"])

    def test_a_release_with_a_known_bug(self, own: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is a warning, with the release to use."""
        monkeypatch.setattr(sqlite_checks, "SOUND", (99,))
        status, found = finding(own, "version")
        assert (WARNING, True) == (status, "may damage a file" in found)

    def test_another_journal_mode(self, own: str) -> None:
        """Without a write-ahead log readers and writers wait for each other."""
        with PlainClient(own) as client:
            client.execute("PRAGMA journal_mode=DELETE")
        assert (PROBLEM, "journal mode delete, not wal") == finding(own, "journal")

    def test_a_log_that_is_not_emptied(self, own: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A write-ahead log that has grown is a warning."""
        monkeypatch.setattr(sqlite_checks, "_LARGE_LOG_BYTES", 0)
        with PlainClient(own) as reader, EventStore.open(own) as store:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events")
            store.append(new_id(), [events.UserMessage.text("hello")])
            assert WARNING == finding(own, "journal")[0]

    def test_free_pages(self, own: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file that is mostly free pages is a warning."""
        monkeypatch.setattr(sqlite_checks, "_MANY_FREE_BYTES", 0)
        assert OK == finding(own, "size")[0]
        with PlainClient(own) as client:
            client.execute("CREATE TABLE large AS SELECT randomblob(4000000) AS bytes")
            client.execute("DROP TABLE large")
        assert WARNING == finding(own, "size")[0]

    def test_sizes_by_table(self, own: str) -> None:
        """Each table's own bytes and its indexes' are told."""
        sizes = examined(own)["size"]["details"]["tables"]
        assert 0 < sizes["events"]["table_bytes"]
        assert 0 < sizes["events"]["index_bytes"]


@pytest.mark.parametrize(
    ("release", "sound"),
    [
        ((3, 40, 1), False),
        ((3, 44, 6), True),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 53, 0), True),
    ],
)
def test_releases_of_sqlite(
    monkeypatch: pytest.MonkeyPatch, release: tuple[int, ...], sound: bool
) -> None:
    """Those with the WAL-reset bug, which may damage a file, are told from those without."""
    monkeypatch.undo()
    assert sound == sqlite_checks.is_sound(release)


class TestPostgresql:
    """What only a server can have."""

    @pytest.fixture
    def server_url(self, request: pytest.FixtureRequest) -> str:
        """URL of a store on a server."""
        return str(request.getfixturevalue("_own_on_postgresql"))

    def test_commits_that_do_not_wait(self, server_url: str) -> None:
        """What the URL lowers knowingly is a problem; what the database has by default is none."""
        name = make_url(server_url).database
        with PlainClient(server_url) as client:
            client.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        assert OK == finding(server_url, "server")[0]
        status, found = finding(f"{server_url}&synchronous_commit=off", "server")
        assert PROBLEM == status
        assert found.startswith("off: synchronous_commit")

    def test_a_server_without_reserves(self) -> None:
        """Few connections, and no cleaning up, are warnings."""
        settings = {"autovacuum": "off", "max_connections": "12"}
        with PostgresServer(settings, directory=place_of_many_files()) as server:
            EventStore.open(server.url()).close()
            found = examined(server.url())
        assert [WARNING, WARNING] == [found[each]["status"] for each in ("server", "connections")]

    @pytest.mark.parametrize(
        ("age", "status"), [(300_000_000, OK), (500_000_000, WARNING), (1_500_000_000, PROBLEM)]
    )
    def test_wraparound(
        self, server_url: str, monkeypatch: pytest.MonkeyPatch, age: int, status: str
    ) -> None:
        """The nearer the end of the transaction ids, the worse."""
        monkeypatch.setattr(postgresql_checks, "_AGE", text(f"SELECT {age}, 200000000"))
        assert status == finding(server_url, "wraparound")[0]

    def test_a_restore_that_nobody_noticed(self, server_url: str) -> None:
        """Transaction ids of another cluster are a problem until a new epoch begins."""
        with PlainClient(server_url) as client:
            client.execute("UPDATE store_epochs SET system_identifier = 'elsewhere'")
        assert PROBLEM == finding(server_url, "epoch")[0]
        run("db", "upgrade", url=server_url)
        assert OK == finding(server_url, "epoch")[0]

    def test_a_login_that_may_see_little(self, server_url: str) -> None:
        """What it may not read is a finding, and the rest is checked."""
        with PlainClient(server_url) as client:
            client.execute("DROP ROLE IF EXISTS guest")
            client.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
        url = make_url(server_url).set(username="guest", password="guest")
        try:
            found = examined(url.render_as_string(hide_password=False))
        finally:
            with PlainClient(server_url) as client:
                client.execute("DROP ROLE guest")
        assert (PROBLEM, OK) == (found["schema"]["status"], found["wraparound"]["status"])


def test_a_file_in_a_directory_that_may_not_be_written(
    own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read as it is, without its log, of which SQLite says that there is none."""
    with closing(sqlite3.connect(make_url(own).database or "")) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    access = os.access
    folder = Path(make_url(own).database or "").parent
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder and access(path, mode))

    status, found = finding(own, "journal")

    assert OK == status
    assert "without a log" in found
