"""A run of the torture kit, from scenario to report: who is started, killed and cut, and when.

A scenario says who takes part and what can be done to a database and to those that use it. Those
that put a database back to an older state make one of their own, on whose loss nothing hangs.
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

from agent_eventstore.torture.checking import COUNTS, Findings, Report, check
from agent_eventstore.torture.plan import NOTES, PATIENCE_S, TENANT, Plan, Tally, deliveries, recall
from agent_eventstore.torture.sessions import converse, fork_writers
from agent_eventstore.torture.setbacks import (
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
from agent_eventstore.torture.writing import fold, hold, rebuild_again, tail, write
from eventstore import EventStore, new_id
from eventstore.errors import StoreUnavailable
from eventstore.sql import feed
from eventstore.sql.urls import file_of
from projections.catalogue import PROJECTIONS
from projections.engine.setup import install_all

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

# Sessions of this run alone, told by the name that its processes connect with.
_CUT = """
    SELECT count(pg_terminate_backend(pid)) FROM (
        SELECT pid FROM pg_stat_activity
        WHERE application_name = :name AND datname = current_database()
        AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) AS victim
"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What befalls a run.

    ``spared`` are never killed, and ``setbacks`` makes the run's own database, by the name of the
    kind of database that is asked for; a kind that is not in it cannot go back so.
    """

    summary: str
    writer: Callable[[Plan, int], None]
    blows: tuple[Blow, ...]
    spared: tuple[str, ...] = (READER,)
    holds: bool = True
    busy_timeout_ms: int = 30_000
    setbacks: dict[str, Callable[[Path], Setback]] | None = None


SCENARIOS = {
    "kills": Scenario(
        "processes are killed, connections are cut",
        write,
        ("kill", "cut"),
    ),
    "forks": Scenario(
        "processes fork while threads of theirs use the store, which the children use too",
        fork_writers,
        ("kill", "cut"),
        spared=(READER, WRITER),
    ),
    "stops": Scenario(
        "processes are stopped wherever they are, for up to three seconds",
        write,
        ("stop",),
        busy_timeout_ms=1_000,
    ),
    "failover": Scenario(
        "a lagging standby is promoted: two servers of the run's own, PostgreSQL only",
        converse,
        ("setback",),
        holds=False,
        setbacks={"postgresql": FailedOver},
    ),
    "restore": Scenario(
        "a dump or copy is restored under living processes, in a database of the run's own",
        converse,
        ("setback",),
        holds=False,
        setbacks={"postgresql": Dumped, "sqlite": Copied},
    ),
}
"""The scenarios, by name."""


def roles(plan: Plan, cursor: str | None) -> list[Role]:
    """Return who takes part in a run."""
    scenario = SCENARIOS[plan.scenario]
    found: list[Role] = [(READER, tail, (index, cursor)) for index in range(plan.readers)]
    found += [("worker", fold, (index,)) for index in range(plan.workers)]
    found.append((REBUILDER, rebuild_again, ()))
    if scenario.holds:
        found.append(("holder", hold, ()))
    return found + [(WRITER, scenario.writer, (index,)) for index in range(plan.writers)]


@dataclass(frozen=True, slots=True)
class Torture:
    """What may be chosen of a run; see `Plan`."""

    writers: int = 4
    events: int | None = 10_000
    seconds: float | None = None
    every_s: float = 0.4
    seed: int = 1
    scenario: str = "kills"
    readers: int = 2
    workers: int = 2


def others_in(store: EventStore) -> bool:
    """Whether the database holds conversations that are not the kit's."""
    after = None
    while page := store.list(after=after, limit=_PAGE):
        if any(info.tenant_id != TENANT for info in page):
            return True
        after = page[-1].conversation_id
    return False


def lacks(store: EventStore, scenario: str) -> str | None:
    """Return why a scenario cannot be run with this kind of database, if it cannot."""
    setbacks = SCENARIOS[scenario].setbacks
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

    Takes many transactions, of many processes; what it writes stays there. A scenario in which the
    database goes back to an older state is run in one of its own, of the same kind: beside
    SQLite's file, or on servers of its own; it is deleted in the end.

    Args:
        store: The database, which exists and has its schema; no database in memory.
        torture: How much, and how roughly.
        checkers: How many processes check at the end; with 0 it is this one.
        on_progress: Called with the events acknowledged so far and those wanted in all.
        on_phase: Called with a sentence when writing has ended, and after each part of the check.

    Raises:
        StoreUnavailable: The database cannot be used, also when nobody disturbs it.
        PostgresUnavailable: The scenario needs servers, which cannot be started here.
    """
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
    """Give the database to torture: the one that was named, or one that can go back."""
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
    """Let the processes work and be disturbed; the report's findings are yet without the check."""
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
        # Only now: a reader that looked for the end earlier would miss what came after its look.
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
    """Whether there was enough; writers that have a share end by themselves."""
    enough = counts["setbacks"] > 0 and plan.events is not None and done >= plan.events
    return enough or (plan.seconds is not None and seconds > plan.seconds)


def _counts(plan: Plan) -> Counter[str]:
    """Return what stands in the notes and is only counted."""
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
    """Ask twice, since connections of before a setback may have ended."""
    with suppress(StoreUnavailable):
        return ask()
    return ask()


def _blows(plan: Plan, scenario: Scenario) -> Iterator[str | None]:
    """Yield, for each tick, what is to be done in it."""
    choose = plan.chance("blows")
    due = {kind: time.monotonic() + plan.every_s for kind in (*scenario.blows, "look")}
    while True:
        now = time.monotonic()
        kind = next((kind for kind, at in due.items() if at <= now), None)
        yield kind
        if kind is not None:
            mean = _LOOK_S if kind == "look" else plan.every_s
            # From the end of what was done, which for a setback takes seconds.
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
