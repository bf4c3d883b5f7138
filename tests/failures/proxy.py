"""A proxy on loopback before a PostgreSQL server, which cuts a connection at a chosen statement.

It reads the messages that a client sends, as far as to tell where one ends and the next begins
(PostgreSQL documentation, "Message Formats", read in 2025), and forwards them otherwise unchanged.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

from sqlalchemy import URL, make_url

__all__ = ["Place", "Proxy"]

Place = Literal["before", "after"]
"""Whether the server never sees the statement, or carries it out and its answer is lost."""

_STARTUP = 196608  # protocol 3.0; what comes before it asks for encryption, and has no type either


class Proxy:
    """A context manager: listens on a port of its own until its end.

    Args:
        url: The database to forward to, through a Unix socket or a host and port.
    """

    def __init__(self, url: str) -> None:
        self._target = make_url(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._statement: bytes | None = None
        self._armed = False
        self._place: Place = "before"
        self._skip = 0
        self.cuts = 0
        """How many connections were cut."""

    @property
    def url(self) -> str:
        """The database's URL by way of this proxy."""
        port = self._listener.getsockname()[1]
        plain = {"sslmode": "disable", "gssencmode": "disable"}
        url: URL = self._target.set(host="127.0.0.1", port=port, query=plain)
        return url.render_as_string(hide_password=False)

    def cut(self, place: Place, statement: str | None = None, *, skip: int = 0) -> None:
        """Cut one connection: of the client that next sends what the server has to answer.

        Args:
            place: Before the server sees it, or when the server has answered.
            statement: Cut only where this text is part of a statement.
            skip: How many of these to let pass.
        """
        with self._lock:
            self._place, self._skip, self._armed = place, skip, True
            self._statement = None if statement is None else statement.encode()

    def spare(self) -> None:
        """Cut nothing any more."""
        with self._lock:
            self._armed = False

    def hang_up(self) -> None:
        """Cut every connection that there is, whatever it does."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Wakes the thread that accepts; closing alone would not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, self._connect() as server, suppress(OSError):
            with self._lock:
                self._open |= {client, server}
            try:
                self._forward(client, server)
            finally:
                with self._lock:
                    self._open -= {client, server}

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        messages, answer_is_lost = _Messages(), False
        while True:
            for ready in select.select([client, server], [], [])[0]:
                data = ready.recv(1 << 16)
                if not data:
                    return
                if ready is server:
                    if answer_is_lost:
                        return  # It answers when all is done: a commit, when that is durable.
                    client.sendall(data)
                    continue
                for message in messages.feed(data):
                    place = self._cut_at(message)
                    if place == "before":
                        return
                    answer_is_lost = answer_is_lost or place == "after"
                    server.sendall(message)

    def _connect(self) -> socket.socket:
        host = self._target.query.get("host") or self._target.host or "127.0.0.1"
        port = self._target.port or 5432
        if str(host).startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
            return server
        return socket.create_connection((str(host), port))

    def _cut_at(self, message: bytes) -> Place | None:
        with self._lock:
            # A query, or the end of several messages that are carried out together.
            asked = message[:1] in b"QS" if self._statement is None else self._statement in message
            if not self._armed or not asked:
                return None
            if self._skip:
                self._skip -= 1
                return None
            self._armed = False
            self.cuts += 1
            return self._place


class _Messages:
    """Puts what a client sends together to whole messages."""

    def __init__(self) -> None:
        self._buffer = b""
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that are whole now."""
        self._buffer += data
        found = []
        while (size := self._size()) and len(self._buffer) >= size:
            message, self._buffer = self._buffer[:size], self._buffer[size:]
            if not self._started:
                self._started = struct.unpack_from("!i", message, 4)[0] == _STARTUP
            found.append(message)
        return found

    def _size(self) -> int:
        """Return the size of the message that the buffer begins with; 0 if that is not known yet.

        Every message but the first ones has a type of one byte, which its length leaves out.
        """
        kind = 1 if self._started else 0
        if len(self._buffer) < kind + 4:
            return 0
        return kind + int(struct.unpack_from("!i", self._buffer, kind)[0])
