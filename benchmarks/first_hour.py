"""What a product carries: memory, its first request, a turn over HTTP, and what is installed.

Each is measured in a process of its own, which is a small web backend: FastAPI, one route that
answers a message with one streamed answer of a model that takes no time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.bench import POSTGRESQL, Bench
from benchmarks.measure import Amount, Figure
from benchmarks.results import Target, Work, work
from benchmarks.web_process import CONVERSATIONS, IMPORTED, USED, WEB

__all__ = ["first_hour"]

_DISTRIBUTION = "agent-eventstore"
_MB = 1e6
_LEAST_TURNS = 20
_SHORT = 20


def first_hour(bench: Bench) -> Iterator[Work]:
    """Measure memory and the first request, turns over HTTP, and the size of an installation."""
    for database in bench.databases:
        turns = max(bench.scale.rounds, _LEAST_TURNS)
        with bench.fresh(database) as url:
            found = _child(url, turns)
        memory = [Amount(name, found["memory"][name], "MB") for name in (WEB, IMPORTED, USED)]
        yield work(
            f"Resident memory of a web process, {database}",
            memory,
            {IMPORTED: Target(amount=80), USED: Target(amount=110)},
            note="In MB of 10^6 bytes.",
        )
        yield work(
            f"First context of a process, {database}",
            [Figure("turn.context(model='gpt-4o')", (found["first_context"],))],
            {"turn.context(model='gpt-4o')": Target(median_ms=150)},
        )
        ours = "recorded: open, turn, context, call, stream, end, close"
        short = f"the same, the first {_SHORT} turns of each conversation"
        yield work(
            f"Processor time of a turn over HTTP, {database}",
            [
                Figure("without persistence", tuple(found["bare"])),
                Figure(short, tuple(found["ours"][: _SHORT * CONVERSATIONS])),
                Figure(ours, tuple(found["ours"])),
            ],
            {each: Target(median_ms=16) for each in (short, ours) if database == POSTGRESQL},
            note="Of the process that serves, with the client that asks it in the same process; "
            f"{turns:,} turns in {CONVERSATIONS} conversations.",
        )
    names = _installed(_DISTRIBUTION)
    sizes = {name: _size(name) for name in names}
    what = "all distributions"
    yield work(
        "Installed base",
        [
            Amount(what, sum(sizes.values()) / _MB, "MB"),
            Amount("their number", len(sizes), "distributions"),
            *(
                Amount(name, size / _MB, "MB")
                for name, size in sorted(sizes.items(), key=lambda each: -each[1])[:8]
            ),
        ],
        {what: Target(amount=120), "their number": Target(amount=30)},
        note="Without extras, with compiled modules; the largest below.",
    )


def _installed(name: str) -> set[str]:
    """Return the distributions that a distribution needs without extras, itself included."""
    from packaging.requirements import Requirement

    found: set[str] = set()
    waiting = [(name, frozenset[str]())]
    seen = set(waiting)
    while waiting:
        wanted, extras = waiting.pop()
        found.add(re.sub(r"[-_.]+", "-", wanted).lower())
        for line in metadata.requires(wanted) or ():
            need = Requirement(line)
            marker = need.marker
            if marker is None or any(marker.evaluate({"extra": each}) for each in {"", *extras}):
                one = (need.name, frozenset(need.extras))
                if one not in seen:
                    seen.add(one)
                    waiting.append(one)
    return found


def _size(name: str) -> int:
    if name == _DISTRIBUTION:  # perhaps installed in place
        root = Path(__file__).parents[1]
        folders = ("agent_eventstore", "eventstore", "projections", "migrations")
        files = [each for folder in folders for each in (root / folder).rglob("*")]
    else:
        files = [Path(str(each.locate())) for each in metadata.files(name) or ()]
    compiled = f".{sys.implementation.cache_tag}.pyc"
    return sum(
        each.stat().st_size
        for each in files
        if each.is_file() and (each.suffix != ".pyc" or each.name.endswith(compiled))
    )


def _child(url: str, turns: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.web_process", url, str(turns)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
