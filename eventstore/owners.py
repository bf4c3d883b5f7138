"""Ownership of conversations, checked in one place whenever a caller names a conversation.

A caller names a conversation by its id or by the product's own key for it. Keys are per tenant: the
same key in two tenants names two conversations. A conversation's owner never changes, but its id
can begin another one once it is purged, in any process: so the owner is looked up at each call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self, TypedDict
from uuid import UUID

from sqlalchemy import Select, select

from eventstore.arguments import require_known
from eventstore.errors import InvalidEvent, OwnerMismatch
from eventstore.ids import keyed_id, to_owner, uuid_in
from eventstore.sql.append_requests import check_owner
from eventstore.sql.schema import metadata_for
from eventstore.sql.streams import archived_owner, owner_of
from eventstore.sql.transactions import Transactions

__all__ = ["ANY_OWNER", "Owned", "Owner", "Owners", "named"]


class Owned(TypedDict, total=False):
    """The owner that a conversation must have; otherwise `OwnerMismatch` is raised."""

    tenant_id: str | None
    user_id: str | None


@dataclass(frozen=True, slots=True)
class Owner:
    """A tenant and a user; None matches any.

    An ``exact`` owner without a tenant owns only conversations without a tenant, so that users with
    the same id in two tenants are never confused.
    """

    tenant_id: str | None = None
    user_id: str | None = None
    exact: bool = False

    @classmethod
    def of(cls, tenant_id: Any, user_id: Any, *, exact: bool = False) -> Self:
        """Return an owner whose ids can be stored.

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
        """Whether the owner excludes any conversation."""
        return self.exact or self.tenant_id is not None or self.user_id is not None

    def owns(self, tenant_id: str | None, user_id: str | None) -> bool:
        """Whether a conversation of this tenant and user belongs to the owner."""
        any_tenant = self.tenant_id is None and not self.exact
        return (any_tenant or tenant_id == self.tenant_id) and self.user_id in (None, user_id)

    def within(self, bound: Owner) -> Owner:
        """Return the intersection of this owner and the owner that a store is bound to.

        Raises:
            OwnerMismatch: They have nothing in common.
        """
        other_tenant = self.tenant_id not in (None, bound.tenant_id)
        other_user = bound.user_id is not None and self.user_id not in (None, bound.user_id)
        if other_tenant or other_user:
            raise OwnerMismatch(None, "the store is bound to another tenant or user")
        return replace(bound, user_id=bound.user_id or self.user_id)

    def limit(self, query: Select[Any], streams: Any) -> Select[Any]:
        """Limit a query to rows of ``conversations`` that belong to the owner.

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
        """Limit a query to rows whose column holds the id of a conversation of the owner."""
        if not self.asks:
            return query
        streams = metadata_for(dialect).tables["conversations"].c
        theirs = self.limit(select(streams.conversation_id), streams)
        return query.where(conversation_id.in_(theirs))


ANY_OWNER = Owner()


def named(conversation: UUID | str, tenant_id: str | None) -> tuple[UUID, str | None]:
    """Return a conversation's id, and its key if the caller named it by key.

    Raises:
        InvalidEvent: It is neither, is empty, or is too long for a key.
    """
    if isinstance(conversation, UUID):
        return conversation, None
    if not isinstance(conversation, str) or not conversation:
        raise InvalidEvent(
            f"{conversation!r} is not a conversation: pass a UUID or your product's key for it"
        )
    return _named(conversation, tenant_id)


@lru_cache(maxsize=4096)  # callers pass the same text over and over
def _named(conversation: str, tenant_id: str | None) -> tuple[UUID, str | None]:
    if (found := uuid_in(conversation)) is not None:
        return found, None
    check_owner("key", conversation)
    return keyed_id(conversation, tenant_id), conversation


@dataclass(slots=True)
class Owners:
    """Checks the owners of conversations, for a store that may be bound to one owner."""

    transactions: Transactions
    bound: Owner = ANY_OWNER

    def narrowed(self, owner: Owner, transactions: Transactions) -> Owners:
        """Return these owners bound to an owner, using the transactions of a bound store.

        Raises:
            OwnerMismatch: They are already bound to another owner.
        """
        return Owners(transactions, self.resolve(owner))

    def resolve(self, owner: Owner) -> Owner:
        """Return the owner that a conversation must have if the caller names this one.

        Raises:
            OwnerMismatch: The store is bound to another owner.
        """
        return owner.within(self.bound) if self.bound.asks else owner

    def stream(self, conversation: UUID | str, owner: Owned) -> tuple[UUID, str | None]:
        """Return a conversation's id, and its key if the caller named it by key.

        Raises:
            OwnerMismatch: It belongs to an owner other than the one given or the store's own.
            InvalidEvent: The name is neither an id nor a key.
            TypeError: ``owner`` has options other than a tenant and a user.
        """
        require_known(owner, Owned)
        requested = self.resolve(Owner.of(owner.get("tenant_id"), owner.get("user_id")))
        stream, key = named(conversation, requested.tenant_id)
        if requested.asks:
            with self.transactions._driver_transaction() as connection:
                found = owner_of(connection, stream) or archived_owner(connection, stream)
            if found is not None and not requested.owns(*found):
                raise OwnerMismatch(stream)
        return stream, key

    def everything(self, what: str) -> None:
        """Refuse a call that concerns the whole store if it cannot see the whole store.

        Raises:
            OwnerMismatch: The store is bound to an owner, or row-level security limits its login.
        """
        if self.bound.asks:
            raise OwnerMismatch(
                None, f"{what} concerns all owners: call it on a store that is not bound to one"
            )
        if self.transactions._is_limited():
            raise OwnerMismatch(
                None,
                f"{what} concerns all owners, but row-level security shows this login the rows of "
                "one at most: connect as the tables' owner or as a role with BYPASSRLS",
            )
