"""The list of conversations, by pages: order, owners, statuses, cursors, and what is behind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, Meta, NewEvent, new_id
from eventstore import events as e
from eventstore.errors import InvalidCursor
from projections import Views
from projections.engine import follower
from projections.upkeep import compare, rebuild
from tests.projections.support import converse, statements, turn

START = datetime(2026, 3, 2, 9, tzinfo=UTC)


def begin(
    store: EventStore,
    minute: int,
    *,
    tenant: str | None = None,
    user: str | None = None,
    end: str | None = None,
) -> UUID:
    """Append a conversation that was active at this minute."""
    cid, meta = new_id(), Meta(occurred_at=START + timedelta(minutes=minute))
    said: list[e.Payload] = [e.UserMessage.text(f"at {minute}")]
    if end is not None:
        said.append(e.ConversationEnd(reason=end))  # type: ignore[arg-type]
    store.append(cid, [NewEvent(each, meta=meta) for each in said], tenant_id=tenant, user_id=user)
    return cid


def pages(views: Views, limit: int, **wanted: str) -> list[list[UUID]]:
    """Return the ids of all pages."""
    found, cursor = [], None
    while True:
        page = views.conversations(after=cursor, limit=limit, **wanted)  # type: ignore[arg-type]
        found.append([entry.conversation_id for entry in page])
        if (cursor := page.cursor) is None:
            return found


def test_pages_follow_each_other_without_gap(store: EventStore, views: Views) -> None:
    """Each conversation once, the latest active first, also where many are of one moment."""
    made = sorted(((minute // 3, begin(store, minute // 3)) for minute in range(10)), reverse=True)
    expected = [cid for _, cid in made]
    for limit in (1, 3, 5, 10, 11):
        found = pages(views, limit)
        assert expected == [cid for page in found for cid in page]
        assert {limit} >= {len(page) for page in found[:-1]}


def test_a_page_is_of_one_owner_and_status(store: EventStore, views: Views) -> None:
    """Each filter by itself and all of them together."""
    made = {
        (tenant, user, end): begin(store, 0, tenant=tenant, user=user, end=end)
        for tenant in ("t1", "t2", None)
        for user in ("ann", "bob", None)
        for end in ("archived", None)
    }
    for tenant in ("t1", None):
        for user in ("ann", None):
            for status in ("open", "archived", "destroyed", None):
                wanted = {"tenant_id": tenant, "user_id": user, "status": status}
                expected = {
                    cid
                    for (of, by, end), cid in made.items()
                    if tenant in (None, of)
                    and user in (None, by)
                    and status in (None, end or "open")
                }
                asked = {name: value for name, value in wanted.items() if value is not None}
                found = [cid for page in pages(views, 2, **asked) for cid in page]
                assert expected == {*found}
                assert len(expected) == len(found)


def test_the_owner_stands_beside_each_row_however_it_came(store: EventStore, views: Views) -> None:
    """By a read, by a rebuild in bulk, and where the row was there before."""
    cid = converse(store, 1, user="ann")
    assert [cid] == [each.conversation_id for each in views.conversations(user_id="ann")]
    store.append(cid, [e.UserMessage.text("more")])
    assert [cid] == [each.conversation_id for each in views.conversations(user_id="ann")]
    rebuild(store, ["directory"])
    assert [cid] == [each.conversation_id for each in views.conversations(user_id="ann")]
    assert compare(store, ["directory"]).ok
    store.erase(cid, reason="asked")
    of_ann = views.conversations(user_id="ann", status="erased")
    assert [cid] == [each.conversation_id for each in of_ann]


def test_an_entry_tells_of_the_last_message(store: EventStore, views: Views) -> None:
    """Who said it, how it begins, and its version, against which a product marks it unread."""
    cid = converse(store, 1)
    [entry] = views.conversations()
    assert ("assistant", "here is x0", 7, 7) == (
        entry.last_message_role,
        entry.last_message_text,
        entry.last_message_version,
        entry.version,
    )
    store.append(cid, [e.Retraction(versions=(e.VersionRange(first=2, last=7),))])
    [entry] = views.conversations()
    assert ("user", "find x0", 1) == (
        entry.last_message_role,
        entry.last_message_text,
        entry.last_message_version,
    )


def test_a_cursor_of_something_else_is_refused(store: EventStore, views: Views) -> None:
    """Text that no page gave, and the cursor of the feed."""
    for cursor in ("", "x", "2026-01-01/", f"/{new_id()}", "s2:1:00", f"2026-01-01/{new_id()}\0"):
        with pytest.raises(InvalidCursor, match=r"views\.conversations"):
            views.conversations(after=cursor)
    for moment in ("2026-01-01", "2026-01-01T10:00:00"):  # of which time zone?
        with pytest.raises(InvalidCursor, match=r"views\.conversations"):
            views.conversations(after=f"{moment}/{new_id()}")
    with pytest.raises(ValueError, match="open, archived, destroyed, erased"):
        views.conversations(status="closed")  # type: ignore[arg-type]


def test_a_list_of_ones_own_does_not_wait_for_all_others(
    store: EventStore, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where much is behind, only the user's conversations are caught up."""
    monkeypatch.setattr(follower, "_LOOK", 5)
    others = [converse(store, 1, user="bob") for _ in range(4)]
    mine = converse(store, 1, user="ann")
    assert [mine] == [each.conversation_id for each in views.conversations(user_id="ann")]
    with store.reading() as connection:
        query = "SELECT count(*) FROM directory"
        assert 1 == connection.exec_driver_sql(query).scalar()
    store.append(mine, [e.UserMessage.text("again")])
    assert "again" == views.conversations(user_id="ann")[0].last_user_text
    assert 1 + len(others) == len(views.conversations())


@pytest.mark.parametrize(
    ("table", "read"),
    [
        ("tool_calls", lambda views: views.tool_calls(user_id="ann")),
        ("usage_by_call", lambda views: views.calibration("gpt-4o", user_id="ann")),
        ("open_work", lambda views: views.conversations_with_open_work(user_id="ann")),
        ("turns", lambda views: views.rows("turns", user_id="ann")),
    ],
)
def test_no_view_of_one_owner_waits_for_all_others(
    store: EventStore,
    views: Views,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    read: Callable[[Views], object],
) -> None:
    """Each caught up every conversation of the store first."""
    monkeypatch.setattr(follower, "_LOOK", 5)
    meta = Meta(turn=1)
    for user in ("bob", "bob", "ann"):
        store.append(new_id(), [NewEvent(each, meta=meta) for each in turn(0, "x")], user_id=user)
    read(views)
    with store.reading() as connection:
        query = f"SELECT count(DISTINCT conversation_id) FROM {table}"
        assert 1 == connection.exec_driver_sql(query).scalar()


def test_a_page_is_read_from_an_index(store: EventStore, views: Views) -> None:
    """SQLite sorts nothing and scans nothing of the directory."""
    if store.engine.dialect.name != "sqlite":
        return
    begin(store, 0, tenant="t", user="ann")
    mine: dict[str, Any] = {"user_id": "ann"}
    for asked in ({}, mine, {"tenant_id": "t"}, {"tenant_id": "t", **mine}):
        with statements(store) as seen:
            views.conversations(limit=3, after=f"2030-01-01T00:00:00+00:00/{new_id()}", **asked)
        query = next(each for each in seen if "UNION ALL" in each)
        with store.reading() as connection:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all()
        steps = [row[3] for row in plan if "directory" in row[3]]
        assert steps
        assert not [step for step in steps if step.startswith("SCAN")], steps
        owned = "tenant_id" if asked.keys() == {"tenant_id"} else "user_id"
        if asked:
            assert 3 == len([step for step in steps if f"({owned}=? AND status=?" in step]), steps


def test_usage_between_two_moments(store: EventStore, views: Views) -> None:
    """The first moment is included, the second is not; the day alone would be too coarse."""
    cid = new_id()
    for minute in (0, 10, 20):
        call = f"call-{minute}"
        said = (
            e.LlmRequest(llm_call_id=call, invocation=e.Invocation(model="gpt-4o")),
            e.AssistantMessage.of("hi", llm_call_id=call, usage=e.TokenUsage(prompt_tokens=1)),
        )
        meta = Meta(occurred_at=START + timedelta(minutes=minute))
        store.append(cid, [NewEvent(each, meta=meta) for each in said], user_id="ann")

    def calls(since: datetime | None = None, until: datetime | None = None) -> int:
        return sum(each.calls for each in views.usage(user_id="ann", since=since, until=until))

    ten, twenty = START + timedelta(minutes=10), START + timedelta(minutes=20)
    assert (3, 2, 1, 1) == (
        calls(),
        calls(since=ten),
        calls(until=ten),
        calls(since=ten, until=twenty),
    )
    with pytest.raises(ValueError, match="time zone"):
        views.usage(since=datetime(2026, 3, 2))  # noqa: DTZ001 - the mistake


def test_the_sessions_of_a_thread_are_listed(store: EventStore, views: Views) -> None:
    """A filter for the thread that a session's start names, which a fork inherits."""
    made = []
    for thread in ("plans", "other", None, "plans"):
        cid, config = new_id(), {} if thread is None else {"thread_slug": thread}
        start = e.ConversationStart(config=config)
        store.append(cid, [start, e.UserMessage.text("hello")], user_id="ada")
        made.append(cid)
    store.append(made[0], [e.UserMessage.text("again")])
    found = views.conversations(thread="plans")
    assert [entry.conversation_id for entry in found] == [made[0], made[3]]
    assert {entry.thread_slug for entry in found} == {"plans"}
    assert len(views.for_owner(user_id="ada").conversations(thread="plans", limit=1)) == 1
    assert not views.for_owner(user_id="bob").conversations(thread="plans")
    with pytest.raises(TypeError, match="thread"):
        views.conversations(thread=1)  # type: ignore[arg-type]
