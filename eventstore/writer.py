"""The writes of a store: appends and forks, each a durable transaction or part of the caller's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast
from uuid import UUID

from sqlalchemy import Connection

from eventstore import telemetry
from eventstore.events.lifecycle import ConversationFork
from eventstore.events.records import EventData, Meta, NewEvent
from eventstore.gauges import Attributes
from eventstore.ids import StreamId, derived_id, new_id
from eventstore.owners import named
from eventstore.reader import EventReader
from eventstore.redaction import Redactor
from eventstore.sealing import Keyring
from eventstore.sql.appending import Appending
from eventstore.sql.conversation_fork import fork, locate
from eventstore.sql.failures import translated
from eventstore.sql.requests import (
    ANY,
    Anchor,
    Append,
    Appended,
    Expected,
    Prepared,
    many,
    prepare,
)
from eventstore.sql.transactions import append_within

__all__ = ["EventWriter"]


class EventWriter(EventReader):
    """Appends to conversations, and forks them; `EventStore` is one."""

    keys: Keyring | None
    database: Attributes
    blob_threshold: int
    max_event_bytes: int
    redact: Redactor | None
    _appending: Appending

    def append(
        self,
        conversation_id: StreamId,
        events: Sequence[NewEvent | EventData] | NewEvent | EventData,
        *,
        expected_version: Expected | int = ANY,
        meta: Meta | None = None,
        tenant_id: str | None = None,
        user_id: str | None = None,
        parent: tuple[UUID, int] | None = None,
        writer_epoch: int | None = None,
        anchor: Anchor | None = None,
        connection: Connection | None = None,
        wait: bool = True,
        allow_empty: bool = False,
    ) -> Appended:
        r"""Append events to a conversation: all of them, or none.

        One durable transaction (or part of the caller's). Repeating an append of `NewEvent`\ s
        with the same ``event_id``\ s returns the first result and writes nothing.

        Args:
            conversation_id: The stream; its first event creates it.
            events: One event, or several in order: payloads, or `NewEvent`\ s with an id or
                metadata.
            expected_version: ``ANY``, ``NO_STREAM``, or the exact version before this append.
            meta: Metadata for events without their own.
            tenant_id: The conversation's tenant, recorded when it is created, as is its key.
            user_id: The conversation's user, recorded when it is created.
            parent: Conversation and version that this one was forked from, recorded likewise.
            writer_epoch: The result of `raise_writer_epoch`, or 0: refuse if another writer has
                opened the conversation since.
            anchor: The anchor of an earlier append's result; the log must still hold its event.
            connection: Append in the transaction that `transaction` has begun on it.
            wait: Whether to wait while another writer holds the conversation's lock. If not, raise
                `DatabaseBusy` at once, on SQLite after a tenth of a second.
            allow_empty: Store user messages and answers without content too: for records of other
                systems, which may have such. No request contains an empty message.

        Raises:
            WrongExpectedVersion: The stream is at another version.
            EventIdConflict: The stream holds some of the event ids, but not as this append.
            LogWentBack: The event of ``anchor`` is gone, or another event has its version.
            WriterFenced: A newer writer has opened the conversation.
            UnsafeTransaction: ``connection`` is not in a transaction, or in one that is not
                durable.
            OwnerMismatch: The conversation belongs to another tenant or user.
            InvalidEvent: ``events`` is empty, a message has no content, or an event is the receipt
                of an erasure, cannot be encoded or exceeds a limit: see `eventstore.events.bounds`.
            RedactionFailed: The store's redactor raised or returned an invalid value.
        """
        started, events = time.perf_counter(), many(events)
        request = self._request(
            conversation_id,
            events,
            expected_version,
            meta,
            tenant_id,
            user_id,
            parent,
            writer_epoch,
            anchor,
            allow_empty,
        )
        outcome = self._appended(request, connection, wait)
        telemetry.appended(self.database, request.conversation_id, len(events), outcome, started)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def fork(
        self,
        source: StreamId,
        *,
        before: int | None = None,
        conversation_id: StreamId | None = None,
        title: str | None = None,
        tenant_id: str | None = None,
        user_id: str | None = None,
        new_user_id: str | None = None,
        events: Sequence[NewEvent | EventData] = (),
        meta: Meta | None = None,
    ) -> Appended:
        """Start a conversation that shares another's events up to a version, without copying them.

        One transaction, which takes as long as an append: the fork's first event is a
        ``conversation_fork`` with the version ``before``, and its versions count on from there.
        From then on, events can be appended to both conversations. Reads and views of the fork show
        the shared events, usage counts them only for the parent, and erasing them in the parent
        erases them in the fork as well.

        Args:
            source: The conversation to continue from.
            before: The first version that is not shared; by default all events are shared.
            conversation_id: The fork's id or key; by default a new id.
            title: The title in lists of conversations; by default the source's.
            tenant_id: The source must belong to this tenant.
            user_id: The source must belong to this user.
            new_user_id: The fork's user; by default the source's user.
            events: Further events to start with.
            meta: Metadata for events without their own.

        Raises:
            ConversationNotFound: The source does not exist.
            OwnerMismatch: The source belongs to another tenant or user.
            ForkRefused: The source has no event before that version, or is the hundredth fork of a
                fork.
            WrongExpectedVersion: Another conversation has the fork's id.
        """
        parent = self.stream(source, tenant_id=tenant_id, user_id=user_id)
        named_as = new_id() if conversation_id is None else conversation_id
        whose = self.whose(tenant_id, user_id)
        # Before SQLite's lock is taken: encoding and redaction may take long.
        further, most = self._prepared(events, meta) if events else (), self.max_event_bytes
        unplaced = ConversationFork(
            parent_conversation_id=str(parent), parent_version=1, title=title
        )
        [checked] = prepare([unplaced], meta, most, most, self.redact)
        begun = self._at_hand.transaction(write=True)
        with translated(self.url), begun as connection:
            point = locate(connection, parent, before, whose.tenant_id, whose.user_id)
            user = point.user_id if new_user_id is None else new_user_id
            owner = self.whose(point.tenant_id, user)
            stream, stream_key = named(named_as, owner.tenant_id)
            forked = cast(ConversationFork, checked.data).model_copy(
                update={"parent_version": point.version}
            )
            first = NewEvent(forked, derived_id(stream, "fork", point.version), checked.meta)
            request = Append(
                stream,
                prepare([first], None, self.blob_threshold, most) + further,
                point.version,
                owner.tenant_id,
                owner.user_id,
                parent=(parent, point.version),
                keys=self.keys,
                exact_tenant=owner.exact,
                stream_key=stream_key,
            )
            return fork(connection, point, request, self.clock())

    def _request(
        self,
        conversation_id: StreamId,
        events: Sequence[NewEvent | EventData],
        expected_version: Expected | int,
        meta: Meta | None,
        tenant_id: str | None,
        user_id: str | None,
        parent: tuple[UUID, int] | None,
        writer_epoch: int | None,
        anchor: Anchor | None = None,
        allow_empty: bool = False,
    ) -> Append:
        """Return an append, encoded and ready to run.

        Raises:
            InvalidEvent: As `append` does.
        """
        owner = self.whose(tenant_id, user_id)
        stream, stream_key = named(conversation_id, owner.tenant_id)
        request = Append(
            stream,
            self._prepared(events, meta, allow_empty),
            expected_version,
            owner.tenant_id,
            owner.user_id,
            writer_epoch,
            parent,
            self.keys,
            anchor=anchor,
            exact_tenant=owner.exact,
            stream_key=stream_key,
        )
        if self.keys is not None and (key := self._appending.seen_key(stream)) is not None:
            request.seal(key)
        return request

    def _prepared(
        self, events: Sequence[NewEvent | EventData], meta: Meta | None, allow_empty: bool = False
    ) -> tuple[Prepared, ...]:
        return prepare(
            events,
            meta,
            self.blob_threshold,
            self.max_event_bytes,
            self.redact,
            allow_empty=allow_empty,
        )

    def _appended(
        self, request: Append, connection: Connection | None, wait: bool
    ) -> Appended | Exception:
        if connection is None:
            return self._append_group([request], wait=wait)[0]
        try:
            return append_within(self, connection, request, self.clock())
        except Exception as error:
            return error

    def _append_group(
        self, requests: Sequence[Append], *, wait: bool = True
    ) -> list[Appended | Exception]:
        """Run many appends together; each succeeds or fails by itself.

        They share one transaction, or two: appends whose streams are at the version that this store
        saw last go first. Results are in the order of the requests, and are returned once all
        successful appends are durable. Without ``wait``, an append to a locked stream fails with
        `DatabaseBusy`.
        """
        return self._appending.run(requests, wait=wait)

    def _seen_version(self, conversation_id: UUID) -> int:
        """Return the version that this store last appended to, from memory; it may be outdated."""
        return self._appending.seen_version(conversation_id)
