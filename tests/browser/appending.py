"""A shim that gives our streams a write side, as the public conformance suite makes its streams.

It appends each message as an event, without any of the checks of a write side, and passes every
read on to the service. The service's events are unwrapped to the messages that were appended. A
text stream's JSON array becomes the text that it is made of; both are done to what the service has
answered, whose statuses, offsets, cursors and other headers stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_eventstore.server import durable_streams
from eventstore import EventStore, events, new_id

__all__ = ["AppendingShim", "unwrapped"]


@dataclass(frozen=True)
class _Stream:
    id: UUID
    media_type: str

    @property
    def json(self) -> bool:
        return self.media_type == "application/json"


@contextmanager
def unwrapped() -> Iterator[None]:
    """Have streams of events return the messages that the shim appended."""
    read = durable_streams._READS["events"]

    def messages(*arguments: Any) -> Any:
        chunk = read(*arguments)
        found = [
            json.loads(each["data"]["text"])
            for each in chunk.messages
            if each["type"] == events.Notebook.type
        ]
        return replace(chunk, messages=found)

    durable_streams._READS["events"] = messages
    try:
        yield
    finally:
        durable_streams._READS["events"] = read


class AppendingShim:
    """Maps ``PUT``, ``POST`` and ``DELETE`` of any path to the store, and reads to the service."""

    def __init__(self, app: ASGIApp, store: EventStore) -> None:
        self._app, self._store = app, store
        self._streams: dict[str, _Stream] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path = scope["path"]
        if scope["method"] in ("PUT", "POST", "DELETE"):
            request = Request(scope, receive)
            body = await request.body()
            response = await to_thread.run_sync(self._write, path, request, body)
            await response(scope, receive, send)
            return
        stream = self._streams.get(path)
        own_id = "no-such-stream" if stream is None else stream.id
        inner = {**scope, "path": f"/streams/{own_id}", "raw_path": f"/streams/{own_id}".encode()}
        if stream is not None and not stream.json:
            send = _AsText(stream.media_type, send).send
        await self._app(inner, receive, send)

    def _write(self, path: str, request: Request, body: bytes) -> Response:
        media_type = request.headers.get("content-type", "").partition(";")[0].lower()
        stream, status = self._streams.get(path), 204
        match request.method:
            case "DELETE":
                return Response(status_code=404 if self._streams.pop(path, None) is None else 204)
            case "PUT":
                status = 200 if stream is not None else 201
                stream = stream or self._created(path, request, media_type)
        if stream is None:
            return Response(status_code=404)
        messages = [] if not body else [body.decode("latin-1")]
        if body and stream.json:
            found = json.loads(body)
            messages = found if isinstance(found, list) else [found]
        new: list[Any] = [events.Notebook(text=json.dumps(each)) for each in messages]
        closing = request.headers.get("stream-closed") == "true"
        if closing:
            new.append(events.ConversationEnd(reason="destroyed"))
        if new:
            self._store.append(stream.id, new)
        headers = {"Stream-Next-Offset": f"{self._store.get(stream.id).version:016}"}
        if closing:
            headers["Stream-Closed"] = "true"
        return Response(b"", status, {**headers, "Location": path, "Content-Type": media_type})

    def _created(self, path: str, request: Request, media_type: str) -> _Stream:
        source = self._streams.get(request.headers.get("stream-forked-from", ""))
        if source is None:
            own_id = new_id()
            self._store.append(own_id, events.ConversationStart())
            stream = _Stream(own_id, media_type or "application/octet-stream")
        else:
            offset = request.headers.get("stream-fork-offset")
            before = None if offset is None else int(re.split("_", offset)[0]) + 1
            forked = self._store.fork(source.id, before=before)
            stream = _Stream(forked.conversation_id, media_type or source.media_type)
        self._streams[path] = stream
        return stream


class _AsText:
    """Sends a JSON array of texts as the text of their sequence."""

    def __init__(self, media_type: str, send: Send) -> None:
        self._media_type, self._send = media_type, send
        self._start: Message = {}
        self._live = False
        self._body = b""

    async def send(self, message: Message) -> None:
        """Send what the service sends."""
        if message["type"] == "http.response.start":
            self._start = message
            headers = [each for each in message["headers"] if each[0].lower() != b"content-length"]
            types = [value for name, value in headers if name.lower() == b"content-type"]
            self._live = types == [b"text/event-stream"]
            if not self._live and message["status"] == 200:
                headers = [each for each in headers if each[0].lower() != b"content-type"]
                headers.append((b"content-type", self._media_type.encode()))
            self._start = {**message, "headers": headers}
            return
        if self._live:
            if self._start:
                await self._send(self._start)
                self._start = {}
            await self._send({**message, "body": _live_text(message.get("body", b""))})
            return
        self._body += message.get("body", b"")
        if not message.get("more_body", False):
            await self._send(self._start)
            body = self._body
            if self._start["status"] == 200 and body.startswith(b"["):
                body = "".join(json.loads(body)).encode("latin-1")
            await self._send({"type": "http.response.body", "body": body})


def _live_text(piece: bytes) -> bytes:
    """Return a piece whose data is the text of its array, a line of data for each of its lines."""
    data, end, rest = piece.partition(b"\n\n")
    if not data.startswith(b"event: data\n"):
        return piece
    text = "".join(json.loads(data.partition(b"data:")[2]))
    lines = "".join(f"data:{line}\n" for line in re.split(r"\r\n|\r|\n", text))
    return f"event: data\n{lines}\n".encode("latin-1") + (rest if end else b"")
