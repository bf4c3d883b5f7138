"""A run from its beginning to its report: who is killed and cut when, and when it is enough."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import text

from conversations.torture.checking import check
from conversations.torture.crew import Crew
from conversations.torture.notes import Tally, deliveries, recall
from conversations.torture.plan import PATIENCE_S, TENANT, Plan
from conversations.torture.report import Findings, Report
from eventstore import EventStore, new_id
from eventstore.errors import StoreUnavailable
from eventstore.sql import feed
from projections.setup import install_all

__all__ = ["Torture", "others_in", "planned", "run", "torment"]

_TICK_S = 0.02
_PAGE = 1_000
_NAME_LENGTH = 12
_CHECKERS = 2

# Sessions of this run alone, told by the name that its processes connect with.
_CUT = """
    SELECT count(pg_terminate_backend(pid)) FROM (
        SELECT pid FROM pg_stat_activity
        WHERE application_name = :name AND datname = current_database()
        AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) AS victim
"""


@dataclass(frozen=True, slots=True)
class Torture:
    """What may be chosen of a run; see `Plan`."""

    writers: int = 4
    events: int | None = 10_000
    seconds: float | None = None
    every_s: float = 0.4
    seed: int = 1


def others_in(store: EventStore) -> bool:
    """Whether the database holds conversations that are none of the kit's."""
    after = None
    while page := store.list(after=after, limit=_PAGE):
        if any(info.tenant_id != TENANT for info in page):
            return True
        after = page[-1].conversation_id
    return False


def run(
    store: EventStore,
    torture: Torture = Torture(),
    *,
    on_progress: Callable[[int, int], None] | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> Report:
    """Torture a database, check what is left, and return the report.

    Takes many transactions, of many processes; what it writes stays there.

    Args:
        store: The database, which exists and has its schema; no database in memory.
        torture: How much, and how roughly.
        on_progress: Called with the events acknowledged so far and those wanted in all.
        on_phase: Called with a sentence when writing has ended, and after each part of the check.

    Raises:
        StoreUnavailable: The database cannot be used, also when nobody disturbs it.
    """
    with tempfile.TemporaryDirectory(prefix="eventstore-torture-") as name:
        plan = planned(store, torture, Path(name))
        report = torment(plan, store, on_progress)
        if on_phase is not None:
            on_phase(f"{report.acknowledged} events in {report.seconds:.0f} s; checking")
        found = check(plan, processes=_CHECKERS, on_phase=on_phase)
        return replace(report, findings=found + report.findings)


def planned(store: EventStore, torture: Torture, directory: Path) -> Plan:
    """Return the plan of a new run that keeps its notes in the directory."""
    url, own = store.engine.url, new_id()
    if url.get_backend_name() == "postgresql":
        url = url.update_query_dict({"application_name": _session_name(own.hex)})
    return Plan(
        url=url.render_as_string(hide_password=False),
        directory=directory,
        run=own,
        writers=torture.writers,
        events=torture.events,
        seconds=torture.seconds,
        every_s=torture.every_s,
        seed=torture.seed,
    )


def torment(
    plan: Plan, store: EventStore, on_progress: Callable[[int, int], None] | None = None
) -> Report:
    """Let the processes work and be disturbed; the report's findings are yet without the check."""
    install_all(store)
    with store.reading() as connection:
        cursor = feed.feed_end(connection)
    started = time.monotonic()
    cuts, tally = 0, Tally(map(plan.notes, plan.writer_names()))
    with Crew(plan, cursor) as crew:
        for kind in _blows(plan):
            working = crew.tend()
            spent = time.monotonic() - started
            if not working or (plan.seconds is not None and spent > plan.seconds):
                break
            if kind == "kill":
                crew.kill(plan.chance("kill", crew.kills).choice)
            elif kind == "cut":
                cuts += _cut(plan, store)
            elif kind == "look" and on_progress is not None:
                done = tally.events()
                on_progress(done, max(plan.events or 0, done))
            time.sleep(_TICK_S)
        plan.stop()
        crew.tend()
        crew.wait(PATIENCE_S, readers=False)
        # Only now: a reader that looked for the end earlier would miss what came after its look.
        plan.settle()
        crew.wait(2 * PATIENCE_S, readers=True)
        kills, failed = crew.kills, crew.failed
    return Report(
        database=store.url,
        run=plan.run,
        seed=plan.seed,
        seconds=round(time.monotonic() - started, 3),
        acknowledged=tally.events(),
        stored=sum(plan.heads(store).values()),
        delivered=tuple(
            sum(1 for _ in deliveries(plan.notes(f"reader-{index}")))
            for index in range(plan.readers)
        ),
        kills=kills,
        cuts=cuts,
        held=len(recall(plan.notes("holder")).acks),
        rebuilds=len(recall(plan.notes("rebuilds")).acks),
        findings=Findings(failed=failed),
    )


def _blows(plan: Plan) -> Iterator[str | None]:
    """Yield, for each tick, what is to be done in it."""
    choose = plan.chance("blows")
    due = {kind: time.monotonic() + plan.every_s for kind in ("kill", "cut", "look")}
    while True:
        now = time.monotonic()
        kind = next((kind for kind, at in due.items() if at <= now), None)
        if kind is not None:
            mean = 2.0 if kind == "look" else plan.every_s
            due[kind] = now + 2 * mean * choose.random()
        yield kind


def _cut(plan: Plan, store: EventStore) -> int:
    if store.engine.dialect.name != "postgresql":
        return 0
    with suppress(StoreUnavailable), store.reading() as connection:
        name = _session_name(plan.run.hex)
        return int(connection.execute(text(_CUT), {"name": name}).scalar_one())
    return 0


def _session_name(run: str) -> str:
    return f"eventstore-torture-{run[-_NAME_LENGTH:]}"
