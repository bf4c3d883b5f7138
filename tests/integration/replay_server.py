"""A provider on the loopback interface: it replays recorded streams in the provider's wire format.

What it answers is scripted request by request; it cuts streams in mid-chunk, lets them stall, and
refuses requests. What it was asked is kept.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Literal, Self

from tests.unit.streams.recorded import chunks_of

__all__ = ["Asked", "Refused", "ReplayServer", "Spoken", "Streamed", "Whole", "sse"]

Ending = Literal["complete", "cut", "pause", "short", "stall"]


@dataclass(frozen=True, slots=True)
class Streamed:
    """A recorded stream.

    ``after`` chunks of it, an ending other than ``complete`` comes: ``cut`` breaks the connection
    in the middle of the next chunk, ``short`` ends the response as if it were all, ``stall`` sends
    nothing more until the client gives up, ``pause`` sends the rest once the server's ``released``
    is set.
    """

    name: str
    ending: Ending = "complete"
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Spoken:
    """A chat completion made up for the occasion, streamed word by word."""

    text: str

    def chunks(self, *, usage: bool = False) -> list[dict[str, Any]]:
        """Return the chunks; with usage, as OpenAI sends it, in a last one without choices."""
        words = re.findall(r"\S+\s*", self.text)
        told: list[tuple[dict[str, str], str | None]] = [({"content": w}, None) for w in words]
        told.append(({}, "stop"))
        common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1}
        chunks: list[dict[str, Any]] = [
            {
                **common,
                "model": "gpt-4o",
                "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
            }
            for delta, reason in told
        ]
        if usage:
            counts = {"prompt_tokens": 9, "completion_tokens": len(words)}
            total = {**counts, "total_tokens": 9 + len(words)}
            chunks.append({**common, "model": "gpt-4o", "choices": [], "usage": total})
        return chunks


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer that is not streamed."""

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Refused:
    """An error instead of an answer."""

    status: int
    body: dict[str, Any]


Answer = Streamed | Spoken | Whole | Refused


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that came in."""

    path: str
    body: dict[str, Any] = field(hash=False)


def sse(name: str) -> list[bytes]:
    """Return the messages of a recorded stream as the provider sends them."""
    chunks = chunks_of(name)
    if name.startswith("openai-chat"):
        return [*(_data(chunk) for chunk in chunks), b"data: [DONE]\n\n"]
    return [f"event: {chunk['type']}\n".encode() + _data(chunk) for chunk in chunks]


def _data(chunk: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()


class ReplayServer:
    """Answers what it is told to answer, in order; a context manager."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: deque[Answer] = deque()
        self.released = threading.Event()
        handler = type("Handler", (_Handler,), {"replay": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = False
        # Polls seldom: closing wakes it.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def will(self, *answers: Answer) -> None:
        """Answer the next requests with these."""
        self.answers.extend(answers)

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of all clients and stop."""
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    replay: ClassVar[ReplayServer]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.replay.asked.append(Asked(self.path, json.loads(body)))
        self.close_connection = True
        try:
            self._answer(self.replay.answers.popleft())
        except ConnectionError:
            return  # The client has closed it: that is what some tests are about.

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _answer(self, answer: Answer) -> None:
        match answer:
            case Streamed():
                self._stream(sse(answer.name), answer)
            case Spoken():
                done = b"data: [DONE]\n\n"
                wanted = self.replay.asked[-1].body.get("stream_options") or {}
                chunks = answer.chunks(usage=bool(wanted.get("include_usage")))
                self._stream([*map(_data, chunks), done], Streamed(""))
            case Whole(body):
                self._send(200, body)
            case Refused(status, body):
                self._send(status, body)

    def _send(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        # The SDKs heed it, and so do not wait half a second before they try again.
        self.send_header("retry-after-ms", "1")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, messages: Sequence[bytes], answer: Streamed) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "close")
        self.end_headers()
        for message in messages[: answer.after]:
            self._chunk(message)
        if answer.ending == "cut":
            rest = messages[answer.after or 0]
            self._chunk(rest[: len(rest) // 2])
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if answer.ending in ("pause", "stall"):
            self.replay.released.wait(30)
        if answer.ending == "pause":
            for message in messages[answer.after or 0 :]:
                self._chunk(message)
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()
