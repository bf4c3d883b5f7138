"""Stores with keys: nothing readable is written, and what is erased stays so in every copy."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from eventstore import DirectoryKeys, EventStore, Meta, NewEvent, new_id
from eventstore.errors import EventDamaged, KeyUnavailable
from eventstore.events import AssistantMessage, ToolResult
from eventstore.security.sealing import SEALED
from tests.contract.facade import result_of, say, texts
from tests.contract.plain import PlainClient

CANARY = "xylophone-4711"
LARGE = f"{CANARY} in a text far over the threshold; " * 2_000


class Failing(DirectoryKeys):
    """Keys that cannot be destroyed at the moment."""

    def destroy(self, conversation_id: UUID, key_id: str) -> None:
        """Fail."""
        raise OSError("the disk is full")


def key_files(keys: DirectoryKeys, conversation_id: UUID) -> list[str]:
    """Return the kinds of files that there are of a conversation's keys."""
    found = keys.directory.rglob(f"{conversation_id}.*")
    return sorted(path.suffix for path in found)


def test_nothing_readable_is_written(
    database_url: str, plain: PlainClient, keys: DirectoryKeys, cid: UUID
) -> None:
    """Payload, metadata and blobs are sealed; the types and times are not."""
    with EventStore.open(database_url, keys=keys) as store:
        store.append(
            cid,
            [
                *say(f"my word is {CANARY}", LARGE),
                AssistantMessage.of(CANARY, raw={CANARY: [CANARY]}),
                ToolResult(call_id="3.0", content=LARGE),
            ],
            meta=Meta(actor=CANARY, correlation_id=CANARY),
        )
        first, large, _, result = store.read(cid)

        assert (CANARY, [LARGE]) == (first.meta.actor, texts([large]))
        blob = result_of(result).blob
        assert blob is not None
        assert LARGE.encode() == store.blob(cid, blob.digest)
        assert blob.digest.encode() not in plain.dump()
        assert store.verify(cid).ok
    assert CANARY.encode() not in plain.dump()
    assert [("user_message",)] == plain.execute("SELECT type FROM events WHERE version = 1")


def test_no_byte_on_disk_is_readable(sqlite_url: str, keys: DirectoryKeys, cid: UUID) -> None:
    """Neither the file nor its write-ahead log, from the first append on."""
    with EventStore.open(sqlite_url, keys=keys) as store:
        for _ in range(20):
            store.append(cid, [*say(CANARY), ToolResult(call_id="1", content=LARGE)])
        path = Path(store.engine.url.database or "")
        written = b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
        assert CANARY.encode() not in written


def test_a_backup_from_before_reads_as_erased(
    sqlite_url: str, keys: DirectoryKeys, tmp_path: Path, cid: UUID
) -> None:
    """With the key all copies are gone: events read as erased, and still verify."""
    with EventStore.open(sqlite_url, keys=keys) as store:
        store.append(cid, [*say(CANARY, LARGE)], meta=Meta(actor=CANARY))
    path = sqlite_url.removeprefix("sqlite:///")
    shutil.copy(path, tmp_path / "backup.db")
    with EventStore.open(sqlite_url, keys=keys) as store:
        store.erase(cid, reason="the user asked for it")
    assert [".gone"] == key_files(keys, cid)

    with EventStore.open(f"sqlite:///{tmp_path / 'backup.db'}", keys=keys) as backup:
        events = list(backup.read(cid))
        assert [(True, Meta())] * 2 == [(event.erased, event.meta) for event in events]
        assert backup.verify(cid).ok
        backup.append(cid, say("it goes on"))
        assert ["it goes on"] == texts(backup.read(cid, after=2))


def test_the_conversation_goes_on_under_another_key(
    database_url: str, keys: DirectoryKeys, cid: UUID
) -> None:
    """Also in a process that has remembered the destroyed key: its events can be read."""
    with (
        EventStore.open(database_url, keys=keys) as store,
        EventStore.open(database_url, keys=keys) as other,
    ):
        other.append(cid, say("1"))
        other.append(cid, say("2"))
        store.erase(cid, reason="test")
        other.append(cid, say("4"))
        other.append(cid, say("5"))

        assert ["4", "5"] == texts(store.read(cid, after=3))
        assert store.verify(cid).ok
    with EventStore.open(database_url, keys=keys) as third:
        assert ["4", "5"] == texts(third.read(cid, after=3))
    assert [".gone", ".key"] == key_files(keys, cid)


def test_erasing_some_versions_keeps_the_key(
    database_url: str, keys: DirectoryKeys, cid: UUID
) -> None:
    """The other events are still read."""
    with EventStore.open(database_url, keys=keys) as store:
        store.append(cid, say("1", "2"))
        store.erase(cid, reason="test", versions=[1])

        assert ["2"] == texts(store.read(cid, after=1, before=3))
        assert [".key"] == key_files(keys, cid)


def test_a_key_that_could_not_be_destroyed_is_not_forgotten(
    database_url: str, tmp_path: Path, cid: UUID
) -> None:
    """Erasing says so, and opening a store destroys it."""
    failing = Failing(tmp_path / "keys")
    with EventStore.open(database_url, keys=failing) as store:
        store.append(cid, say("1"))
        with pytest.raises(KeyUnavailable, match="the disk is full"):
            store.erase(cid, reason="test")
        assert next(store.read(cid)).erased
    EventStore.open(database_url, keys=failing).close()  # which warns, and goes on
    keys = DirectoryKeys(tmp_path / "keys")
    assert [".key"] == key_files(keys, cid)

    EventStore.open(database_url, keys=keys).close()

    assert [".gone"] == key_files(keys, cid)


def test_without_keys(database_url: str, keys: DirectoryKeys, cid: UUID) -> None:
    """Verifying needs none; reading, appending and erasing say whose key is missing."""
    with EventStore.open(database_url, keys=keys) as store:
        store.append(cid, say("1"))
        store.append(other := new_id(), say("2"))
    with EventStore.open(database_url) as store:
        assert store.verify().ok
        for use in (
            lambda: list(store.read(cid)),
            lambda: store.read_all(),
            lambda: store.append(cid, say("in the clear")),
            lambda: store.erase(cid, reason="test"),
        ):
            with pytest.raises(KeyUnavailable, match=r"opened without keys.*keys=") as caught:
                use()
            assert cid == caught.value.conversation_id
        with pytest.raises(KeyUnavailable, match=str(other)):
            list(store.read(other))
    with EventStore.open(database_url, keys=keys) as store:
        assert ["1"] == texts(store.read(cid))


def test_other_keys(database_url: str, keys: DirectoryKeys, tmp_path: Path, cid: UUID) -> None:
    """A provider that has never had the key says so; it is not taken for a destroyed one."""
    with EventStore.open(database_url, keys=keys) as store:
        store.append(cid, say("1"))
    with EventStore.open(database_url, keys=DirectoryKeys(tmp_path / "empty")) as store:
        with pytest.raises(KeyUnavailable, match="has no key") as caught:
            list(store.read(cid))
        assert caught.value.lasting
        with pytest.raises(KeyUnavailable, match="has no key"):
            store.append(cid, say("2"))


def test_an_altered_key_id_leads_nowhere(
    sqlite_url: str, keys: DirectoryKeys, tmp_path: Path, cid: UUID
) -> None:
    """No path is made of what somebody writes into the database, neither to read nor to delete."""
    (tmp_path / "private.key").write_text("plain AAAA")
    evil = f"/../../../{tmp_path.name}/private"
    with EventStore.open(sqlite_url, keys=keys) as store, PlainClient(sqlite_url) as client:
        store.append(cid, say("1"))
        client.execute("UPDATE conversations SET key_id = ?", evil)
        client.execute("INSERT INTO retired_keys VALUES (?, ?, '2026-01-01')", cid, evil)
    with EventStore.open(sqlite_url, keys=keys) as store:
        with pytest.raises(KeyUnavailable, match="is not a key's id"):
            store.append(cid, say("2"))
        store.append(new_id(), say("others go on"))
    with pytest.raises(ValueError, match="is not a key's id"):
        keys.destroy(cid, evil)
    assert "plain AAAA" == (tmp_path / "private.key").read_text()


def test_ciphertexts_cannot_be_exchanged(
    database_url: str, plain: PlainClient, keys: DirectoryKeys, cid: UUID
) -> None:
    """A payload opens at its own event alone, and metadata as metadata."""
    with EventStore.open(database_url, keys=keys) as store:
        store.append(cid, [NewEvent(each, meta=Meta(turn=1)) for each in say("1", "2")])
        plain.disarm()
        rows = dict(plain.execute("SELECT version, CAST(data AS text) FROM events"))
        assert all(text.startswith(SEALED) for text in rows.values())
        for column, taken in (("data", "data"), ("meta", "data")):
            plain.execute(
                f"UPDATE events SET {column} = (SELECT {taken} FROM events WHERE version = 2) "
                "WHERE version = 1"
            )
            with pytest.raises(EventDamaged):
                list(store.read(cid))
        assert not store.verify(cid).ok


def test_a_conversation_that_was_begun_in_the_clear(
    database_url: str, keys: DirectoryKeys, cid: UUID
) -> None:
    """What is there stays as it is, blobs included; what follows is sealed."""
    with EventStore.open(database_url) as store:
        store.append(cid, [*say("1"), ToolResult(call_id="1", content=LARGE)])
    with EventStore.open(database_url, keys=keys) as store:
        store.append(cid, [*say("3"), ToolResult(call_id="3", content=LARGE)])

        assert ["1", "3"] == texts(event for event in store.read(cid) if event.version % 2)
        for event in store.read(cid):
            if isinstance(event.data, ToolResult) and event.data.blob:
                assert LARGE.encode() == store.blob(cid, event.data.blob.digest)
        assert store.verify(cid).ok
        store.erase(cid, reason="test")
        assert all(event.erased for event in store.read(cid, before=5))


def test_somebody_elses_sealed_payload_is_only_text(
    sqlite_url: str, keys: DirectoryKeys, cid: UUID
) -> None:
    """A payload that looks like a sealed one is kept and given back, with keys and without."""
    from eventstore.events import UnknownEvent

    looks = UnknownEvent("notes", 1, {"$sealed": "AQAAAA=="})
    for options in ({}, {"keys": keys}):
        with EventStore.open(sqlite_url, **options) as store:  # type: ignore[arg-type]
            store.append(stream := new_id(), looks)
            [event] = store.read(stream)
            assert looks == event.data
