"""All that a user said, in as many runs as it takes."""

from __future__ import annotations

from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore.erasure import erase as erasing
from eventstore.errors import InvalidEvent, OwnerMismatch
from eventstore.events import ToolResult
from tests.contract.facade import say, texts
from tests.contract.plain import PlainClient

MARKER = "xylophone-4711"


def begin(store: EventStore, user: str | None, tenant: str | None = None) -> UUID:
    """Append a conversation with a blob."""
    said = [*say(MARKER), ToolResult(call_id="1.0", content=f"{MARKER} " * 10_000)]
    store.append(cid := new_id(), said, user_id=user, tenant_id=tenant)
    return cid


def test_all_of_one_user(fresh: EventStore, plain: PlainClient) -> None:
    """Of no other user, and no user of this name in a tenant; the report adds up."""
    theirs = sorted(begin(fresh, "ada") for _ in range(3))

    done = fresh.erase_user("ada", reason="Art. 17", requested_by="ada")

    assert (tuple(theirs), 0, 6, 3) == (
        done.conversations,
        done.erased_before,
        done.event_count,
        done.blob_count,
    )
    assert MARKER.encode() not in plain.dump()
    others = [begin(fresh, "bob"), begin(fresh, "ada", "t1"), begin(fresh, None)]
    again = fresh.erase_user("ada", reason="Art. 17")
    assert ((), 3, 0) == (again.conversations, again.erased_before, again.event_count)
    assert all(MARKER in texts(fresh.read(cid, limit=1)) for cid in others)
    in_tenant = fresh.erase_user("ada", tenant_id="t1", reason="Art. 17")
    assert (others[1],) == in_tenant.conversations
    assert fresh.verify().ok


class _Killed(BaseException):
    """The end of a process."""


def test_a_run_that_was_killed_goes_on(fresh: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is erased stays so, and the next run does the rest: each has one receipt."""
    theirs = sorted(begin(fresh, "ada") for _ in range(3))
    left = 2

    def dying(*args: object) -> object:
        nonlocal left
        if not left:
            raise _Killed
        left -= 1
        return erasing.erase_in(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr("eventstore.store.erase_in", dying)
        with pytest.raises(_Killed):
            fresh.erase_user("ada", reason="Art. 17")

    done = fresh.erase_user("ada", reason="Art. 17")
    assert ((theirs[2],), 2) == (done.conversations, done.erased_before)
    assert [3, 3, 3] == [fresh.get(cid).version for cid in theirs]


def test_forks_of_others_lose_what_they_share(fresh: EventStore) -> None:
    """The report names them; the user's own forks of others' keep what is not the user's."""
    cid, other = begin(fresh, "ada"), begin(fresh, "bob")
    fork = fresh.fork(cid, new_user_id="bob", events=say("mine")).conversation_id
    own = fresh.fork(other, new_user_id="ada", events=say("hers")).conversation_id
    done = fresh.erase_user("ada", reason="Art. 17")
    assert {cid, own} == {*done.conversations}
    assert (fork,) == done.forks
    assert [None, None] == [event.data for event in fresh.read(fork, before=3)]
    assert MARKER in texts(fresh.read(other, limit=1))
    assert fresh.verify().ok


def test_what_was_said_since_is_erased_by_the_next_run(fresh: EventStore) -> None:
    """A conversation that went on is one with words again."""
    cid = begin(fresh, "ada")
    fresh.erase_user("ada", reason="Art. 17")
    fresh.append(cid, say("more"))
    assert (cid,) == fresh.erase_user("ada", reason="Art. 17").conversations


def test_a_bound_store_erases_its_own_users_alone(fresh: EventStore) -> None:
    """Another user's or tenant's is refused, and a reason is needed."""
    bound = fresh.for_owner(tenant_id="t1", user_id="ada")
    cid = begin(fresh, "ada", "t1")
    for wrong in ({"user_id": "bob"}, {"user_id": "ada", "tenant_id": "t2"}):
        with pytest.raises(OwnerMismatch):
            bound.erase_user(**wrong, reason="Art. 17")  # type: ignore[arg-type]
    with pytest.raises(InvalidEvent):
        bound.erase_user("ada", reason=" ")
    assert (cid,) == bound.erase_user("ada", reason="Art. 17").conversations
