"""The check at the end of a run: reads everything back, and compares.

It can be run again on the same notes, which the tests do after they have tampered with something.
Its parts need nothing of each other, so that several processes share them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from uuid import UUID

from agent_eventstore.torture.notes import Ack, Batch, deliveries, recall
from agent_eventstore.torture.plan import Plan
from agent_eventstore.torture.report import Findings, Stored, audit_deliveries, audit_stream
from agent_eventstore.torture.writing import open_store
from eventstore import EventStore
from projections.diff import compare

__all__ = ["check"]

_PARTS = 6

_Part = Callable[[Plan, EventStore], Findings]


def check(
    plan: Plan, *, processes: int = 1, on_phase: Callable[[str], None] | None = None
) -> Findings:
    """Compare notes, log, readers and views of the run's conversations.

    Args:
        plan: The run, with its notes.
        processes: How many check at the same time; with 0 it is this one.
        on_phase: Called after each part with a sentence that tells what it was.
    """
    parts, found, begun = _parts(plan), Findings(), time.monotonic()
    if processes == 0:
        return sum((_do(plan, part) for part in parts.values()), found)
    # Spawned, not forked: a connection must not be shared with a child.
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
    """Check some of the conversations: what is stored, against what was acknowledged."""
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
