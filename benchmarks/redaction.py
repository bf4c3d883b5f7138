"""The cost of a redactor for an append, compared with the same append without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from benchmarks.bench import SQLITE, Bench
from benchmarks.measure import in_turns
from benchmarks.results import Work, work
from benchmarks.workload import turn
from eventstore import EventStore, new_id, redact_secrets
from eventstore.events import ToolResult
from eventstore.events.records import EventData
from eventstore.sql.engines import Synchronous

__all__ = ["redacted_appends"]

_PLAIN, _REDACTED = "append", "append, redacted"
_LONG = ToolResult(call_id="1.0", content="The key of the house: under the stone. " * 600)


def redacted_appends(bench: Bench) -> Iterator[Work]:
    """Measure one event per transaction: SQLite at both sync levels, PostgreSQL; a long text."""
    message = turn(1, 1, Random(1))[1].data
    for level in ("FULL", "NORMAL"):
        yield _appends(bench, SQLITE, level, message)
    yield _appends(bench, SQLITE, "NORMAL", _LONG, ", 23 KB")
    for database in bench.databases:
        if database != SQLITE:
            yield _appends(bench, database, "FULL", message)


def _appends(
    bench: Bench, database: str, level: Synchronous, data: EventData, size: str = ""
) -> Work:
    with (
        bench.fresh(database) as url,
        EventStore.open(url, synchronous=level) as plain,
        EventStore.open(url, synchronous=level, redact=redact_secrets) as redacting,
    ):

        def appending(store: EventStore) -> Callable[[], object]:
            conversation_id = new_id()
            return lambda: store.append(conversation_id, [data])

        candidates = {_PLAIN: appending(plain), _REDACTED: appending(redacting)}
        figures = in_turns(candidates, bench.scale.rounds, events=1)
    title = f"One durable event{size}, redacted, {database}"
    return work(
        f"{title} {level}" if database == SQLITE else title,
        figures,
        None,
        note="With `redact_secrets`, which finds nothing to remove.",
    )
