"""``projections``: status, rebuild, comparison and the worker."""

from __future__ import annotations

import io
import os
import signal
import sqlite3
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console
from sqlalchemy import make_url

from agent_eventstore.cli import projections, render
from eventstore import EventStore
from projections import PROJECTIONS, ProjectionSet, worker
from projections.engine.lag import Lag, ProjectionStatus
from projections.engine.rebuild import RebuildReport
from projections.upkeep import rebuild
from tests.cli.program import run
from tests.projections.toys import OURS

NAMES = [each.name for each in PROJECTIONS]


def test_status_names_every_projection(imported: str) -> None:
    """Each projection is shown with its version and what is behind."""
    found = run("projections", "status", "--json", url=imported).document
    shown = run("projections", "status", url=imported).out.splitlines()[2 : 2 + len(NAMES)]
    assert NAMES == [each["name"] for each in found["projections"]]
    assert NAMES == [line.split()[0] for line in shown]


def test_status_names_them_whole_while_all_columns_are_full() -> None:
    """In 80 columns the tail and the rebuild are broken into lines, and no name is cut."""
    lag = Lag(events=123_456, seconds=3_700.0)
    full = [
        ProjectionStatus(name, 12, 34, 11, 1_234_567, 1_234_567, lag, 35, 1_234_567)
        for name in NAMES
    ]
    with (console := Console(width=80, file=io.StringIO())).capture() as shown:
        console.print(render.status_table(full))
    lines = shown.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert NAMES == [line.split()[0] for line in lines[2:] if not line.startswith(" ")]
    assert "…" not in shown.get()


def test_status_before_anything_was_read(own: str) -> None:
    """A store that nobody has read has no live generation yet, which is not an error."""
    found = run("projections", "status", "--json", url=own).document
    assert [None] * len(NAMES) == [each["generation"] for each in found["projections"]]
    assert 0 == run("projections", "status", url=own).status


def test_worker_once_leaves_nothing_behind(own_anywhere: str) -> None:
    """``run --once`` catches up everything and ends."""
    done = run("projections", "run", "--once", url=own_anywhere)
    found = run("projections", "status", "--json", url=own_anywhere).document
    assert 0 == done.status
    assert {0} == {each["behind"] for each in found["projections"]}
    assert {0} == {each["lag"]["events"] for each in found["projections"]}


def test_rebuild_of_all(own_anywhere: str) -> None:
    """A rebuild makes a new generation of every projection, and changes nothing that is read."""
    before = run("tools", "--json", url=own_anywhere).document
    report = run("projections", "rebuild", "--json", url=own_anywhere).document
    assert (NAMES, 2, 12) == (report["projections"], report["conversations"], report["events"])
    assert before == run("tools", "--json", url=own_anywhere).document


def test_rebuild_in_words(own: str) -> None:
    """Without ``--json`` one sentence tells what was rebuilt."""
    done = run("projections", "rebuild", "usage", "timeline", url=own)
    assert done.out.startswith("rebuilt usage, timeline: 2 conversations, 12 events in ")


def test_rebuild_with_workers(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many processes as are asked for rebuild the same."""
    asked: list[int] = []

    def rebuilt(store: EventStore, names: Sequence[str] | None, **options: Any) -> RebuildReport:
        asked.append(options.pop("workers"))
        return rebuild(store, names, **options)

    # What several processes make is for the tests of the rebuild; here it is told how many.
    monkeypatch.setattr(projections, "rebuild_projections", rebuilt)
    run("projections", "rebuild", "--workers", "2", url=own)
    assert [2] == asked
    assert 0 == run("projections", "rebuild", "--diff", url=own).status


def test_diff_of_untouched_tables(imported: str) -> None:
    """Live tables equal a fresh fold."""
    done = run("projections", "rebuild", "--diff", url=imported)
    assert 0 == done.status
    assert done.out.endswith("compared: no difference\n")


def spoil(url: str) -> None:
    """Change a row of a read model behind the store's back."""
    run("projections", "run", "--once", url=url)
    connection = sqlite3.connect(str(make_url(url).database))
    connection.execute("UPDATE tool_calls_g1 SET status = 'failed' WHERE call_id = '4.1'")
    connection.commit()
    connection.close()


def test_diff_shows_a_spoilt_row(own: str) -> None:
    """A row that differs is shown with both values, and the status is 1."""
    spoil(own)
    done = run("projections", "rebuild", "--diff", url=own)
    words = set(done.out.split())
    assert 1 == done.status
    assert {"tool_calls", "call_id=4.1", "status", "failed", "success"} <= words


def test_diff_shows_a_spoilt_row_in_json(own: str) -> None:
    """The JSON report names table, row and column; nothing is mended."""
    spoil(own)
    run("projections", "rebuild", "--diff", "--json", url=own)
    done = run("projections", "rebuild", "--diff", "--json", url=own)
    [difference] = done.document["differences"]
    assert (1, "tool_calls", {"call_id": "4.1"}, "status", "failed", "success") == (
        done.status,
        *(difference[name] for name in ("table", "key", "column", "live", "rebuilt")),
    )


def test_rebuild_mends_a_spoilt_row(own: str) -> None:
    """After a rebuild nothing differs."""
    spoil(own)
    run("projections", "rebuild", "tool_calls", url=own)
    assert 0 == run("projections", "rebuild", "--diff", url=own).status


@pytest.mark.parametrize("more", [(), ("--diff",)])
def test_unknown_projection(own: str, more: tuple[str, ...]) -> None:
    """A name that is none of a projection is told with the choices, in one line."""
    done = run("projections", "rebuild", "nonsense", *more, url=own)
    assert (2, 1) == (done.status, len(done.err.splitlines()))
    assert all(name in done.err for name in NAMES)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_worker_ends_on_a_signal(
    own: str, monkeypatch: pytest.MonkeyPatch, number: int, status: int
) -> None:
    """SIGTERM ends the worker after its round with status 0, an interrupt with 130, quietly."""

    def interrupted(
        store: EventStore, *, projections: ProjectionSet, once: bool, stop: threading.Event
    ) -> int:
        os.kill(os.getpid(), number)
        return int(not stop.wait(10))

    monkeypatch.setattr(worker, "run", interrupted)
    # Whoever starts the tests in the background may have had interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = run("projections", "run", url=own)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (status, "") == (done.status, done.err.strip())


def test_projections_of_the_environment(own: str) -> None:
    """``EVENTSTORE_PROJECTIONS`` names what ``--projections`` would, for every command."""
    places = "tests.projections.toys:OURS"
    found = run(
        "projections", "status", "--json", url=own, environment={"EVENTSTORE_PROJECTIONS": places}
    )
    own_names = [each["name"] for each in found.document["projections"]][len(NAMES) :]
    assert [each.name for each in OURS.own] == own_names
    several = {"EVENTSTORE_PROJECTIONS": f"{places} nowhere:NAME"}
    wrong = run("projections", "status", url=own, environment=several)
    assert (2, True) == (wrong.status, "--projections nowhere:NAME" in wrong.err)
    assert "EVENTSTORE_PROJECTIONS" in run("projections", "run", "--help").out
