"""A long way is caught up in pieces, each of them committed: others need not wait for the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.sql.read import read_page
from projections import Views
from projections.catalogue import PROJECTIONS
from projections.context import CONTEXT
from projections.engine import pages
from projections.engine.catch_up import PIECE
from projections.engine.follower import catch_up_behind
from projections.engine.generations import install
from projections.engine.set_aside import noted
from projections.models.timeline import TIMELINE
from projections.tokens.counts import TokenCounts
from tests.projections.support import converse, expected, statements, stored
from tests.projections.toys import Marked

pytestmark = pytest.mark.exhaustive_when("postgresql")

Catching = Callable[[EventStore, UUID], object]


class Killed(BaseException):
    """Ends a catch-up where a kill would."""


def questions(count: int) -> list[e.Payload]:
    """Return messages of a user."""
    return [e.UserMessage.text(f"question {number}") for number in range(count)]


def long_conversation(store: EventStore) -> UUID:
    """Append a conversation of two pieces and a half."""
    cid = new_id()
    store.append(cid, questions(PIECE * 5 // 2))
    return cid


@pytest.fixture
def killed_after_a_piece(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have the second page that is read fail; give the versions before those that were read."""
    asked: list[int] = []

    def read(*args: Any, after: int, **options: Any) -> list[e.RecordedEvent]:
        asked.append(after)
        if len(asked) == 2:
            raise Killed
        return read_page(*args, after=after, **options)

    monkeypatch.setattr(pages, "read_page", read)
    return asked


@pytest.mark.parametrize(
    "catch_up",
    [
        lambda store, cid: Views(store).timeline(cid),
        lambda store, _: catch_up_behind(store, [TIMELINE]),
    ],
    ids=["reader", "worker"],
)
def test_what_was_folded_before_a_kill_stays(
    store: EventStore, views: Views, killed_after_a_piece: list[int], catch_up: Catching
) -> None:
    """It is what the events up to there say, and the next one goes on from there."""
    cid = long_conversation(store)
    with pytest.raises(Killed):
        catch_up(store, cid)
    history = list(store.read(cid))
    assert expected(history[:PIECE], [TIMELINE]) == stored(store, cid, [TIMELINE])
    catch_up(store, cid)
    assert [0, PIECE, PIECE, 2 * PIECE] == killed_after_a_piece
    assert expected(history, [TIMELINE]) == stored(store, cid, [TIMELINE])


def test_a_request_of_what_came_in_pieces_is_that_of_one_fold(
    store: EventStore, views: Views
) -> None:
    """The messages[] view is read in the transaction of the last piece, when nothing is missing."""
    cid = long_conversation(store)
    view = views.context(cid, max_tokens=500)
    assert f"question {PIECE * 5 // 2 - 1}" == view.messages[-1]["content"]
    assert expected(store.read(cid), [CONTEXT]) == stored(store, cid, [CONTEXT])


def test_a_worker_folds_short_conversations_together(store: EventStore, views: Views) -> None:
    """Only what is longer than a piece is committed more than once."""
    for _ in range(5):
        converse(store, 1)
    with statements(store) as seen:
        assert 5 == catch_up_behind(store, [TIMELINE])
    # One for the rows, one for the cursor.
    begun = "BEGIN IMMEDIATE" if "sqlite" in store.url else "SELECT set_config('synchronous_commit'"
    assert 2 == len([statement for statement in seen if statement.startswith(begun)])


def test_a_worker_keeps_what_comes_before_what_cannot_be_folded(
    store: EventStore, views: Views
) -> None:
    """A conversation is set aside where it breaks, with its rows up to the piece before."""
    toy = Marked()
    with store.writing() as connection:
        install(connection, [toy])
    cid = new_id()
    store.append(cid, [*questions(PIECE + 10), e.UserMessage.text("poison"), *questions(5)])
    other = converse(store, 1)
    assert 1 == catch_up_behind(store, [*PROJECTIONS, toy])
    history = list(store.read(cid))
    with store.reading() as connection:
        assert [PIECE + 11] == [failure.version for failure in noted(connection)]
    assert expected(history[:PIECE], [toy]) == stored(store, cid, [toy])
    assert expected(history, [TIMELINE]) == stored(store, cid, [TIMELINE])
    assert expected(store.read(other), [toy]) == stored(store, other, [toy])


def test_token_counts_are_read_ahead_once(
    store: EventStore, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at every piece, which would cost the square of the length."""
    long_conversation(store)
    read: list[str] = []
    real = TokenCounts._read

    def counted(self: TokenCounts, connection: Any, rest: str, values: Any) -> int:
        read.append(rest)
        return real(self, connection, rest, values)

    monkeypatch.setattr(TokenCounts, "_read", counted)
    assert 1 == catch_up_behind(store, [CONTEXT])
    assert ["LIMIT {}"] == read
