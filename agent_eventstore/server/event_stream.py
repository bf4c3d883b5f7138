"""Server-sent events: a response that ends with its client, and a conversation's follow stream.

The id of an event is the version of the conversation. A browser that reconnects sends the last one
as ``Last-Event-ID``, and any process continues after it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Annotated, Any, cast

import anyio
from anyio.lowlevel import checkpoint
from pydantic import Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agent_eventstore.documents import json_bytes
from agent_eventstore.server.endpoints import ApiCall, Operation, RequestModel
from agent_eventstore.server.problems import RequestProblem, document_of
from projections.models.timeline_changes import TimelineUpdate

__all__ = ["OPERATIONS", "EventStream", "after_version", "server_sent"]

_CHANGES = 200
"""The most changes in one event; longer updates are several events."""


class EventStream(Response):  # type: ignore[misc] # mypy skips Starlette
    """A response of server-sent events; its iterator is closed when the client leaves.

    Args:
        content: The events, encoded.
        counted: Is open while the response is sent.
        headers: More headers.
    """

    def __init__(
        self,
        content: AsyncIterator[bytes],
        counted: AbstractContextManager[None] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(
            headers={
                "Content-Type": "text/event-stream",  # always UTF-8: a charset is no part of it
                "Cache-Control": "no-cache, no-store",
                "X-Accel-Buffering": "no",
                **(headers or {}),
            }
        )
        del self.headers["content-length"]
        self._content = cast("AsyncGenerator[bytes, None]", content)
        self._counted = counted or nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the client leaves."""
        with self._counted:
            async with anyio.create_task_group() as tasks:

                async def leave() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    tasks.cancel_scope.cancel()

                tasks.start_soon(leave)
                await self._send(send)
                tasks.cancel_scope.cancel()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        async with aclosing(self._content):
            async for piece in self._content:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                await checkpoint()  # a client that has left is noticed before the next piece
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def server_sent(value: Any, *, event: str | None = None, id: int | None = None) -> bytes:
    """Return a server-sent event with a value as JSON, which has no line breaks."""
    lines = [] if event is None else [f"event: {event}".encode()]
    lines += [] if id is None else [f"id: {id}".encode()]
    return b"\n".join([*lines, b"data: " + json_bytes(value), b"", b""])


class FollowQuery(RequestModel):
    """Where to begin."""

    after: Annotated[int, Field(ge=0, le=2**53, description="Only changes after this version.")] = 0


def after_version(call: ApiCall) -> int:
    """Return the version after which a client continues.

    Raises:
        RequestProblem: ``Last-Event-ID`` is not a version.
    """
    sent = call.request.headers.get("last-event-id", "")
    if not sent:
        return int(call.query.after)
    if not (sent.isascii() and sent.isdecimal() and len(sent) <= 16):
        raise RequestProblem(400, f"Last-Event-ID is not a version: {sent!r:.80}")
    return int(sent)


async def _follow(call: ApiCall) -> Response:
    service, after = call.service, after_version(call)
    info = await service.run(lambda: call.store.get(call.named))
    if after > info.version:
        raise RequestProblem(
            409,
            f"conversation {info.conversation_id} has no version {after}, perhaps because a "
            "backup was restored: load it again, and follow it from its version",
            version=info.version,
        )
    views = service.live_views_for(call.request)
    until = time.monotonic() + service.limits.stream_s

    async def sent() -> AsyncIterator[bytes]:
        updates = views.follow(
            info.conversation_id, after=after, heartbeat_s=service.limits.heartbeat_s
        )
        yield b"retry: 1000\n\n"
        try:
            async with aclosing(updates):
                async for update in updates:
                    for piece in _pieces(update):
                        yield piece
                    if time.monotonic() >= until:
                        return
        except Exception as error:  # the response has begun: its status cannot say so any more
            yield server_sent(document_of(error), event="problem")

    return EventStream(sent(), service.following())


def _pieces(update: TimelineUpdate) -> list[bytes]:
    """Return an update as events; only the last has the id from which a client may continue."""
    changes = update.changes
    if not changes:
        return [b": alive\n\n"]
    last = (len(changes) - 1) // _CHANGES
    return [
        server_sent(
            {"version": update.version, "changes": changes[at * _CHANGES : (at + 1) * _CHANGES]},
            id=update.version if at == last else None,
        )
        for at in range(last + 1)
    ]


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/conversations/{conversation}/follow",
        name="follow",
        summary="Stream the changes of a conversation's timeline as any process commits them.",
        handler=_follow,
        query=FollowQuery,
        media_type="text/event-stream",
        headers={"Last-Event-ID": "The version after which to continue."},
    ),
)
"""The operations, in the order of the OpenAPI document."""
