"""A product's own projections, beside those of this package: one set for all that read and fold."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from agent_eventstore.cli import projections
from eventstore import EventStore, new_id
from eventstore import events as e
from projections import PROJECTIONS, Column, Projection, ProjectionSet, ReadTable, Views, worker
from projections.errors import InvalidProjection, UnknownProjection
from projections.upkeep import compare, rebuild, status
from tests.cli.program import run
from tests.projections.toys import NOTES, Notes

PLACE = f"{__name__}:SET"
SET = ProjectionSet([Notes()])


def say(store: EventStore, *words: str) -> Any:
    """Begin a conversation."""
    cid = new_id()
    store.append(cid, [e.UserMessage.text(word) for word in words])
    return cid


def marks(rows: list[dict[str, Any]]) -> list[int]:
    """Return what the rows have counted."""
    return [row["mark"] for row in rows]


def test_rows_are_never_stale(store: EventStore) -> None:
    """Of one conversation or of all, in order, and at most as many as were asked for."""
    views, cid = Views(store, SET), say(store, "one", "two")
    assert [1, 2] == marks(views.rows("notes", conversation_id=cid))
    store.append(cid, [e.UserMessage.text("three")])
    say(store, "other")
    assert [1, 1, 2, 3] == sorted(marks(views.rows("notes")))
    assert [1, 2] == marks(views.rows("notes", conversation_id=cid, limit=2))
    assert "one" == views.rows("timeline_items", conversation_id=cid)[0]["text"]
    with pytest.raises(UnknownProjection, match="nothing"):
        views.rows("nothing")
    with pytest.raises(UnknownProjection):
        Views(store).rows("notes")


def test_a_read_only_store_folds_it_in_memory(store: EventStore, database_url: str) -> None:
    """Whoever may not write finds the rows too."""
    cid = say(store, "one")
    with EventStore.open(database_url, read_only=True) as replica:
        assert [1] == marks(Views(replica, SET).rows("notes", conversation_id=cid))


@pytest.mark.parametrize("workers", [1, 2])
def test_everything_that_folds_takes_the_set(store: EventStore, workers: int) -> None:
    """Worker, status, rebuild in one process and in several, comparison; an erasure reaches it."""
    cid = say(store, "one", "two")
    worker.run(store, projections=SET, once=True)
    assert {"notes": 0} == {each.name: each.behind for each in status(store, SET.own)}
    assert len(PROJECTIONS) + 1 == len(rebuild(store, projections=SET, workers=workers).projections)
    report = compare(store, ["notes"], projections=SET)
    assert (True, 2) == (report.ok, report.rows)
    store.erase(cid, reason="asked for")
    with store.reading() as connection:
        assert [] == connection.exec_driver_sql("SELECT * FROM notes").all()
    assert compare(store, projections=SET).ok


def test_workers_leave_the_tables_of_others_alone(store: EventStore) -> None:
    """One that was not told of a product's projections neither folds nor drops them."""
    cid = say(store, "one")
    views = Views(store, SET)
    views.rows("notes")
    store.append(cid, [e.UserMessage.text("two")])
    worker.run(store, once=True)
    rebuild(store)
    assert [1] == [each.behind for each in status(store, SET.own)]
    assert [1, 2] == marks(views.rows("notes"))


def column(name: str, kind: Any = "text") -> ReadTable:
    """Declare a table with such a column."""
    return replace(NOTES, columns=(*NOTES.columns, Column(name, kind)))


@pytest.mark.parametrize(
    ("projection", "reason"),
    [
        (Notes(name="timeline"), "already"),
        (Notes(name="Drop Table"), "of a-z, 0-9"),
        (Notes(version=0), "at least 1"),
        (Notes(tables=()), "at least one table"),
        (Notes(tables=(NOTES, NOTES)), "at least one table"),
        (Notes(tables=(replace(NOTES, name="events"),)), "'events' is already taken"),
        (Notes(tables=(replace(NOTES, name="tool_calls"),)), "'tool_calls' is already taken"),
        (Notes(tables=(replace(NOTES, name="no;te"),)), "not valid"),
        (Notes(tables=(column("conversation_id"),)), "valid names and known types"),
        (Notes(tables=(column("x y"),)), "valid names and known types"),
        (Notes(tables=(column("text"),)), "valid names and known types"),
        (Notes(tables=(column("x", "blob"),)), "valid names and known types"),
        (Notes(tables=(replace(NOTES, key=("none",)),)), "does not exist"),
        (Notes(tables=(replace(NOTES, indexes=(("none",),)),)), "does not exist"),
        (Notes(tables=(replace(NOTES, sparse=("none",)),)), "does not exist"),
        (Notes(tables=(replace(column("x", "json"), lookups=(("x",),)),)), "names a json column"),
        (Notes(tables=(replace(NOTES, name="directory_g2"),)), "generations are named"),
        (Notes(tables=(replace(NOTES, key=("conversation_id", *NOTES.key)),)), "every key has it"),
    ],
    ids=range(18),
)
def test_what_cannot_be_made_is_refused(projection: Projection, reason: str) -> None:
    """Where the set is made, with the name of the projection; no database is asked."""
    with pytest.raises(InvalidProjection, match=reason) as caught:
        ProjectionSet([projection])
    assert projection.name == caught.value.name


def test_names_may_be_long_or_words_of_sql(store: EventStore) -> None:
    """PostgreSQL refused their indexes, which SQLite had made."""
    names = ("user", "x" * 40)
    columns = (*NOTES.columns, *(Column(name, "text") for name in names))
    table = replace(NOTES, name="n" * 40, columns=columns, sparse=names, lookups=(names,))
    assert [] == Views(store, ProjectionSet([Notes(tables=(table,))])).rows(table.name)


def test_names_are_taken_once() -> None:
    """Two of the product's own may not share one either."""
    with pytest.raises(InvalidProjection, match="already"):
        ProjectionSet([Notes(), Notes(version=2)])
    with pytest.raises(InvalidProjection, match="taken"):
        ProjectionSet([Notes(), Notes(name="others")])


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nowhere", "takes MODULE:NAME"),
        ("nowhere:SET", "No module named 'nowhere'"),
        (f"{__name__}:NOTHING", "has no attribute 'NOTHING'"),
        (f"{__name__}:PLACE", "is not a projection: it is str"),
        (f"{__name__}:WRONG", "already"),
    ],
)
def test_the_command_says_what_it_cannot_find(
    store: EventStore, database_url: str, place: str, said: str
) -> None:
    """In a line, with the place."""
    done = run("projections", "status", "--projections", place, url=database_url)
    assert (2, "") == (done.status, done.out)
    assert said in done.err


WRONG = [Notes(name="timeline")]


def test_the_command_finds_entry_points(
    store: EventStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an installed package names needs no option; named twice it is one."""
    Views(store, SET)
    entry = EntryPoint("notes", PLACE, projections.ENTRY_POINTS)
    monkeypatch.setattr(projections, "entry_points", lambda group: [entry])
    for option in ((), ("--projections", PLACE)):
        found = run("projections", "status", "--json", *option, url=database_url).document
        assert "notes" == found["projections"][-1]["name"]
        assert len(SET) == len(found["projections"])
    broken = EntryPoint("notes", "nowhere:SET", projections.ENTRY_POINTS)
    monkeypatch.setattr(projections, "entry_points", lambda group: [broken])
    assert "entry point notes = nowhere:SET" in run("doctor", url=database_url).err
