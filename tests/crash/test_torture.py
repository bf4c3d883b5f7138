"""The torture kit: nothing is lost on either database, and what is lost would be told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from agent_eventstore.cli import cli
from eventstore import EventStore, new_id
from eventstore.events import UserMessage
from tests.cli.program import run
from tests.crash.tortured import TORTURE
from tests.pgbouncer import PgBouncer, needs_pgbouncer
from tests.warm import Programs
from torture import SCENARIOS, Findings, Report, command, lacks
from torture.checking import audit_deliveries, audit_stream, check
from torture.plan import Ack, Batch, Delivered, Notes, Plan, Tally
from torture.run import planned

STREAM = UUID(int=1)
BATCH = Batch("writer-0.0", STREAM, 3)
ACK = Ack(BATCH, 1)
STORED = [(1, "writer-0.0.0.3"), (2, "writer-0.0.1.3"), (3, "writer-0.0.2.3")]
HANDED: list[Delivered] = [(STREAM, 1), (STREAM, 2), (STREAM, 3)]


@pytest.fixture(autouse=True)
def _torture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.commands, "torture", command.torture)


def reported(programs: Programs, store: EventStore, *what: str) -> list[dict[str, Any]]:
    """Torture a database by a program of its own; return what it reported."""
    url = store.engine.url.render_as_string(hide_password=False)
    done = programs.run("-m", "tests.crash.tortured", url, *what)
    assert 0 == done.returncode, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def tortured(programs: Programs, store: EventStore, directory: Path) -> tuple[Plan, dict[str, Any]]:
    """Torture a database; return the plan and the report."""
    (report,) = reported(programs, store, str(directory))
    return replace(planned(store, TORTURE, directory), run=UUID(report["run"])), report


def drop_a_delivery(plan: Plan, _: EventStore) -> None:
    """Take one event away from what a reader was handed."""
    notes = plan.notes("reader-1")
    notes.write_bytes(notes.read_bytes()[:-24])


def doctor_a_view(plan: Plan, store: EventStore) -> None:
    """Change a row of a live view behind the store's back: other tests use the database too."""
    own = next(iter(plan.heads(store)))
    with store.writing() as connection:
        find = "SELECT generation FROM projections WHERE name = 'directory' AND status = 'live'"
        number = connection.execute(text(find)).scalar_one()
        changed = connection.execute(
            text(
                f"UPDATE directory_g{number} SET title = 'doctored' "
                "WHERE CAST(conversation_id AS text) = :own"
            ),
            {"own": str(own)},
        )
        assert 1 == changed.rowcount


@pytest.mark.exhaustive_when("sqlite")
def test_nothing_is_lost_and_tampering_is_told(
    programs: Programs, shared_url: str, open_store: Callable[[str], EventStore], tmp_path: Path
) -> None:
    """A short run ends with zeros; a dropped delivery and a doctored view are each counted."""
    store = open_store(shared_url)
    plan, report = tortured(programs, store, tmp_path)
    assert report["acknowledged"] >= 300
    assert Findings() == Findings(**report["findings"]) + check(plan, processes=0)

    drop_a_delivery(plan, store)
    doctor_a_view(plan, store)
    told: list[str] = []
    # Each process costs a second: two of them check the run that `make test` leaves out.
    processes = 2 if store.engine.dialect.name == "sqlite" else 1
    found = check(plan, processes=processes, on_phase=told.append)
    assert Findings(missed=1) == replace(found, views=0)
    assert found.views > 0
    assert f"{len(told)} of {len(told)} checked" == " ".join(told[-1].split()[:4])


@pytest.mark.exhaustive_when("postgresql")
def test_every_scenario_ends_with_zeros(
    programs: Programs, shared_url: str, open_store: Callable[[str], EventStore]
) -> None:
    """Forks, stopped processes, and databases that go back: only what recorders named is gone."""
    store = open_store(shared_url)
    names = [name for name in SCENARIOS if name != "kills" and lacks(store, name) is None]
    reports = reported(programs, store, *names)

    assert names == [report["scenario"] for report in reports]
    assert {} == {
        report["scenario"]: report
        for report in reports
        if Findings() != Findings(**report["findings"]) or report["acknowledged"] < 150
    }
    done = {name: report["counts"] for name, report in zip(names, reports, strict=True)}
    assert done["forks"]["forks"] > 0
    assert all(done[name]["setbacks"] > 0 for name in names if name in ("failover", "restore"))


@needs_pgbouncer
def test_nothing_is_lost_behind_a_pooler(
    programs: Programs, postgres_server_url: str, postgres_url: str
) -> None:
    """PgBouncer in transaction mode, with four connections for all processes of the run."""
    with PgBouncer(postgres_server_url, pool_size=4) as pooler:
        with EventStore.open(pooler.url(postgres_url)) as store:
            (report,) = reported(programs, store, "kills")
    assert (Findings(), True) == (Findings(**report["findings"]), report["acknowledged"] >= 150)


def test_scenario_that_the_database_cannot_have(sqlite_url: str) -> None:
    """SQLite has no standby: asked for by name it is refused, and with all of them left out."""
    EventStore.open(sqlite_url).close()
    done = run("torture", "--scenario", "failover", url=sqlite_url)
    assert (2, True) == (done.status, "failover cannot run: SQLite has no standby" in done.err)


def test_acknowledged_events_are_counted_once(tmp_path: Path) -> None:
    """Notes that grow between two looks are read on from where the last one ended."""
    tally = Tally(lambda: [tmp_path / "writer-0", tmp_path / "writer-1"])
    assert 0 == tally.events()
    with Notes(tmp_path / "writer-0") as notes:
        notes.tries(BATCH)
        assert 0 == tally.events()
        notes.acknowledged(BATCH, 1)
        assert [3, 3] == [tally.events(), tally.events()]
        notes.acknowledged(BATCH, 4)
    assert 6 == tally.events()


def test_writers_share_conversations_and_go_on_to_new_ones(sqlite_url: str, tmp_path: Path) -> None:
    """At each stage all but one are those of every writer; none comes back at a later stage."""
    with EventStore.open(sqlite_url) as store:
        plan = planned(store, TORTURE, tmp_path)
    first, other, later = plan.streams("a", 0), plan.streams("b", 499), plan.streams("a", 500)
    assert first[:-1] == other[:-1]
    assert first[-1] != other[-1]
    assert first == plan.streams("a", 499)
    assert set() == {*first} & {*later}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (STORED, Findings()),
        (STORED[:2], Findings(missed=1, torn=1)),
        ([], Findings(missed=3)),
        ([*STORED, (4, "writer-0.0.2.3")], Findings(duplicated=1)),
        ([*STORED, (4, "writer-0.1.0.1")], Findings(misnamed=1)),
        ([STORED[0], (2, STORED[2][1]), (3, STORED[1][1])], Findings(out_of_order=4)),
    ],
    ids=["whole", "torn", "lost", "doubled", "misnamed", "swapped"],
)
def test_log_is_compared_with_acks(stored: list[tuple[int, str]], expected: Findings) -> None:
    """What was acknowledged and is missing, doubled or elsewhere, or there and said to be lost."""
    assert expected == audit_stream(stored, [ACK], [Batch("writer-0.1", STREAM, 1)])


@pytest.mark.parametrize(
    ("handed", "expected"),
    [
        (HANDED, Findings()),
        (HANDED[:2], Findings(missed=1)),
        ([HANDED[0], HANDED[2]], Findings(missed=1)),
        ([*HANDED, HANDED[1]], Findings(duplicated=1)),
        ([HANDED[1], HANDED[0], HANDED[2]], Findings(out_of_order=1)),
        ([*HANDED, (STREAM, 4)], Findings(out_of_order=1)),
    ],
    ids=["whole", "last dropped", "one dropped", "doubled", "swapped", "never stored"],
)
def test_deliveries_are_compared_with_the_log(handed: list[Delivered], expected: Findings) -> None:
    """What a reader was not handed, or twice, or out of order, is counted."""
    assert expected == audit_deliveries(handed, {STREAM: 3})


@pytest.mark.parametrize(
    ("acknowledged", "findings", "status"),
    [(10, Findings(), 0), (10, Findings(views=1), 1), (0, Findings(), 1)],
)
def test_exit_status_tells_what_was_found(
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    acknowledged: int,
    findings: Findings,
    status: int,
) -> None:
    """The command ends with 1 if anything was found, or nothing was there to be lost."""
    EventStore.open(sqlite_url).close()
    done = Report("db", STREAM, "kills", 1, 1.0, acknowledged, 10, (10, 10), {"kills": 1}, findings)
    monkeypatch.setattr(command, "run", lambda *_, **__: done)
    assert status == run("torture", url=sqlite_url).status
    told = run("torture", "--json", url=sqlite_url)
    assert (status, status == 0) == (told.status, told.document["ok"])


def test_database_with_other_conversations_needs_a_yes(database_url: str) -> None:
    """A database that holds anything else is not tortured unasked, and stays as it is."""
    with EventStore.open(database_url) as store:
        store.append(new_id(), [UserMessage.text("hello")])
        done = run("torture", url=database_url)
        assert (2, True, 1) == (done.status, "--yes" in done.err, len(store.list()))
