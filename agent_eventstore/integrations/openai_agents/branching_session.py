"""`BranchingSession`: a session with branches, turns, usage and tool use, named as in the SDK.

It has the methods of `AdvancedSQLiteSession`, on `EventStoreSession`. A branch is a fork of the
conversation: no item is copied, and usage is counted where it was spent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import count
from string import ascii_lowercase, ascii_uppercase
from typing import Any, TypeVar
from uuid import UUID

from agent_eventstore.branching import fork_point
from agent_eventstore.integrations.conversation_events import (
    ConversationTail,
    events_after,
    news_of,
)
from agent_eventstore.integrations.openai_agents.end import BranchDeleted, SessionTail
from agent_eventstore.integrations.openai_agents.events import MAIN, OpenAIBranch
from agent_eventstore.integrations.openai_agents.history import (
    live_events,
    live_items,
    newest_items,
)
from agent_eventstore.integrations.openai_agents.items import items_in
from agent_eventstore.integrations.openai_agents.session import EventStoreSession
from agent_eventstore.integrations.openai_agents.usage import calls_to_tell, turn_usage
from eventstore import EventStore
from eventstore.database import EventText, driver_transaction
from eventstore.erasure.bill import usage_events
from eventstore.errors import WrongExpectedVersion
from eventstore.events.codec import loads_json

__all__ = ["BranchNames", "BranchingSession", "SessionTurns", "numbered", "turns_of"]


class BranchNames:
    """The branches of one session; each read fetches only the events since the last one."""

    def __init__(self, store: EventStore, main: UUID) -> None:
        self._store, self._main = store, main
        self._head: ConversationTail | None = None
        self._exists = {MAIN: True}

    def read(self, *, used: bool = False) -> list[str]:
        """Return the names of all branches; with ``used``, including deleted ones."""
        with driver_transaction(self._store) as connection:
            head, news = news_of(connection, self._main, self._head)
        if news is None:
            events = events_after(self._store, self._main, 0, before=head.version + 1)
            self._exists = _folded({MAIN: True}, events)
        else:
            self._exists = _folded(self._exists, news)
        self._head = head
        return [name for name, exists in self._exists.items() if exists or used]


def _folded(exists: dict[str, bool], events: Iterable[EventText]) -> dict[str, bool]:
    """Return whether each branch exists after more events."""
    exists = {**exists}
    for event in events:
        if event.type == OpenAIBranch.type and event.text is not None:
            branch = loads_json(event.text)
            exists[branch["name"]] = not branch["deleted"]
    return exists


T = TypeVar("T")


_COUNTS = ("requests", "input_tokens", "output_tokens", "total_tokens")


_SHOWN = 100  # characters of a message


_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)


class SessionTurns(EventStoreSession):
    """A session that reports turns, tools and usage, of the current branch or of another one."""

    branch = MAIN

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[dict[str, Any]]:
        """Return the turns of a branch: number, user message, and time."""
        return await self._run(self._of, turns_of, branch_id)

    async def find_turns_by_content(
        self, search_term: str, branch_id: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the turns of a branch whose user message contains a text; ignores ASCII case."""
        wanted = search_term.translate(_SMALL)
        turns = await self._run(self._of, turns_of, branch_id)
        return [
            each for each in turns if wanted in _text_in(each["full_content"]).translate(_SMALL)
        ]

    async def get_conversation_by_turns(
        self, branch_id: str | None = None
    ) -> dict[int, list[dict[str, str | None]]]:
        """Return the type and tool of each item of a branch, by turn."""
        found: dict[int, list[dict[str, str | None]]] = {}
        for turn, item in numbered(await self._items(branch_id)):
            found.setdefault(turn, []).append({"type": _type(item), "tool_name": _tool(item)})
        return found

    async def get_tool_usage(self, branch_id: str | None = None) -> list[tuple[str, int, int]]:
        """Return how often each turn of a branch called each tool: name, count, turn."""
        return _tool_usage(await self._items(branch_id))

    async def get_session_usage(self, branch_id: str | None = None) -> dict[str, int] | None:
        """Return the tokens of a branch's own calls, or of all branches; None without any call."""
        totals: Counter[str] = Counter()
        for usage in await self._run(self._usages, branch_id):
            totals.update({key: usage[key] for key in _COUNTS} | {"total_turns": 1})
        return dict(totals) if totals else None

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """Return the tokens of one turn of a branch, or of each; ``{}`` if a turn has no call."""
        found: dict[int, dict[str, Any]] = await self._run(self._of, turn_usage, branch_id)
        if user_turn_number is not None:
            return found.get(user_turn_number, {})
        return [{"user_turn_number": turn, **usage} for turn, usage in sorted(found.items())]

    async def store_run_usage(self, result: Any) -> None:
        """Record the usage of the last turn, unless its answers were added with their usage."""
        await self._run(self._store_usage, result.context_wrapper.usage)

    async def _items(self, branch: str | None) -> list[Any]:
        return await self._run(
            lambda: [each.item for each in live_items(self.store, self._stream(branch))]
        )

    def _usages(self, branch: str | None) -> list[dict[str, Any]]:
        """Return the tokens of each turn of a branch, or of all branches."""
        streams = [self._stream(branch)] if branch else [*map(self._stream_of, self._branches())]
        return [usage for each in streams for usage in turn_usage(self.store, each).values()]

    def _of(self, read: Callable[[EventStore, UUID], T], branch: str | None) -> T:
        """Return the result of ``read`` for a branch."""
        return read(self.store, self._stream(branch))

    def _stream(self, branch: str | None) -> UUID:
        """Return the conversation id of a branch."""
        return self._stream_of(self.branch if branch is None else self._known(branch))

    def _stream_of(self, branch: str) -> UUID:
        """Return the conversation id of a branch, without checking that the branch exists."""
        return self.store.stream(self._key_of(branch), **self.owner)

    def _key_of(self, branch: str) -> str:
        return self.session_id if branch == MAIN else f"{self.session_id}#{branch}"

    def _known(self, branch: str) -> str:
        if branch not in self._branches():
            raise ValueError(f"Branch {branch!r} does not exist")
        return branch

    def _branches(self, *, used: bool = False) -> list[str]:
        """Return the names of all branches; with ``used``, including deleted ones."""
        return self._branch_names.read(used=used)

    @cached_property
    def _branch_names(self) -> BranchNames:
        return BranchNames(self.store, self._stream_of(MAIN))

    def _store_usage(self, usage: Any) -> None:
        if calls := calls_to_tell(self.store, self._stream(None), usage):
            self._end.append(lambda writer: [writer.place(each) for each in usage_events(calls)])


def _tool_usage(items: Iterable[Any]) -> list[tuple[str, int, int]]:
    """Return how often each turn called each tool: name, count, turn.

    If a turn has no call of the tool search, its outputs are counted instead.
    """
    counts: Counter[tuple[int, str]] = Counter()
    searches: Counter[int] = Counter()
    for turn, item in numbered(items):
        kind = _type(item)
        if kind.endswith("_call") or kind == "mcp_approval_request":
            counts[turn, _tool(item) or kind] += 1
        searches[turn] += kind == "tool_search_output"
    for turn, outputs in searches.items():
        if outputs and not counts[turn, "tool_search"]:
            counts[turn, "tool_search"] = outputs
    return [(name, count, turn) for (turn, name), count in counts.items() if count]


def numbered(items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the turn of each item, and the item; one that is not an object is of no known type."""
    turn = 0
    for item in items:
        known = item if isinstance(item, dict) else {}
        turn += known.get("role") == "user"
        yield turn, known


def turns_of(store: EventStore, stream: UUID) -> list[dict[str, Any]]:
    """Return a conversation's turns: number, user message, time, and version."""
    found: list[dict[str, Any]] = []
    times = {each.version: each.recorded_at for each in store.read(stream)}
    for event in reversed(list(live_events(store, stream))):
        for item in items_in(event):
            if isinstance(item, dict) and item.get("role") == "user":
                content = item.get("content")
                user_text = _text_in(content)
                found.append(
                    {
                        "turn": len(found) + 1,
                        "content": user_text
                        if len(user_text) <= _SHOWN
                        else f"{user_text[:_SHOWN]}...",
                        "full_content": content,
                        "timestamp": times[event.version].isoformat(),
                        "can_branch": True,
                        "version": event.version,
                    }
                )
    return found


def _text_in(content: Any) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(each.get("text", "")) for each in parts if isinstance(each, dict))


def _type(item: Any) -> str:
    return str(item.get("role") or item.get("type") or "other")


def _tool(item: Any) -> str | None:
    kind, name, space = str(item.get("type")), item.get("name"), item.get("namespace")
    if name and space and space != name:  # deferred tools have their own name as namespace
        return f"{space}.{name}"
    if kind.startswith("mcp_") and item.get("server_label"):
        return f"{item['server_label']}.{name}" if name else str(item["server_label"])
    if name is None and kind.startswith("tool_search"):
        return "tool_search"
    return name or (kind if kind.endswith("_call") else None)


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
        self._end = SessionTail(
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
            end = SessionTail(self.store, self._key_of(branch), self.owner, branch)
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
