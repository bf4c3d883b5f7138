"""Recovery: end the work that a dead process left open, so that the conversation can continue.

`recover` appends the events that end it (`agent_eventstore.machines.seals`) in one transaction, at
the version that was read, after fencing the process that is presumed dead. Recovery executes
nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Unpack, get_args
from uuid import UUID

from agent_eventstore.journal import PATIENCE_S, facts, patiently
from agent_eventstore.machines.seals import seal
from agent_eventstore.oversized_events import fit
from eventstore import Appended, EventStore, NewEvent
from eventstore.database import is_away, writer_raised
from eventstore.errors import (
    ConversationInUse,
    ConversationNotFound,
    DatabaseBusy,
    InvalidEvent,
    OwnerMismatch,
    WriterFenced,
    WrongExpectedVersion,
)
from eventstore.ids import StreamId
from eventstore.leases import KEEPER, claim
from eventstore.outbox import OUTBOX
from eventstore.owners import Owned
from eventstore.telemetry.log import get_logger
from projections import Views
from projections.models.open_items import OpenToolCall, OpenWork
from projections.models.open_work import OPEN_WORK
from projections.upkeep import find_live, noted

__all__ = [
    "AGAIN_S",
    "SOON_S",
    "WAIT_S",
    "IfBusy",
    "Progress",
    "Recoveries",
    "Recovery",
    "claimed",
    "end_open_work",
    "recover",
    "recover_all",
]


IfBusy = Literal["raise", "wait", "take_over"]
"""What to do if another session with a live process has the conversation open."""

WAIT_S = 60.0
"""The default time to wait for another session, in seconds."""

AGAIN_S = 0.25
"""The interval at which a waiting open retries, in seconds."""

Progress = Callable[[int, int], None]
"""Called with the number of conversations done and the total."""

SOON_S = 0.01
"""The first interval while the other session is about to end; doubled each time."""

_log = get_logger("agent_eventstore")
_TRIES = 5
_PAGE = 1_000


def claimed(
    store: EventStore,
    stream: UUID,
    session_id: str,
    if_busy: IfBusy,
    lease_s: float,
    wait_s: float,
    *,
    leaving_wait: bool = True,
) -> int:
    """Make a session the writer of a conversation, waiting if asked to; return its epoch.

    A session of this process that is about to end, because its client has gone away, is waited for
    in any case unless ``leaving_wait`` is false. It may be garbage that was not collected yet.

    Raises:
        ConversationInUse: Another session has it open.
        ConversationNotFound: No conversation has this id.
        ValueError: ``if_busy`` is not one of `IfBusy`, or ``lease_s`` is not positive and finite.
    """
    if if_busy not in get_args(IfBusy):
        raise ValueError(f"if_busy is {if_busy!r}: choose from {get_args(IfBusy)}")
    if not 0 < lease_s < math.inf:
        raise ValueError(f"lease_s is {lease_s!r}: it must be a finite number of seconds above 0")
    until = time.monotonic() + (wait_s if if_busy == "wait" else 0)
    taking = partial(claim, store, stream, session_id=session_id, lease_s=lease_s)
    soon = SOON_S
    while True:
        _write_left(store, stream)
        try:
            epoch = taking(take_over=if_busy == "take_over")
        except ConversationInUse as error:
            ends = error.leaving or KEEPER.collect(error.session_id)
            if not (ends and leaving_wait) and time.monotonic() >= until:
                error.leaving = ends
                raise
            pause = soon if ends else AGAIN_S
            soon = min(2 * soon, AGAIN_S)  # many may wait, and each looks in a transaction
        else:
            writer_raised(store, stream, epoch)
            return epoch
        time.sleep(pause)


def _write_left(store: EventStore, stream: UUID) -> None:
    """Write what earlier sessions of this process have left, before these are fenced.

    Raises:
        StoreUnavailable: It could not be written, so nobody is fenced yet.
    """
    until = time.monotonic() + PATIENCE_S
    while (error := OUTBOX.write(store, stream)) is not None:
        if not isinstance(error, DatabaseBusy) or time.monotonic() >= until:
            raise error
        time.sleep(SOON_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The open work that recovery found in a conversation, and the events that end it.

    Attributes:
        conversation_id: The conversation.
        found: The open work.
        sealed: The events that end it, in order; after a dry run, the events that would.
        version_before: The conversation's version when the open work was read.
        version_after: The version after the last sealing event; unchanged if none was appended.
        re_executable: Sealed tool calls that were started and declared idempotent. They may be
            executed again with the same idempotency key; a real result then replaces
            ``outcome_unknown``. Only the recovery that sealed a call lists it.
    """

    conversation_id: UUID
    found: OpenWork
    sealed: tuple[NewEvent, ...]
    version_before: int
    version_after: int
    re_executable: tuple[OpenToolCall, ...]


def recover(
    store: EventStore,
    views: Views,
    conversation_id: StreamId,
    *,
    writer_epoch: int | None = None,
    dry_run: bool = False,
    take_over: bool = False,
    **owner: Unpack[Owned],
) -> Recovery:
    """End a conversation's open work, in one transaction; append nothing if there is none.

    If there is open work, recovery first fences every earlier writer: a process that is presumed
    dead gets `WriterFenced` at its next append. Events that it appended before that are taken into
    account.

    Args:
        store: The store of the conversation.
        views: The store's views.
        conversation_id: The conversation.
        writer_epoch: The epoch of a caller that has already fenced the others.
        dry_run: Only return what would be done; nothing is fenced or appended.
        take_over: Also end the open work of a session whose process lives.
        owner: The required owner (``tenant_id``, ``user_id``).

    Raises:
        ConversationNotFound: No conversation has this id or key.
        OwnerMismatch: The conversation belongs to another tenant or user.
        ConversationInUse: A session with a live process has open work.
        WriterFenced: A newer writer has opened the conversation meanwhile; nothing was appended.
        WrongExpectedVersion: Writers without an epoch kept appending: all five attempts failed.
    """
    stream = store.stream(conversation_id, **owner)
    if not dry_run:
        _write_left(store, stream)
    look, epoch = partial(views.open_work, stream), writer_epoch
    if dry_run or epoch is None:
        ends = look()
        if dry_run or not ends.any:
            return _result(ends, seal(ends), ends.last_version)
        epoch = claim(store, stream, take_over=take_over)
    return end_open_work(store, look, epoch)


def end_open_work(store: EventStore, look: Callable[[], OpenWork], epoch: int) -> Recovery:
    """End the open work that ``look`` returns, as the writer of this epoch; raises as `recover`."""
    started = time.perf_counter()
    for attempt in range(1, _TRIES + 1):
        # Read after fencing: until then, the process may have lived and appended.
        ends = look()
        events = tuple(facts(seal(ends), store.redact))
        if not events:
            break
        try:
            done, events = _appended(store, ends, events, epoch)
        except WrongExpectedVersion:
            if attempt == _TRIES:
                raise
            continue
        _log.info(
            "recovered",
            conversation_id=str(ends.conversation_id),
            version=done.version,
            sealed=len(events),
            duration_ms=round(1000 * (time.perf_counter() - started), 1),
        )
        return _result(ends, events, done.version)
    return _result(ends, (), ends.last_version)


def _appended(
    store: EventStore, ends: OpenWork, events: tuple[NewEvent, ...], epoch: int
) -> tuple[Appended, tuple[NewEvent, ...]]:
    """Append the sealing events, cut to fit if necessary; return the append and the events.

    A partial answer may be larger than an event may be: its chunks were appended one by one.
    """
    append = partial(
        store.append,
        ends.conversation_id,
        expected_version=ends.last_version,
        writer_epoch=epoch,
    )
    try:
        return patiently(partial(append, events)), events
    except InvalidEvent:
        fitting = fit(events, store.max_event_bytes)
        if fitting is None:
            raise
    return patiently(partial(append, fitting)), tuple(fitting)


def _result(ends: OpenWork, sealed: tuple[NewEvent, ...], version: int) -> Recovery:
    return Recovery(
        conversation_id=ends.conversation_id,
        found=ends,
        sealed=sealed,
        version_before=ends.last_version,
        version_after=version,
        re_executable=tuple(
            call
            for call in ends.tool_calls
            if call.started and call.idempotent and not call.awaited
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recoveries:
    """The outcome of `recover_all`.

    Attributes:
        recovered: The recoveries of the conversations whose open work was ended.
        in_use: The conversations that were left to their writers.
        failed: The conversations that cannot be recovered, with the error of each.
    """

    recovered: tuple[Recovery, ...]
    in_use: tuple[UUID, ...]
    failed: dict[UUID, Exception]


def recover_all(
    store: EventStore,
    views: Views,
    on_progress: Progress | None = None,
    *,
    dry_run: bool = False,
    take_over: bool = False,
) -> Recoveries:
    """Recover every conversation that has open work, each in its own transactions.

    Safe while other processes run: a conversation that a live session has open, or that a process
    opens meanwhile, is skipped with a warning in the log. A process that writes only with
    `EventStore.append` has no session and so no lease: recovery cannot tell it from a dead one, and
    fences it. An idle session, with no turn open, is not open work and stays open.

    A conversation that cannot be recovered, for example because one of its events is damaged, does
    not prevent the recovery of the others: it is logged and returned in ``failed``.

    Args:
        store: The store of the conversations.
        views: The store's views.
        on_progress: Called after each conversation.
        dry_run: Only return what would be done.
        take_over: Also end the open work of sessions whose processes live.

    Raises:
        StoreUnavailable: The database is unreachable, or cannot be written. A conversation whose
            lock another transaction holds is in ``failed`` instead (`DatabaseBusy`).
    """
    if not dry_run:
        OUTBOX.write(store)
    ids = _to_recover(store, views)
    recovered: list[Recovery] = []
    in_use: list[UUID] = []
    failed: dict[UUID, Exception] = {}
    for done, conversation_id in enumerate(ids, start=1):
        try:
            recovery = _unless_in_use(store, views, conversation_id, dry_run, take_over)
            if recovery.sealed:
                recovered.append(recovery)
        except (ConversationInUse, WriterFenced, WrongExpectedVersion) as error:
            in_use.append(conversation_id)
            _log.warning("left to its writer", conversation_id=str(conversation_id), why=str(error))
        except ConversationNotFound:
            _log.info("purged before its recovery", conversation_id=str(conversation_id))
        except Exception as error:
            if is_away(error) and not isinstance(error, DatabaseBusy):
                raise
            failed[conversation_id] = error
            _log.warning("not recovered", conversation_id=str(conversation_id), why=str(error))
        if on_progress is not None:
            on_progress(done, len(ids))
    return Recoveries(recovered=tuple(recovered), in_use=tuple(in_use), failed=failed)


def _unless_in_use(
    store: EventStore, views: Views, conversation_id: UUID, dry_run: bool, take_over: bool
) -> Recovery:
    if dry_run and not take_over:
        writer = store.writer(conversation_id)
        if writer is not None and writer.live:
            raise ConversationInUse(conversation_id, writer.who, writer.since, writer.expires_at)
    return recover(store, views, conversation_id, dry_run=dry_run, take_over=take_over)


def _to_recover(store: EventStore, views: Views) -> list[UUID]:
    """Return the conversations with open work, and those whose open work cannot be read."""
    found: list[UUID] = []
    while page := views.conversations_with_open_work(_PAGE, after=found[-1] if found else None):
        found += page
    with store.reading() as connection:
        unread = noted(connection, [find_live(connection, OPEN_WORK)])
    aside = {each.conversation_id for each in unread}.difference(found)
    return found + [each for each in sorted(aside) if _is_own(store, each)]


def _is_own(store: EventStore, conversation_id: UUID) -> bool:
    """Whether a conversation belongs to the owner that the store is bound to."""
    try:
        store.stream(conversation_id)
    except OwnerMismatch:
        return False
    return True
