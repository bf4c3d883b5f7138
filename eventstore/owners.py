"""Whose conversation it is: asked in one place, by whatever names a conversation.

A conversation is named by its id, or by the product's own key for it, which is the tenant's: the
same key of two tenants names two conversations. Who owns a conversation never changes, so it is
looked up once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Self, TypedDict
from uuid import UUID

from sqlalchemy import Select, select

from eventstore.errors import InvalidEvent, OwnerMismatch
from eventstore.ids import keyed_id, to_owner, uuid_in
from eventstore.options import require_known
from eventstore.sql.requests import check_owner
from eventstore.sql.schema import metadata_for
from eventstore.sql.streams import owner_of
from eventstore.sql.transactions import Transactions

__all__ = ["ANYBODY", "Owned", "Owner", "Owners", "named"]

_MOST_KNOWN = 8192


class Owned(TypedDict, total=False):
    """Whose a conversation must be: another owner's is refused with `OwnerMismatch`."""

    tenant_id: str | None
    user_id: str | None


@dataclass(frozen=True, slots=True)
class Owner:
    """A tenant and a user; None is not asked about.

    An ``exact`` one without a tenant owns only what has no tenant, so that users of the same name
    in two tenants are never one.
    """

    tenant_id: str | None = None
    user_id: str | None = None
    exact: bool = False

    @classmethod
    def of(cls, tenant_id: Any, user_id: Any, *, exact: bool = False) -> Self:
        """Return an owner whose names can be kept.

        Raises:
            InvalidEvent: One of them is not text, is empty or too long.
        """
        return cls(
            check_owner("tenant_id", to_owner("tenant_id", tenant_id)),
            check_owner("user_id", to_owner("user_id", user_id)),
            exact,
        )

    @property
    def asks(self) -> bool:
        """Whether there is any conversation that is refused."""
        return self.exact or self.tenant_id is not None or self.user_id is not None

    def owns(self, tenant_id: str | None, user_id: str | None) -> bool:
        """Whether a conversation of this tenant and user is theirs."""
        any_tenant = self.tenant_id is None and not self.exact
        return (any_tenant or tenant_id == self.tenant_id) and self.user_id in (None, user_id)

    def within(self, bound: Owner) -> Owner:
        """Return what of theirs the owner that a store is bound to owns as well.

        Raises:
            OwnerMismatch: That is nothing.
        """
        other_tenant = self.tenant_id not in (None, bound.tenant_id)
        other_user = bound.user_id is not None and self.user_id not in (None, bound.user_id)
        if other_tenant or other_user:
            raise OwnerMismatch(None, "the store is bound to another tenant or user")
        return replace(bound, user_id=bound.user_id or self.user_id)

    def limit(self, query: Select[Any], streams: Any) -> Select[Any]:
        """Return a query with the condition that rows of ``conversations`` are theirs.

        Args:
            query: A query that has the table in its ``FROM``.
            streams: The table's columns.
        """
        if self.tenant_id is not None or self.exact:
            query = query.where(streams.tenant_id.is_not_distinct_from(self.tenant_id))
        if self.user_id is not None:
            query = query.where(streams.user_id == self.user_id)
        return query

    def limit_by_id(self, query: Select[Any], conversation_id: Any, dialect: str) -> Select[Any]:
        """Return a query with the condition that a column holds ids of conversations of theirs."""
        if not self.asks:
            return query
        streams = metadata_for(dialect).tables["conversations"].c
        theirs = self.limit(select(streams.conversation_id), streams)
        return query.where(conversation_id.in_(theirs))


ANYBODY = Owner()


def named(conversation: UUID | str, tenant_id: str | None) -> tuple[UUID, str | None]:
    """Return the id of a conversation, and the key if it was named by one.

    Raises:
        InvalidEvent: It is neither, is empty, or too long for a key.
    """
    if isinstance(conversation, UUID):
        return conversation, None
    if not isinstance(conversation, str) or not conversation:
        raise InvalidEvent(
            f"{conversation!r} names no conversation: a UUID is needed, or a key of the product's"
        )
    return _named(conversation, tenant_id)


@lru_cache(maxsize=4096)  # a store is asked by the same text over and over
def _named(conversation: str, tenant_id: str | None) -> tuple[UUID, str | None]:
    if (found := uuid_in(conversation)) is not None:
        return found, None
    check_owner("key", conversation)
    return keyed_id(conversation, tenant_id), conversation


@dataclass(slots=True)
class Owners:
    """Who owns which conversation, as a store that may be bound to one owner asks about it."""

    transactions: Transactions
    bound: Owner = ANYBODY
    _known: dict[UUID, tuple[str | None, str | None]] = field(default_factory=dict)

    def narrowed(self, owner: Owner, transactions: Transactions) -> Owners:
        """Return the same, bound to an owner, in transactions of a store that is.

        Raises:
            OwnerMismatch: This one is bound to another.
        """
        return Owners(transactions, self.asked(owner), self._known)

    def asked(self, owner: Owner) -> Owner:
        """Return whose a conversation must be if this owner is named for it.

        Raises:
            OwnerMismatch: This one is bound to another.
        """
        return owner.within(self.bound) if self.bound.asks else owner

    def stream(self, conversation: UUID | str, owner: Owned) -> tuple[UUID, str | None]:
        """Return a conversation's id, and the key if it was named by one.

        Raises:
            OwnerMismatch: It is another owner's than this one is bound to, or than was named.
            InvalidEvent: It is named by neither an id nor a key.
            TypeError: The owner has something else than a tenant and a user.
        """
        require_known(owner, Owned)
        asked = self.asked(Owner.of(owner.get("tenant_id"), owner.get("user_id")))
        stream, key = named(conversation, asked.tenant_id)
        if asked.asks:
            found = self._known.get(stream) or self._look_up(stream)
            if found is not None and not asked.owns(*found):
                raise OwnerMismatch(stream)
        return stream, key

    def _look_up(self, conversation_id: UUID) -> tuple[str | None, str | None] | None:
        with self.transactions.reading() as connection:
            found = owner_of(connection, conversation_id)
        if found is not None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[conversation_id] = found
        return found

    def everything(self, what: str) -> None:
        """Refuse what concerns the whole store, if only one owner's conversations may be touched.

        Raises:
            OwnerMismatch: It is bound to an owner.
        """
        if self.bound.asks:
            raise OwnerMismatch(
                None, f"{what} concerns all owners: call it on the store, not on one of for_owner()"
            )
