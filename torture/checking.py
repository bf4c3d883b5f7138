"""The check at the end of a run: reads everything back and compares it with the processes' notes.

The check can be repeated on the same notes; the tests do so after tampering with the data. Its
parts are independent of each other, so several processes share them. The comparisons are pure.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields
from functools import partial
from multiprocessing import get_context
from uuid import UUID

from eventstore import EventStore
from projections.upkeep import compare
from torture.plan import Ack, Batch, Delivered, Plan, deliveries, recall
from torture.writing import open_store

__all__ = ["COUNTS", "Findings", "Report", "Stored", "audit_deliveries", "audit_stream", "check"]


Stored = tuple[int, str]
"""An event of the log: its version, and its mark ``process.batch.place.size``."""


COUNTS = {
    "kills": "processes killed with SIGKILL, and restarted",
    "cuts": "connections cut by pg_terminate_backend",
    "stops": "processes stopped with SIGSTOP, and resumed",
    "forks": "children forked from a process that was using its store",
    "posts": "messages posted to a web server",
    "left": "clients that left before the end of their answer",
    "restarts": "times that the database was restarted, or locked",
    "moves": "shards moved to another server",
    "splits": "shards split",
    "moves_refused": "moves and splits that failed, and left everything as it was",
    "setbacks": "times that the database went back to an older state",
    "held": "transactions held open for a long time, and committed",
    "rebuilds": "rebuilds completed",
    "busy": "appends that raised DatabaseBusy, and were repeated; or posts refused with 409",
    "refused": "children that got ForkedStore, because their parent was in an SQLite transaction; "
    "or posts refused while the database was unreachable",
    "told": "times that a recorder reported lost events, with LogWentBack",
    "lost": "acknowledged events that recorders reported as lost",
    "again": "of these, events written again at their old versions",
    "begun_anew": "times that a reader got InvalidCursor, and started over",
}
"""Counts in a report that are not findings; a run reports those that its scenario produces."""

_PARTS = 6


@dataclass(frozen=True, slots=True)
class Findings:
    """Violations found by the check; all zeros after a run in which nothing was lost.

    ``missed`` counts acknowledged events that the log lacks, and stored events that a reader did
    not receive. ``duplicated`` and ``out_of_order`` likewise count events of the log and of each
    reader. ``torn`` counts appends of which only a part is stored, ``chain`` the problems found by
    `verify`, ``views`` the view rows that differ from a fresh fold, ``misnamed`` the events that a
    recorder reported as lost although they exist or were never acknowledged, and ``failed`` the
    processes that exited with an error, or did not exit. ``leases`` counts the leases that are left
    without a session, and ``unanswered`` the users whose next post was not answered.
    """

    missed: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    torn: int = 0
    chain: int = 0
    views: int = 0
    misnamed: int = 0
    failed: int = 0
    leases: int = 0
    unanswered: int = 0

    @property
    def ok(self) -> bool:
        """Whether all findings are zero."""
        return self == Findings()

    def __add__(self, other: Findings) -> Findings:
        """Return the sums of both findings."""
        names = (field.name for field in fields(self))
        return Findings(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run; ``counts`` is keyed by the names of `COUNTS`."""

    database: str
    run: UUID
    scenario: str
    seed: int
    seconds: float
    acknowledged: int
    stored: int
    delivered: tuple[int, ...]
    counts: Mapping[str, int]
    findings: Findings

    @property
    def ok(self) -> bool:
        """Whether nothing was lost, and at least one event was acknowledged."""
        return self.findings.ok and self.acknowledged > 0


def audit_stream(
    events: Iterable[Stored], acks: Iterable[Ack], gone: Iterable[Batch] = ()
) -> Findings:
    """Compare one conversation's log with its acknowledged batches and those reported lost."""
    places: dict[str, dict[int, int]] = {}
    sizes: dict[str, int] = {}
    duplicated = out_of_order = last = 0
    for version, mark in events:
        name, place, size = mark.rsplit(".", 2)
        found = places.setdefault(name, {})
        duplicated += int(place) in found
        found.setdefault(int(place), version)
        sizes[name] = int(size)
        out_of_order += version != last + 1
        last = version
    torn = sum(len(found) != sizes[name] for name, found in places.items())
    for found in places.values():
        begin, version = next(iter(found.items()))
        out_of_order += sum(found[each] - each != version - begin for each in found)
    missed = 0
    for ack in acks:
        there = places.get(ack.batch.name, {})
        missed += sum(place not in there for place in range(ack.batch.size))
        out_of_order += sum(version != ack.first + place for place, version in there.items())
    misnamed = sum(len(places.get(batch.name, {})) for batch in gone)
    return Findings(missed, duplicated, out_of_order, torn, misnamed=misnamed)


def audit_deliveries(delivered: Iterable[Delivered], heads: Mapping[UUID, int]) -> Findings:
    """Compare the events that one reader received with the versions of the conversations."""
    seen = {stream: bytearray(version + 1) for stream, version in heads.items()}
    highest = dict.fromkeys(heads, 0)
    duplicated = out_of_order = 0
    for stream, version in delivered:
        if version > heads.get(stream, 0):
            out_of_order += 1  # Delivered, but no longer in the log.
            continue
        duplicated += seen[stream][version]
        out_of_order += version < highest[stream] and not seen[stream][version]
        seen[stream][version] = 1
        highest[stream] = max(highest[stream], version)
    missed = sum(versions[1:].count(0) for versions in seen.values())
    return Findings(missed=missed, duplicated=duplicated, out_of_order=out_of_order)


_Part = Callable[[Plan, EventStore], Findings]


def check(
    plan: Plan, *, processes: int = 1, on_phase: Callable[[str], None] | None = None
) -> Findings:
    """Compare notes, log, readers and views of the run's conversations.

    Args:
        plan: The run, with its notes.
        processes: The number of checking processes; 0 checks in this process.
        on_phase: Called after each part with a sentence that names it.
    """
    parts, found, begun = _parts(plan), Findings(), time.monotonic()
    if processes == 0:
        return sum((_do(plan, part) for part in parts.values()), found)
    # Spawn, not fork: a child must not share a connection.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: dict[Future[Findings], str] = {
            pool.submit(_do, plan, part): name for name, part in parts.items()
        }
        for number, done in enumerate(as_completed(running), start=1):
            found += done.result()
            if on_phase is not None:
                seconds = time.monotonic() - begun
                on_phase(f"{number} of {len(parts)} checked after {seconds:.0f} s: {running[done]}")
    return found


def _parts(plan: Plan) -> dict[str, _Part]:
    parts: dict[str, _Part] = {}
    for number in range(_PARTS):
        parts[f"views, part {number + 1}"] = partial(_views, number=number)
    for number in range(_PARTS):
        parts[f"log, part {number + 1}"] = partial(_log, number=number)
    for index in range(plan.readers):
        parts[f"reader {index + 1}"] = partial(_reader, index=index)
    return parts


def _do(plan: Plan, part: _Part) -> Findings:
    with open_store(plan) as store:
        return part(plan, store)


def _log(plan: Plan, store: EventStore, *, number: int) -> Findings:
    """Compare the log of one part of the conversations with the acknowledgements."""
    heads, acks = plan.heads(store), defaultdict[UUID, list[Ack]](list)
    gone, found = defaultdict[UUID, list[Batch]](list), Findings()
    for memory in (recall(plan.notes(name)) for name in plan.writer_names()):
        for ack in memory.acks.values():
            acks[ack.batch.stream].append(ack)
        for batch in memory.gone:
            gone[batch.stream].append(batch)
    for stream in sorted({*heads, *acks})[number::_PARTS]:
        found += audit_stream(_stored(store, stream), acks[stream], gone[stream])
        if stream in heads:
            found += Findings(chain=len(store.verify(stream).problems))
    return found


def _reader(plan: Plan, store: EventStore, *, index: int) -> Findings:
    return audit_deliveries(deliveries(plan.notes(f"reader-{index}")), plan.heads(store))


def _views(plan: Plan, store: EventStore, *, number: int) -> Findings:
    some = sorted(plan.heads(store))[number::_PARTS]
    return Findings(views=len(compare(store, conversations=some).differences))


def _stored(store: EventStore, stream: UUID) -> Iterator[Stored]:
    return ((event.version, event.meta.causation_id or "") for event in store.read(stream))
