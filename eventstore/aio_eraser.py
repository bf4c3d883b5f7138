"""What an asynchronous store takes away for good: `eventstore.eraser`, by way of its threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ParamSpec, TypeVar, Unpack

from eventstore.eraser import UserErasure
from eventstore.erasure import ErasureReceipt
from eventstore.ids import StreamId
from eventstore.owners import Owned
from eventstore.purging import PurgeReceipt
from eventstore.store import EventStore

__all__ = ["AsyncEraser"]

P = ParamSpec("P")
T = TypeVar("T")


class AsyncEraser:
    """`EventEraser` for asyncio; `AsyncEventStore` is one."""

    store: EventStore

    async def _run(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run a function in a thread of the store's."""
        raise NotImplementedError

    async def erase(
        self,
        conversation_id: StreamId,
        *,
        reason: str,
        versions: Iterable[int] | None = None,
        requested_by: str | None = None,
        state_directory: str | Path | None = None,
        vacuum: bool = False,
        derived: bool = True,
        keep_usage: bool = True,
        **owner: Unpack[Owned],
    ) -> ErasureReceipt:
        """Erase a conversation's payloads for good; see `EventStore.erase`."""
        return await self._run(
            self.store.erase,
            conversation_id,
            reason=reason,
            versions=versions,
            requested_by=requested_by,
            state_directory=state_directory,
            vacuum=vacuum,
            derived=derived,
            keep_usage=keep_usage,
            **owner,
        )

    async def vacuum(self) -> None:
        """Rewrite all tables that hold what was said, without what was erased."""
        await self._run(self.store.vacuum)

    async def erase_user(
        self,
        user_id: str,
        *,
        reason: str,
        tenant_id: str | None = None,
        requested_by: str | None = None,
        state_directory: str | Path | None = None,
        vacuum: bool = False,
        keep_usage: bool = True,
    ) -> UserErasure:
        """Erase all conversations of a user, one after another; see `EventStore.erase_user`."""
        return await self._run(
            self.store.erase_user,
            user_id,
            reason=reason,
            tenant_id=tenant_id,
            requested_by=requested_by,
            state_directory=state_directory,
            vacuum=vacuum,
            keep_usage=keep_usage,
        )

    async def purge(
        self,
        conversation_id: StreamId,
        *,
        reason: str,
        forks: bool = False,
        requested_by: str | None = None,
        state_directory: str | Path | None = None,
        vacuum: bool = False,
        **owner: Unpack[Owned],
    ) -> PurgeReceipt:
        """Delete a conversation, which leaves a receipt alone; see `EventStore.purge`."""
        return await self._run(
            self.store.purge,
            conversation_id,
            reason=reason,
            forks=forks,
            requested_by=requested_by,
            state_directory=state_directory,
            vacuum=vacuum,
            **owner,
        )
