"""What can be done to a database and to those that use it: the scenarios, by name.

A scenario says who takes part and what befalls them; `agent_eventstore.torture.run` runs it. Those
that put a database back to an older state make one of their own, on whose loss nothing hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent_eventstore.torture.crew import READER, REBUILDER, WRITER, Role
from agent_eventstore.torture.following import fold, rebuild_again, tail
from agent_eventstore.torture.forking import fork_writers
from agent_eventstore.torture.plan import Plan
from agent_eventstore.torture.sessions import converse
from agent_eventstore.torture.setbacks import Copied, Dumped, FailedOver, Setback
from agent_eventstore.torture.writing import hold, write

__all__ = ["SCENARIOS", "Blow", "Scenario", "roles"]

Blow = Literal["kill", "cut", "stop", "setback"]


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
