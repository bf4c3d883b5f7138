"""The check at the end of a run: reads everything back, and compares.

It can be run again on the same notes, which the tests do after they have tampered with something.
"""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

from conversations.torture.notes import Ack, deliveries, recall
from conversations.torture.plan import TENANT, Plan
from conversations.torture.report import Findings, Stored, audit_deliveries, audit_stream
from eventstore import EventStore
from projections.diff import compare

__all__ = ["acknowledged", "check", "heads_of"]


def acknowledged(plan: Plan) -> list[Ack]:
    """Return all appends that a process of the run has seen acknowledged."""
    return [ack for name in plan.writer_names() for ack in recall(plan.notes(name)).acks]


def heads_of(plan: Plan, store: EventStore) -> dict[UUID, int]:
    """Return the versions that the conversations of the run have reached."""
    found = store.list(tenant_id=TENANT, user_id=str(plan.run), limit=10_000)
    return {info.conversation_id: info.version for info in found}


def check(plan: Plan, store: EventStore) -> Findings:
    """Compare notes, log, readers and views of the run's conversations."""
    heads, acks = heads_of(plan, store), defaultdict[UUID, list[Ack]](list)
    for ack in acknowledged(plan):
        acks[ack.batch.stream].append(ack)
    found = Findings()
    for stream in plan.streams():
        found += audit_stream(_stored(store, stream), acks[stream])
        if stream in heads:
            found += Findings(chain=len(store.verify(stream).problems))
    for index in range(plan.readers):
        found += audit_deliveries(deliveries(plan.notes(f"reader-{index}")), heads)
    own = set(plan.streams())
    views = [each for each in compare(store).differences if each.conversation_id in own]
    return found + Findings(views=len(views))


def _stored(store: EventStore, stream: UUID) -> list[Stored]:
    return [(event.version, event.meta.correlation_id or "") for event in store.read(stream)]
