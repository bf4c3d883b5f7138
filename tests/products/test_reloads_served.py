"""A chat behind uvicorn that streams from the request: clients that leave, restarts, signals."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from json import dumps
from subprocess import DEVNULL
from typing import Self

import pytest

from eventstore import EventStore, new_id
from tests.exhaustive import partly
from tests.postgres import PostgresServer
from tests.warm import Programs, programs
from torture.reloads import Post, _check
from torture.reloads_server import PIECES

KINDS = ["async", "sync", "tools", "sse"]
PLACES = [3, PIECES, 0, *range(1, 3), *range(4, PIECES), PIECES + 1, -1]
"""After how many pieces: -1 before the head, 0 in a tool if there is one, 8 while it closes."""


class Answer:
    """An answer that is read piece by piece."""

    def __init__(self, address: tuple[str, int], user: str, kind: str) -> None:
        self.post = Post(user, str(new_id()))
        self._connection = HTTPConnection(*address, timeout=60)
        self._response: HTTPResponse | None = None
        body = dumps({"user": user, "said": "hello", "id": self.post.message_id})
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", f"/{kind}", body, headers)

    def read(self, pieces: int = 1_000) -> Self:
        """Read the head and so many pieces, or what there is before the end."""
        with suppress(OSError, HTTPException):
            if self._response is None:
                self._response = self._connection.getresponse()
                self.post.status = self._response.status
            while pieces > 0 and (piece := self._response.read1(1_000)):
                self.post.received += piece.decode()
                pieces -= 1
        return self

    def leave(self) -> Post:
        """Go away."""
        if self._response is not None:
            self._response.close()
        self._connection.close()
        return self.post


class Worker:
    """A process that serves the chat; its socket outlives it."""

    def __init__(self, servers: Programs, url: str) -> None:
        self._servers, self._url = servers, url
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.address: tuple[str, int] = self.socket.getsockname()
        self.posts: list[Post] = []
        self.start()

    def start(self) -> None:
        """Start the process."""
        number = self.socket.fileno()
        self.process = self._servers.start(
            "-m",
            "torture.reloads_server",
            self._url,
            str(number),
            stdout=DEVNULL,
            kept=[number],
            environment={**os.environ},
        )

    def ask(self, user: str, kind: str) -> Answer:
        """Post a message."""
        answer = Answer(self.address, user, kind)
        self.posts.append(answer.post)
        return answer

    def answers(self, user: str, kind: str) -> Post:
        """Post a message, which must be answered."""
        post = self.ask(user, kind).read().leave()
        assert post.done, post
        return post

    def close(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.socket.close()


@pytest.fixture(scope="module")
def servers() -> Iterator[Programs]:
    """Give what starts processes that have imported what the chat needs."""
    with programs("starlette.applications", "uvicorn.protocols.http.auto") as found:
        yield found


@contextmanager
def chats(
    servers: Programs, url: str, count: int = 1, killed: Sequence[Post] = ()
) -> Iterator[list[Worker]]:
    """Serve the chat, and check at the end that all that was received is in the log.

    But for those of ``killed``: a kill may lose the last tenth of a second of an answer.
    """
    with ExitStack() as stack:
        with EventStore.open(url) as store:
            workers = [Worker(servers, url) for _ in range(count)]
            for each in workers:
                stack.callback(each.close)
            workers[0].answers("first", "async")
            yield workers
            posts = [post for each in workers for post in each.posts if post not in killed]
            findings, _ = _check(store, posts, [])
            assert findings.ok, findings


@pytest.mark.parametrize("kind", partly(KINDS))
@pytest.mark.parametrize("count", [1, 2])
def test_clients_that_leave_at_each_piece(
    servers: Programs, database_url: str, kind: str, count: int
) -> None:
    """The same user posts again at once, to the same process or another, and is answered."""
    with chats(servers, database_url, count) as workers:
        for at in PLACES:
            answer = workers[0].ask(f"{at}", kind)
            if at >= 0:
                answer.read(at)
            answer.leave()
            workers[-1].answers(f"{at}", kind)


@pytest.mark.parametrize("mode", partly(["immediate", "fast"]))
@pytest.mark.parametrize("kind", partly(KINDS))
@pytest.mark.parametrize("at", partly(PLACES, 2))
def test_database_that_restarts_at_each_piece(
    servers: Programs, private_postgres: PostgresServer, at: int, kind: str, mode: str
) -> None:
    """The answer breaks off or not; either way the same user's next post is answered."""
    with chats(servers, private_postgres.url()) as (worker,):
        answer = worker.ask("ada", kind)
        if at >= 0:
            answer.read(at)
        private_postgres.restart("immediate" if mode == "immediate" else "fast")
        answer.read().leave()
        worker.answers("ada", kind)
        worker.ask("ada", kind).read(at).leave()
        private_postgres.restart("immediate" if mode == "immediate" else "fast")
        worker.answers("ada", kind)


@pytest.mark.parametrize(
    "signals", partly([[signal.SIGTERM], [signal.SIGTERM, signal.SIGINT], [signal.SIGKILL]])
)
@pytest.mark.parametrize("at", partly(PLACES))
def test_signals_with_open_streams(
    servers: Programs, database_url: str, at: int, signals: list[signal.Signals]
) -> None:
    """Streams end well after SIGTERM alone; after any, each user is answered by a new process."""
    killed: list[Post] = []
    with chats(servers, database_url, killed=killed) as (worker,):
        for each in KINDS:
            worker.answers(each, each)
        with ThreadPoolExecutor(len(KINDS)) as threads:
            begun = [worker.ask(each, each) for each in KINDS]
            if at >= 0:
                list(threads.map(lambda each: each.read(at), begun))
            for number in signals:
                worker.process.send_signal(number)
            list(threads.map(lambda each: each.read(), begun))
        worker.process.wait()
        posts = [each.leave() for each in begun]
        if [signal.SIGTERM] != signals:
            killed += posts
        if [signal.SIGTERM] == signals and at > 0:
            assert all(each.done for each in posts), posts
        worker.start()
        for each in KINDS:
            worker.answers(each, each)
