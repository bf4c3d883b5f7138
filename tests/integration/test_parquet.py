"""A copy of the store as Parquet files: complete, whatever was killed, without what was erased."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from agent_eventstore import parquet
from agent_eventstore.errors import ParquetRefused
from agent_eventstore.parquet import ParquetReport, export_parquet
from agent_eventstore.transcripts import load, read_transcripts
from eventstore import DirectoryKeys, EventStore, new_id
from eventstore import events as e
from eventstore.errors import OwnerMismatch
from projections import PROJECTIONS, ProjectionSet, Views
from tests.cli.program import run
from tests.contract.facade import say
from tests.contract.test_lost_keys import lose_key
from tests.docs.audit_store import TRANSCRIPTS
from tests.projections.toys import Notes

HOSTILE = "a\x00b\ud800c \U0010fffe00d800 \N{PILE OF POO}" + "\u202e" * 3


@pytest.fixture
def keys(tmp_path: Path) -> DirectoryKeys:
    """Return keys in a directory of the test's own."""
    return DirectoryKeys(tmp_path / "keys", wrapping=bytes(range(32)))


@pytest.fixture
def copied_to(tmp_path: Path) -> Path:
    """Return a directory that does not exist yet."""
    return tmp_path / "copy"


def _read(directory: Path, table: str) -> list[dict[str, Any]]:
    files = sorted((directory / table).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def _export(store: EventStore, directory: Path) -> ParquetReport:
    return export_parquet(store, directory)


def _same(store: EventStore, directory: Path) -> None:
    """Raise unless the events of the copy are those of the store, each once."""
    wanted = {
        (str(event.conversation_id), event.version, str(event.event_id), event.erased)
        for info in store.list(limit=10_000)
        for event in store.read(info.conversation_id)
    }
    rows = _read(directory, "events")
    found = [
        (row["conversation_id"], row["version"], row["event_id"], row["data"] is None)
        for row in rows
    ]
    assert len(found) == len(wanted)
    assert {*found} == wanted


@pytest.fixture
def store(database_url: str) -> Any:
    """Give a store with a few conversations."""
    with EventStore.open(database_url) as store:
        for user in ("anna", "ben", "cleo"):
            store.append(f"{user}'s", [*say(f"hello {user}", "more")], user_id=user)
        yield store


class TestContent:
    """What is in the files."""

    def test_real_transcripts(self, sqlite_url: str, copied_to: Path) -> None:
        """Each view has the rows that SQL shows, and each event its payload."""
        directory = copied_to
        with EventStore.open(sqlite_url) as store:
            load(store, read_transcripts(TRANSCRIPTS))
            report = _export(store, directory)
            _same(store, directory)
            assert report.events == len(_read(directory, "events"))
            views = Views(store)
            for projection in PROJECTIONS:
                if projection.name in ("context", "search"):
                    continue
                for table in projection.tables:
                    names = ["conversation_id", *(each.name for each in table.columns)]
                    rows, copied = views.rows(table.name), _read(directory, table.name)
                    assert report.rows[table.name] == len(rows) == len(copied)
                    texts = {
                        name
                        for name, kind in zip(
                            names, ["text", *(c.type for c in table.columns)], strict=True
                        )
                        if kind == "text"
                    }
                    assert sorted(
                        str([None if row[n] is None else str(row[n]) for n in names if n in texts])
                        for row in rows
                    ) == sorted(str([row[n] for n in names if n in texts]) for row in copied)
            calls = {row["call_id"]: row for row in _read(directory, "tool_calls")[:50]}
            for row in calls.values():
                assert row["arguments"] is None or isinstance(json.loads(row["arguments"]), dict)

    def test_any_text(self, store: EventStore, copied_to: Path) -> None:
        """What no UTF-8 file can hold is written as SQL shows it, and in JSON as escapes."""
        events = [e.ConversationStart(title=HOSTILE, metadata={HOSTILE: HOSTILE}), *say(HOSTILE)]
        cid = store.append(new_id(), events).conversation_id
        _export(store, copied_to)
        _same(store, copied_to)
        [row] = [r for r in _read(copied_to, "directory") if r["conversation_id"] == str(cid)]
        assert json.loads(row["metadata"]) == {HOSTILE: HOSTILE}
        assert row["last_user_text"].startswith("a\U0010fffe000000b\U0010fffe00d800c")

    def test_owners_and_keys(self, store: EventStore, copied_to: Path) -> None:
        """The list of conversations has whom each belongs to."""
        _export(store, copied_to)
        found = {(row["user_id"], row["key"]) for row in _read(copied_to, "conversations")}
        assert {("anna", "anna's"), ("ben", "ben's"), ("cleo", "cleo's")} == found

    def test_own_projection(self, store: EventStore, copied_to: Path) -> None:
        """A product's own tables are exported too."""
        report = export_parquet(store, copied_to, projections=ProjectionSet([Notes()]))
        names = [table.name for table in Notes().tables]
        assert {*names} <= {*report.rows}
        assert all((copied_to / name).is_dir() for name in names)


class TestAgain:
    """An export into the same directory."""

    def test_adds_what_is_new(self, store: EventStore, copied_to: Path) -> None:
        """Only new events are added, and views are current."""
        assert 6 == _export(store, copied_to).events
        store.append("anna's", say("again"))
        report = _export(store, copied_to)
        assert (1, 0) == (report.events, report.rewritten)
        assert 0 == _export(store, copied_to).events
        _same(store, copied_to)
        assert 2 == len(list((copied_to / "events").iterdir()))

    def test_removes_what_was_erased(self, store: EventStore, copied_to: Path) -> None:
        """Erased payloads, and purged conversations, are in no file any more."""
        _export(store, copied_to)
        store.erase("anna's", reason="asked for")
        store.purge("ben's", reason="asked for")
        fork = store.fork("cleo's", conversation_id="fork").conversation_id
        store.append(fork, say("own words"))
        report = _export(store, copied_to)
        assert 1 <= report.rewritten
        content = "".join(
            str(_read(copied_to, each.name)) for each in copied_to.iterdir() if each.is_dir()
        )
        assert "hello anna" not in content
        assert "hello ben" not in content
        assert "hello cleo" in content
        assert 0 == _export(store, copied_to).rewritten

    def test_lost_key(self, database_url: str, copied_to: Path, keys: DirectoryKeys) -> None:
        """What was erased of a conversation whose key is lost goes, and nothing is in the way."""
        with EventStore.open(database_url, keys=keys) as store:
            lost, whole = (store.append(new_id(), say("1", "2")).conversation_id for _ in range(2))
            assert (4, 0) == (_export(store, copied_to).events, 0)
            lose_key(keys, lost)
        with EventStore.open(database_url, keys=keys) as store:
            store.erase(lost, reason="asked for", versions=[1])
            assert 1 == _export(store, copied_to).passed
            rows = _read(copied_to, "events")
            theirs = [(r["version"], r["type"]) for r in rows if r["conversation_id"] == str(lost)]
            assert [(1, "user_message"), (3, "erasure")] == theirs
            assert 2 == sum(row["conversation_id"] == str(whole) for row in rows)
            assert 0 == _export(store, copied_to).rewritten

    def test_purged_id_that_lives_again(self, store: EventStore, copied_to: Path) -> None:
        """A new conversation under a purged one's key is there, and the old one is not."""
        _export(store, copied_to)
        store.purge("ben's", reason="asked for")
        store.append("ben's", say("reborn"))
        _export(store, copied_to)
        _same(store, copied_to)

    def test_archived(self, store: EventStore, copied_to: Path, tmp_path: Path) -> None:
        """What is archived stays in the copy, what was erased before does not; no event twice."""

        def owners() -> list[str]:
            found = Counter(row["conversation_id"] for row in _read(copied_to, "events"))
            return sorted(f"{ids[each]} {count}" for each, count in found.items())

        ids = {str(each.conversation_id): str(each.user_id) for each in store.list()}
        _export(store, copied_to)
        assert ["anna 2", "ben 2", "cleo 2"] == owners()
        store.erase("ben's", reason="asked for")
        store.archive(tmp_path / "archive", inactive_for=timedelta(microseconds=1))
        for _ in range(2):
            _export(store, copied_to)
            assert ["anna 2", "cleo 2"] == owners()
        for each in store.archived():
            store.restore(each.conversation_id)
        for _ in range(2):
            _export(store, copied_to)
            _same(store, copied_to)
        store.archive(tmp_path / "archive", inactive_for=timedelta(microseconds=1))
        for each in store.archived():
            store.restore(each.conversation_id)
        _export(store, copied_to)
        _same(store, copied_to)

    def test_small_files(
        self, store: EventStore, copied_to: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However many files and groups of rows there are, each event is in one of them."""
        for name, value in (("_ROWS_IN_FILE", 2), ("_ROWS_IN_GROUP", 1), ("_PAGE", 1)):
            monkeypatch.setattr(parquet, name, value)
        _export(store, copied_to)
        _same(store, copied_to)
        assert 3 == len(list((copied_to / "events").iterdir()))
        store.erase("ben's", reason="asked for")
        _export(store, copied_to)
        assert "hello ben" not in str(_read(copied_to, "events"))


class TestKilled:
    """An export that ends anywhere is continued by the next one."""

    @pytest.mark.parametrize("step", range(1, 40))
    def test_at_each_step(
        self, sqlite_url: str, copied_to: Path, monkeypatch: pytest.MonkeyPatch, step: int
    ) -> None:
        """Whichever change of the directory is the last, each event comes once."""
        for name, value in (("_ROWS_IN_FILE", 2), ("_PAGE", 1)):
            monkeypatch.setattr(parquet, name, value)
        with EventStore.open(sqlite_url) as store:
            for name in ("a", "b", "c"):
                store.append(name, say(f"hello {name}", "more"))
            with monkeypatch.context() as patched, _until(patched, step):
                _export(store, copied_to)
            store.erase("a", reason="asked for")
            store.purge("b", reason="asked for")
            with monkeypatch.context() as patched, _until(patched, step):
                _export(store, copied_to)
            _export(store, copied_to)
            _same(store, copied_to)
            files = str(_read(copied_to, "events"))
        assert ("hello a" in files, "hello b" in files, "hello c" in files) == (False, False, True)

    def test_two_at_once(self, store: EventStore, copied_to: Path) -> None:
        """A second export into the directory is refused while one runs."""
        refused: list[Exception] = []

        def meanwhile(_: ParquetReport) -> None:
            if not refused:
                with pytest.raises(ParquetRefused, match="another export") as caught:
                    _export(store, copied_to)
                refused.append(caught.value)

        export_parquet(store, copied_to, on_progress=meanwhile)
        assert refused
        _same(store, copied_to)


class TestRefused:
    """What cannot be exported, or not there."""

    def test_directory_with_something_else(self, store: EventStore, copied_to: Path) -> None:
        """Nobody's files are mixed with the copy."""
        copied_to.mkdir()
        (copied_to / "notes.txt").write_text("mine")
        with pytest.raises(ParquetRefused, match="not empty"):
            _export(store, copied_to)
        assert (copied_to / "notes.txt").read_text() == "mine"

    def test_copy_of_another_store(self, store: EventStore, copied_to: Path) -> None:
        """Two stores have two directories."""
        with EventStore.open(f"sqlite:///{copied_to}.db") as other:
            other.append(new_id(), say("other"))
            _export(other, copied_to)
        with pytest.raises(ParquetRefused, match="another store"):
            _export(store, copied_to)

    def test_bound_store(self, store: EventStore, copied_to: Path) -> None:
        """One owner's store cannot copy everybody's."""
        with pytest.raises(OwnerMismatch):
            _export(store.for_owner(user_id="anna"), copied_to)
        with pytest.raises(OwnerMismatch):
            Views(store.for_owner(user_id="anna")).read_batches("directory", list)

    def test_without_the_extra(self, copied_to: Path) -> None:
        """The error names what to install."""
        program = "import sys; sys.modules['pyarrow'] = None; import agent_eventstore.parquet"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert "agent-eventstore[parquet]" in done.stderr


class TestCommand:
    """``eventstore export --all --format parquet``."""

    def test_export(self, store: EventStore, database_url: str, copied_to: Path) -> None:
        """The command says what it wrote."""
        command = ("export", "--all", "--format", "parquet", "-o", str(copied_to))
        done = run(*command, url=database_url)
        assert (0, "exported 6 new events and 15 views ") == (done.status, done.out[:35])
        store.erase("anna's", reason="asked for")
        assert "without what was erased" in run(*command, url=database_url).out

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("--all",), "name it with -o"),
            (("-o", "copy", "abc"), "give --all"),
            (("--all", "-o", __file__), "needs a directory"),
        ],
    )
    def test_wrong_use(self, database_url: str, arguments: tuple[str, ...], reason: str) -> None:
        """The command says what is missing."""
        done = run("export", "--format", "parquet", *arguments, url=database_url)
        assert 2 == done.status
        assert reason in done.err


class _Killed(BaseException):
    """Ends an export as a kill would: nothing handles it."""


class _until:
    """Kill the export at a change of its directory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
        self._left = step
        for owner, name in ((Path, "replace"), (Path, "unlink"), (os, "fsync")):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self._left -= 1
            if not self._left:
                raise _Killed
            return change(*arguments)

        return counted

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        """Go on after the kill."""
        return isinstance(error, _Killed)
