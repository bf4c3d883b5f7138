"""The past by replay equals what was read when it was the present, at every version."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore
from eventstore.errors import ConversationNotFound
from projections import Views
from projections.models.runs import RUNS, RunState
from tests.projections.support import everything
from tests.run_story import STORY, story
from tests.unit.projections.history import apply, fold

pytestmark = pytest.mark.exhaustive_when("postgresql")


def ask(views: Views, cid: UUID, at: int | None = None) -> dict[str, Any]:
    """Return what every view of one conversation answers."""
    return {
        "run_state": views.run_state(cid, at=at),
        "timeline": views.timeline(cid, at=at),
        "context": views.context(cid, max_tokens=900, mode="run", at=at),
    }


def versions(store: EventStore) -> range:
    """Return the versions to look at: all of them, but some are enough of the other database.

    Where the events were read from makes no difference to how they are replayed.
    """
    step = 1 if store.engine.dialect.name == "sqlite" else 5
    return range(1, len(STORY) + 1, step)


def folded(store: EventStore, cid: UUID, version: int) -> RunState:
    """Return the state that a process holds which folds the events itself, as they come."""
    tables = apply(fold(RUNS, store.read(cid, before=version + 1))[1], RUNS)

    def rows(name: str, *order: str) -> list[dict[str, Any]]:
        found = [{"conversation_id": cid, **row} for row in tables.get(name, {}).values()]
        return sorted(found, key=lambda row: [row[each] for each in order])

    state = rows("conversation_state")
    return RunState.from_rows(
        cid,
        state[0] if state else None,
        rows("runs", "started_version"),
        rows("run_nodes", "run_id", "ordinal"),
        rows("run_artifacts", "run_id", "node_id", "name"),
    )


def test_the_past_is_what_the_present_was(store: EventStore, views: Views, cid: UUID) -> None:
    """At every version, replay answers what the views answered when that was the last one."""
    present = {}
    for version, event in enumerate(story(), start=1):
        store.append(cid, [event])
        if version in versions(store):
            present[version] = ask(views, cid)

    for version, answers in present.items():
        assert answers == ask(views, cid, at=version)


def test_the_state_after_a_crash_is_the_dead_process_s(
    installed: None, database_url: str, store: EventStore, cid: UUID
) -> None:
    """A process that begins anew reads, at every event, the state that a live fold held."""
    store.append(cid, story())

    with EventStore.open(database_url) as restarted:
        views = Views(restarted)
        for version in (0, *versions(store)):
            assert folded(store, cid, version) == views.state_at(cid, version=version)


def test_nothing_is_written(store: EventStore, views: Views, cid: UUID) -> None:
    """Looking at the past leaves every table as it was."""
    store.append(cid, story())
    before = everything(store)

    views.state_at(cid, 20)
    views.timeline(cid, at=20)
    views.context(cid, at=20, mode="run")

    assert before == everything(store)


def test_a_read_only_store_shows_the_past(
    database_url: str, store: EventStore, views: Views, cid: UUID
) -> None:
    """A replica answers as the primary does."""
    store.append(cid, story())

    with EventStore.open(database_url, read_only=True) as replica:
        assert views.state_at(cid, 30) == Views(replica).state_at(cid, 30)


def test_a_read_only_store_injects_the_run(
    database_url: str, store: EventStore, views: Views, cid: UUID
) -> None:
    """What a replica has not folded of context and run is folded in memory, both of one version."""
    store.append(cid, story(10))

    with EventStore.open(database_url, read_only=True) as replica:
        assert (
            Views(replica).context(cid, mode="run").messages
            == views.context(cid, mode="run").messages
        )


def test_before_the_first_event_there_is_nothing(
    store: EventStore, views: Views, cid: UUID
) -> None:
    """Version 0 is the empty conversation."""
    store.append(cid, story())

    assert RunState(conversation_id=cid) == views.state_at(cid, 0)
    assert [] == views.timeline(cid, at=0)


@pytest.mark.parametrize("version", [-1, len(STORY) + 1])
def test_a_version_that_never_was_is_an_error(
    store: EventStore, views: Views, cid: UUID, version: int
) -> None:
    """The message names the versions that there are."""
    store.append(cid, story())

    with pytest.raises(ValueError, match=f"no version {version}: ask for one from 0 to 46"):
        views.state_at(cid, version)


def test_an_unknown_conversation_has_no_past(views: Views, cid: UUID) -> None:
    """It is the same error as for the present."""
    with pytest.raises(ConversationNotFound):
        views.state_at(cid, 0)


def test_what_was_erased_is_not_in_the_past(store: EventStore, views: Views, cid: UUID) -> None:
    """Replay reads the events as they are now: an erased directive is gone from every version."""
    store.append(cid, story())
    store.erase(cid, reason="asked for", versions=[4])

    assert [None] == [run.directive for run in views.state_at(cid, 10).runs]
