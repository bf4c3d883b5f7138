"""Finds the events that repeat the text of others and must be erased with them.

Copies that the recorder makes are known by their position: a turn's input, the pieces of an answer,
the arguments of a call, the requests and summaries that contain a message. Other events that repeat
a text verbatim are found by searching, and the caller decides about them.

Every text of the conversation is read and compared. On SQLite that would block all writers, so it
happens in a read transaction; the erasing transaction only checks that the conversation has not
changed since.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, select

from eventstore.bill import bills, readable
from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    BilledCall,
    Erasure,
    KeptUsage,
    LlmError,
    LlmRequest,
    Notebook,
    ReasoningPart,
    Summary,
    SystemInstruction,
    TaskEnd,
    TextPart,
    ToolCall,
    ToolResult,
    TurnStart,
    UserMessage,
)
from eventstore.events.codec import dumps, encode
from eventstore.events.records import EventData, RecordedEvent
from eventstore.events.values import Quoting, VersionRange
from eventstore.sql.lineage import fork_point
from eventstore.sql.read import read_page
from eventstore.sql.schema import metadata_for

__all__ = [
    "Outdated",
    "Survey",
    "copies_in",
    "copies_of",
    "quotations_of",
    "ranges",
    "survey",
    "told",
]


_LEAST = 20  # characters; a text this long is not repeated by chance
_FEW = 8


def copies_of(events: Sequence[RecordedEvent], chosen: Collection[int]) -> dict[int, str]:
    """Return the versions that copy the chosen ones or their copies, each with its kind."""
    kept = {event.version: event for event in events if event.data is not None}
    near: dict[tuple[str, object], dict[type, list[int]]] = defaultdict(lambda: defaultdict(list))
    for event in kept.values():
        for key in _keys(event):
            near[key][type(event.data)].append(event.version)
    found: dict[int, str] = {}
    asked: set[tuple[tuple[str, object], type]] = set()
    waiting = [version for version in chosen if version in kept]
    seen = set(waiting)
    while waiting:
        for source in [kept[version] for version in waiting]:
            for key in _keys(source):
                # An event that copies a source by position also copies the next of its kind there.
                if key[0] != "input" and (key, type(source.data)) in asked:
                    continue
                asked.add((key, type(source.data)))
                for version in _others(near[key], key[0], source):
                    if version not in seen and _copies(key, source, kept[version]):
                        found.setdefault(version, key[0])
        found.update(_covering(kept, Summary, seen.union(found), "summary"))
        waiting = [version for version in found if version not in seen]
        seen.update(waiting)
    # A request has no text of its own, but its digest reveals what it contained.
    found.update(_covering(kept, LlmRequest, seen, "request"))
    return found


def quotations_of(events: Sequence[RecordedEvent], chosen: Collection[int]) -> dict[int, str]:
    """Return the other versions that repeat a text of the chosen ones verbatim."""
    chosen = frozenset(chosen)
    starts: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if event.version in chosen and event.data is not None:
            for text in _texts(event.data):
                if len(text) >= _LEAST:
                    starts[dumps(text)[1 : _LEAST + 1]].add(dumps(text)[1:-1])
    return {
        event.version: "request" if event.type == LlmRequest.type else "quotation"
        for event in events
        if event.version not in chosen
        and not isinstance(event.data, Erasure | None)
        and _holds(encode(event.data), starts)
    }


def told(found: Mapping[int, str]) -> tuple[Quoting, ...]:
    """Return versions grouped by kind, as in a receipt."""
    names = sorted(set(found.values()))
    return tuple(
        Quoting(
            what=name,
            versions=VersionRange.of(
                ranges(sorted(v for v, each in found.items() if each == name))
            ),
        )
        for name in names
    )


def ranges(versions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last version of each run; ``versions`` must be sorted."""
    for _, run in groupby(enumerate(versions), lambda each: each[1] - each[0]):
        found = [version for _, version in run]
        yield found[0], found[-1]


def _holds(said: str, starts: Mapping[str, Collection[str]]) -> bool:
    places: dict[str, list[int]] = defaultdict(list)
    for at in range(len(said) - _LEAST + 1) if starts else ():
        if (start := said[at : at + _LEAST]) in starts:
            places[start].append(at)
    return any(
        text in said  # linear in the text, however often a match may start
        if len(found) > _FEW
        else any(said.startswith(text, at) for at in found)
        for start, found in places.items()
        for text in starts[start]
    )


def _keys(event: RecordedEvent) -> Iterator[tuple[str, object]]:
    """Yield what an event has in common with events that may hold the same text."""
    data = event.data
    if isinstance(data, UserMessage | TurnStart):
        yield "input", event.meta.turn
    if isinstance(data, AssistantChunk | AssistantMessage | LlmError | Summary):
        if data.llm_call_id is not None:
            yield "answer", data.llm_call_id
    if isinstance(data, AssistantMessage):
        yield "call", str(event.version)
        yield from (("task", text) for text in _texts(data) if text)
    elif isinstance(data, ToolCall):
        yield "call", data.call_id.partition(".")[0]
    elif isinstance(data, TaskEnd):
        yield "task", data.last_assistant_message


def _others(near: Mapping[type, Sequence[int]], what: str, source: RecordedEvent) -> Iterator[int]:
    """Yield the versions that may copy a source: only an answer is copied by its own kind."""
    for kind, versions in near.items():
        if what == "answer" or kind is not type(source.data):
            yield from versions


def _copies(key: tuple[str, object], source: RecordedEvent, event: RecordedEvent) -> bool:
    """Whether an event with the same key holds the text of the source."""
    if key[0] == "answer":  # The answer behind a summary copies it, but not the other way round.
        return not isinstance(event.data, Summary)
    if key[0] != "input":
        return True
    start, said = sorted((source.data, event.data), key=lambda data: isinstance(data, UserMessage))
    if not isinstance(start, TurnStart) or not isinstance(said, UserMessage) or not start.input:
        return False
    return any(text in start.input or start.input in text for text in _texts(said) if text)


def _covering(
    kept: Mapping[int, RecordedEvent],
    kind: type[Summary | LlmRequest],
    versions: Collection[int],
    what: str,
) -> dict[int, str]:
    """Return the summaries or requests that stand for any of these versions.

    Also the summaries that stand for such a summary before them.
    """
    ordered, found = sorted(versions), dict[int, str]()
    for version, event in kept.items():
        if not isinstance(event.data, kind) or version in versions:
            continue
        if any(
            bisect_left(ordered, each.first) < bisect_right(ordered, each.last)
            for each in event.data.versions
        ):
            found[version] = what
            if kind is Summary:
                insort(ordered, version)
    return found


def _texts(data: EventData) -> Iterator[str]:
    """Yield the texts of a payload, without names and ids."""
    if isinstance(data, UserMessage | AssistantMessage):
        yield from _of_parts(data.parts)
        for call in data.tool_calls if isinstance(data, AssistantMessage) else ():
            yield from _strings(call.arguments)
    elif isinstance(data, Summary | Notebook | SystemInstruction | AssistantChunk):
        yield data.text
    elif isinstance(data, TurnStart):
        yield data.input or ""
    elif isinstance(data, ToolCall):
        yield from _strings(data.arguments)
    elif isinstance(data, ToolResult):
        yield data.preview or ""
        if isinstance(data.content, tuple):
            yield from _of_parts(data.content)
        else:
            yield data.content or ""


def _of_parts(parts: Iterable[Any]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, TextPart | ReasoningPart):
            yield part.text or ""


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)


class Outdated(Exception):
    """The conversation has gained events or was erased since the survey: survey it again."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What to erase of a conversation, as of a version.

    Attributes:
        version: The conversation's version.
        erasures: Its `eventstore.erasure.erasure_count`.
        chosen: The requested versions that have a payload, in order.
        copies: The versions erased with them, each with its kind.
        quoting: The versions that hold the same text and stay, each with its kind.
        bill: The model calls that lose text and whose usage is kept.
    """

    version: int
    erasures: int
    chosen: tuple[int, ...]
    copies: Mapping[int, str] = field(default_factory=dict)
    quoting: Mapping[int, str] = field(default_factory=dict)
    bill: tuple[BilledCall, ...] = ()


def survey(
    connection: Connection,
    conversation_id: UUID,
    versions: Collection[int] | None,
    *,
    erasures: int,
    derived: bool,
    keep_usage: bool,
) -> Survey:
    """Search a conversation for events that hold the text of these versions.

    Only reads, in the caller's transaction.

    Args:
        connection: In a transaction.
        conversation_id: The conversation; if it does not exist, nothing is found.
        versions: The versions to erase; None for all.
        erasures: The conversation's `erasure_count`, read earlier in this transaction.
        derived: Whether to erase copies as well.
        keep_usage: Whether to keep the usage of model calls.

    Raises:
        KeyUnavailable: The conversation is sealed, and its key is not available.
    """
    streams = metadata_for(connection.dialect.name).tables["conversations"]
    # Read the version first, so that events appended in between are noticed later.
    version = connection.execute(
        select(streams.c.version).where(streams.c.conversation_id == conversation_id)
    ).scalar()
    stays = (Erasure.type, KeptUsage.type) if keep_usage else (Erasure.type,)
    present = _chosen(connection, conversation_id, versions, stays)
    copies: dict[int, str] = {}
    quoting: dict[int, str] = {}
    if versions is not None:
        copies, quoting = _quoting(connection, conversation_id, present, derived)
    if copies and (parent := fork_point(connection, conversation_id)) is not None:
        # Shared events belong to the parent; a fork cannot erase them.
        theirs = {each: what for each, what in copies.items() if each <= parent.version}
        copies = {each: what for each, what in copies.items() if each not in theirs}
        quoting = quoting | theirs
    going = {*present, *copies} if keep_usage else set()
    bill = bills(readable(connection, conversation_id), going) if going else ()
    return Survey(version or 0, erasures, present, copies, quoting, bill)


def copies_in(
    connection: Connection, fork: UUID, shared: Collection[int], *, derived: bool
) -> tuple[dict[int, str], dict[int, str]]:
    """Return a fork's own copies and quotations of these versions, which it shares."""
    point = fork_point(connection, fork)
    least = point.version if point else 0
    copies, quoting = _quoting(connection, fork, shared, derived)
    return (
        {version: what for version, what in copies.items() if version > least},
        {version: what for version, what in quoting.items() if version > least},
    )


def _chosen(
    connection: Connection,
    conversation_id: UUID,
    versions: Collection[int] | None,
    stays: Collection[str],
) -> tuple[int, ...]:
    """Return the versions with a payload that will be erased, in order."""
    events = metadata_for(connection.dialect.name).tables["events"]
    query = (
        select(events.c.version)
        .where(
            events.c.conversation_id == conversation_id,
            events.c.data.is_not(None),
            events.c.type.not_in(stays),
        )
        .order_by(events.c.version)
    )
    present = connection.execute(query).scalars()
    return tuple(version for version in present if versions is None or version in versions)


def _quoting(
    connection: Connection, conversation_id: UUID, asked: Collection[int], derived: bool
) -> tuple[dict[int, str], dict[int, str]]:
    """Return the versions to erase with these, and those that will still hold their text."""
    if not asked:
        return {}, {}
    events: list[RecordedEvent] = []
    while page := read_page(connection, conversation_id, after=events[-1].version if events else 0):
        events += page
    copies = copies_of(events, asked)
    quotations = quotations_of(events, {*asked, *copies} if derived else asked)
    if not derived:
        return {}, quotations | copies
    requests = {version: what for version, what in quotations.items() if what == "request"}
    left = {version: what for version, what in quotations.items() if version not in requests}
    return copies | requests, left
