"""Reading one stream: forward, backward, from, to, and over the edges of pages."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, RecordedEvent
from tests.contract.facade import say, texts


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"after": 2}, [3, 4, 5]),
        ({"after": 5}, []),
        ({"before": 3}, [1, 2]),
        ({"before": 1}, []),
        ({"after": 1, "before": 5}, [2, 3, 4]),
        ({"limit": 2}, [1, 2]),
        ({"limit": 0}, []),
        ({"after": 3, "limit": 9}, [4, 5]),
        ({"backward": True}, [5, 4, 3, 2, 1]),
        ({"backward": True, "limit": 2}, [5, 4]),
        ({"backward": True, "after": 3}, [5, 4]),
        ({"backward": True, "before": 4, "limit": 2}, [3, 2]),
        ({"backward": True, "after": 1, "before": 4}, [3, 2]),
    ],
)
def test_bounds_are_exclusive(
    store: EventStore, cid: UUID, options: dict[str, Any], expected: list[int]
) -> None:
    """``after`` and ``before`` leave their own version out, in both directions."""
    store.append(cid, say("1", "2", "3", "4", "5"))

    assert expected == [event.version for event in store.read(cid, **options)]


def test_a_stream_that_does_not_exist_has_no_events(store: EventStore, cid: UUID) -> None:
    """Reading it is not an error."""
    assert [] == list(store.read(cid))


def test_streams_are_read_apart(store: EventStore, cid: UUID) -> None:
    """Events of another conversation, appended in between, are not seen."""
    store.append(cid, say("one"))
    store.append(UUID(int=cid.int ^ 1), say("other"))
    store.append(cid, say("two"))

    assert ["one", "two"] == texts(store.read(cid))


@pytest.mark.parametrize("count", [1_000, 2_001])
@pytest.mark.parametrize("backward", [False, True])
def test_pages_join_without_a_seam(
    store: EventStore, cid: UUID, count: int, backward: bool
) -> None:
    """A stream longer than a page is read whole, each event once."""
    store.append(cid, say(*(str(number) for number in range(count))))
    versions = list(range(1, count + 1))

    found = [event.version for event in store.read(cid, backward=backward)]

    assert (versions[::-1] if backward else versions) == found


def test_a_limit_over_a_page_is_kept(store: EventStore, cid: UUID) -> None:
    """The limit counts events, not pages."""
    store.append(cid, say(*(str(number) for number in range(1_300))))

    found = [event.version for event in store.read(cid, after=100, limit=1_100)]

    assert list(range(101, 1_201)) == found


def test_what_is_read_is_like_what_was_appended(store: EventStore, cid: UUID) -> None:
    """Events and ids are of their own classes, equal, of equal hash, and cannot be changed."""
    (appended,) = store.append(cid, say("1")).events
    (read,) = store.read(cid)

    assert (RecordedEvent, UUID) == (type(read), type(read.event_id))
    assert (appended, hash(appended.event_id)) == (read, hash(read.event_id))
    with pytest.raises(FrozenInstanceError):
        read.version = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        read.event_id.int = 2  # type: ignore[misc]


def test_a_negative_limit_is_refused(store: EventStore, cid: UUID) -> None:
    """SQLite takes one for no limit, and returned the whole store; PostgreSQL failed."""
    store.append(cid, say("one"))

    for read in (
        lambda: list(store.read(cid, limit=-1)),
        lambda: store.read_all(limit=-1),
        lambda: store.list(limit=-1),
    ):
        with pytest.raises(ValueError, match="limit must not be negative"):
            read()
