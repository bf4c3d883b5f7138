"""The turns of a session: user messages, tool calls and usage by turn.

The results have the shapes of the SDK's `AdvancedSQLiteSession`. Each user message begins a turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from string import ascii_lowercase, ascii_uppercase
from typing import Any, TypeVar
from uuid import UUID

from agent_eventstore.integrations.openai_agents import EventStoreSession
from agent_eventstore.integrations.openai_branch_names import BranchNames
from agent_eventstore.integrations.openai_events import MAIN
from agent_eventstore.integrations.openai_history import live_events, live_items
from agent_eventstore.integrations.openai_items import items_in
from agent_eventstore.integrations.openai_usage import calls_to_tell, turn_usage
from eventstore import EventStore
from eventstore.bill import kept

__all__ = ["SessionTurns", "numbered", "turns_of"]

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
            each for each in turns if wanted in _said_in(each["full_content"]).translate(_SMALL)
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
            self._end.append(lambda writer: [writer.place(each) for each in kept(calls)])


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
                said = _said_in(content)
                found.append(
                    {
                        "turn": len(found) + 1,
                        "content": said if len(said) <= _SHOWN else f"{said[:_SHOWN]}...",
                        "full_content": content,
                        "timestamp": times[event.version].isoformat(),
                        "can_branch": True,
                        "version": event.version,
                    }
                )
    return found


def _said_in(content: Any) -> str:
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
