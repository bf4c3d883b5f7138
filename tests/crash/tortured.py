"""A run of the torture kit as a program of its own, which leaves its notes to the test.

Its processes are forked from a server that has imported what they need; the one that a test may
have running has imported something else.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from conversations.torture import Torture
from conversations.torture.run import planned, torment
from eventstore import EventStore

TORTURE = Torture(writers=2, events=300, every_s=0.3)


def main(url: str, directory: str) -> None:
    """Torture a database, and write the report to stdout."""
    with EventStore.open(url, pool_size=2) as store:
        plan = planned(store, TORTURE, Path(directory))
        report = torment(plan, store)
    json.dump(asdict(report), sys.stdout, default=str)


if __name__ == "__main__":
    main(*sys.argv[1:])
