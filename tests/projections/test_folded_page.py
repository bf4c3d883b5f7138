"""A page of a rebuild leaves what catching up leaves, whoever else is at the same work."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.sql.backend import backend_of
from projections import Views, upkeep
from projections.catalogue import PROJECTIONS
from projections.engine import catch_up as engine
from projections.engine import generations, tables
from projections.engine import rebuild as rebuilding
from projections.engine.catch_up import catch_up
from projections.engine.generations import Generation
from tests.projections.support import converse, expected, live_of, stored
from tests.projections.toys import Notes

pytestmark = pytest.mark.exhaustive_when("postgresql")

AWKWARD = "NUL \x00, half a pair \ud800, a tab \t, a line\n, \\N and \\."


@pytest.fixture
def targets(store: EventStore, views: Views) -> list[Generation]:
    """Give generations that a rebuild has begun."""
    with store.writing() as connection:
        return [generations.start_building(connection, each, None) for each in PROJECTIONS]


def finish(store: EventStore, targets: Sequence[Generation], *cids: UUID) -> None:
    """Rebuild the conversations as one page, and make it live."""
    page = [(cid, store.get(cid).version) for cid in sorted(cids)]
    rebuilding._rebuild_page(store, targets, page)
    rebuilding._finish(store, targets)


def check(store: EventStore, *cids: UUID) -> None:
    """Expect the live tables to hold what each conversation's events say."""
    for cid in cids:
        assert expected(store.read(cid)) == stored(store, cid)


def test_texts_that_a_bulk_format_would_break(
    store: EventStore, targets: Sequence[Generation]
) -> None:
    """Whatever a text holds comes back, also where it passes through ``COPY``."""
    cid = converse(store, 1, word=AWKWARD)
    store.append(cid, [e.UserMessage.text(AWKWARD), e.Notebook(text=AWKWARD, name="\\N")])
    finish(store, targets, cid)
    check(store, cid)
    assert [AWKWARD, AWKWARD] == [item.text for item in Views(store).timeline(cid)][-2:]


def test_what_somebody_else_has_folded_is_kept(
    store: EventStore, targets: Sequence[Generation]
) -> None:
    """Another rebuild may have folded some of a page, in part or whole; nothing is there twice."""
    whole, half, untouched = (converse(store, 2) for _ in range(3))
    with store.writing() as connection:
        catch_up(connection, targets, whole)
        catch_up(connection, targets[:3], half, before=5)
    finish(store, targets, whole, half, untouched)
    check(store, whole, half, untouched)


def test_what_was_erased_meanwhile_is_not_written(
    store: EventStore, targets: Sequence[Generation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure between the folding and the writing of a page leaves nothing of what was said."""
    kept, erased = converse(store, 1, word="kept"), converse(store, 1, word="secret")
    save = rebuilding._save_counts

    def erase_then_save(*arguments: object) -> None:
        store.erase(erased, reason="asked to")
        save(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(rebuilding, "_save_counts", erase_then_save)
    finish(store, targets, kept, erased)
    check(store, kept, erased)
    assert "secret" not in str(stored(store, erased))


def test_a_long_conversation_is_folded_by_pages(
    store: EventStore, targets: Sequence[Generation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on after the pages that an earlier start has written."""
    monkeypatch.setattr(rebuilding, "_PAGE_EVENTS", 10)
    monkeypatch.setattr(engine, "PIECE", 2)
    cid, short = converse(store, 5), converse(store, 1)
    with store.writing() as connection:
        catch_up(connection, targets, cid, before=21)
    finish(store, targets, cid, short)
    check(store, cid, short)


def test_a_rebuild_that_ended_within_a_conversation_goes_on(
    store: EventStore, targets: Sequence[Generation]
) -> None:
    """A conversation of which some pages are written still counts as missing."""
    cid = converse(store, 5)
    with store.writing() as connection:
        catch_up(connection, targets, cid, before=21)
    report = upkeep.rebuild(store)
    assert (1, 35) == (report.conversations, report.events)
    check(store, cid)


def test_a_column_that_is_not_there_is_refused(store: EventStore) -> None:
    """A fold that names a column which its table lacks fails, as when it is caught up."""
    table = tables.tables_of(Notes(), 1)["notes"]
    with store.reading() as connection:
        backend = backend_of(connection)
    with pytest.raises(KeyError, match="nonsense"):
        tables.bind_new(table, backend, {str(new_id()): {(1, 0): {"nonsense": 1}}})


def test_rebuilds_of_several_machines_share_the_work(
    store: EventStore,
    targets: Sequence[Generation],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two that run at once go on with one generation, and neither makes it live too early."""
    monkeypatch.setattr(rebuilding, "_PAGE_EVENTS", 10)
    monkeypatch.setattr(engine, "PIECE", 2)
    cids = [converse(store, 2) for _ in range(12)]
    url = store.engine.url.render_as_string(hide_password=False)
    with ThreadPoolExecutor(2) as machines, EventStore.open(url) as another:
        reports = list(machines.map(upkeep.rebuild, (store, another)))
    check(store, *cids)
    assert len(cids) <= sum(report.conversations for report in reports)
    assert [target.number for target in targets] == [
        live_of(store, target.projection).number for target in targets
    ]
