"""Checkpoints: what is gone from a store, though all that is left is as it was written."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore.errors import CheckpointRefused, ConversationNotFound, KeyRefused
from eventstore.security.checkpoints import new_key
from tests.contract.facade import say
from tests.contract.plain import PlainClient

PRIVATE, PUBLIC = new_key()
OTHER_PRIVATE, OTHER_PUBLIC = new_key()


@pytest.fixture
def file(fresh: EventStore, cid: UUID, tmp_path: Path) -> Path:
    """Give a signed checkpoint of two conversations: of four events, and of one."""
    fresh.append(cid, say("1", "2", "3", "4"), tenant_id="acme")
    fresh.append(new_id(), say("an innocent bystander"))
    fresh.checkpoint(tmp_path / "checkpoint", key=PRIVATE)
    return tmp_path / "checkpoint"


def found(store: EventStore, file: Path) -> list[tuple[UUID, int, str]]:
    """Return what verifying against a checkpoint finds."""
    problems = store.verify_against(file, public_key=PUBLIC).problems
    return [(problem.conversation_id, problem.version, problem.kind) for problem in problems]


def cut_tail(plain: PlainClient, cid: UUID, version: int) -> None:
    """Take the last events away, so that the chain of the rest is unbroken."""
    where = f"WHERE conversation_id = '{cid}' AND version"
    plain.disarm()
    plain.execute(f"DELETE FROM events {where} > {version}")
    plain.execute(
        f"UPDATE conversations SET version = {version}, "
        f"chain = (SELECT chain FROM events {where} = {version}) WHERE conversation_id = '{cid}'"
    )


def test_what_went_on_is_well(fresh: EventStore, file: Path, cid: UUID) -> None:
    """Later events, later conversations and an erasure contradict no checkpoint."""
    fresh.append(cid, say("5"))
    fresh.append(new_id(), say("later"))
    fresh.erase(cid, reason="asked to")

    report = fresh.verify_against(file, public_key=PUBLIC)

    assert (True, 3, 8) == (report.ok, report.conversations, report.events)


def test_what_it_says_of_itself(fresh: EventStore, cid: UUID) -> None:
    """It counts what it marks; without a key nobody signs it."""
    fresh.append(cid, say("1", "2"))
    made = fresh.checkpoint(file := io.BytesIO())
    header, mark, end = map(json.loads, file.getvalue().splitlines())

    assert (1, 2, None) == (made.conversations, made.events, made.signed_by)
    assert (str(made.store_id), made.made_at.isoformat()) == (
        header["store_id"],
        header["made_at"],
    )
    assert ([str(cid), 2], made.sha256.hex()) == (mark[:2], end["sha256"])


def test_truncated_tail(fresh: EventStore, plain: PlainClient, file: Path, cid: UUID) -> None:
    """The last events were cut off: the chain is well, and the checkpoint knows better."""
    cut_tail(plain, cid, 2)

    assert fresh.verify().ok
    assert [(cid, 3, "tail_missing")] == found(fresh, file)


def test_deleted_conversation(fresh: EventStore, plain: PlainClient, file: Path, cid: UUID) -> None:
    """A conversation that was deleted with all its rows is named, and can be asked for."""
    plain.disarm()
    for table in ("events", "conversations"):
        plain.execute(f"DELETE FROM {table} WHERE conversation_id = ?", cid)

    assert fresh.verify().ok
    assert [(cid, 1, "conversation_missing")] == found(fresh, file)
    [problem] = fresh.verify_against(file, conversation_id=cid).problems
    assert "conversation_missing" == problem.kind
    with pytest.raises(ConversationNotFound):
        fresh.verify_against(file, conversation_id=new_id())


def test_rewritten_history(fresh: EventStore, plain: PlainClient, file: Path, cid: UUID) -> None:
    """Other events that follow from the same start are another history."""
    cut_tail(plain, cid, 2)
    url = plain.address.render_as_string(hide_password=False)
    with EventStore.open(url) as another:
        another.append(cid, say("another 3", "4", "5"))

    assert fresh.verify().ok
    assert [(cid, 4, "history_differs")] == found(fresh, file)


def test_only_one_conversation(
    fresh: EventStore, plain: PlainClient, file: Path, cid: UUID
) -> None:
    """What is wrong with others is not told of it."""
    fresh.append(other := new_id(), say("1"))
    cut_tail(plain, cid, 2)

    assert fresh.verify_against(file, conversation_id=other).ok
    assert not fresh.verify_against(file, conversation_id=cid).ok


def test_restored_older_file(sqlite_url: str, tmp_path: Path, cid: UUID) -> None:
    """A copy of yesterday is as it was written; what came since is missing."""
    database = Path(sqlite_url.removeprefix("sqlite:///"))
    with EventStore.open(sqlite_url) as store:
        store.append(cid, say("1"))
    shutil.copy(database, tmp_path / "yesterday")
    with EventStore.open(sqlite_url) as store:
        store.append(cid, say("2"))
        store.append(other := new_id(), say("1"))
        store.checkpoint(tmp_path / "checkpoint", key=PRIVATE)
    shutil.copy(tmp_path / "yesterday", database)
    with EventStore.open(sqlite_url) as store:
        assert store.verify().ok
        kinds = {(key, kind) for key, _, kind in found(store, tmp_path / "checkpoint")}

    assert {(cid, "tail_missing"), (other, "conversation_missing")} == kinds


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b",4,", b",3,", 1),
        lambda text: text.replace(b'"events":5', b'"events":4'),
        lambda text: b"\n".join(text.split(b"\n")[:1] + text.split(b"\n")[2:]),
        lambda text: text[: text.rindex(b"{")],
        lambda text: text[:-3],
        lambda text: text + text,
        lambda text: b"",
        lambda text: b"[" * 900,
        lambda text: b"x" * 1_000_000,
        lambda text: text.replace(b"T", b" ", 1),
        lambda text: text.replace(text[-9:-7], b"00" if text[-9:-7] != b"00" else b"11"),
    ],
)
def test_altered_file(fresh: EventStore, file: Path, change: Callable[[bytes], bytes]) -> None:
    """One byte, one line, or its end: whatever is changed, nothing is concluded from it."""
    file.write_bytes(change(file.read_bytes()))

    with pytest.raises(CheckpointRefused) as refused:
        fresh.verify_against(file, public_key=PUBLIC)
    assert str(file) in str(refused.value)


def test_whose_signature(fresh: EventStore, file: Path, tmp_path: Path) -> None:
    """Signed by somebody else, or by nobody, is refused where a key is asked for."""
    fresh.checkpoint(tmp_path / "unsigned")
    for path, key in ((file, OTHER_PUBLIC), (tmp_path / "unsigned", PUBLIC)):
        with pytest.raises(CheckpointRefused, match="signed"):
            fresh.verify_against(path, public_key=key)
    assert fresh.verify_against(tmp_path / "unsigned").ok
    assert fresh.verify_against(file, public_key=PRIVATE).ok


def test_another_store(fresh: EventStore, file: Path, tmp_path: Path) -> None:
    """A checkpoint of another database says nothing of this one."""
    with EventStore.open(f"sqlite:///{tmp_path / 'other.db'}") as other:
        other.checkpoint(tmp_path / "of another", key=PRIVATE)
    with pytest.raises(CheckpointRefused, match="another store"):
        fresh.verify_against(tmp_path / "of another", public_key=PUBLIC)


def test_keys_that_are_none(fresh: EventStore, file: Path, tmp_path: Path) -> None:
    """They are refused before anything is written; and no checkpoint is replaced."""
    for key in (b"", b"nonsense", PUBLIC, PRIVATE[:60]):
        with pytest.raises(KeyRefused):
            fresh.checkpoint(tmp_path / "never", key=key)
        assert not (tmp_path / "never").exists()
    with pytest.raises(KeyRefused):
        fresh.verify_against(file, public_key=b"nonsense")
    with pytest.raises(FileExistsError):
        fresh.checkpoint(file, key=PRIVATE)


def test_many_conversations(fresh: EventStore, plain: PlainClient, tmp_path: Path) -> None:
    """They are written and compared page by page, and none is passed over."""
    ids = [new_id() for _ in range(1_002)]
    for cid in ids:
        fresh.append(cid, say("1"))
    made = fresh.checkpoint(tmp_path / "many")
    plain.disarm()
    for cid in (ids[0], ids[-1]):
        for table in ("events", "conversations"):
            plain.execute(f"DELETE FROM {table} WHERE conversation_id = ?", cid)

    missing = fresh.verify_against(tmp_path / "many").problems
    assert (1_002, [ids[0], ids[-1]]) == (
        made.conversations,
        [problem.conversation_id for problem in missing],
    )
