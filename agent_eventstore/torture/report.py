"""What a run has found: pure comparisons of notes, log and deliveries, and their sum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from uuid import UUID

from agent_eventstore.torture.notes import Ack, Batch, Delivered

__all__ = ["COUNTS", "Findings", "Report", "Stored", "audit_deliveries", "audit_stream"]

Stored = tuple[int, str]
"""An event of the log: its version, and the mark ``process.batch.place.size`` that it carries."""


COUNTS = {
    "kills": "processes killed with SIGKILL, and started again",
    "cuts": "connections cut by pg_terminate_backend",
    "stops": "processes stopped with SIGSTOP, and let go on",
    "forks": "children forked from a process that was using its store",
    "setbacks": "times that the database went back to an older state",
    "held": "transactions held open for long, and committed",
    "rebuilds": "rebuilds completed",
    "busy": "appends that were told DatabaseBusy, and repeated",
    "refused": "children told ForkedStore, since their parent was in a transaction of SQLite's",
    "told": "times that a recorder said what is lost, with LogWentBack",
    "lost": "acknowledged events that recorders said are lost",
    "again": "of these, written again at the versions that they had",
    "begun_anew": "times that a reader was told InvalidCursor, and began anew",
}
"""What a report counts that is no finding; a run has those that can happen in its scenario."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What must not be; all zeros after a run in which nothing was lost.

    ``missed`` counts acknowledged events that the log lacks and stored events that a reader was not
    handed, ``duplicated`` and ``out_of_order`` likewise events of the log and of each reader.
    ``torn`` counts appends of which only a part is there, ``chain`` the problems that `verify`
    finds, ``views`` the rows of views that differ from a fresh fold, ``misnamed`` the events that a
    recorder said were lost and that are there, or named wrongly, and ``failed`` the processes that
    ended by themselves, or not at all.
    """

    missed: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    torn: int = 0
    chain: int = 0
    views: int = 0
    misnamed: int = 0
    failed: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return self == Findings()

    def __add__(self, other: Findings) -> Findings:
        """Return the sums."""
        names = (field.name for field in fields(self))
        return Findings(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(frozen=True, slots=True)
class Report:
    """A run: how much was done, what was done to it, and what was found.

    ``counts`` tells what was done and told, by name: see `COUNTS`.
    """

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
        """Whether nothing was lost, and there was something to lose."""
        return self.findings.ok and self.acknowledged > 0


def audit_stream(
    events: Iterable[Stored], acks: Iterable[Ack], gone: Iterable[Batch] = ()
) -> Findings:
    """Compare the log of one conversation with what was acknowledged of it, and said to be gone."""
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
    """Compare what one reader was handed with the versions that the conversations have reached."""
    seen = {stream: bytearray(version + 1) for stream, version in heads.items()}
    highest = dict.fromkeys(heads, 0)
    duplicated = out_of_order = 0
    for stream, version in delivered:
        if version > heads.get(stream, 0):
            out_of_order += 1  # Handed out, and in the log no more.
            continue
        duplicated += seen[stream][version]
        out_of_order += version < highest[stream] and not seen[stream][version]
        seen[stream][version] = 1
        highest[stream] = max(highest[stream], version)
    missed = sum(versions[1:].count(0) for versions in seen.values())
    return Findings(missed=missed, duplicated=duplicated, out_of_order=out_of_order)
