"""Following a timeline: deltas as they come, resumed anywhere, by threads, tasks and processes."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from contextlib import closing
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import AsyncEventStore, EventStore, new_id
from eventstore import events as e
from eventstore.errors import ConversationNotFound, OwnerMismatch
from eventstore.sql.backend import backend_of
from projections import AsyncViews, Views
from projections.engine import heads
from projections.engine.generations import find_live
from projections.models.timeline import TIMELINE
from projections.models.timeline_changes import (
    ItemAdded,
    ItemChanged,
    ItemsWithdrawn,
    TextAppended,
    TimelineReset,
    TimelineUpdate,
)
from projections.models.timeline_items import TimelineItem
from tests.projections.support import everything, in_thread, turn
from tests.properties.histories import payloads
from tests.scaled_settings import scaled_settings
from tests.warm import Programs

pytestmark = pytest.mark.exhaustive_when("postgresql")

QUIET_S = 0.2
STREAMED: list[e.Payload] = [
    e.UserMessage.text("hi"),
    e.LlmRequest(llm_call_id="c"),
    e.AssistantChunk(llm_call_id="c", index=0, text="Hel"),
    e.AssistantChunk(llm_call_id="c", index=1, text="lo, "),
    e.AssistantChunk(llm_call_id="c", index=2, text="you"),
    e.AssistantMessage.of("Hello, you", llm_call_id="c"),
]


def told(views: Views, cid: UUID, after: int) -> list[TimelineUpdate]:
    """Return the updates that there are now."""
    return list(views.follow(cid, after=after, timeout_s=0))


def applied(items: Sequence[TimelineItem], updates: Sequence[TimelineUpdate]) -> list[TimelineItem]:
    """Return the items of a screen after updates."""
    held = list(items)
    for update in updates:
        held = update.apply(held)
    return held


def test_a_place_that_a_fold_holds(store: EventStore, views: Views, cid: UUID) -> None:
    """A head without events, as a fold leaves one that another has overtaken, is no head."""
    store.append(cid, [e.ConversationStart(), *STREAMED])
    with store.writing() as connection:
        live = find_live(connection, TIMELINE)
        assert live is not None
        owner = backend_of(connection).from_id(cid)
        heads.insert(connection, heads.bind(owner, [heads.FoldHead(live, 0, {})]))
    items = applied([], told(views, cid, 0))
    assert ["hi", "Hello, you"] == [item.text for item in items if item.text]


def test_a_stream_comes_as_deltas(store: EventStore, views: Views, cid: UUID) -> None:
    """The first piece begins the item, each other is appended to it, the end has no text."""
    store.append(cid, STREAMED[:2])
    with closing(views.follow(cid, after=2)) as updates:
        for payload in STREAMED[2:]:
            store.append(cid, [payload])
        first, second, third, last = [next(updates) for _ in range(4)]
    assert [3, 4, 5, 6] == [update.version for update in (first, second, third, last)]
    [added] = first.changes
    assert isinstance(added, ItemAdded)
    assert ("Hel", "streaming") == (added.item.text, added.item.status)
    assert [(TextAppended(version=3, part=1, text="lo, "),)] == [second.changes]
    assert [(TextAppended(version=3, part=1, text="you"),)] == [third.changes]
    [ended] = last.changes
    assert isinstance(ended, ItemChanged)
    assert "complete" == ended.values["status"]
    assert "text" not in ended.values


@pytest.mark.parametrize("folded", range(7))
@pytest.mark.parametrize("after", range(7))
def test_it_is_resumed_anywhere(
    store: EventStore, views: Views, cid: UUID, after: int, folded: int
) -> None:
    """Wherever the screen stands, and wherever the rows stand."""
    store.append(cid, STREAMED[:folded] or STREAMED[:1])
    if folded:
        views.timeline(cid)
    if rest := STREAMED[max(folded, 1) :]:
        store.append(cid, rest)
    screen = views.timeline(cid, at=after)
    assert views.timeline(cid, at=6) == applied(screen, told(views, cid, after))


@scaled_settings(15)
@given(history=st.lists(payloads(), min_size=1, max_size=25), data=st.data())
def test_updates_make_what_the_view_shows(history: list[e.Payload], data: st.DataObject) -> None:
    """From any version, whichever is folded, in any history: the same timeline."""
    after = data.draw(st.integers(0, len(history)), "after")
    folded = data.draw(st.integers(0, len(history)), "folded")
    more = data.draw(st.integers(folded, len(history)), "there when following begins")
    cid = new_id()
    with EventStore.open("sqlite://") as store:
        views = Views(store)
        if folded:
            store.append(cid, history[:folded], allow_empty=True)
            views.timeline(cid)
        if history[folded:more]:
            store.append(cid, history[folded:more], allow_empty=True)
        if not more:
            return
        after = min(after, more)
        screen = views.timeline(cid, at=after)
        updates = views.follow(cid, after=after, timeout_s=0)
        if history[more:]:
            store.append(cid, history[more:], allow_empty=True)
        assert views.timeline(cid, at=len(history)) == applied(screen, list(updates))


def test_a_retraction_withdraws(store: EventStore, views: Views, cid: UUID) -> None:
    """One change for all of its items, wherever they began."""
    store.append(cid, turn(0, "a"))
    screen = views.timeline(cid)
    store.append(cid, [e.Retraction(versions=(e.VersionRange(first=2, last=7),))])
    [update] = told(views, cid, 7)
    assert ItemsWithdrawn(first=2, last=7) in update.changes
    assert views.timeline(cid) == update.apply(screen)


@pytest.mark.parametrize("folded", [False, True])
def test_an_erasure_tells_everything_anew(
    store: EventStore, views: Views, cid: UUID, *, folded: bool
) -> None:
    """What was said before cannot be made of changes any more; what comes later can."""
    store.append(cid, turn(0, "secret"))
    screen = views.timeline(cid)
    following = views.follow(cid, after=7, timeout_s=0)
    store.erase(cid, reason="asked")
    if folded:
        views.timeline(cid)
        following = views.follow(cid, after=7, timeout_s=0)
    store.append(cid, turn(8, "more"))
    updates = list(following)
    assert isinstance(updates[0].changes[0], TimelineReset)
    assert "secret" not in repr(updates)
    assert views.timeline(cid) == applied(screen, updates)


def test_followers_write_nothing(store: EventStore, views: Views, cid: UUID) -> None:
    """Ten of them read what comes, and every table is as it was."""
    store.append(cid, STREAMED[:3])
    views.timeline(cid)
    store.append(cid, STREAMED[3:4])
    before = everything(store)
    for _ in range(10):
        assert [4] == [update.version for update in told(views, cid, 3)]
    assert before == everything(store)


def test_it_waits_for_what_comes(store: EventStore, views: Views, cid: UUID) -> None:
    """A follower that stands at the end is woken by each append, of whichever thread."""
    store.append(cid, STREAMED[:2])
    seen: list[int] = []

    def follow() -> None:
        with closing(views.follow(cid, after=2)) as updates:
            for update in updates:
                seen.append(update.version)
                if update.version == len(STREAMED):
                    return

    thread, problems = in_thread(follow)
    for version, payload in enumerate(STREAMED[2:], 3):
        store.append(cid, [payload])
        while version not in seen:
            assert thread.is_alive() or version in seen
    thread.join()
    assert [] == problems


def test_another_process_is_followed(
    store: EventStore, views: Views, cid: UUID, programs: Programs
) -> None:
    """What is committed elsewhere comes as well."""
    store.append(cid, STREAMED[:2])
    url = store.engine.url.render_as_string(hide_password=False)
    program = (
        "import sys; from agent_eventstore import EventStore, events;"
        "store = EventStore.open(sys.argv[1]);"
        "store.append(sys.argv[2], events.UserMessage.text('from elsewhere'))"
    )
    with closing(views.follow(cid, after=2)) as updates:
        done = programs.start("-c", program, url, str(cid), stdout=subprocess.DEVNULL)
        update = next(updates)
        assert 0 == done.wait()
    [added] = update.changes
    assert isinstance(added, ItemAdded)
    assert "from elsewhere" == added.item.text


def test_it_ends_when_nothing_comes(store: EventStore, views: Views, cid: UUID) -> None:
    """After heartbeats, which change nothing and tell the version."""
    store.append(cid, STREAMED)
    updates = list(views.follow(cid, after=6, heartbeat_s=0.01, timeout_s=QUIET_S))
    assert updates
    assert {TimelineUpdate(version=6)} == {*updates}


def test_what_is_not_there_is_said_at_once(store: EventStore, views: Views, cid: UUID) -> None:
    """Before anything is awaited: a product answers a request with it."""
    with pytest.raises(ConversationNotFound):
        views.follow(cid)
    store.append(cid, STREAMED)
    for after in (-1, 7):
        with pytest.raises(ValueError, match="from 0 to 6"):
            views.follow(cid, after=after)


def test_a_purge_ends_it(store: EventStore, views: Views, cid: UUID) -> None:
    """A screen must not go on showing a conversation that no longer exists."""
    store.append(cid, STREAMED)
    with closing(views.follow(cid, timeout_s=60)) as updates:
        assert len(STREAMED) >= next(updates).version
        store.purge(cid, reason="asked to")
        with pytest.raises(ConversationNotFound):
            list(updates)


@pytest.mark.parametrize("heartbeat_s", [0, -1.0, float("nan")])
def test_heartbeats_need_a_pause(
    store: EventStore, views: Views, cid: UUID, heartbeat_s: float
) -> None:
    """Without one they would keep a processor and the database busy."""
    store.append(cid, STREAMED)
    with pytest.raises(ValueError, match="heartbeat_s must be above 0"):
        views.follow(cid, heartbeat_s=heartbeat_s)


def test_a_read_only_store_follows(store: EventStore, cid: UUID) -> None:
    """Also where nobody has ever folded."""
    store.append(cid, STREAMED)
    url = store.engine.url.render_as_string(hide_password=False)
    with EventStore.open(url, read_only=True) as reader:
        updates = told(Views(reader), cid, 0)
    assert Views(store).timeline(cid) == applied([], updates)


def test_tasks_follow(database_url: str, cid: UUID) -> None:
    """The asynchronous twin: many tasks, one of which is cancelled while it waits."""

    async def seen_by(views: AsyncViews) -> list[int]:
        seen = []
        async for update in views.follow(cid, after=2):
            seen.append(update.version)
            if update.version == len(STREAMED):
                break
        return seen

    async def main() -> None:
        async with await AsyncEventStore.open(database_url) as store:
            views = AsyncViews(store)
            await store.append(cid, STREAMED[:2])
            tasks = [asyncio.create_task(seen_by(views)) for _ in range(10)]
            waiting = asyncio.create_task(anext(views.follow(cid, after=2)))
            for payload in STREAMED[2:]:
                await store.append(cid, payload)
            assert [[3, 4, 5, 6]] * 10 == await asyncio.gather(*tasks)
            assert 3 == (await waiting).version
            left = asyncio.create_task(anext(views.follow(cid, after=6)))
            await asyncio.sleep(0)
            left.cancel()
            with pytest.raises(asyncio.CancelledError):
                await left
            with pytest.raises(ConversationNotFound):
                await anext(views.follow(new_id()))
            assert [] == [each async for each in views.follow(cid, after=6, timeout_s=0)]

    asyncio.run(main())


def test_a_conversation_of_others_is_not_followed(
    store: EventStore, views: Views, cid: UUID
) -> None:
    """Neither by naming its owner, nor on views that are bound to another one."""
    store.append(cid, STREAMED, user_id="ann")
    with pytest.raises(OwnerMismatch):
        views.follow(cid, user_id="bob")
    with pytest.raises(OwnerMismatch):
        views.for_owner(user_id="bob").follow(cid)
    assert told(views, cid, 0) == told(views.for_owner(user_id="ann"), cid, 0)
