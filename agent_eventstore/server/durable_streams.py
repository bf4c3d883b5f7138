"""``GET /streams/{conversation}``: the read side of the Durable Streams protocol, in JSON mode.

The messages of a stream are the conversation's events; with ``view=timeline``, what they change on
a screen. An offset is a version. A destroyed conversation is a closed stream. Appending stays with
the recorder, which seals, fences and pairs what it writes.

The protocol is that of github.com/durable-streams/durable-streams, ``PROTOCOL.md``, 2026-11.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field
from starlette.responses import Response

from agent_eventstore.documents import event_document, json_bytes
from agent_eventstore.server.endpoints import ApiCall, Operation, RequestModel
from agent_eventstore.server.event_stream import EventStream
from agent_eventstore.server.problems import RequestProblem, document_of
from projections import Views
from projections.models.directory import DIRECTORY
from projections.models.timeline_changes import item_changes

__all__ = ["OPERATIONS"]

_PAGE = 200
_LOOK_S = 1.0
"""How often a wait looks for events that change nothing on a screen, which wake no follower."""
_SSE_S = 55.0
"""The protocol recommends that a server closes live connections about every minute."""
_EPOCH_S = 1_728_432_000
_INTERVAL_S = 20
_JITTER = 180
_OFFSET = re.compile(r"[0-9]{16}", re.ASCII)
_CURSOR = re.compile(r"[0-9]{1,18}", re.ASCII)
_CACHED = "private, no-cache"  # an erasure must reach every copy: a cache asks each time


class StreamQuery(RequestModel):
    """Where to read, and how; the protocol has unknown parameters ignored."""

    model_config = ConfigDict(extra="ignore")

    offset: Annotated[
        str | None, Field(max_length=64, description="A `Stream-Next-Offset`, `-1` or `now`.")
    ] = None
    live: Annotated[
        Literal["long-poll", "sse"] | None, Field(description="Wait for what is new.")
    ] = None
    cursor: Annotated[str | None, Field(max_length=64)] = None
    view: Annotated[Literal["events", "timeline"], Field(description="What the messages are.")] = (
        "events"
    )


@dataclass(frozen=True, slots=True)
class _Tail:
    """Where a stream ends.

    Attributes:
        stream: The conversation.
        version: Its last version.
        closed: Whether nothing will follow.
    """

    stream: UUID
    version: int
    closed: bool


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A part of a stream: its messages, and where the next part begins."""

    messages: list[Any]
    next: int
    tail: _Tail

    @property
    def up_to_date(self) -> bool:
        """Whether nothing follows at the moment."""
        return self.next >= self.tail.version

    @property
    def closed(self) -> bool:
        """Whether nothing will ever follow."""
        return self.up_to_date and self.tail.closed

    def headers(self, cursor: str | None) -> dict[str, str]:
        """Return the protocol's headers."""
        found = {"Stream-Next-Offset": _offset_of(self.next), "Cache-Control": _CACHED}
        if self.up_to_date:
            found["Stream-Up-To-Date"] = "true"
        if self.closed:
            found["Stream-Closed"] = "true"
        elif cursor is not None:
            found["Stream-Cursor"] = cursor
        return found


def _tail_of(views: Views, named: UUID | str) -> _Tail:
    info = views.store.get(named)
    rows = views.rows(DIRECTORY.name, conversation_id=info.conversation_id)
    closed = bool(rows) and rows[0]["status"] == "destroyed"
    return _Tail(info.conversation_id, info.version, closed)


def _offset_of(version: int) -> str:
    return f"{version:016}"


def _position(offset: str | None, tail: _Tail) -> int:
    """Return the version after which an offset reads.

    Raises:
        RequestProblem: It is not an offset of this stream.
    """
    if offset in (None, "-1"):
        return 0
    if offset == "now":
        return tail.version
    if _OFFSET.fullmatch(str(offset)) is None:
        raise RequestProblem(
            400, f"{offset!r} is not an offset: use a Stream-Next-Offset, -1 or now"
        )
    version = int(str(offset))
    if version > tail.version:
        raise RequestProblem(
            400,
            f"the stream ends at {_offset_of(tail.version)}, before the offset {offset}: perhaps a "
            "backup was restored; read it again from -1",
        )
    return version


def _events_after(views: Views, tail: _Tail, after: int) -> _Chunk:
    page = list(islice(views.store.read(tail.stream, after=after, limit=_PAGE), _PAGE))
    last = page[-1].version if page else after
    # What was appended since the tail was read is beyond it.
    tail = _Tail(tail.stream, max(tail.version, last), tail.closed)
    return _Chunk([event_document(event) for event in page], last, tail)


def _changes_after(views: Views, tail: _Tail, after: int) -> _Chunk:
    items = views.timeline(tail.stream, after=after, limit=_PAGE)
    last = max((item.end_version or 0 for item in items), default=tail.version)
    version = max(tail.version, last) if len(items) < _PAGE else last
    changes = list(item_changes(items, after))
    messages = [{"version": version, "changes": changes}] if changes else []
    return _Chunk(messages, version, _Tail(tail.stream, max(tail.version, last), tail.closed))


_READS: dict[str, Callable[[Views, _Tail, int], _Chunk]] = {
    "events": _events_after,
    "timeline": _changes_after,
}


def _cursor_after(sent: str | None) -> str:
    """Return the cursor of a live response, which is always beyond the client's own."""
    now = int((time.time() - _EPOCH_S) // _INTERVAL_S)
    if sent is not None and _CURSOR.fullmatch(sent) is not None and int(sent) >= now:
        return str(int(sent) + 1 + secrets.randbelow(_JITTER))
    return str(now)


async def _read(call: ApiCall) -> Response:
    query = call.query
    if query.live is not None and query.offset is None:
        raise RequestProblem(400, "a live read needs an offset: -1, now or a Stream-Next-Offset")
    if "offset" in call.request.query_params and not query.offset:
        raise RequestProblem(400, "the offset is empty: leave it out, or use -1")
    views, read = await call.service.run(lambda: call.views), _READS[query.view]
    tail = await call.service.run(_tail_of, views, call.named)
    after = _position(query.offset, tail)
    if query.live == "sse":
        return _live(call, tail, after)
    if query.offset == "now" and query.live is None:
        headers = _Chunk([], after, tail).headers(None) | {"Cache-Control": "no-store"}
        return Response(b"[]", 200, headers, "application/json")
    chunk = await call.service.run(read, views, tail, after)
    if query.live == "long-poll":
        with call.service.following():
            if not chunk.messages and not chunk.closed:
                tail = await _beyond(call, tail, after)
                chunk = await call.service.run(read, views, tail, after)
        headers = chunk.headers(_cursor_after(query.cursor))
        if not chunk.messages:
            return Response(status_code=204, headers=headers | {"Cache-Control": "no-store"})
        return _as_json(call, chunk, after, headers)
    return _as_json(call, chunk, after, chunk.headers(None))


def _as_json(call: ApiCall, chunk: _Chunk, after: int, headers: dict[str, str]) -> Response:
    body = json_bytes(chunk.messages)
    # The digest: an erasure changes messages in their place.
    digest = hashlib.sha256(body).hexdigest()[:16]
    mark = ":c" if chunk.closed else ""
    tag = f'"{chunk.tail.stream}:{after}:{chunk.next}:{digest}{mark}"'
    headers = {**headers, "ETag": tag}
    known = call.request.headers.get("if-none-match", "")
    if tag in [each.strip().removeprefix("W/") for each in known.split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, "application/json")


async def _beyond(call: ApiCall, tail: _Tail, after: int) -> _Tail:
    """Wait until the stream has more than a version, but not too long; return where it ends."""
    service, views = call.service, call.views
    until = time.monotonic() + service.limits.long_poll_s
    updates = service.live_views_for(call.request).follow(
        tail.stream, after=after, heartbeat_s=_LOOK_S, timeout_s=service.limits.long_poll_s
    )
    async with aclosing(updates):
        async for update in updates:
            if update.version > after or time.monotonic() >= until:
                break
    return await service.run(_tail_of, views, tail.stream)


def _sent(event: str, value: Any) -> bytes:
    """Return an event as the protocol writes it, without a space before the data."""
    return b"event: %b\ndata:%b\n\n" % (event.encode(), json_bytes(value))


def _live(call: ApiCall, tail: _Tail, after: int) -> Response:
    """Return the stream as server-sent events: ``data``, each followed by ``control``."""
    service, views, read = call.service, call.views, _READS[call.query.view]
    live = service.live_views_for(call.request)
    until = time.monotonic() + min(_SSE_S, service.limits.stream_s)

    def control(chunk: _Chunk) -> bytes:
        found: dict[str, Any] = {"streamNextOffset": _offset_of(chunk.next)}
        if chunk.up_to_date:
            found["upToDate"] = True
        if chunk.closed:
            found["streamClosed"] = True
        else:
            found["streamCursor"] = _cursor_after(call.query.cursor)
        return _sent("control", found)

    async def sent() -> AsyncIterator[bytes]:
        at, end, first = after, tail, True
        try:
            while True:
                while True:
                    chunk = await service.run(read, views, end, at)
                    # In one piece: a client that reads half of it has no offset for its messages.
                    if chunk.messages:
                        yield _sent("data", chunk.messages) + control(chunk)
                    elif first or chunk.next > at or chunk.closed:
                        yield control(chunk)
                    at, first = chunk.next, False
                    if chunk.closed:
                        return
                    if chunk.up_to_date:
                        break
                updates = live.follow(end.stream, after=at, heartbeat_s=_LOOK_S)
                quiet = time.monotonic() + service.limits.heartbeat_s
                async with aclosing(updates):
                    async for update in updates:
                        if time.monotonic() >= until:
                            return
                        if update.version > at:
                            break
                        if time.monotonic() >= quiet:
                            quiet = time.monotonic() + service.limits.heartbeat_s
                            yield b": alive\n\n"
                end = await service.run(_tail_of, views, end.stream)
        except Exception as error:  # the response has begun: its status cannot say so any more
            yield _sent("problem", document_of(error))

    return EventStream(sent(), service.following())


async def _head(call: ApiCall) -> Response:
    tail = await call.service.run(lambda: _tail_of(call.views, call.named))
    headers = {"Stream-Next-Offset": _offset_of(tail.version), "Cache-Control": "no-store"}
    if tail.closed:
        headers["Stream-Closed"] = "true"
    return Response(b"", 200, headers, "application/json")


_PATH = "/streams/{conversation}"

OPERATIONS = (
    Operation(
        method="GET",
        path=_PATH,
        name="read_stream",
        summary="Read a conversation as a durable stream: all at once, by long poll or live.",
        handler=_read,
        query=StreamQuery,
        headers={"If-None-Match": "The ETag of a chunk that the client has."},
    ),
    Operation(
        method="HEAD",
        path=_PATH,
        name="head_of_stream",
        summary="Return where a stream ends, and whether it is closed.",
        handler=_head,
        query=StreamQuery,
    ),
)
"""The operations, in the order of the OpenAPI document."""
