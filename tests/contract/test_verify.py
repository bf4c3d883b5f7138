"""Verification: whatever is altered behind the store's back, it is named where it first shows."""

from __future__ import annotations

from uuid import UUID

import pytest

from eventstore import EventStore, Meta, NewEvent, new_id
from eventstore.checks.event_log import chain
from eventstore.errors import ConversationNotFound, InvalidEvent
from eventstore.events import Erasure, ToolResult, UnknownEvent
from eventstore.sql.append_requests import ANY, Append, Appended, prepare
from projections import Views
from tests.contract.facade import say
from tests.contract.plain import PlainClient

LARGE = "0123456789" * 5_000


@pytest.fixture
def tampered(fresh: EventStore, plain: PlainClient, cid: UUID) -> PlainClient:
    """Give a client without triggers in its way, and a conversation of five events to spoil."""
    events = [NewEvent(event, meta=Meta(turn=1)) for event in say("1", "2", "3", "4")]
    fresh.append(cid, [*events, ToolResult(call_id="1.0", content=LARGE)])
    fresh.append(new_id(), say("an innocent bystander"))
    plain.disarm()
    return plain


def problems(store: EventStore, cid: UUID) -> list[tuple[int, str]]:
    """Verify the whole store; all that is found must be about one conversation."""
    found = store.verify().problems
    assert {cid} >= {problem.conversation_id for problem in found}
    assert found == store.verify(cid).problems
    return [(problem.version, problem.kind) for problem in found]


def where(version: int) -> str:
    """Return the SQL condition for one event."""
    return f"WHERE conversation_id = ? AND version = {version}"


def test_an_untouched_store_is_ok(store: EventStore, cid: UUID) -> None:
    """The verification says what it has read."""
    store.append(cid, [*say("1", "2"), ToolResult(call_id="1.0", content=LARGE)])

    report = store.verify(cid)

    assert (True, 1, 3, ()) == (report.ok, report.conversations, report.events, report.problems)


def test_verification_of_all_reads_all(fresh: EventStore) -> None:
    """Without an id every conversation is read."""
    for count in (1, 2, 3):
        fresh.append(new_id(), say(*"abc"[:count]))

    report = fresh.verify()

    assert (3, 6) == (report.conversations, report.events)


def test_long_conversations_are_verified_to_the_end(
    fresh: EventStore, plain: PlainClient, cid: UUID
) -> None:
    """A change beyond the first pages is found."""
    fresh.append(cid, say(*(str(number) for number in range(1_100))))
    plain.disarm()
    plain.execute(f"UPDATE events SET type = 'user_massage' {where(1_050)}", cid)

    assert [(1_050, "header_altered")] == problems(fresh, cid)


def test_an_unknown_conversation_cannot_be_verified(store: EventStore, cid: UUID) -> None:
    """That nothing is wrong with it would be a lie."""
    with pytest.raises(ConversationNotFound):
        store.verify(cid)


def test_one_byte_of_data(fresh: EventStore, tampered: PlainClient, cid: UUID) -> None:
    """A letter of what somebody said was changed."""
    new = {"sqlite": "replace(data, '\"2\"', '\"7\"')"}.get(
        tampered.dialect, "replace(data::text, '\"2\"', '\"7\"')::json"
    )
    tampered.execute(f"UPDATE events SET data = {new} {where(2)}", cid)

    assert [(2, "data_altered")] == problems(fresh, cid)


def test_white_space_in_data(fresh: EventStore, tampered: PlainClient, cid: UUID) -> None:
    """The same JSON value in other bytes is a change as well."""
    new = {"sqlite": "data || ' '"}.get(tampered.dialect, "(data::text || ' ')::json")
    tampered.execute(f"UPDATE events SET data = {new} {where(2)}", cid)

    assert [(2, "data_altered")] == problems(fresh, cid)


def test_one_byte_of_meta(fresh: EventStore, tampered: PlainClient, cid: UUID) -> None:
    """An event was moved to another turn."""
    tampered.execute(f"UPDATE events SET meta = '{{\"turn\":2}}' {where(3)}", cid)

    assert [(3, "header_altered")] == problems(fresh, cid)


@pytest.mark.parametrize(
    "change",
    [
        "type = 'notebook'",
        "schema_version = 99",
        "recorded_at = '2020-01-01T00:00:00.000000Z'",
        "event_id = '00000000-0000-7000-8000-000000000000'",
        "chain = (SELECT chain FROM events e WHERE e.version = 1 AND e.type = events.type LIMIT 1)",
        "data_digest = chain, data = NULL, salt = NULL",
    ],
)
def test_any_other_column(fresh: EventStore, tampered: PlainClient, cid: UUID, change: str) -> None:
    """Everything that says what, when and in which order is covered by the chain."""
    tampered.execute(f"UPDATE events SET {change} {where(3)}", cid)

    assert (3, "header_altered") == problems(fresh, cid)[-1]


def test_data_and_its_digest(fresh: EventStore, tampered: PlainClient, cid: UUID) -> None:
    """An attacker who knows how digests are made still breaks the chain."""
    columns = "(data, salt, data_digest)"
    other = f"(SELECT data, salt, data_digest FROM events {where(1)})"
    tampered.execute(f"UPDATE events SET {columns} = {other} {where(2)}", cid, cid)

    assert [(2, "header_altered")] == problems(fresh, cid)


def test_two_payloads_swapped(fresh: EventStore, tampered: PlainClient, cid: UUID) -> None:
    """Both places are named."""
    one, two = (f"(SELECT data FROM copies c WHERE c.version = {version})" for version in (2, 3))
    # PostgreSQL takes no parameters here.
    tampered.execute(
        "CREATE TEMPORARY TABLE copies AS SELECT version, data FROM events "
        f"WHERE conversation_id = '{cid}'"
    )
    tampered.execute(
        f"UPDATE events SET data = CASE version WHEN 2 THEN {two} ELSE {one} END "
        "WHERE conversation_id = ? AND version IN (2, 3)",
        cid,
    )

    assert [(2, "data_altered"), (3, "data_altered")] == problems(fresh, cid)


def test_two_rows_swapped(fresh: EventStore, tampered: PlainClient, cid: UUID) -> None:
    """The order of events is part of what is protected."""
    for old, new in ((2, 99), (3, 2), (99, 3)):
        tampered.execute(f"UPDATE events SET version = {new} {where(old)}", cid)

    assert (2, "header_altered") == problems(fresh, cid)[0]


def test_last_row_deleted(fresh: EventStore, tampered: PlainClient, cid: UUID) -> None:
    """The conversation's head knows that there was one more."""
    tampered.execute(f"DELETE FROM events {where(5)}", cid)

    assert [(5, "head_differs")] == problems(fresh, cid)


def test_last_row_deleted_and_version_lowered(
    fresh: EventStore, tampered: PlainClient, cid: UUID
) -> None:
    """Lowering the head's version as well leaves its chain value behind."""
    tampered.execute(f"DELETE FROM events {where(5)}", cid)
    tampered.execute("UPDATE conversations SET version = 4 WHERE conversation_id = ?", cid)

    assert [(4, "head_differs")] == problems(fresh, cid)


@pytest.mark.parametrize("version", [1, 3])
def test_row_deleted(fresh: EventStore, tampered: PlainClient, cid: UUID, version: int) -> None:
    """A hole is named by the version that is missing."""
    tampered.execute(f"DELETE FROM events {where(version)}", cid)

    assert [(version, "gap")] == problems(fresh, cid)


def test_conversation_row_deleted(fresh: EventStore, tampered: PlainClient, cid: UUID) -> None:
    """Events that no conversation owns up to are found, though listings no longer show them."""
    tampered.execute("DELETE FROM conversations WHERE conversation_id = ?", cid)

    assert [(5, "head_differs")] == problems(fresh, cid)


def test_data_taken_away_without_erasure(
    fresh: EventStore, tampered: PlainClient, cid: UUID
) -> None:
    """A payload may only be missing where an erasure was recorded."""
    tampered.execute(f"UPDATE events SET data = NULL, salt = NULL {where(4)}", cid)

    assert [(4, "data_missing")] == problems(fresh, cid)


def test_blob_damaged(fresh: EventStore, tampered: PlainClient, cid: UUID) -> None:
    """Bytes that can no longer be decompressed are reported, not raised."""
    ((content,),) = tampered.execute("SELECT content FROM blobs WHERE conversation_id = ?", cid)
    middle = len(content) // 2
    spoiled = content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
    tampered.execute("UPDATE blobs SET content = ? WHERE conversation_id = ?", spoiled, cid)

    assert [(5, "blob_altered")] == problems(fresh, cid)


def test_blob_exchanged(fresh: EventStore, tampered: PlainClient, cid: UUID) -> None:
    """Another text that decompresses well is not what the digest says."""
    fresh.append(other := new_id(), [ToolResult(call_id="1.0", content=LARGE + "!")])
    ((content,),) = tampered.execute("SELECT content FROM blobs WHERE conversation_id = ?", other)
    tampered.execute("UPDATE blobs SET content = ? WHERE conversation_id = ?", content, cid)

    assert [(5, "blob_altered")] == problems(fresh, cid)


def test_blob_deleted(fresh: EventStore, tampered: PlainClient, cid: UUID) -> None:
    """A blob that is gone is named with the event that needs it."""
    tampered.execute("DELETE FROM blobs WHERE conversation_id = ?", cid)

    assert [(5, "blob_missing")] == problems(fresh, cid)


@pytest.mark.parametrize("column", ["data", "meta", "type", "event_id", "recorded_at"])
def test_bytes_that_are_no_text(sqlite_url: str, cid: UUID, column: str) -> None:
    """SQLite takes any byte into a text column; verifying it reports that and does not fail."""
    with EventStore.open(sqlite_url) as store, PlainClient(sqlite_url) as client:
        store.append(cid, say("1", "2"))
        client.disarm()
        spoiled = f"CAST(CAST({column} AS BLOB) || x'ff' AS TEXT)"
        client.execute(f"UPDATE events SET {column} = {spoiled} {where(2)}", cid)

        kind = "data_altered" if column == "data" else "header_altered"
        assert [(2, kind)] == problems(store, cid)


@pytest.mark.parametrize(
    "change",
    [
        "tenant_id = 'mallory'",
        "user_id = 'mallory'",
        "tenant_id = NULL",
        "tenant_id = user_id, user_id = tenant_id",
        "parent_conversation_id = conversation_id, parent_version = 1",
        "parent_version = 1",
    ],
)
def test_another_owner(fresh: EventStore, plain: PlainClient, cid: UUID, change: str) -> None:
    """Whose conversation it is cannot be changed by SQL alone; what else is wrong is found too."""
    fresh.append(cid, say("1", "2", "3"), tenant_id="acme", user_id="ada")
    assert fresh.verify(cid).ok
    plain.disarm()
    plain.execute(f"UPDATE conversations SET {change} WHERE conversation_id = ?", cid)
    plain.execute(f"UPDATE events SET type = 'notebook' {where(3)}", cid)

    assert [(1, "start_altered"), (3, "header_altered")] == problems(fresh, cid)


def test_a_fork_of_an_owner(fresh: EventStore, cid: UUID) -> None:
    """Owners in any script, and a parent, are part of what verifies."""
    fresh.append(cid, say("1"), tenant_id="\x00 Ünïcödé \ud800", user_id="[1]")
    fresh.append(
        new_id(), say("2"), tenant_id="\x00 Ünïcödé \ud800", user_id="[1]", parent=(cid, 1)
    )

    assert fresh.verify().ok


def test_an_owner_that_is_no_text(sqlite_url: str, cid: UUID) -> None:
    """SQLite takes any byte there too; that is reported, and does not fail."""
    with EventStore.open(sqlite_url) as store, PlainClient(sqlite_url) as client:
        store.append(cid, say("1", "2"), tenant_id="acme")
        for change in ("tenant_id = x'ff'", "parent_conversation_id = 'nobody'", "version = 'x'"):
            client.execute(f"UPDATE conversations SET {change} WHERE conversation_id = ?", cid)
            assert (1, "start_altered") == problems(store, cid)[0]


def test_progress_is_told(fresh: EventStore) -> None:
    """After each conversation, with the events of all."""
    for count in (1, 2):
        fresh.append(new_id(), say(*"ab"[:count]))
    told: list[tuple[int, int]] = []
    fresh.verify(progress=lambda *done: told.append(done))

    assert [(1, 3), (3, 3)] == told


def test_a_payload_that_no_erasure_names(fresh: EventStore, plain: PlainClient, cid: UUID) -> None:
    """After a lawful erasure another payload goes missing, and its version is named."""
    fresh.append(cid, say("1", "2", "3"))
    fresh.erase(cid, reason="asked for", versions=[2])
    assert [] == problems(fresh, cid)
    plain.disarm()

    plain.execute(f"UPDATE events SET data = NULL, salt = NULL {where(3)}", cid)

    assert [(3, "data_missing")] == problems(fresh, cid)


def test_an_erasure_of_the_table_alone(fresh: EventStore, plain: PlainClient, cid: UUID) -> None:
    """Rows that open the triggers' door are not a receipt: that is an event, under the chain."""
    fresh.append(cid, say("1", "2"))
    erasure = "00000000-0000-7000-8000-000000000000"
    plain.execute("INSERT INTO erased_versions VALUES (?, ?, 1, 9)", cid, erasure)

    plain.execute(f"UPDATE events SET data = NULL, salt = NULL {where(1)}", cid)

    assert [(1, "data_missing")] == problems(fresh, cid)


@pytest.mark.parametrize(
    "receipt",
    [
        Erasure(erasure_id="1", reason="x", versions=(1,), event_count=1),
        UnknownEvent("erasure", 3, {"versions": [1]}),
    ],
)
def test_a_receipt_cannot_be_appended(
    fresh: EventStore, cid: UUID, receipt: Erasure | UnknownEvent
) -> None:
    """It would tell of an erasure that never was, and the payloads that are there be a problem."""
    fresh.append(cid, say("1"))

    with pytest.raises(InvalidEvent, match="erase"):
        fresh.append(cid, [*say("2"), receipt])
    with pytest.raises(InvalidEvent, match="erase"):
        fresh.fork(cid, events=[receipt])

    assert [] == problems(fresh, cid)
    assert 1 == len(list(fresh.read(cid)))


def test_a_receipt_names_what_stands_before_it(
    fresh: EventStore, plain: PlainClient, cid: UUID, database_url: str
) -> None:
    """A forged receipt of later versions permits nothing."""
    receipt = Erasure(erasure_id="1", reason="x", versions=(2, 3), event_count=2)
    events = prepare([*say("1"), receipt, *say("3")], None, 1 << 30, receipts=True)
    with EventStore.open(database_url) as forger:
        [done] = forger._append_group([Append(cid, events, ANY)])
    assert isinstance(done, Appended)
    plain.disarm()

    plain.execute(f"UPDATE events SET data = NULL, salt = NULL {where(3)}", cid)

    assert [(3, "data_missing")] == problems(fresh, cid)


def test_a_sample_of_chains_is_read_on_one_connection() -> None:
    """An in-memory database has no other: the check waited for a second one, and failed."""
    with EventStore.open("sqlite://") as store:
        for _ in range(2):
            store.append(new_id(), say("hello"))

        found = chain(store, 20)

    assert ("ok", 2) == (found.status, found.details["events"])


FORGED = '{"parts": [{"kind": "text", "text": "forged"}], "mentions": []}'


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (f"data = '{FORGED}'", "data_altered"),
        (f"data = '{FORGED}', salt = meta_salt", "data_altered"),
        ("data = saved_data, salt = saved_salt", "data_returned"),
    ],
)
def test_an_erased_payload_that_is_there_again(
    fresh: EventStore, plain: PlainClient, cid: UUID, change: str, kind: str
) -> None:
    """Verify finds it, whether it is forged or comes from a backup, and no read shows it."""
    fresh.append(cid, say("forged once", "two"))
    [(salt,)] = plain.execute(f"SELECT salt FROM events {where(1)}", cid)
    [(data,)] = plain.execute(f"SELECT CAST(data AS text) FROM events {where(1)}", cid)
    fresh.erase(cid, reason="asked", versions=[1])
    plain.disarm()
    saved = f"x'{bytes(salt).hex()}'" if plain.dialect == "sqlite" else f"'\\x{bytes(salt).hex()}'"
    for name, value in (("meta_salt", saved), ("saved_salt", saved), ("saved_data", f"'{data}'")):
        change = change.replace(name, value)

    plain.execute(f"UPDATE events SET {change} {where(1)}", cid)

    assert (1, kind) in problems(fresh, cid)
    assert "forged" not in str(list(fresh.read(cid)))
    assert "forged" not in str(list(fresh.read_all()))
    if isinstance(fresh, EventStore):
        views = Views(fresh)
        shown = (views.timeline(cid), views.context(cid), views.search("forged"))
        assert "forged" not in str(shown)
    fresh.erase(cid, reason="asked", versions=[1])
    assert fresh.verify(cid).ok


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM erasures WHERE conversation_id = ?; DELETE FROM erased_versions",
        "DELETE FROM erased_versions WHERE conversation_id = ?",
        "UPDATE erased_versions SET last_version = 3 WHERE conversation_id = ?",
    ],
)
def test_a_receipt_and_its_rows(
    fresh: EventStore, plain: PlainClient, cid: UUID, change: str
) -> None:
    """Rows of an erasure that were removed or altered by hand differ from its receipt."""
    fresh.append(cid, say("one", "two"))
    fresh.erase(cid, reason="asked", versions=[1])
    assert fresh.verify(cid).ok

    first, _, second = change.partition("; ")
    plain.execute(first, cid)
    if second:
        plain.execute(second)

    assert [(3, "receipt_altered")] == problems(fresh, cid)


def test_an_erasure_that_no_receipt_names(fresh: EventStore, plain: PlainClient, cid: UUID) -> None:
    """A row of an erasure that was added by hand would let the triggers erase more."""
    fresh.append(cid, say("one", "two"))

    plain.execute("INSERT INTO erased_versions VALUES (?, ?, 2, 2)", cid, new_id())

    assert [(2, "receipt_missing")] == problems(fresh, cid)


def test_an_order_of_the_feed_that_no_append_gave(
    fresh: EventStore, plain: PlainClient, cid: UUID
) -> None:
    """Positions of a conversation rise with its versions."""
    fresh.append(cid, say("one", "two"))
    plain.disarm()
    if plain.dialect == "postgresql":
        plain.execute("ALTER TABLE events ALTER position DROP IDENTITY")

    plain.execute(f"UPDATE events SET position = -7 {where(2)}", cid)

    assert [(2, "place_altered")] == problems(fresh, cid)


def test_a_row_of_another_conversation(fresh: EventStore, plain: PlainClient, cid: UUID) -> None:
    """An event that was moved is missing there, and does not follow here."""
    other = new_id()
    fresh.append(cid, say("one", "two"))
    fresh.append(other, say("three"))
    plain.disarm()

    plain.execute(f"UPDATE events SET conversation_id = ?, version = 2 {where(2)}", other, cid)

    found = {each.conversation_id: each.kind for each in fresh.verify().problems}
    assert {cid: "head_differs", other: "header_altered"} == found
