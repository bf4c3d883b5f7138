"""Events of a session, built line by line: answers, results, branches, summaries.

The files of Claude Code, Codex and ChatGPT have this in common: an answer spans several lines, and
results of its first calls may come in between. The answer becomes one event once a line arrives
that is not part of it. If the file breaks off within an answer, that part becomes an event too, and
the store may already hold it when the file has grown: `cuts` says how many lines such an answer was
made from, and later lines become a separate answer. Only the open answer, ids and numbers are held
in memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any, Protocol

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.left_out import LeftOut
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import Calls, copied
from eventstore.events import (
    AssistantMessage,
    BranchSwitch,
    ContentPart,
    ConversationUpdate,
    Invocation,
    Meta,
    NewEvent,
    Summary,
    TextPart,
    TokenUsage,
    ToolCallRequest,
    ToolResult,
    UserMessage,
    VersionRange,
)
from eventstore.events.records import EventData, RecordedEvent

__all__ = [
    "LINES",
    "MOST_RANGES",
    "AgentSessionLog",
    "OpenAnswer",
    "SessionFile",
    "cuts_in",
]

LINES = "lines"
"""The key in ``meta.extra`` of an answer for the number of lines it was made from."""

MOST_RANGES = 200
"""How many ranges of versions, and versions between them, a summary tells apart: the newest."""

_KEYS = 512


@dataclass(slots=True)
class OpenAnswer:
    """An answer that may still grow; ``key`` decides whether a line belongs to it.

    ``identity`` is what all copies of the answer in files of the program have in common.
    """

    key: str
    meta: dict[str, Any]
    lines: int = 0
    parts: list[ContentPart] = field(default_factory=list)
    calls: list[ToolCallRequest] = field(default_factory=list)
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    invocation: Invocation | None = None
    waiting: list[tuple[ToolResult, dict[str, Any]]] = field(default_factory=list)
    raw: Any = None
    identity: tuple[Any, ...] | None = None

    def keep(self, key: str, record: Any) -> None:
        """Add a record that the answer is made from to the list under a key of its ``raw``."""
        if self.raw is None:
            self.raw = {key: []}
        self.raw[key].append(record)


class AgentSessionLog:
    """The events of one session so far, counted; `take` returns those that are complete."""

    def __init__(self, cuts: Mapping[int, int]) -> None:
        self.open: OpenAnswer | None = None
        self._cuts = cuts
        self._made: list[NewEvent] = []
        self._version = 0
        self._turn, self._step = 0, -1
        self._calls = Calls()
        self._completions: dict[str, int | None] = {}
        self._active: list[tuple[int, int]] = []
        self._prompts: list[tuple[int, int]] = []

    def take(self) -> Iterator[NewEvent]:
        """Return the events since the last call."""
        made, self._made = self._made, []
        return iter(made)

    @property
    def turn(self) -> int:
        """The current turn; 0 before the first."""
        return self._turn

    @property
    def last(self) -> int:
        """The version of the newest event, once the open answer and its results are events."""
        return self._version + (0 if self.open is None else 1 + len(self.open.waiting))

    def add(self, data: EventData, **meta: Any) -> int:
        """Add an event that belongs to no step; return its version."""
        self.close()
        return self._append(data, Meta(turn=self._turn or None, **meta))

    def prompt(self, data: UserMessage, **meta: Any) -> int:
        """Add a person's message, which begins a turn; return its version."""
        self.close()
        self._turn, self._step = self._turn + 1, -1
        version = self.add(data, **meta)
        self._prompts.append((version, self._turn))
        return version

    def answer(self, key: str, **meta: Any) -> OpenAnswer:
        """Return the answer that a line belongs to: the open one, or a new one."""
        found = self.open
        cut = found is not None and self._cuts.get(self._version + 1) == found.lines
        if found is None or found.key != key or cut:
            self.close()
            found = self.open = OpenAnswer(key, meta)
        found.lines += 1
        return found

    def result(self, data: ToolResult, **meta: Any) -> int:
        """Add a result, after the open answer if there is one; return its version."""
        if self.open is not None:
            self.open.waiting.append((data, meta))
            return self.last
        return self._result(data, meta)

    def close(self) -> None:
        """Turn the open answer, and the results that wait for it, into events."""
        found, self.open = self.open, None
        if found is None:
            return
        copy = copied(found.identity)
        names = (found.key, *copy.values())
        known = not self._completions.keys().isdisjoint(names)
        meta = self._in_step(found.meta, begins=True)
        meta["extra"] = {
            **found.meta.get("extra", {}),
            **copy,
            LINES: found.lines,
        }
        if not found.parts and not found.calls:
            meta["in_context"] = False
        message = AssistantMessage(
            llm_call_id=None if known else found.key,
            parts=tuple(found.parts),
            tool_calls=tuple(found.calls),
            usage=self._spent(found.usage, names),
            finish_reason=found.finish_reason,
            invocation=found.invocation,
            final=not found.calls and any(isinstance(part, TextPart) for part in found.parts),
            tools_elsewhere=bool(found.calls),
            raw=found.raw,
        )
        version = self._append(message, Meta(**meta))
        self._calls.note(version, found.calls)
        for data, of_result in found.waiting:
            self._result(data, of_result)

    def withdraw(
        self, after: int, occurred_at: datetime | None, answer: tuple[int, int] | None = None
    ) -> None:
        """Leave the branch after a version, if it contains a prompt that is being replaced.

        Args:
            after: The version.
            occurred_at: When.
            answer: Version and turn of the answer that is left, if another one replaces it.
        """
        first = bisect_right(self._prompts, after, key=itemgetter(0))
        if answer is None and first == len(self._prompts):
            return
        left = self._prompts[first] if answer is None else answer
        self.close()
        gone = _cut(self._active, after)
        if not gone:
            return
        del self._prompts[first:]
        switch = BranchSwitch(
            reason="edit" if answer is None else "regenerate",
            kind="message" if answer is None else "answer",
            after=self._active[-1][1] if self._active else 0,
            left=left[0],
            turn=left[1] or None,
            withdrawn=VersionRange.of(gone),
        )
        self._made.append(NewEvent(switch, meta=Meta(occurred_at=occurred_at)))
        self._version += 1
        if answer is not None:
            self._turn, self._step = self._turn + 1, -1

    def before(self, prompts: int) -> int:
        """Return the version before the n-th latest prompt."""
        wanted = self._prompts[-prompts:] if prompts > 0 else []
        return wanted[0][0] - 1 if wanted else self.last

    def has_prompt(self, after: int) -> bool:
        """Whether the active branch has a person's message after a version."""
        return bool(self._prompts) and self._prompts[-1][0] > after

    def is_answered(self, provider_id: str | None) -> bool:
        """Whether every call with this provider's id has a result."""
        return provider_id is not None and self._calls.is_answered(provider_id)

    def summary(
        self,
        text: str,
        strategy: str,
        remaining: Iterable[int] = (),
        *,
        before: int | None = None,
        **meta: Any,
    ) -> int:
        """Add a summary of everything said so far; return its version.

        Args:
            text: The summary.
            strategy: The name of the program's strategy.
            remaining: Versions that remain next to the summary; only the newest `MOST_RANGES` do.
            before: The first version after those that the summary stands for.
            meta: The metadata.
        """
        self.close()
        end = self.last + 1 if before is None else before
        among = bisect_left(self._active, (end,))
        ranges = self._active[max(among - MOST_RANGES, 0) : among]
        if ranges:
            # A summary names few ranges, however often branches were left before.
            ranges[0] = (1 if among > MOST_RANGES else ranges[0][0], ranges[0][1])
            ranges[-1] = (ranges[-1][0], min(ranges[-1][1], end - 1))
        covered = _without(ranges, [1, *sorted(remaining)[-MOST_RANGES:]])
        data = Summary(text=text, versions=VersionRange.of(covered), strategy=strategy)
        return self.add(data, **meta)

    def _result(self, data: ToolResult, meta: dict[str, Any]) -> int:
        data = data.model_copy(update={"call_id": self._calls.answer(data.provider_id or "")})
        return self._append(data, Meta(**self._in_step(meta, begins=False)))

    def _in_step(self, meta: Mapping[str, Any], *, begins: bool) -> dict[str, Any]:
        """Return the metadata of an event within a step; another agent's is not counted."""
        if not meta.get("in_context", True):
            return {"turn": self._turn or None, **meta}
        self._step += begins
        return {"turn": self._turn or None, "step": max(self._step, 0), **meta}

    def _spent(self, usage: TokenUsage | None, names: Sequence[str]) -> TokenUsage | None:
        """Return an answer's tokens; for the rest of a split answer, only the additional ones.

        A later answer with one of the same names is the rest, or a repetition.
        """
        before = [self._completions.pop(each) for each in names if each in self._completions]
        counted = max((each for each in before if each is not None), default=None)
        completion_tokens = None if usage is None else usage.completion_tokens
        most = max(
            (each for each in (completion_tokens, counted) if each is not None), default=None
        )
        self._completions |= dict.fromkeys(names, most)
        while len(self._completions) > _KEYS:
            del self._completions[next(iter(self._completions))]
        if usage is None or counted is None:
            return usage
        more = usage.completion_tokens - counted
        return TokenUsage(completion_tokens=more) if more > 0 else None

    def _append(self, data: EventData, meta: Meta) -> int:
        self._version += 1
        self._made.append(NewEvent(data, meta=meta))
        if isinstance(data, ConversationUpdate):  # belongs to no branch
            return self._version
        if self._active and self._active[-1][1] == self._version - 1:
            self._active[-1] = (self._active[-1][0], self._version)
        else:
            self._active.append((self._version, self._version))
        return self._version


def cuts_in(events: Iterable[RecordedEvent]) -> dict[int, int]:
    """Return by version how many lines each stored answer was made from."""
    extras = ((event.version, event.meta.extra) for event in events if not event.erased)
    cut_lines = ((version, (extra or {}).get(LINES)) for version, extra in extras)
    return {version: lines for version, lines in cut_lines if isinstance(lines, int)}


def _cut(ranges: list[tuple[int, int]], after: int) -> list[tuple[int, int]]:
    """Remove everything after a version from the ranges, and return it, in order."""
    gone: list[tuple[int, int]] = []
    while ranges and ranges[-1][1] > after:
        low, high = ranges.pop()
        gone.append((max(low, after + 1), high))
        if low <= after:
            ranges.append((low, after))
    return gone[::-1]


def _without(ranges: Iterable[tuple[int, int]], remaining: Sequence[int]) -> list[tuple[int, int]]:
    """Return the ranges without some versions, which are in order."""
    found: list[tuple[int, int]] = []
    for low, high in ranges:
        begin = low
        for version in remaining[bisect_left(remaining, low) : bisect_right(remaining, high)]:
            if begin < version:
                found.append((begin, version - 1))
            begin = version + 1
        if begin <= high:
            found.append((begin, high))
    return found


class _LoggedSession(Protocol):
    """Turns a session's lines into events."""

    log: AgentSessionLog

    def line(self, record: Record) -> ImportFailed | None: ...


@dataclass(slots=True)
class SessionFile:
    """A session's file as a `Stream`.

    Attributes:
        source: The file.
        begin: Creates the reader of the format's lines, which writes to a log and notes what is
            left out.
    """

    source: Source
    begin: Callable[[Source, AgentSessionLog, LeftOut], _LoggedSession]
    left_out: LeftOut = field(default_factory=LeftOut)

    def read(self, cuts: Mapping[int, int]) -> Iterator[NewEvent | ImportFailed]:
        """Yield the events, and reports of bad lines."""
        self.left_out = LeftOut()
        session = self.begin(self.source, AgentSessionLog(cuts), self.left_out)
        for item in self.source.lines():
            failure = item if isinstance(item, ImportFailed) else session.line(item)
            yield from session.log.take()
            if failure is not None:
                yield failure
        session.log.close()
        yield from session.log.take()
