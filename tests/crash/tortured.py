"""Runs of the torture kit as a program of its own, which reports to the test.

Its processes are forked from a server that has imported what they need; the one that a test may
have running has imported something else. Run as ``python -m tests.crash.tortured URL DIRECTORY``,
which leaves the notes of a run of the first scenario, or with names of scenarios in the place of
the directory.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

from eventstore import EventStore
from tests.fork_servers import fork_now
from torture import SCENARIOS, Torture, run
from torture.run import planned, torment

TORTURE = Torture(writers=2, events=300, every_s=0.3)


def main(url: str, *what: str) -> None:
    """Torture a database, and write a report to stdout for each scenario."""
    fork_now()
    with EventStore.open(url, pool_size=2) as store:
        for name in what:
            if name in SCENARIOS:
                few = replace(TORTURE, events=150, every_s=0.5, readers=1, workers=1)
                torture = replace(few, scenario=name)
                report = run(store, torture, checkers=0)
            else:
                report = torment(planned(store, TORTURE, Path(name)), store)
            print(json.dumps(asdict(report), default=str), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
