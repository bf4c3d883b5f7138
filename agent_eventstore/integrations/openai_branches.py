"""`BranchingSession`: branches, turns, usage and tool use of a session, by the SDK's own names.

What `AdvancedSQLiteSession` offers, on `EventStoreSession`. A branch is a fork of the conversation:
no item is copied, and usage is counted where it was spent.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any
from uuid import UUID

from agent_eventstore.branching import fork_point
from agent_eventstore.integrations.conversation_pages import events_after
from agent_eventstore.integrations.openai_agents import EventStoreSession
from agent_eventstore.integrations.openai_cache import newest_items
from agent_eventstore.integrations.openai_events import MAIN, OpenAIBranch
from agent_eventstore.integrations.openai_history import live_events, live_items
from agent_eventstore.integrations.openai_items import items_in
from agent_eventstore.integrations.openai_usage import told_later
from eventstore.bill import bills, kept
from eventstore.events import AssistantMessage, UserMessage
from eventstore.events.codec import loads_json
from projections import Views

__all__ = ["BranchingSession"]

_SHOWN = 100
_FEW = 20  # items of a turn, of which most have no more


class BranchingSession(EventStoreSession):
    """A session with branches: items are read from the current one, and added to it.

    Which branch is current is known to this object alone; a new one begins in ``main``.
    """

    branch = MAIN

    async def get_items(
        self, limit: int | None = None, branch_id: str | None = None, *, wrapper: Any = None
    ) -> list[Any]:
        """Return the newest items of the current branch as `EventStoreSession` does, or another's.

        Raises:
            ValueError: There is no branch of this name.
        """
        if branch_id is None or branch_id == self.branch:
            return await super().get_items(limit, wrapper=wrapper)
        limit = self._most(limit)
        return await self._run(lambda: newest_items(self.store, self._stream(branch_id), limit)[0])

    async def create_branch_from_turn(
        self, turn_number: int, branch_name: str | None = None
    ) -> str:
        """Begin a branch with all that stands before a turn, go to it, and return its name.

        Raises:
            ValueError: There is no such turn, or the name is blank or was used before.
        """
        return await self._run(partial(self._create, turn_number, branch_name))

    async def create_branch_from_content(
        self, search_term: str, branch_name: str | None = None
    ) -> str:
        """Begin a branch before the first turn whose message holds a text.

        Raises:
            ValueError: There is none, or the name is blank or was used before.
        """
        found = await self.find_turns_by_content(search_term)
        if not found:
            raise ValueError(f"no message of the user's holds {search_term!r}")
        return await self.create_branch_from_turn(found[0]["turn"], branch_name)

    async def switch_to_branch(self, branch_id: str) -> None:
        """Go to a branch.

        Raises:
            ValueError: There is none of this name.
        """
        await self._run(partial(self._switch, branch_id))

    async def delete_branch(self, branch_id: str, force: bool = False) -> None:
        """Delete a branch; with ``erase``, its own items are erased. Its name stays used.

        Raises:
            ValueError: There is none of this name, it is ``main``, or it is the current one and
                ``force`` does not have it left for ``main``.
        """
        await self._run(partial(self._delete, branch_id, force))

    async def list_branches(self) -> list[dict[str, Any]]:
        """Return each branch: its name, number of items and of turns, beginning, and if current."""
        return await self._run(lambda: [self._described(each) for each in self._branches()])

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[dict[str, Any]]:
        """Return the turns of a branch: number, what the user said, and when."""
        return await self._run(partial(self._turns, branch_id))

    async def find_turns_by_content(
        self, search_term: str, branch_id: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the turns of a branch whose message holds a text, in small or capital letters."""
        wanted = search_term.casefold()
        turns = await self._run(partial(self._turns, branch_id))
        return [each for each in turns if wanted in _said(each["full_content"]).casefold()]

    async def get_conversation_by_turns(
        self, branch_id: str | None = None
    ) -> dict[int, list[dict[str, str | None]]]:
        """Return of each item of a branch its type and its tool, by turn."""
        found: dict[int, list[dict[str, str | None]]] = {}
        turn = 0
        for item in await self._items(branch_id):
            turn += item.get("role") == "user"
            found.setdefault(turn, []).append({"type": _type(item), "tool_name": _tool(item)})
        return found

    async def get_tool_usage(self, branch_id: str | None = None) -> list[tuple[str, int, int]]:
        """Return how often each tool was called in each turn of a branch: name, count, turn."""
        counts: Counter[tuple[int, str]] = Counter()
        turn = 0
        for item in await self._items(branch_id):
            turn += item.get("role") == "user"
            kind = _type(item)
            if kind.endswith("_call") or kind == "mcp_approval_request":
                counts[turn, _tool(item) or kind] += 1
        return [(name, count, turn) for (turn, name), count in counts.items()]

    async def get_session_usage(self, branch_id: str | None = None) -> dict[str, int] | None:
        """Return the tokens of a branch's own calls, or of all branches; None without any call."""
        names = [branch_id] if branch_id else await self._run(self._branches)
        totals: Counter[str] = Counter()
        for name in names:
            for usage in (await self._run(partial(self._turn_usage, name))).values():
                totals.update({key: usage[key] for key in _COUNTS} | {"total_turns": 1})
        return dict(totals) if totals else None

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """Return the tokens of a turn of a branch, or of each; ``{}`` of one without a call."""
        found = await self._run(partial(self._turn_usage, branch_id))
        if user_turn_number is not None:
            return found.get(user_turn_number, {})
        return [{"user_turn_number": turn, **usage} for turn, usage in sorted(found.items())]

    async def store_run_usage(self, result: Any) -> None:
        """Record what the last turn has used, unless its answers were added with their usage."""
        await self._run(partial(self._store_usage, result.context_wrapper.usage))

    async def _items(self, branch: str | None) -> list[Any]:
        return await self._run(
            lambda: [each.item for each in live_items(self.store, self._stream(branch))]
        )

    def _stream(self, branch: str | None) -> UUID:
        """Return the conversation of a branch."""
        name = self.branch if branch is None else self._known(branch)
        return self.store.stream(self._key_of(name), **self.owner)

    def _key_of(self, branch: str) -> str:
        return self.session_id if branch == MAIN else f"{self.session_id}#{branch}"

    def _known(self, branch: str) -> str:
        if branch not in self._branches():
            raise ValueError(f"session {self.session_id} has no branch {branch!r}")
        return branch

    def _branches(self, *, used: bool = False) -> list[str]:
        """Return the names of all branches; with ``used``, of deleted ones too."""
        main = self.store.stream(self.session_id, **self.owner)
        found = {MAIN: True}
        for event in events_after(self.store, main, 0):
            if event.type == OpenAIBranch.type and event.text is not None:
                told = loads_json(event.text)
                found[told["name"]] = not told["deleted"]
        return [name for name, there in found.items() if there or used]

    def _create(self, turn: int, name: str | None) -> str:
        if name is not None and not name.strip():
            raise ValueError("the name of a branch cannot be blank")
        turns, used = self._turns(None), self._branches(used=True)
        if not 1 <= turn <= len(turns):
            raise ValueError(f"branch {self.branch!r} has no turn {turn}: it has {len(turns)}")
        chosen = name or next(
            each
            for n in range(1, len(used) + 2)
            if (each := f"branch_{n}_from_turn_{turn}") not in used
        )
        if chosen in used:
            raise ValueError(f"the name {chosen!r} was used before")
        source = self._stream(None)
        self.store.fork(
            source,
            before=fork_point(self.store, source, turns[turn - 1]["version"]).before,
            conversation_id=self._key_of(chosen),
            **self.owner,
        )
        told = OpenAIBranch(name=chosen, parent=self.branch, turn=turn)
        self.store.append(self.session_id, told, **self.owner)
        self._go(chosen)
        return chosen

    def _switch(self, branch: str) -> None:
        self._go(self._known(branch))

    def _go(self, branch: str) -> None:
        self.branch, self._key = branch, self._key_of(branch)
        self._writer = self._seen = None

    def _delete(self, branch: str, force: bool) -> None:
        if branch == MAIN:
            raise ValueError("the branch 'main' cannot be deleted")
        stream = self._stream(branch)
        if branch == self.branch:
            if not force:
                raise ValueError(f"{branch!r} is the current branch: switch, or use force=True")
            self._go(MAIN)
        self.store.append(self.session_id, OpenAIBranch(name=branch, deleted=True), **self.owner)
        if self.erase:
            self.store.erase(stream, reason="delete_branch", **self.owner)

    def _described(self, branch: str) -> dict[str, Any]:
        stream = self._stream(branch)
        items = [each.item for each in live_items(self.store, stream)]
        info = self.store.get(stream, **self.owner) if items or branch != MAIN else None
        return {
            "branch_id": branch,
            "message_count": len(items),
            "user_turns": sum(item.get("role") == "user" for item in items),
            "is_current": branch == self.branch,
            "created_at": info and info.created_at.isoformat(),
        }

    def _turns(self, branch: str | None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        stream = self._stream(branch)
        times = {each.version: each.recorded_at for each in self.store.read(stream)}
        for event in reversed(list(live_events(self.store, stream))):
            for item in items_in(event):
                if isinstance(item, dict) and item.get("role") == "user":
                    content = item.get("content")
                    said = _said(content)
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

    def _store_usage(self, usage: Any) -> None:
        answers = set[int]()
        for event in live_events(self.store, stream := self._stream(None), _FEW):
            if event.type == UserMessage.type:
                break
            if event.type == AssistantMessage.type:
                answers.add(event.version)
        calls = told_later(usage, bills(self.store.read(stream), answers)) if answers else []
        if calls:
            self._append(lambda writer: [writer.place(each) for each in kept(calls)])

    def _turn_usage(self, branch: str | None) -> dict[int, dict[str, Any]]:
        """Return the tokens of the calls of a branch, by turn."""
        stream, turns = self._stream(branch), dict[str, int]()
        events = list(live_events(self.store, stream))
        for event in reversed(events):
            if event.type == UserMessage.type:
                turns.setdefault(str(loads_json(event.meta).get("turn")), len(turns) + 1)
        found: dict[int, dict[str, Any]] = {}
        views = Views(self.store)
        for row in views.usage(by="turn", conversation_id=stream) if events else ():
            turn = turns.get((row.key or "").rpartition("/")[2])
            if turn is not None and row.total_tokens is not None:
                found[turn] = {
                    "requests": row.calls,
                    "input_tokens": row.prompt_tokens or 0,
                    "output_tokens": row.completion_tokens or 0,
                    "total_tokens": row.total_tokens or 0,
                    "input_tokens_details": {"cached_tokens": row.cached_prompt_tokens},
                    "output_tokens_details": {"reasoning_tokens": row.reasoning_tokens},
                }
        return found


_COUNTS = ("requests", "input_tokens", "output_tokens", "total_tokens")


def _said(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(each.get("text", "")) for each in parts if isinstance(each, dict))


def _type(item: Any) -> str:
    return str(item.get("role") or item.get("type") or "other")


def _tool(item: Any) -> str | None:
    kind, name, space = str(item.get("type")), item.get("name"), item.get("namespace")
    if name and space and space != name:  # the SDK names what it defers after itself
        return f"{space}.{name}"
    if kind.startswith("mcp_") and item.get("server_label"):
        return f"{item['server_label']}.{name}" if name else str(item["server_label"])
    if name is None and kind.startswith("tool_search"):
        return "tool_search"
    return name or (kind if kind.endswith("_call") else None)
