"""What the views answer, over SQL: filters, groups, order, and the plans of hot queries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import inspect, text

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.events import Meta, NewEvent, Payload, RecordedEvent
from projections import Views
from projections.catalogue import PROJECTIONS
from projections.context import CONTEXT, build
from projections.context.rows import ContextRow
from projections.context.source import RowSource, SqlRowSource
from projections.context.view import ContextView
from projections.errors import BudgetInfeasible
from projections.models.timeline import TIMELINE, TimelineItem
from tests.list_row_source import ListRowSource
from tests.projections.support import converse, expected, live_of, turn
from tests.properties.histories import histories, metas, payloads
from tests.scaled_settings import scaled_settings

pytestmark = pytest.mark.exhaustive_when("postgresql")

START = datetime(2026, 3, 1, tzinfo=UTC)


def at(day: int) -> Meta:
    """Return the metadata of something that happened on a day of March 2026."""
    return Meta(occurred_at=START + timedelta(days=day - 1), turn=day, session_id=f"s{day}")


def told(made: ContextView | BudgetInfeasible) -> Any:
    """Return all that a view says, or why there is none."""
    return made.document if isinstance(made, ContextView) else repr(made)


def answer(source: RowSource, **limits: int | None) -> ContextView | BudgetInfeasible:
    """Build a request, or return why it cannot be."""
    try:
        return build(source, **limits)  # type: ignore[arg-type]
    except BudgetInfeasible as error:
        return error


@given(
    events=st.lists(st.tuples(payloads(), metas()), min_size=1, max_size=25),
    max_tokens=st.none() | st.integers(5, 400),
    max_messages=st.none() | st.integers(1, 8),
)
@scaled_settings(15)
def test_a_request_from_sql_is_that_from_the_rows(
    store: EventStore,
    events: list[tuple[Payload, Meta]],
    max_tokens: int | None,
    max_messages: int | None,
) -> None:
    """For any history and budget, reading pages by SQL gives what all rows in memory give."""
    cid = new_id()
    store.append(cid, [NewEvent(data, meta=meta) for data, meta in events], allow_empty=True)
    rows = expected(store.read(cid), [CONTEXT])["context_messages"].values()
    from_list = answer(
        ListRowSource(ContextRow.of(row) for row in rows),
        max_tokens=max_tokens,
        max_messages=max_messages,
    )
    Views(store).context(cid)
    table = live_of(store, CONTEXT).tables["context_messages"]
    with store.reading() as connection:
        source = SqlRowSource(connection, table, cid)
        from_sql = answer(source, max_tokens=max_tokens, max_messages=max_messages)
        pages = [[row.key for row in source.newest(size)] for size in (1, 2, 64)]
    assert told(from_list) == told(from_sql)
    assert pages[0] == pages[1] == pages[2]


def test_the_newest_rows_come_by_index_without_a_sort(store: EventStore, views: Views) -> None:
    """Each query of a request is a range of an index, in its order, however long the history."""
    cid = converse(store, 400)
    views.context(cid)
    plans = explained(store, views, cid)
    assert len(plans) >= 4
    for _query, plan in plans:
        assert "Index" in plan or "SEARCH context_messages_g1 USING INDEX" in plan
    # The first page and the one after it; for the last few rows a sort may be the cheaper plan.
    newest = [plan for query, plan in plans if "NOT IN" in query.upper()][:2]
    assert len(newest) == 2
    assert [] == [plan for plan in newest if "Sort" in plan or "TEMP B-TREE" in plan]
    # For these, PostgreSQL once read all rows of the conversation.
    plan_of = {query: plan for query, plan in plans if "lasting <" in query or "UNION" in query}
    lasting, beside = plan_of.values()
    table = live_of(store, CONTEXT).tables["context_messages"]
    [index] = [str(each.name) for each in table.indexes if "lasting" in each.columns]
    assert index in lasting
    assert "Aggregate" not in beside


def explained(store: EventStore, views: Views, cid: UUID) -> list[tuple[str, str]]:
    """Return the queries of a request's rows, with the plan of each."""
    views.context(cid)
    table = live_of(store, CONTEXT).tables["context_messages"]
    found: list[tuple[str, str]] = []
    with store.reading() as connection:
        prefix = "EXPLAIN QUERY PLAN "
        if connection.dialect.name == "postgresql":
            # As the server's autovacuum does by itself, a little later.
            connection.execute(text("ANALYZE"))
            connection.execute(text("SET LOCAL enable_seqscan = off"))
            prefix = "EXPLAIN "
        source = SqlRowSource(connection, table, cid)
        bound = {
            "conversation_id": source._conversation_id,
            "page": 64,
            "version": 1_000,
            "part": 0,
            "versions": source._backend.array([20, 40]),
        }
        made = source._queries
        for each in (
            made.newest,
            made.older,
            made.apart,
            made.oldest_user,
            made.newest_users,
            made.newest_error,
            made.lasting,
            made.beside,
        ):
            source._cursor.execute(prefix + each, bound)
            rows = source._cursor.fetchall()
            found.append((each, "\n".join(str(row[-1]) for row in rows)))
    return found


@given(events=histories(), cut=st.integers(0, 25))
def test_news_of_a_timeline_are_all_that_changed(events: list[RecordedEvent], cut: int) -> None:
    """Asked for what came after a version, the timeline names every item that is not as it was."""
    before = expected(events[:cut], [TIMELINE])["timeline_items"]
    now = expected(events, [TIMELINE])["timeline_items"]
    changed = {key for key, row in now.items() if before.get(key) != row}
    assert changed <= {key for key, row in now.items() if row["end_version"] > cut}
    assert set(before) <= set(now)


def test_a_timeline_after_a_version(store: EventStore, views: Views, cid: UUID) -> None:
    """News are the items that began or changed; a limit gives those that changed first."""
    store.append(cid, turn(0, "a"))
    seen = views.timeline(cid)
    store.append(cid, turn(7, "b"))
    news = views.timeline(cid, after=max(item.end_version or 0 for item in seen))
    assert views.timeline(cid)[len(seen) :] == news
    assert views.timeline(cid)[:2] == views.timeline(cid, limit=2)
    assert [] == views.timeline(cid, after=14)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_a_timeline_read_page_by_page_has_every_item(
    store: EventStore, views: Views, cid: UUID, limit: int
) -> None:
    """A page's highest end version continues it, although long items begin early and end late."""
    meta = Meta(turn=1)
    store.append(cid, [NewEvent(e.TurnStart(), meta=meta)])
    store.append(cid, [*turn(1, "a"), *turn(8, "b"), e.Notebook(text="n"), e.Notebook(text="m")])
    store.append(cid, [NewEvent(e.TurnEnd(status="ok"), meta=meta)])
    store.append(cid, [e.Retraction(versions=(e.VersionRange(first=9, last=15),))])
    after = 0
    seen: dict[tuple[int, int], TimelineItem] = {}
    sizes: list[int] = []
    while page := views.timeline(cid, after=after, limit=limit):
        assert page == sorted(page, key=lambda item: (item.version, item.part))
        seen |= {(item.version, item.part): item for item in page}
        sizes.append(len(page))
        after = max(item.end_version or 0 for item in page)
    assert views.timeline(cid) == [seen[key] for key in sorted(seen)]
    assert [] == views.timeline(cid, limit=0)
    assert sum(sizes) == len(seen)
    together = 4  # the items that the retraction withdrew, and its own
    assert max(sizes) <= max(limit, together)


def test_usage_by_every_grouping(store: EventStore, views: Views) -> None:
    """Each grouping adds up the same calls, under the keys that its name says."""
    one, two = new_id(), new_id()
    for cid, day, user, model in ((one, 1, "ann", "gpt-4o"), (two, 2, "bob", "gpt-4o-mini")):
        events = [NewEvent(data, meta=at(day)) for data in turn(0, "a", model=model)]
        store.append(cid, events, user_id=user, tenant_id="acme")
    keys = {
        "model": {"gpt-4o", "gpt-4o-mini"},
        "day": {"2026-03-01", "2026-03-02"},
        "conversation": {str(one), str(two)},
        "session": {"s1", "s2"},
        "turn": {f"{one}/1", f"{two}/2"},
        "user": {"ann", "bob"},
        "tenant": {"acme"},
        "call": {f"{cid}/{call}" for cid in (one, two) for call in ("call-0", "answer-0")},
    }
    for by, expected_keys in keys.items():
        totals = views.usage(by=by)  # type: ignore[arg-type]
        assert expected_keys == {total.key for total in totals}
        assert (4, 40, 8) == (
            sum(total.calls for total in totals),
            sum(total.prompt_tokens or 0 for total in totals),
            sum(total.completion_tokens or 0 for total in totals),
        )
    assert [None] == [total.key for total in views.usage(by="step")]  # no call has a step
    assert ["ann"] == [total.key for total in views.usage(by="user", conversation_id=one)]
    assert [str(two)] == [total.key for total in views.usage(by="conversation", user_id="bob")]
    assert [] == views.usage(tenant_id="other")
    with pytest.raises(ValueError, match="grouped"):
        views.usage(by="moon")  # type: ignore[arg-type]


def test_calls_without_a_turn_are_one_group(store: EventStore, views: Views) -> None:
    """Their key is None for turns and steps, as it is for sessions, whatever the conversation."""
    for _ in range(2):
        store.append(new_id(), turn(0, "a"))
    for by in ("turn", "step", "session"):
        [total] = views.usage(by=by)
        assert (None, 4, 40) == (total.key, total.calls, total.prompt_tokens)


def test_tool_calls_by_tool_status_and_conversation(store: EventStore, views: Views) -> None:
    """Filters combine; the latest call comes first, and the limit cuts the oldest."""
    one = converse(store, 2)
    two = new_id()
    store.append(two, turn(0, "a", tool="write")[:4])
    assert [two, one, one] == [call.conversation_id for call in views.tool_calls()]
    assert ["running"] == [call.status for call in views.tool_calls(tool="write")]
    assert [one, one] == [call.conversation_id for call in views.tool_calls(status="success")]
    assert [] == views.tool_calls(tool="write", status="success")
    assert ["10.0"] == [call.call_id for call in views.tool_calls(conversation_id=one, limit=1)]


def test_tool_calls_of_one_moment_come_in_a_certain_order(
    store: EventStore, views: Views, cid: UUID
) -> None:
    """Also those that no message asked for, whose columns are NULL, on both databases alike."""
    store.append(
        cid,
        [
            *turn(0, "a"),
            e.ToolResult(call_id="x", content="who asked?"),
            e.ToolCall(call_id="y", name="search"),
            *turn(9, "b"),
        ],
    )
    assert ["12.0", "y", "x", "3.0"] == [call.call_id for call in views.tool_calls()]


def test_conversations_by_tenant_and_user(store: EventStore, views: Views) -> None:
    """The list is filtered by owner, and sorted by last activity."""
    cids = []
    for number, (tenant, user) in enumerate((("t1", "ann"), ("t1", "bob"), ("t2", "ann"))):
        cid = new_id()
        message = NewEvent(e.UserMessage.text("hi"), meta=at(10 - number))
        store.append(cid, [message], tenant_id=tenant, user_id=user)
        cids.append(cid)
    assert cids == [entry.conversation_id for entry in views.conversations()]
    assert cids[:2] == [entry.conversation_id for entry in views.conversations(tenant_id="t1")]
    assert [cids[0], cids[2]] == [
        entry.conversation_id for entry in views.conversations(user_id="ann")
    ]
    assert [cids[2]] == [
        entry.conversation_id for entry in views.conversations(tenant_id="t2", user_id="ann")
    ]
    assert [cids[0]] == [entry.conversation_id for entry in views.conversations(limit=1)]
    assert ("t1", "ann", 1) == (
        views.conversations()[0].tenant_id,
        views.conversations()[0].user_id,
        views.conversations()[0].version,
    )


def test_stable_views_have_the_declared_columns(store: EventStore, views: Views) -> None:
    """Names and order are those that the projection declares, and so alike on both databases."""
    with store.reading() as connection:
        inspector = inspect(connection)
        for projection in PROJECTIONS:
            for declared in projection.tables:
                names = [column["name"] for column in inspector.get_columns(declared.name)]
                declared_names = [column.name for column in declared.columns]
                assert ["conversation_id", *declared_names] == names
                assert declared.name in inspector.get_view_names()


def test_a_request_is_built_from_one_version(
    postgres_url: str, cid: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another session folds between two queries of a view is not half of the answer."""
    with EventStore.open(postgres_url) as store, EventStore.open(postgres_url) as other:
        store.append(cid, [e.UserMessage.text("one")])
        views, theirs = Views(store), Views(other)
        before = Views(store).context(cid)

        def interfere(source: SqlRowSource) -> list[ContextRow]:
            monkeypatch.undo()
            other.append(cid, [e.UserMessage.text("two")])
            theirs.context(cid)
            return source.latest_users()

        monkeypatch.setattr(SqlRowSource, "latest_users", interfere)
        during = views.context(cid)
        assert before == during
        assert 2 == len(views.context(cid).messages)


def test_an_append_to_a_new_database_goes_through_no_feed(fresh_postgres_url: str) -> None:
    """Of tables that were not analysed yet, it finds the event before by the key all the same."""
    with EventStore.open(fresh_postgres_url) as store:
        for _ in range(15):
            cid = new_id()
            for _ in range(2):
                store.append(cid, [e.UserMessage.text("hello")])
    with EventStore.open(fresh_postgres_url) as store, store.reading() as connection:
        query = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'ix_events_feed'"
        assert 0 == connection.exec_driver_sql(query).scalar_one()
