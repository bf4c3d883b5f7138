"""Erasure takes what projections made of a payload, whatever runs beside it."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import inspect, make_url

from eventstore import EventStore
from eventstore import events as e
from eventstore.erasure import erase
from eventstore.sql.migrate import VERSION_TABLE
from eventstore.sql.schema import derived_tables, metadata_for
from projections import Views
from projections.catalogue import PROJECTIONS, SHARED_TABLES
from projections.context import search_tables
from projections.engine.catch_up import catch_up
from projections.engine.follower import catch_up_behind
from projections.engine.generations import start_building
from projections.engine.setup import install_all
from projections.upkeep import compare, rebuild
from tests.projections.support import (
    converse,
    everything,
    expected,
    in_thread,
    live_of,
    read_all_views,
    stored,
    turn,
    wait_until_blocked,
)

MARKER = "Zanzibar"


def marked(store: EventStore, cid: UUID) -> None:
    """Append the marker in every kind of payload that a view shows."""
    node = e.RunNode(node_id="n1", title=MARKER)
    report = e.Artifact(name="report", content={"a": MARKER})
    events = [
        e.ConversationStart(title=MARKER, base_instructions=MARKER),
        e.RunStart(run_id="r1", workflow_id="w", directive=MARKER, nodes=(node,)),
        e.RunStepStart(run_id="r1", node_id="n1", brief=MARKER),
        *turn(3, MARKER),
        e.RunStepEnd(run_id="r1", node_id="n1", status="completed", artifacts=(report,)),
        e.AssistantChunk(llm_call_id="open", index=0, text=MARKER),
        e.LlmError(llm_call_id="bad", kind="network", message=MARKER, partial_text=MARKER),
        e.ToolCall(call_id="99.0", name="search", arguments={"query": MARKER}),
        e.Notebook(text=MARKER),
        e.Summary(text=MARKER, versions=(e.VersionRange(first=4, last=5),)),
        e.ToolResult(call_id="98.0", content=MARKER * 20_000),
    ]
    store.append(cid, events)


def holding(store: EventStore) -> list[str]:
    """Return the tables that hold the marker, by name."""
    tables = everything(store)
    return sorted(name for name, rows in tables.items() if any(MARKER in row for row in rows))


def test_no_table_holds_what_was_erased(store: EventStore, views: Views, cid: UUID) -> None:
    """Not a row, not a fold's state, in no generation: also not one that is being built."""
    marked(store, cid)
    other = converse(store, 1)
    read_all_views(views, cid)
    rebuild(store, ["timeline"])
    with store.writing() as connection:
        half = [start_building(connection, each, None) for each in PROJECTIONS]
        catch_up(connection, half, cid)
    assert len(holding(store)) > 10
    store.erase(cid, reason="asked for")
    assert [] == holding(store)
    read_all_views(views, cid)
    rebuild(store)
    assert [] == holding(store)
    assert compare(store).ok
    assert expected(store.read(other)) == stored(store, other)


def test_every_table_with_rows_of_conversations_is_registered(store: EventStore) -> None:
    """Erasing finds what is beside the log by registries alone: whoever makes one, names it."""
    converse(store, 1)
    install_all(store, PROJECTIONS)
    search_tables.create(store)
    with store.reading() as connection:
        derived = derived_tables(connection)
        log = metadata_for(connection.dialect.name).tables
        there = {*inspect(connection).get_table_names()} - {*log, VERSION_TABLE}
    indexes = {name for name in there if re.search("_beside|^search_(terms|postings)", name)}
    assert there - indexes == {*derived}
    assert {*derived[-len(SHARED_TABLES) :]} == {*SHARED_TABLES}


def test_a_sqlite_file_holds_no_byte_of_it(sqlite_url: str, cid: UUID) -> None:
    """Not in a free page, not in a table that a rebuild has dropped, not in the log."""
    with EventStore.open(sqlite_url) as store:
        marked(store, cid)
        views = Views(store)
        read_all_views(views, cid)
        store.append(cid, [e.AssistantChunk(llm_call_id="open", index=1, text="more")])
        read_all_views(views, cid)
        rebuild(store)
        store.erase(cid, reason="asked for")
        read_all_views(views, cid)
    path = Path(str(make_url(sqlite_url).database))
    files = [file for file in path.parent.iterdir() if file.name.startswith(path.name)]
    assert [] == [file.name for file in files if MARKER.encode() in file.read_bytes()]


def test_erasing_some_versions_leaves_the_rest(store: EventStore, views: Views, cid: UUID) -> None:
    """The rows of what was kept are folded anew; those of what is gone hold nothing of it."""
    store.append(cid, [e.UserMessage.text(MARKER), e.UserMessage.text("kept")])
    read_all_views(views, cid)
    store.erase(cid, reason="asked for", versions=[1])
    assert "kept" in [item.text for item in views.timeline(cid)]
    assert [{"role": "user", "content": "kept"}] == list(views.context(cid).messages)
    assert expected(store.read(cid), [PROJECTIONS[1]]) == stored(store, cid, [PROJECTIONS[1]])
    assert [] == holding(store)


def test_erasing_waits_for_a_catch_up(postgres_url: str, cid: UUID) -> None:
    """A fold that has read the payload writes its rows first; then they are erased too."""
    with EventStore.open(postgres_url) as store:
        Views(store)
        marked(store, cid)
        live = [live_of(store, projection) for projection in PROJECTIONS]
        with store.writing() as connection:
            catch_up(connection, live, cid)
            thread, problems = in_thread(lambda: store.erase(cid, reason="asked for"))
            wait_until_blocked(store, thread)
            assert thread.is_alive()
        thread.join(30)
        assert [] == problems
        assert [] == holding(store)
        assert compare(store).ok


def test_a_catch_up_waits_for_an_erasure(postgres_url: str, cid: UUID) -> None:
    """What begins to fold while an erasure is under way reads the erased events."""
    with EventStore.open(postgres_url) as store:
        Views(store)
        marked(store, cid)
        with store.writing() as connection:
            erase.erase(connection, cid, erase.Erasing("asked for", store.clock()))
            thread, problems = in_thread(lambda: catch_up_behind(store, PROJECTIONS))
            wait_until_blocked(store, thread)
        thread.join(30)
        assert [] == problems
        assert [] == holding(store)
        assert compare(store).ok


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_process_forgets_what_another_erased(
    store: EventStore, cid: UUID, again: bool, each: bool
) -> None:
    """What a living process has in memory of a conversation is not shown any more."""
    views = Views(store)
    marked(store, cid)
    store.append(cid, [e.UserMessage.text(f"who was in {MARKER}?")])
    assert MARKER in repr(read_all_views(views, cid))
    assert MARKER in repr(views.context(cid, max_tokens=2_000).messages)
    with EventStore.open(store.engine.url) as other:
        versions = range(1, other.get(cid).version + 1) if each else None
        other.erase(cid, reason="asked for", versions=versions)
        if again:
            other.append(cid, [e.UserMessage.text("again")])
            Views(other).context(cid)
    assert MARKER not in repr(views.context(cid, max_tokens=2_000).messages)
    assert MARKER not in repr(read_all_views(views, cid))
    assert MARKER not in repr(views.context(cid).messages)
