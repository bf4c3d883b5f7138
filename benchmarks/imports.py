"""The processor time of imports and of the command's help, compared with two libraries' imports."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping

from benchmarks.bench import Bench
from benchmarks.measure import Figure
from benchmarks.results import Target, Work, work

__all__ = ["imports"]

_FLOOR = "import sqlalchemy, pydantic"
_PACKAGE = "import agent_eventstore"
_HELP = "eventstore --help"
_CANDIDATES: Mapping[str, tuple[str, ...]] = {
    **{
        code: ("-c", code)
        for code in (
            _FLOOR,
            _PACKAGE,
            "from agent_eventstore.events import UserMessage",
            "from agent_eventstore import Conversation, EventStore, Views",
            "from agent_eventstore import *",
        )
    },
    _HELP: ("-m", "agent_eventstore.cli", "--help"),
}
_MOST = 20


def imports(bench: Bench) -> Iterator[Work]:
    """Measure each in a process of its own, with the start of Python."""
    times: dict[str, list[float]] = {name: [] for name in _CANDIDATES}
    for arguments in _CANDIDATES.values():
        _processor_time(arguments)  # writes the compiled modules
    for _ in range(min(bench.scale.rounds, _MOST)):
        for name, arguments in _CANDIDATES.items():
            times[name].append(_processor_time(arguments))
    figures = [Figure(name, tuple(each)) for name, each in times.items()]
    targets = {name: Target(ratio=1.0) for name in (_PACKAGE, _HELP)}
    note = "Processor time, user and system, of a process each, with the start of Python."
    yield work("Imports", figures, targets, note=note)


def _processor_time(arguments: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
