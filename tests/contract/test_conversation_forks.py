"""Forks: a conversation that goes on from a version of another's, and shares what lies before."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, Meta, new_id
from eventstore.errors import (
    BlobNotFound,
    ConversationNotFound,
    EventsShared,
    ForkRefused,
    OwnerMismatch,
    WrongExpectedVersion,
)
from eventstore.events import ConversationFork, Erasure, RecordedEvent, Summary, UserMessage
from eventstore.events.values import VersionRange
from tests.contract.facade import say, text_of
from tests.contract.plain import PlainClient


def told(store: EventStore, conversation_id: UUID, **window: Any) -> list[str]:
    """Return what a conversation says: texts of messages, types of all else."""
    events = store.read(conversation_id, **window)
    return [text_of(each) if isinstance(each.data, UserMessage) else each.type for each in events]


def forked(store: EventStore, source: UUID, before: int | None = None) -> UUID:
    """Return a new fork of a conversation."""
    return store.fork(source, before=before).conversation_id


def test_a_fork_reads_what_it_shares_and_then_its_own(store: EventStore, cid: UUID) -> None:
    """Both go on from there, and neither sees what the other has gained."""
    store.append(cid, say("1", "2", "3"))

    fork = forked(store, cid, before=3)
    store.append(fork, say("2b"), expected_version=3)
    store.append(cid, say("4"), expected_version=3)

    assert ["1", "2", "conversation_fork", "2b"] == told(store, fork)
    assert ["1", "2", "3", "4"] == told(store, cid)


def test_shared_events_are_the_forks_as_it_reads_them(store: EventStore, cid: UUID) -> None:
    """They have its id and their own versions and times, and say that they are shared."""
    store.append(cid, say("1", "2"))
    fork = forked(store, cid)

    def facts(event: RecordedEvent) -> tuple[object, ...]:
        return event.version, event.event_id, event.position, event.recorded_at, event.chain

    theirs, own = list(store.read(cid)), list(store.read(fork))
    assert [fork] * 3 == [event.conversation_id for event in own]
    assert [1, 2, 3] == [event.version for event in own]
    assert [True, True, False] == [event.inherited for event in own]
    assert [facts(event) for event in theirs] == [facts(event) for event in own[:2]]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_every_window_is_that_of_a_whole_conversation(
    store: EventStore, cid: UUID, backward: bool, limit: int
) -> None:
    """Forward and backward, from anywhere to anywhere, however many, over parents of parents."""
    store.append(cid, say("1", "2", "3"))
    middle = forked(store, cid, before=3)
    store.append(middle, say("4", "5"))
    fork = forked(store, middle, before=5)
    whole = ["1", "2", "conversation_fork", "4", "conversation_fork"]

    for after in range(7):
        for before in range(8):
            wanted = [each for at, each in enumerate(whole, 1) if after < at < before]
            wanted = (wanted[::-1] if backward else wanted)[:limit]
            window = {"after": after, "before": before, "backward": backward, "limit": limit}
            assert wanted == told(store, fork, **window)


def test_a_fork_of_a_fork_may_begin_before_it(store: EventStore, cid: UUID) -> None:
    """Then nothing of the fork's own is shared, and what its parent shares is."""
    store.append(cid, say("1", "2", "3"))
    middle = forked(store, cid, before=4)
    store.append(middle, say("5"))

    fork = forked(store, middle, before=3)
    store.append(fork, say("4"))

    assert ["1", "2", "conversation_fork", "4"] == told(store, fork)
    assert (middle, 2) == (store.get(fork).parent_conversation_id, store.get(fork).parent_version)


def test_the_first_event_says_where_it_comes_from(store: EventStore, cid: UUID) -> None:
    """The fork's own event names its parent, the version that is shared, and a title."""
    store.append(cid, say("1", "2"))

    done = store.fork(cid, before=2, title="Another way", events=say("x"))

    assert ConversationFork(
        parent_conversation_id=str(cid), parent_version=1, title="Another way"
    ) == (done.events[0].data)
    assert (3, 3) == (done.version, store.get(done.conversation_id).version)


def test_a_fork_is_its_parents_owners(store: EventStore, cid: UUID) -> None:
    """Unless it is said to be another user's; the tenant stays."""
    store.append(cid, say("1"), tenant_id="acme", user_id="ada")

    own = store.get(store.fork(cid, user_id="ada").conversation_id)
    given = store.get(store.fork(cid, tenant_id="acme", new_user_id="bob").conversation_id)

    assert [("acme", "ada"), ("acme", "bob")] == [(x.tenant_id, x.user_id) for x in (own, given)]


@pytest.mark.parametrize("owner", [{"user_id": "bob"}, {"tenant_id": "other"}])
def test_somebody_elses_conversation_is_not_forked(
    store: EventStore, cid: UUID, owner: dict[str, str]
) -> None:
    """Whoever says whose it must be is refused another's."""
    store.append(cid, say("1"), tenant_id="acme", user_id="ada")

    with pytest.raises(OwnerMismatch):
        store.fork(cid, **owner)  # type: ignore[arg-type]


def test_what_does_not_exist_is_not_forked(store: EventStore, cid: UUID) -> None:
    """There has to be a conversation."""
    with pytest.raises(ConversationNotFound):
        store.fork(cid)


@pytest.mark.parametrize("before", [-1, 0, 1, 4])
def test_a_version_has_to_exist(store: EventStore, cid: UUID, before: int) -> None:
    """At least one event is shared, and none that is not there."""
    store.append(cid, say("1", "2"))

    with pytest.raises(ForkRefused, match=f"{cid}.*from 2 to 3"):
        store.fork(cid, before=before)


def test_an_id_that_is_taken_is_refused(store: EventStore, cid: UUID) -> None:
    """A fork is not an append to what there is, be it a fork made elsewhere."""
    other = new_id()
    store.append(cid, say("1", "2"))
    store.append(other, say("1"))
    fork = forked(store, cid, before=2)

    for taken in (other, fork, cid):
        with pytest.raises(WrongExpectedVersion):
            store.fork(cid, before=3, conversation_id=taken)


def test_a_fork_is_made_once(store: EventStore, cid: UUID) -> None:
    """Who does not know whether it was made may try again with the same id."""
    fork = new_id()
    store.append(cid, say("1", "2"))

    first = store.fork(cid, before=2, conversation_id=fork)
    again = store.fork(cid, before=2, conversation_id=fork)

    assert first.events == again.events
    assert ["1", "conversation_fork"] == told(store, fork)


def test_a_line_of_forks_has_an_end(store: EventStore, cid: UUID) -> None:
    """A fork of a fork of a fork is refused beyond a hundred, and read up to there."""
    store.append(cid, say("1"))
    fork = cid
    for _ in range(100):
        fork = forked(store, fork)

    assert ["1", *["conversation_fork"] * 100] == told(store, fork)
    with pytest.raises(ForkRefused, match="100 ancestors"):
        forked(store, fork)


def test_the_feed_has_own_events_alone(fresh: EventStore, cid: UUID) -> None:
    """What is shared is handed out once, as the parent's."""
    fresh.append(cid, say("1", "2"))
    fork = forked(fresh, cid)

    events = fresh.read_all().events
    assert [(cid, 1), (cid, 2), (fork, 3)] == [(x.conversation_id, x.version) for x in events]


def test_a_large_payload_is_found_through_the_fork(store: EventStore, cid: UUID) -> None:
    """A blob belongs to the conversation that holds the event, and is read for both."""
    text = "long " * 100_000
    store.append(cid, say(text))

    assert [text, "conversation_fork"] == told(store, forked(store, cid))


def kinds(store: EventStore, conversation_id: UUID | None = None) -> list[tuple[UUID, int, str]]:
    """Return the problems that a verification finds."""
    found = store.verify(conversation_id).problems
    return [(each.conversation_id, each.version, each.kind) for each in found]


def test_a_fork_verifies(fresh: EventStore, cid: UUID) -> None:
    """By itself and with all others, a fork of a fork too, also after the parent was erased."""
    fresh.append(cid, say("1", "2"), user_id="ada")
    fork = forked(fresh, cid, before=2)
    fresh.append(fork, say("3"))
    last = forked(fresh, fork)

    assert fresh.verify().ok
    assert fresh.verify(fork).ok
    assert fresh.verify(last).ok
    fresh.erase(cid, reason="asked for")
    assert fresh.verify().ok
    assert fresh.verify(fork).ok
    assert fresh.verify(last).ok


def test_what_was_altered_of_what_is_shared_is_told_of_both(
    fresh: EventStore, plain: PlainClient, cid: UUID
) -> None:
    """Whoever verifies the fork alone is told as well; what is not shared is no concern of it."""
    fresh.append(cid, say("1", "2", "3"))
    fork = forked(fresh, cid, before=3)
    plain.disarm()
    for version in (2, 3):
        changed = "data = '{\"parts\": []}'"
        plain.execute(
            f"UPDATE events SET {changed} WHERE conversation_id = ? AND version = {version}", cid
        )

    parents = [(cid, 2, "data_altered"), (cid, 3, "data_altered")]
    assert [(fork, 2, "data_altered")] == kinds(fresh, fork)
    assert sorted([*parents, (fork, 2, "data_altered")]) == sorted(kinds(fresh))


@pytest.mark.parametrize(
    "change", ["parent_version = 1", "parent_conversation_id = ?", "user_id = 'bob'"]
)
def test_another_parent_or_owner_is_found(
    fresh: EventStore, plain: PlainClient, cid: UUID, change: str
) -> None:
    """A fork can be given neither another history nor another owner by SQL alone."""
    other = new_id()
    fresh.append(cid, say("1", "2"), user_id="ada")
    fresh.append(other, say("x", "y"), user_id="ada")
    fork = forked(fresh, cid)
    plain.disarm()

    values = [other, fork] if "?" in change else [fork]
    plain.execute(f"UPDATE conversations SET {change} WHERE conversation_id = ?", *values)

    assert kinds(fresh, fork)


def test_erasing_in_the_parent_reaches_its_forks(store: EventStore, cid: UUID) -> None:
    """They lose what they share, keep what is their own, and have a receipt each."""
    store.append(cid, say("1", "2", "3"))
    fork = forked(store, cid, before=3)
    store.append(fork, say("4"))
    last = forked(store, fork)

    store.erase(cid, reason="asked for", versions=[1])

    for each in (fork, last):
        shared = list(store.read(each, before=3))
        assert [True, False] == [event.erased for event in shared]
        assert "erasure" == [*store.read(each)][-1].type
    assert "4" in told(store, fork)
    assert "4" in told(store, last)


def test_copies_in_a_fork_go_along(store: EventStore, cid: UUID) -> None:
    """A summary in the fork of what is erased in the parent goes with it, by the fork's receipt."""
    summary = Summary(
        text="the PIN is 1234", versions=(VersionRange(first=1, last=2),), strategy="s"
    )
    store.append(cid, say("my PIN is 1234", "2"))
    done = store.fork(cid, events=[summary])
    fork = done.conversation_id

    store.erase(cid, reason="asked for", versions=[1])

    own = {event.version: event for event in store.read(fork)}
    assert [True, False] == [own[4].erased, own[2].erased]
    receipt = own[5].data
    assert isinstance(receipt, Erasure)
    assert (4,) == receipt.versions
    assert store.verify(fork).ok


@pytest.mark.parametrize("derived", [True, False])
def test_what_a_fork_quotes_is_named(store: EventStore, cid: UUID, derived: bool) -> None:
    """The fork's receipt names its own events that repeat what is gone from the parent."""
    words = "my account number is DE02120300000000202051"
    summary = Summary(text=words, versions=(VersionRange(first=1, last=1),), strategy="s")
    store.append(cid, say(words))
    fork = store.fork(cid, events=[summary, *say(f"you said: {words}")]).conversation_id

    receipt = store.erase(
        cid, reason="asked for", versions=None if derived else [1], derived=derived
    )

    assert (fork,) == receipt.forks
    *_, last = store.read(fork)
    assert isinstance(last.data, Erasure)
    quoted = {each.what: each.versions[0].first for each in last.data.quoted_by}
    assert ({"quotation": 4} if derived else {"quotation": 4, "summary": 3}) == quoted
    assert store.verify(fork).ok


def test_erasing_what_is_not_shared_leaves_the_forks(store: EventStore, cid: UUID) -> None:
    """What the parent has gained since is none of theirs."""
    store.append(cid, say("1", "2"))
    fork = forked(store, cid, before=2)

    store.erase(cid, reason="asked for", versions=[2])

    assert ["1", "conversation_fork"] == told(store, fork)


def test_what_is_shared_is_erased_in_the_parent(store: EventStore, cid: UUID) -> None:
    """Asked of the fork it is refused, with the name of the parent, and nothing is gone."""
    store.append(cid, say("1", "2"))
    fork = forked(store, cid)
    store.append(fork, say("3"))

    with pytest.raises(EventsShared, match=str(cid)) as caught:
        store.erase(fork, reason="asked for", versions=[2, 4])

    assert (fork, cid, 2) == (
        caught.value.conversation_id,
        caught.value.parent,
        caught.value.version,
    )
    assert ["1", "2", "conversation_fork", "3"] == told(store, fork)


def test_erasing_a_fork_leaves_its_parent(store: EventStore, cid: UUID) -> None:
    """A whole fork loses what is its own."""
    store.append(cid, say("1"))
    fork = forked(store, cid)
    store.append(fork, say("2"))

    store.erase(fork, reason="asked for")

    assert [False, True, True, False] == [event.erased for event in store.read(fork)]
    assert ["1"] == told(store, cid)


def test_what_a_fork_starts_with_is_redacted_before_the_lock_is_taken(
    sqlite_url: str, cid: UUID
) -> None:
    """A redactor may be slow, and nobody else could write to the file meanwhile."""
    seen: list[Any] = []
    with EventStore.open(sqlite_url, busy_timeout_ms=0) as other:

        def redact(_: Any, value: Any) -> Any:
            seen.append(value)
            if value in ("slow", "title", {"note": "meta"}):
                other.append(new_id(), say("meanwhile"))
            return "redacted" if value == "title" else value

        with EventStore.open(sqlite_url, redact=redact) as store:
            store.append(cid, say("1"))
            meta = Meta(extra={"note": "meta"})
            done = store.fork(cid, events=say("slow"), title="title", meta=meta)

        assert ["1", "conversation_fork", "slow"] == told(store, done.conversation_id)
        [first, _] = done.events
        assert (1, "redacted", meta) == (first.data.parent_version, first.data.title, first.meta)  # type: ignore[union-attr]
        assert 1 == seen.count("title")


def test_shared_events_are_read_without_the_forks_own_blobs(
    fresh: EventStore, plain: PlainClient, cid: UUID
) -> None:
    """All of these were unpacked for each page of shared events, and thrown away."""
    fresh.append(cid, say("1", "2"))
    fork = forked(fresh, cid)
    fresh.append(fork, say("large " * 10_000))
    plain.execute("DELETE FROM blobs")

    assert ["1", "2"] == told(fresh, fork, limit=2)
    with pytest.raises(BlobNotFound):
        told(fresh, fork)
