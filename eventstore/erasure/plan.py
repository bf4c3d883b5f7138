"""Finds the events that repeat the text of others and must be erased with them.

Copies that the recorder makes are known by their position: a turn's input, the pieces of an answer,
the arguments of a call, the requests and summaries that contain a message. Other events that repeat
a text verbatim are found by searching, and the caller decides about them.

Events are read one after another, and no texts are held except those that are searched for and what
users have entered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice, product
from typing import Any, NamedTuple

from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    Erasure,
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

__all__ = [
    "copies_of",
    "group_by_kind",
    "quotations_of",
    "ranges",
]


_LEAST = 20  # characters; a text this long is not repeated by chance
_MOST_PLACES = 8
_MOST_STARTS = 64


class _Outline(NamedTuple):
    """What can tell that an event copies another one: all of it except its texts.

    ``inputs`` are the texts of a turn's input and of the user's messages, which are compared.
    """

    kind: type
    keys: tuple[tuple[str, object], ...]
    stands_for: tuple[VersionRange, ...]
    inputs: tuple[str, ...]

    @classmethod
    def of(cls, event: RecordedEvent) -> _Outline:
        """Return an event's outline."""
        data = event.data
        stands_for = data.versions if isinstance(data, Summary | LlmRequest) else ()
        inputs = _texts(data) if isinstance(data, UserMessage | TurnStart) else ()
        return cls(type(data), tuple(_keys(event)), stands_for, tuple(filter(None, inputs)))


def copies_of(events: Iterable[RecordedEvent], chosen: Collection[int]) -> dict[int, str]:
    """Return the versions that copy the chosen ones or their copies, each with its kind."""
    outlines = {event.version: _Outline.of(event) for event in events if event.data is not None}
    near: dict[tuple[str, object], dict[type, list[int]]] = defaultdict(lambda: defaultdict(list))
    for version, outline in outlines.items():
        for key in outline.keys:
            near[key][outline.kind].append(version)
    found: dict[int, str] = {}
    searched: set[tuple[tuple[str, object], type]] = set()
    waiting = [version for version in chosen if version in outlines]
    seen = set(waiting)
    while waiting:
        for source in [outlines[version] for version in waiting]:
            for key in source.keys:
                # An event that copies a source by position also copies the next of its kind there.
                if key[0] != "input" and (key, source.kind) in searched:
                    continue
                searched.add((key, source.kind))
                for version in _others(near[key], key[0], source):
                    if version not in seen and _copies(key, source, outlines[version]):
                        found.setdefault(version, key[0])
        found.update(_covering(outlines, Summary, seen.union(found), "summary"))
        waiting = [version for version in found if version not in seen]
        seen.update(waiting)
    # A request has no text of its own, but its digest reveals what it contained.
    found.update(_covering(outlines, LlmRequest, seen, "request"))
    return found


def quotations_of(events: Iterable[RecordedEvent], chosen: Collection[int]) -> dict[int, str]:
    """Return the other versions that repeat a text of the chosen ones verbatim.

    Iterates over the events twice.
    """
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


def group_by_kind(found: Mapping[int, str]) -> tuple[Quoting, ...]:
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
    if not versions:
        return
    first = last = versions[0]
    for version in versions:
        if version > last + 1:
            yield first, last
            first = version
        last = version
    yield first, last


def _holds(content: str, starts: Mapping[str, Collection[str]]) -> bool:
    return any(
        text in content  # linear in the text, however often a match may start
        if len(found) > _MOST_PLACES
        else any(content.startswith(text, at) for at in found)
        for start, found in _places(content, starts).items()
        for text in starts[start]
    )


def _places(content: str, starts: Collection[str]) -> Mapping[str, Sequence[int]]:
    """Return where these starts occur; of one that occurs often, at least more than a few places.

    In a long text, the search for one start takes a hundredth of the time of a pass that looks at
    each character.
    """
    if len(starts) <= min(_MOST_STARTS, len(content) // 8):
        return {start: [*islice(_finds(content, start), _MOST_PLACES + 1)] for start in starts}
    places: dict[str, list[int]] = defaultdict(list)
    for at in range(len(content) - _LEAST + 1):
        if (start := content[at : at + _LEAST]) in starts:
            places[start].append(at)
    return places


def _finds(content: str, start: str) -> Iterator[int]:
    at = content.find(start)
    while at >= 0:
        yield at
        at = content.find(start, at + 1)


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
        yield from (("task", _digest(text)) for text in _texts(data) if text)
    elif isinstance(data, ToolCall):
        yield "call", data.call_id.partition(".")[0]
    elif isinstance(data, TaskEnd):
        yield "task", _digest(data.last_assistant_message or "")


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _others(near: Mapping[type, Sequence[int]], what: str, source: _Outline) -> Iterator[int]:
    """Yield the versions that may copy a source: only an answer is copied by its own kind."""
    for kind, versions in near.items():
        if what == "answer" or kind is not source.kind:
            yield from versions


def _copies(key: tuple[str, object], source: _Outline, event: _Outline) -> bool:
    """Whether an event with the same key holds the text of the source."""
    if key[0] == "answer":  # The answer behind a summary copies it, but not the other way round.
        return not issubclass(event.kind, Summary)
    if key[0] != "input":
        return True
    # Of different kinds: a turn's input and a message.
    return any(one in other or other in one for one, other in product(source.inputs, event.inputs))


def _covering(
    outlines: Mapping[int, _Outline],
    kind: type[Summary | LlmRequest],
    versions: Collection[int],
    what: str,
) -> dict[int, str]:
    """Return the summaries or requests that stand for any of these versions.

    Also the summaries that stand for such a summary before them.
    """
    ordered, found = sorted(versions), dict[int, str]()
    for version, event in outlines.items():
        if not issubclass(event.kind, kind) or version in versions:
            continue
        if any(
            bisect_left(ordered, each.first) < bisect_right(ordered, each.last)
            for each in event.stands_for
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
