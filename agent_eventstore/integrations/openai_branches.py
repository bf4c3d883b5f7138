"""`BranchingSession`: a session with branches, turns, usage and tool use, named as in the SDK.

It has the methods of `AdvancedSQLiteSession`, on `EventStoreSession`. A branch is a fork of the
conversation: no item is copied, and usage is counted where it was spent.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

from agent_eventstore.branching import fork_point
from agent_eventstore.integrations.openai_cache import newest_items
from agent_eventstore.integrations.openai_end import BranchDeleted, SessionEnd
from agent_eventstore.integrations.openai_events import MAIN, OpenAIBranch
from agent_eventstore.integrations.openai_history import live_items
from agent_eventstore.integrations.openai_turns import SessionTurns, numbered, turns_of
from eventstore.errors import WrongExpectedVersion

__all__ = ["BranchingSession"]

T = TypeVar("T")


class BranchingSession(SessionTurns):
    """A session with branches: items are read from and added to the current one.

    Each object has its own current branch, at first ``main``. If another object has deleted the
    current branch, calls that need it raise `ValueError`. If the other object has cleared the
    session, this one goes to ``main``.
    """

    async def get_items(
        self, limit: int | None = None, branch_id: str | None = None, *, wrapper: Any = None
    ) -> list[Any]:
        """Return the newest items of the current branch, as `EventStoreSession`, or of another.

        As in the SDK, an unknown branch has no items.
        """
        if branch_id is None or branch_id == self.branch:
            return await super().get_items(limit, wrapper=wrapper)
        return await self._run(self._items_of, branch_id, self._most(limit))

    async def create_branch_from_turn(
        self, turn_number: int, branch_name: str | None = None
    ) -> str:
        """Create a branch with everything before a turn, go to it, and return its name.

        Raises:
            ValueError: The turn does not exist, or the name is blank or was used before.
        """
        return await self._run(self._create, turn_number, branch_name)

    async def create_branch_from_content(
        self, search_term: str, branch_name: str | None = None
    ) -> str:
        """Create a branch before the first turn whose user message contains a text.

        Raises:
            ValueError: No message contains it, or the name is blank or was used before.
        """
        found = await self.find_turns_by_content(search_term)
        if not found:
            raise ValueError(f"No user turns found containing {search_term!r}")
        return await self.create_branch_from_turn(found[0]["turn"], branch_name)

    async def switch_to_branch(self, branch_id: str) -> None:
        """Go to a branch.

        Raises:
            ValueError: The branch does not exist.
        """
        await self._run(self._switch, branch_id)

    async def delete_branch(self, branch_id: str, force: bool = False) -> None:
        """Delete a branch; with ``erase``, erase its own items. Its name cannot be used again.

        Raises:
            ValueError: The branch does not exist, is ``main``, or is the current one without
                ``force``; with ``force``, the session goes to ``main`` first.
        """
        await self._run(self._delete, branch_id, force)

    async def clear_session(self, *, wrapper: Any = None) -> None:
        """Delete all branches, go to ``main`` and withdraw its items; names stay used."""
        await self._run(self._clear)

    async def list_branches(self) -> list[dict[str, Any]]:
        """Return each branch: name, number of items and turns, creation time, whether current."""
        with suppress(BranchDeleted):  # the list shows the branches to switch to
            await self._run(self._stream, None)
        return await self._run(lambda: [self._described(each) for each in self._branches()])

    async def _run(self, work: Callable[..., T], *given: Any) -> T:
        return await super()._run(self._on_branch, work, *given)

    def _on_branch(self, work: Callable[..., T], *given: Any) -> T:
        try:
            return work(*given)
        except BranchDeleted as gone:
            if not gone.cleared:
                raise
            self._go(MAIN)
            return work(*given)

    def _get(self, limit: int | None) -> list[Any]:
        self._stream(None)
        return super()._get(limit)

    def _stream(self, branch: str | None) -> UUID:
        if branch is None and self.branch != MAIN:
            self._end.newest(1)
        return super()._stream(branch)

    def _items_of(self, branch: str, limit: int | None) -> list[Any]:
        if branch not in self._branches():
            return []
        return newest_items(self.store, self._stream_of(branch), limit)[0]

    def _create(self, turn: int, name: str | None) -> str:
        if name is not None and not name.strip():
            raise ValueError("Branch name cannot be empty")
        turns, used = self._of(turns_of, None), self._branches(used=True)
        if not 1 <= turn <= len(turns):
            raise ValueError(
                f"Turn {turn} does not contain a user message in branch {self.branch!r}"
            )
        source = self._stream(None)
        before = fork_point(self.store, source, turns[turn - 1]["version"]).before
        names = (f"branch_{n}_from_turn_{turn}" for n in count(1)) if name is None else [name]
        for chosen in names:
            # An erased branch, or one that another object is creating, has no event here.
            with suppress(WrongExpectedVersion):
                if chosen not in used:
                    key = self._key_of(chosen)
                    self.store.fork(source, before=before, conversation_id=key, **self.owner)
                    break
        else:
            raise ValueError(f"Branch ID {name!r} has already been used")
        created = OpenAIBranch(name=chosen, parent=self.branch, turn=turn)
        self.store.append(self.session_id, created, **self.owner)
        self._go(chosen)
        return chosen

    def _switch(self, branch: str) -> None:
        self._go(self._known(branch))

    def _go(self, branch: str) -> None:
        self.branch, run = branch, self._end.run
        self._end = SessionEnd(
            self.store, self._key_of(branch), self.owner, branch, lambda: branch in self._branches()
        )
        self._end.run = run

    def _delete(self, branch: str, force: bool) -> None:
        if not branch.strip():
            raise ValueError("Branch ID cannot be empty")
        if branch == MAIN:
            raise ValueError("Cannot delete the 'main' branch")
        self._known(branch)
        if branch == self.branch:
            if not force:
                raise ValueError(
                    f"Cannot delete current branch {branch!r}: switch, or use force=True"
                )
            self._go(MAIN)
        self._drop(branch)

    def _drop(self, branch: str, *, cleared: bool = False) -> None:
        deleted = OpenAIBranch(name=branch, deleted=True, cleared=cleared)
        # Recorded on the branch first, where objects that are on it will read it: if the process
        # dies in between, the branch is still listed, and can be deleted again.
        if self.erase:
            end = SessionEnd(self.store, self._key_of(branch), self.owner, branch)
            with suppress(BranchDeleted):
                end.erase(lambda: None, lambda writer: [writer.place(deleted)], "delete_branch")
        else:
            self.store.append(self._key_of(branch), deleted, **self.owner)
        self.store.append(self.session_id, deleted, **self.owner)

    def _clear(self) -> None:
        self._go(MAIN)
        for branch in self._branches():
            if branch != MAIN:
                self._drop(branch, cleared=True)
        self._replace_all(())

    def _described(self, branch: str) -> dict[str, Any]:
        stream = self._stream_of(branch)  # deleted since it was listed: without items
        items = [each.item for each in live_items(self.store, stream)]
        info = self.store.get(stream, **self.owner) if items or branch != MAIN else None
        return {
            "branch_id": branch,
            "message_count": len(items),
            "user_turns": max((turn for turn, _ in numbered(items)), default=0),
            "is_current": branch == self.branch,
            "created_at": info and info.created_at.isoformat(),
        }
