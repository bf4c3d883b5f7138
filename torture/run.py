"""A run of the torture kit, from scenario to report: starting, killing and cutting processes.

A scenario defines the processes and what happens to them and to the database. Scenarios that put
the database back to an older state use a temporary database of their own.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal
from uuid import UUID

from sqlalchemy import text

from eventstore import EventStore, new_id
from eventstore.errors import StoreUnavailable
from eventstore.sql import feed
from eventstore.sql.backend import backend_of
from eventstore.sql.urls import file_of
from projections.catalogue import PROJECTIONS
from projections.engine.setup import install_all
from torture.checking import COUNTS, Findings, Report, check
from torture.moving import move
from torture.plan import NOTES, PATIENCE_S, TENANT, Plan, Tally, deliveries, recall
from torture.reloads import CLIENTS, missing, run_reloads
from torture.sessions import converse, fork_writers
from torture.setbacks import (
    READER,
    REBUILDER,
    WRITER,
    Copied,
    Crew,
    Dumped,
    FailedOver,
    Role,
    Setback,
)
from torture.writing import fold, hold, rebuild_again, tail, write

__all__ = [
    "SCENARIOS",
    "Blow",
    "Scenario",
    "Torture",
    "lacks",
    "others_in",
    "planned",
    "roles",
    "run",
    "torment",
]


Blow = Literal["kill", "cut", "stop", "setback"]

_TICK_S = 0.02
_PAGE = 1_000
_NAME_LENGTH = 12
_LOOK_S = 1.0
_LONGEST_STOP_S = 3.0
RESTARTS = 20
"""How many times rarer than kills restarts are: each takes a second or more."""

# Only sessions of this run, identified by the name with which its processes connect.
_CUT = """
    SELECT count(pg_terminate_backend(pid)) FROM (
        SELECT pid FROM pg_stat_activity
        WHERE application_name = :name AND datname = current_database()
        AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) AS victim
"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens in a run.

    Processes of the kinds ``spared`` are never killed. ``setbacks`` creates the run's own database,
    by the kind of the given database; other kinds cannot run the scenario. One that ``moves``
    shards needs a distributed database. A scenario that is ``served`` has a web server instead of
    writers: see `torture.reloads`.
    """

    summary: str
    writer: Callable[[Plan, int], None]
    blows: tuple[Blow, ...]
    spared: tuple[str, ...] = (READER,)
    holds: bool = True
    moves: bool = False
    busy_timeout_ms: int = 30_000
    setbacks: dict[str, Callable[[Path], Setback]] | None = None
    served: bool = False


SCENARIOS = {
    "kills": Scenario(
        "processes are killed, connections are cut",
        write,
        ("kill", "cut"),
    ),
    "forks": Scenario(
        "processes fork while their threads use the store, and the children use it too",
        fork_writers,
        ("kill", "cut"),
        spared=(READER, WRITER),
    ),
    "stops": Scenario(
        "processes are stopped at any point, for up to three seconds",
        write,
        ("stop",),
        busy_timeout_ms=1_000,
    ),
    "moves": Scenario(
        "as kills, while shards move between servers and split; a distributed database only",
        write,
        ("kill", "cut"),
        moves=True,
    ),
    "failover": Scenario(
        "a lagging standby is promoted, on the run's own two servers; PostgreSQL only",
        converse,
        ("setback",),
        holds=False,
        setbacks={"postgresql": FailedOver},
    ),
    "restore": Scenario(
        "a dump or copy is restored under running processes, in the run's own database",
        converse,
        ("setback",),
        holds=False,
        setbacks={"postgresql": Dumped, "sqlite": Copied},
    ),
    "reloads": Scenario(
        "clients of a web server leave at random moments, and its own database is restarted",
        write,
        (),
        served=True,
    ),
}
"""The scenarios, by name."""


def roles(plan: Plan, cursor: str | None) -> list[Role]:
    """Return the processes of a run."""
    scenario = SCENARIOS[plan.scenario]
    found: list[Role] = [(READER, tail, (index, cursor)) for index in range(plan.readers)]
    found += [("worker", fold, (index,)) for index in range(plan.workers)]
    found.append((REBUILDER, rebuild_again, ()))
    if scenario.moves:
        found.append(("mover", move, (0,)))
    if scenario.holds:
        found.append(("holder", hold, ()))
    return found + [(WRITER, scenario.writer, (index,)) for index in range(plan.writers)]


@dataclass(frozen=True, slots=True)
class Torture:
    """The options of a run; see `Plan`."""

    writers: int = 4
    events: int | None = 10_000
    seconds: float | None = None
    every_s: float = 0.4
    seed: int = 1
    scenario: str = "kills"
    readers: int = 2
    workers: int = 2


def others_in(store: EventStore) -> bool:
    """Whether the database has conversations that are not the kit's."""
    after = None
    while page := store.list(after=after, limit=_PAGE):
        if any(info.tenant_id != TENANT for info in page):
            return True
        after = page[-1].conversation_id
    return False


def lacks(store: EventStore, scenario: str) -> str | None:
    """Return why a scenario cannot run on this kind of database, or None."""
    setbacks = SCENARIOS[scenario].setbacks
    if SCENARIOS[scenario].served:
        return missing()
    if SCENARIOS[scenario].moves and not backend_of(store.engine).is_distributed:
        return "the database is on one server"
    if setbacks is None or store.engine.dialect.name in setbacks:
        return None
    return "SQLite has no standby"


def run(
    store: EventStore,
    torture: Torture = Torture(),
    *,
    checkers: int = 2,
    on_progress: Callable[[int, int], None] | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> Report:
    """Torture a database, check what is left, and return the report.

    Uses many transactions in many processes; the events it writes remain. A scenario in which the
    database goes back to an older state runs in a temporary database of the same kind: next to
    SQLite's file, or on temporary servers.

    Args:
        store: The database, which must exist with its schema, and not in memory.
        torture: The options of the run.
        checkers: How many processes check at the end; 0 checks in this process.
        on_progress: Called with the events acknowledged so far and the total to acknowledge.
        on_phase: Called with a sentence when writing has ended, and after each part of the check.

    Raises:
        StoreUnavailable: The database cannot be used, even without disturbances.
        PostgresUnavailable: The scenario needs servers, which cannot be started here.
    """
    if SCENARIOS[torture.scenario].served:
        return run_reloads(
            store,
            clients=CLIENTS * torture.writers,
            seconds=torture.seconds,
            events=torture.events,
            every_s=RESTARTS * torture.every_s,
            seed=torture.seed,
            on_progress=on_progress,
            on_phase=on_phase,
        )
    with (
        tempfile.TemporaryDirectory(prefix="eventstore-torture-") as name,
        _grounds(store, torture.scenario) as (victim, setback),
    ):
        plan = planned(victim, torture, Path(name))
        report = torment(plan, victim, on_progress, setback)
        if on_phase is not None:
            on_phase(f"{report.acknowledged} events in {report.seconds:.0f} s; checking")
        found = check(plan, processes=checkers, on_phase=on_phase)
        return replace(report, findings=found + report.findings)


@contextmanager
def _grounds(store: EventStore, scenario: str) -> Iterator[tuple[EventStore, Setback | None]]:
    """Yield the database to torture: the given one, or one that can go back."""
    setbacks = SCENARIOS[scenario].setbacks
    if setbacks is None:
        yield store, None
        return
    file = file_of(store.engine.url)
    directory = Path(tempfile.gettempdir() if file is None else file).resolve()
    with (
        setbacks[store.engine.dialect.name](directory if file is None else directory.parent) as own,
        EventStore.open(own.url) as victim,
    ):
        yield victim, own


def planned(store: EventStore, torture: Torture, directory: Path) -> Plan:
    """Return the plan of a new run that keeps its notes in the directory."""
    url, own = store.engine.url, new_id()
    scenario = SCENARIOS[torture.scenario]
    if url.get_backend_name() == "postgresql":
        url = url.update_query_dict({"application_name": _session_name(own.hex)})
    return Plan(
        url=url.render_as_string(hide_password=False),
        directory=directory,
        run=own,
        busy_timeout_ms=scenario.busy_timeout_ms,
        **asdict(torture),
    )


def torment(
    plan: Plan,
    store: EventStore,
    on_progress: Callable[[int, int], None] | None = None,
    setback: Setback | None = None,
) -> Report:
    """Run and disturb the processes; return the report without the findings of the check."""
    install_all(store, PROJECTIONS)
    with store.reading() as connection:
        cursor = feed.feed_end(connection)
    started, scenario = time.monotonic(), SCENARIOS[plan.scenario]
    tally = Tally(lambda: map(plan.notes, plan.writer_names()))
    with Crew(plan, roles(plan, cursor)) as crew:
        for number, kind in enumerate(_blows(plan, scenario)):
            working, done = crew.tend(), tally.events() if kind == "look" else 0
            if not working or _over(plan, time.monotonic() - started, done, crew.counts):
                break
            if kind == "kill":
                crew.kill(plan.chance("kill", number), scenario.spared)
            elif kind == "stop":
                crew.stop(plan.chance("stop", number), _LONGEST_STOP_S)
            elif kind == "cut":
                crew.counts["cuts"] += _cut(plan, store)
            elif kind == "setback" and setback is not None:
                setback.strike(plan.chance("setback", number))
                crew.counts["setbacks"] += 1
            elif kind == "look" and on_progress is not None:
                on_progress(done, max(plan.events or 0, done))
            time.sleep(_TICK_S)
        plan.stop()
        crew.tend()
        crew.wait(PATIENCE_S, readers=False)
        # Only now: a reader that checked for the end earlier could miss later events.
        plan.settle()
        crew.wait(2 * PATIENCE_S, readers=True)
        counts, failed = crew.counts, crew.failed
    counts.update(_counts(plan))
    return Report(
        database=store.url,
        run=plan.run,
        scenario=plan.scenario,
        seed=plan.seed,
        seconds=round(time.monotonic() - started, 3),
        acknowledged=tally.events(),
        stored=sum(_patiently(lambda: plan.heads(store)).values()),
        delivered=tuple(
            sum(1 for _ in deliveries(plan.notes(f"reader-{index}")))
            for index in range(plan.readers)
        ),
        counts={name: counts[name] for name in COUNTS if counts[name]},
        findings=Findings(failed=failed, misnamed=counts["misnamed"]),
    )


def _over(plan: Plan, seconds: float, done: int, counts: Counter[str]) -> bool:
    """Whether to stop; writers with a share end by themselves."""
    enough = counts["setbacks"] > 0 and plan.events is not None and done >= plan.events
    return enough or (plan.seconds is not None and seconds > plan.seconds)


def _counts(plan: Plan) -> Counter[str]:
    """Return the counts in the notes."""
    counts: Counter[str] = Counter()
    for path in plan.directory.glob(f"*{NOTES}"):
        if not path.stem.startswith(READER):
            counts.update(recall(path).counts)
    for index in range(plan.readers):
        counts["begun_anew"] += recall(plan.notes(f"{READER}s-{index}")).counts["begun_anew"]
    counts["held"] = len(recall(plan.notes("holder")).acks)
    counts["rebuilds"] = len(recall(plan.notes("rebuilds")).acks)
    return counts


def _patiently(ask: Callable[[], dict[UUID, int]]) -> dict[UUID, int]:
    """Ask twice, because connections from before a setback may be broken."""
    with suppress(StoreUnavailable):
        return ask()
    return ask()


def _blows(plan: Plan, scenario: Scenario) -> Iterator[str | None]:
    """Yield for each tick what to do in it."""
    choose = plan.chance("blows")
    due = {kind: time.monotonic() + plan.every_s for kind in (*scenario.blows, "look")}
    while True:
        now = time.monotonic()
        kind = next((kind for kind, at in due.items() if at <= now), None)
        yield kind
        if kind is not None:
            mean = _LOOK_S if kind == "look" else plan.every_s
            # From the end of the action, because a setback takes seconds.
            due[kind] = time.monotonic() + 2 * mean * choose.random()


def _cut(plan: Plan, store: EventStore) -> int:
    if store.engine.dialect.name != "postgresql":
        return 0
    with suppress(StoreUnavailable), store.reading() as connection:
        name = _session_name(plan.run.hex)
        return int(connection.execute(text(_CUT), {"name": name}).scalar_one())
    return 0


def _session_name(run: str) -> str:
    return f"eventstore-torture-{run[-_NAME_LENGTH:]}"
