"""The archive: what moves out of the database, comes back, and can be erased, on both databases."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import fsspec
import pytest

from eventstore import ArchiveReport, DirectoryKeys, EventStore, RecordedEvent, archive, new_id
from eventstore.erasure.purge import PERMANENT_TABLES
from eventstore.errors import (
    ArchiveFailed,
    CannotConnect,
    ConversationArchived,
    ConversationNotFound,
    OwnerMismatch,
)
from eventstore.events import ToolResult
from eventstore.sql.schema import metadata_for
from eventstore.sql.transactions import Transactions
from tests.contract.facade import say
from tests.contract.plain import PlainClient
from tests.contract.test_purging import MARKER, rows_of

NOW = timedelta(microseconds=1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Give an empty directory."""
    (directory := tmp_path / "archive").mkdir()
    return directory


def fill(store: EventStore, cid: UUID, user_id: str | None = "ada") -> list[RecordedEvent]:
    """Append messages and a blob, erase one of them, and return what there is."""
    said = [
        *say(MARKER, "\ud800\x00 odd"),
        ToolResult(call_id="1.0", content=f"{MARKER} " * 10_000),
    ]
    store.append(cid, said, user_id=user_id, tenant_id="acme")
    store.append(cid, say("to erase"))
    store.erase(cid, reason="asked for", versions=[4])
    return [*store.read(cid)]


def same(events: list[RecordedEvent]) -> list[tuple[object, ...]]:
    """Return what must come back of events: all but their place in the feed."""
    return [
        (each.version, each.event_id, each.type, each.recorded_at, each.data, each.meta)
        for each in events
    ]


def files_in(directory: Path) -> list[str]:
    """Return the names of a directory's files."""
    return sorted(each.name for each in directory.iterdir())


def test_it_leaves_the_database_and_comes_back(
    fresh: EventStore, plain: PlainClient, cid: UUID, place: Path
) -> None:
    """With ids, versions, times, erasures, blobs and its chain; and it goes on."""
    before = fill(fresh, cid)
    other = new_id()
    fresh.append(other, say("stays"), user_id="bob")
    info = fresh.get(cid)
    report = fresh.archive(place, inactive_for=timedelta(days=1))
    assert (0, []) == (report.conversations, files_in(place))

    report = fresh.archive(place, inactive_for=NOW, limit=1)

    [found] = fresh.archived()
    assert (1, len(before), found.size_bytes) == (
        report.conversations,
        report.events,
        report.size_bytes,
    )
    assert (cid, "acme", "ada", 1) == (
        found.conversation_id,
        found.tenant_id,
        found.user_id,
        found.erasure_count,
    )
    assert {"archives": 1, "purges": 1} == rows_of(plain, cid)
    assert MARKER.encode() not in plain.dump()
    assert [other] == [each.conversation_id for each in fresh.list()]
    assert fresh.verify().ok
    assert [] == fresh.verify_archive()

    assert found == fresh.restore(cid)

    assert same(before) == same([*fresh.read(cid)])
    assert info == fresh.get(cid)
    assert fresh.verify().ok
    assert [] == fresh.archived() + files_in(place)
    assert "archives" not in rows_of(plain, cid)
    fresh.append(cid, say("and on"), expected_version=len(before))
    assert fresh.verify(cid).ok


def test_everything_that_names_it_says_where_it_is(
    fresh: EventStore, cid: UUID, place: Path
) -> None:
    """Nothing takes it for a conversation that does not exist, or begins it again."""
    fill(fresh, cid)
    keyed = fresh.append("our-key", say("hello"), tenant_id="acme").conversation_id
    assert 2 == fresh.archive(place, inactive_for=NOW).conversations
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: fresh.get(cid),
        "find": lambda: fresh.find(key="our-key", tenant_id="acme"),
        "read": lambda: [*fresh.read(cid)],
        "verify": lambda: fresh.verify(cid),
        "append": lambda: fresh.append(cid, say("again")),
        "append by key": lambda: fresh.append("our-key", say("again"), tenant_id="acme"),
        "fork": lambda: fresh.fork(cid),
        "writer": lambda: fresh.raise_writer_epoch(cid),
        "blob": lambda: fresh.blob(cid, "0" * 64),
    }
    for name, call in calls.items():
        with pytest.raises(ConversationArchived, match="archive restore"):
            pytest.fail(f"{name} returned {call()!r}")
    assert {cid, keyed} == {each.conversation_id for each in fresh.archived()}
    with pytest.raises(OwnerMismatch):
        fresh.get(cid, user_id="bob")
    with pytest.raises(OwnerMismatch):
        fresh.restore(cid, user_id="bob")
    assert [] == fresh.for_owner(tenant_id="acme", user_id="bob").archived()
    with pytest.raises(OwnerMismatch):
        fresh.for_owner(tenant_id="acme").archive(place, inactive_for=NOW)
    with pytest.raises(ConversationNotFound):
        fresh.restore(new_id())


@pytest.mark.parametrize("how", ["erase", "purge", "erase_user"])
def test_what_is_erased_is_in_no_file(
    how: str, fresh: EventStore, plain: PlainClient, cid: UUID, place: Path
) -> None:
    """An erasure reaches the archive, whoever made it, and needs nothing but the database."""
    before = fill(fresh, cid)
    fresh.archive(place, inactive_for=NOW)

    if how == "erase":
        assert 4 <= len(fresh.erase(cid, reason="asked for").versions) + 1
        assert len(before) + 1 == fresh.get(cid).version
    elif how == "purge":
        assert len(before) == fresh.purge(cid, reason="asked for").event_count
    else:
        receipt = fresh.erase_user("ada", reason="asked for", tenant_id="acme")
        assert (cid,) == receipt.conversations

    assert [] == files_in(place) + fresh.archived()
    assert MARKER.encode() not in plain.dump()
    assert fresh.verify().ok
    if how != "purge":  # What is left can be archived, and holds nothing of it.
        fresh.archive(place, inactive_for=NOW)
        [file] = place.iterdir()
        assert MARKER.encode() not in gzip.decompress(file.read_bytes())


def test_a_file_that_was_altered_is_refused(
    fresh: EventStore, plain: PlainClient, cid: UUID, place: Path
) -> None:
    """A byte, the whole file, another conversation's file: the archive keeps saying what it had."""
    before, other = fill(fresh, cid), new_id()
    fresh.append(other, say("other"))
    fresh.archive(place, inactive_for=NOW)
    file, another = (next(place.glob(f"{each}.*")) for each in (cid, other))
    whole = file.read_bytes()
    rows = gzip.decompress(whole).replace(b'"version": 3', b'"version": 9')
    for content in (whole[:-1], whole[:40] + b"?" + whole[41:], another.read_bytes(), rows, b""):
        file.write_bytes(content)
        [problem] = fresh.verify_archive()
        assert "not those that were written" in str(problem)
        with pytest.raises(ArchiveFailed, match="not those that were written"):
            fresh.restore(cid)
    file.unlink()
    assert ["gone"] == [str(each).rpartition(" ")[2] for each in fresh.verify_archive()]
    with pytest.raises(ArchiveFailed, match="gone"):
        fresh.erase(cid, reason="asked for")
    with pytest.raises(ArchiveFailed, match="gone") as caught:
        fresh.erase_user("ada", reason="asked for", tenant_id="acme")
    assert caught.value.receipt is not None
    assert {"archives": 1, "purges": 1} == rows_of(plain, cid)
    file.write_bytes(whole)
    fresh.restore(cid)
    assert same(before) == same([*fresh.read(cid)])


def test_some_stay(fresh: EventStore, cid: UUID, place: Path) -> None:
    """Those that share events with a fork, and those that are damaged, each with the reason."""
    fresh.append(cid, say("shared"))
    fresh.fork(cid)
    report = fresh.archive(place, inactive_for=NOW)
    assert ({"shares events with a fork": 2}, 0) == (report.left, report.conversations)
    assert [] == files_in(place) + fresh.archived()
    for wrong in (timedelta(0), timedelta(days=-1)):
        with pytest.raises(ValueError, match="positive"):
            fresh.archive(place, inactive_for=wrong)


def test_a_place_that_cannot_be_used_changes_nothing(
    fresh: EventStore, plain: PlainClient, cid: UUID, place: Path
) -> None:
    """A file in place of the directory, and a scheme that nobody knows."""
    before = fill(fresh, cid)
    (place / "file").write_text("", "utf-8")
    for wrong in (str(place / "file"), "nothing://bucket/x"):
        with pytest.raises(ArchiveFailed, match=r"file|nothing"):
            fresh.archive(wrong, inactive_for=NOW)
    assert "archives" not in rows_of(plain, cid)
    assert same(before) == same([*fresh.read(cid)])


class Killed(BaseException):
    """In place of the end of the process, after which nothing of its code runs."""


@pytest.mark.parametrize("step", ["_write", "_fetched", "_delete", "_delete_file"])
def test_whatever_is_killed_nothing_is_lost(
    step: str,
    fresh: EventStore,
    cid: UUID,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step dies before or after it, and the next process completes the work."""
    before = fill(fresh, cid)
    for when in ("before", "after"):
        for call in (lambda: fresh.archive(place, inactive_for=NOW), lambda: fresh.restore(cid)):
            real = getattr(archive, step)

            def dies(*arguments: object, real=real, when=when) -> object:  # type: ignore[no-untyped-def]
                if when == "after" and hasattr(done := real(*arguments), "close"):
                    done.close()
                raise Killed

            with monkeypatch.context() as patched:
                patched.setattr(archive, step, dies)
                patched.setattr(archive, "_abandon", lambda *_: None)
                try:
                    call()
                except (Killed, ConversationNotFound):
                    pass
            # One hour later: the writer of an unfinished file counts as dead.
            monkeypatch.setattr(archive, "_ABANDONED", timedelta(0))
            fresh.archive(place, inactive_for=NOW)
            assert 1 == len(files_in(place))
            fresh.restore(cid)
            assert [] == files_in(place)
            assert same(before) == same([*fresh.read(cid)])
            assert fresh.verify().ok


@pytest.fixture
def second(database_url: str, fresh: EventStore) -> Iterator[EventStore]:
    """Give another process's store on the database of `fresh`."""
    with EventStore.open(database_url) as store:
        yield store


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_commit_of_unknown_outcome_keeps_what_counts(
    is_committed: bool,
    fresh: EventStore,
    cid: UUID,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection is lost in the commit that deletes the rows: the file stays if they went."""
    before = fill(fresh, cid)
    real_writing, real_delete, deleting = Transactions.writing, archive._delete, list[bool]()

    def delete(*arguments: Any) -> None:
        real_delete(*arguments)
        deleting.append(True)

    @contextmanager
    def writing(self: Transactions, **options: Any) -> Iterator[Any]:
        with real_writing(self, **options) as connection:
            yield connection
            if deleting and not is_committed:
                deleting.clear()
                raise CannotConnect("the url", "lost")
        if deleting:
            deleting.clear()
            raise CannotConnect("the url", "lost")

    with monkeypatch.context() as patched:
        patched.setattr(archive, "_delete", delete)
        patched.setattr(Transactions, "writing", writing)
        with pytest.raises(CannotConnect):
            fresh.archive(place, inactive_for=NOW)
    assert is_committed == bool(files_in(place)) == bool(fresh.archived())
    if is_committed:
        fresh.restore(cid)
    assert same(before) == same([*fresh.read(cid)])


def test_an_erasure_reaches_a_file_that_was_never_completed(
    fresh: EventStore, cid: UUID, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died while it wrote it, and the conversation is in the database."""
    fill(fresh, cid)

    def dies(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(archive, "_fetched", dies)
        patched.setattr(archive, "_abandon", lambda *_: None)
        with pytest.raises(Killed):
            fresh.archive(place, inactive_for=NOW)
    assert 1 == len(files_in(place))
    fresh.erase(cid, reason="asked for")
    assert [] == files_in(place)


def test_without_the_extra(
    fresh: EventStore, cid: UUID, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names what to install, and nothing is changed."""
    before = fill(fresh, cid)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ArchiveFailed, match=r"agent-eventstore\[archive\]"):
        fresh.archive(place, inactive_for=NOW)
    assert same(before) == same([*fresh.read(cid)])


def test_an_object_store(fresh: EventStore, cid: UUID) -> None:
    """Whatever fsspec knows by its URL; here one in memory."""
    before, bucket = fill(fresh, cid), f"memory://bucket-{cid}/conversations"
    fresh.archive(bucket, inactive_for=NOW)
    [found] = fresh.archived()
    assert str(cid) in found.url.split("conversations")[0]
    assert [] == fresh.verify_archive()
    fresh.restore(cid)
    assert same(before) == same([*fresh.read(cid)])
    assert [] == fsspec.filesystem("memory").find(f"/bucket-{cid}")


def test_a_second_run_leaves_what_the_first_is_writing(
    fresh: EventStore, second: EventStore, cid: UUID, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and goes on."""
    fill(fresh, cid)
    real, others = archive._write, list[ArchiveReport]()

    def write(*arguments: object) -> object:
        if not others:
            others.append(second.archive(place, inactive_for=NOW))
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(archive, "_write", write)
    assert 1 == fresh.archive(place, inactive_for=NOW).conversations
    assert {"being archived by another process": 1} == others[0].left


def test_a_conversation_that_gains_events_meanwhile_stays(
    fresh: EventStore, second: EventStore, cid: UUID, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is deleted again, and the events are all there."""
    before = fill(fresh, cid)
    real = archive._fetched

    def fetched(*arguments: object) -> object:
        second.append(cid, say("meanwhile"))
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(archive, "_fetched", fetched)
    report = fresh.archive(place, inactive_for=NOW)
    assert ({"changed meanwhile": 1}, 0) == (report.left, report.conversations)
    assert [] == files_in(place) + fresh.archived()
    assert len(before) + 1 == len([*fresh.read(cid)])


def test_the_feed_goes_on(fresh: EventStore, cid: UUID, place: Path) -> None:
    """A cursor at an archived event misses nothing; what is restored comes again, as the newest."""
    before = fill(fresh, cid)
    cursor = fresh.read_all().cursor
    fresh.archive(place, inactive_for=NOW)
    other = new_id()
    fresh.append(other, say("next"))
    page = fresh.read_all(after=cursor)
    assert [other] == [each.conversation_id for each in page]
    fresh.restore(cid)
    again = fresh.read_all(after=page.cursor)
    assert [each.event_id for each in before] == [each.event_id for each in again]


def test_a_file_can_be_read_by_anybody(fresh: EventStore, cid: UUID, place: Path) -> None:
    """A line of JSON for each row, compressed, with the digest that the database has."""
    before = fill(fresh, cid)
    fresh.archive(place, inactive_for=NOW)
    [file] = place.iterdir()
    head, *rows = map(json.loads, gzip.decompress(file.read_bytes()).splitlines())
    assert {"format": 1, "conversation_id": str(cid)} == head
    events = [row["events"] for row in rows if "events" in row]
    assert [str(each.event_id) for each in before] == [each["event_id"] for each in events]
    assert 0o600 == os.stat(file).st_mode & 0o777


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_every_table_is_thought_of(dialect: str) -> None:
    """A table of the log is in the file, stays in the database, or is not needed again."""
    tables = metadata_for(dialect).tables
    owned = {name for name, table in tables.items() if "conversation_id" in table.c}
    not_needed = {"projection_heads", "writer_leases"}
    assert owned == {*archive.TABLES_IN_FILE} | PERMANENT_TABLES | not_needed


def test_a_sealed_conversation_stays_sealed(
    database_url: str, tmp_path: Path, place: Path, cid: UUID
) -> None:
    """Its file is as unreadable as its rows, and erasing it destroys the key."""
    keys = DirectoryKeys(tmp_path / "keys", wrapping=bytes(range(32)))
    with EventStore.open(database_url, keys=keys) as store:
        before = fill(store, cid)
        store.archive(place, inactive_for=NOW)
        [file] = place.iterdir()
        content = file.read_bytes()
        assert MARKER.encode() not in gzip.decompress(content)
        assert [] == store.verify_archive()
        store.restore(cid)
        assert same(before) == same([*store.read(cid)])
        store.archive(place, inactive_for=NOW)
        store.purge(cid, reason="asked for")
        assert [] == [*(tmp_path / "keys").rglob(f"{cid}.key"), *place.iterdir()]
