"""The scenario `reloads`: clients of a web server leave at random moments, amid database restarts.

Afterwards every user posts once more and must be answered; no lease may live without a session;
every answer must have ended; and whatever a client has received must be in the log.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from uuid import UUID

from eventstore import EventStore, new_id
from eventstore.events import AssistantMessage, LlmError, TurnEnd, UserMessage
from eventstore.leases import leases_of
from eventstore.sql.backend import backend_of
from projections import Views
from torture.checking import Findings, Report
from torture.plan import TENANT
from torture.server import PostgresServer

__all__ = ["CLIENTS", "missing", "run_reloads"]

CLIENTS = 50
"""Clients for each writer of the run."""

_KINDS = ("async", "sync", "tools", "sse")
_STAYS = 0.3
_SAME_MESSAGE = 0.3
_LONGEST_S = 0.6
_PAUSE_S = 1.0
_LAST_S = 60.0
_STARTS_S = 60.0
_DRAINS_S = 30.0
"""How long the server may still be working on posts whose clients have left, in seconds."""


def missing() -> str | None:
    """Return what has to be installed for the scenario, or None."""
    lacking = [name for name in ("uvicorn", "starlette") if find_spec(name) is None]
    return f"install {' and '.join(lacking)}" if lacking else None


@dataclass(slots=True)
class Post:
    """A post, and what its client has received of the answer."""

    user: str
    message_id: str
    status: int = 0
    received: str = ""

    @property
    def done(self) -> bool:
        """Whether the answer was received to its end."""
        return self.received.endswith(("[done]", "[again]"))

    @property
    def text(self) -> str:
        """What was received of the answer itself."""
        answer = self.received.replace("data: ", "").replace("\n\n", "")
        return answer.removesuffix("[done]").removesuffix("[again]")


@dataclass(slots=True)
class _Clients:
    """The clients of a run, and what they note."""

    address: tuple[str, int]
    number: int
    seed: int
    posts: list[Post] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    over: bool = False

    async def browse(self, index: int) -> None:
        """Post as one user, leave at random moments, and post again at once."""
        chance = random.Random(f"{self.seed} {index}")  # noqa: S311 - not for secrets
        message = ""
        while not self.over:
            if not message or chance.random() >= _SAME_MESSAGE:
                message = str(new_id())
            stays = chance.random() < _STAYS
            leaves_after = None if stays else _LONGEST_S * chance.random()
            post = await self.post(f"user-{index}", chance.choice(_KINDS), message, leaves_after)
            if post.done:
                message = ""
            if chance.random() < _STAYS:
                await asyncio.sleep(_PAUSE_S * chance.random())

    async def post(self, user: str, kind: str, message_id: str, leaves_after: float | None) -> Post:
        """Post a message and read the answer, until the client leaves."""
        post = Post(user, message_id)
        self.posts.append(post)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LAST_S if leaves_after is None else leaves_after):
                async for piece in self._pieces(post, kind):
                    post.received += piece
        if leaves_after is not None and not post.done:
            self.counts["left"] += 1
        self.counts["busy"] += post.status == 409
        self.counts["refused"] += post.status not in (0, 200, 409)
        return post

    async def _pieces(self, post: Post, kind: str) -> AsyncIterator[str]:
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            body = json.dumps({"user": post.user, "said": "hello", "id": post.message_id}).encode()
            head = (
                f"POST /{kind} HTTP/1.1\r\nHost: torture\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode()
            post.status = int(answer.split(" ", 2)[1])
            if "chunked" not in answer:
                await reader.read()
                return
            while size := int(await reader.readuntil(b"\r\n"), 16):
                yield (await reader.readexactly(size + 2))[:-2].decode()
        except (asyncio.IncompleteReadError, ValueError) as error:
            raise OSError("the answer broke off") from error
        finally:
            writer.transport.abort()

    async def last_posts(self) -> list[Post]:
        """Let every user post once more, at once, and stay until the answer's end."""
        async with asyncio.TaskGroup() as tasks:
            last = [
                tasks.create_task(
                    self.post(f"user-{index}", _KINDS[index % 4], str(new_id()), None)
                )
                for index in range(self.number)
            ]
        return [each.result() for each in last]


def run_reloads(
    store: EventStore,
    *,
    clients: int,
    seconds: float | None,
    events: int | None,
    every_s: float,
    seed: int,
    on_progress: Callable[[int, int], None] | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> Report:
    """Run the scenario in a database of its own, of the same kind as the given one.

    Args:
        store: The given database.
        clients: How many clients post at the same time.
        seconds: How long they post, at most.
        events: How many pieces of answers they are to receive.
        every_s: The average time between two restarts; SQLite's file is locked instead.
        seed: The seed of the random choices.
        on_progress: Called with the pieces received so far and the total to receive.
        on_phase: Called with a sentence when the clients have ended.
    """
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="eventstore-reloads-") as name,
        _database(store, Path(name)) as (url, strike),
        EventStore.open(url) as own,
        _served(url) as address,
    ):
        crowd = _Clients(address, clients, seed)
        last, strikes = asyncio.run(
            _torment(crowd, strike, seconds, events, every_s, seed, on_progress)
        )
        written = time.monotonic() - started
        pieces = sum(len(each.text.split()) for each in crowd.posts)
        if on_phase is not None:
            on_phase(f"{len(crowd.posts)} posts in {written:.0f} s; checking")
        findings, stored = _check(own, crowd.posts, last)
    return Report(
        database=store.url,
        run=new_id(),
        scenario="reloads",
        seed=seed,
        seconds=round(written, 3),
        acknowledged=pieces,
        stored=stored,
        delivered=(),
        counts={
            "posts": len(crowd.posts),
            "left": crowd.counts["left"],
            "restarts": strikes,
            **{name: crowd.counts[name] for name in ("busy", "refused") if crowd.counts[name]},
        },
        findings=findings,
    )


async def _torment(
    crowd: _Clients,
    strike: Callable[[random.Random], None],
    seconds: float | None,
    events: int | None,
    every_s: float,
    seed: int,
    on_progress: Callable[[int, int], None] | None,
) -> tuple[list[Post], int]:
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    began, strikes = time.monotonic(), 0
    due = began + every_s
    async with asyncio.TaskGroup() as tasks:
        for index in range(crowd.number):
            tasks.create_task(crowd.browse(index))
        while True:
            await asyncio.sleep(min(0.5, every_s))
            pieces = sum(each.received.count("w") for each in crowd.posts)
            if on_progress is not None:
                on_progress(pieces, max(events or 0, pieces))
            if seconds is not None and time.monotonic() - began >= seconds:
                break
            if events is not None and pieces >= events and strikes:
                break
            if time.monotonic() >= due:
                await asyncio.to_thread(strike, chance)
                strikes += 1
                due = time.monotonic() + 2 * every_s * chance.random()
        crowd.over = True
    return await crowd.last_posts(), strikes


@contextmanager
def _database(
    store: EventStore, directory: Path
) -> Iterator[tuple[str, Callable[[random.Random], None]]]:
    """Yield a database's URL, and what makes it unreachable for a moment."""
    if not backend_of(store.engine).locks_all:
        with PostgresServer() as server:

            def restart(chance: random.Random) -> None:
                server.stop("immediate" if chance.random() < 0.5 else "fast")
                time.sleep(3 * chance.random() ** 2)
                server.start()

            yield server.url(), restart
        return
    url = f"sqlite:///{directory / 'reloads.db'}"
    EventStore.open(url).close()

    def lock(chance: random.Random) -> None:
        with EventStore.open(url) as own, own.writing():
            time.sleep(chance.random())

    yield url, lock


@contextmanager
def _served(url: str) -> Iterator[tuple[str, int]]:
    """Serve the product with uvicorn; yield its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        command = [sys.executable, "-m", "torture.reloads_server", url]
        number = listening.fileno()
        with subprocess.Popen([*command, str(number)], pass_fds=(number,)) as process:  # noqa: S603 - this program
            try:
                _await_server(listening.getsockname())
                yield listening.getsockname()
            finally:
                process.terminate()
                try:
                    process.wait(_STARTS_S)
                except subprocess.TimeoutExpired:
                    process.kill()


def _await_server(address: tuple[str, int]) -> None:
    """Return once the server answers: until then the database must not be restarted."""
    with socket.create_connection(address, timeout=_STARTS_S) as asking:
        asking.sendall(b"GET / HTTP/1.1\r\nHost: torture\r\nConnection: close\r\n\r\n")
        if not asking.recv(1):
            raise OSError("the web server did not start")


def _check(store: EventStore, posts: list[Post], last: list[Post]) -> tuple[Findings, int]:
    """Compare what clients have received with the log; return the findings and its events."""
    views = Views(store)
    streams = {store.stream(each.user, tenant_id=TENANT) for each in posts}
    until = time.monotonic() + _DRAINS_S
    while (leases := _live(store, streams)) and time.monotonic() < until:
        time.sleep(_PAUSE_S)
    by_user: dict[str, list[Post]] = defaultdict(list)
    for each in posts:
        by_user[each.user].append(each)
    missed = chain = open_items = stored = 0
    for user, theirs in by_user.items():
        stream = store.stream(user, tenant_id=TENANT)
        if not any(each.status == 200 for each in theirs):
            continue
        answers, ended, count = _answers(store, stream)
        stored += count
        for each in theirs:
            if each.status == 200:
                found = answers.get(each.message_id, [])
                kept = any(answer.startswith(each.text) for answer in found)
                missed += not kept or (
                    each.received.endswith("[done]") and each.message_id not in ended
                )
        chain += len(store.verify(stream).problems)
        open_items += sum(item.status == "streaming" for item in views.timeline(stream))
    findings = Findings(
        missed=missed,
        chain=chain,
        views=open_items,
        leases=leases,
        unanswered=sum(not each.done for each in last),
    )
    return findings, stored


def _live(store: EventStore, streams: set[UUID]) -> int:
    """Return how many conversations have a lease that somebody keeps alive."""
    with store.reading() as connection:
        return sum(each.live for each in leases_of(connection, streams))


def _answers(store: EventStore, stream: UUID) -> tuple[dict[str, list[str]], set[str], int]:
    """Return what the log has of each message's answers, those that ended well, and its length."""
    message_of_turn: dict[int, str] = {}
    texts: dict[int, str] = defaultdict(str)
    ended: set[int] = set()
    count = 0
    for event in store.read(stream):
        count += 1
        turn = event.meta.turn or 0
        if event.type in ("turn_start", UserMessage.type) and event.meta.causation_id:
            message_of_turn[turn] = event.meta.causation_id
        if isinstance(event.data, AssistantMessage):
            texts[turn] += "".join(getattr(part, "text", "") for part in event.data.parts)
        elif isinstance(event.data, LlmError):
            texts[turn] += event.data.partial_text or ""
        elif isinstance(event.data, TurnEnd) and event.data.status == "ok":
            ended.add(turn)
    answers: dict[str, list[str]] = defaultdict(list)
    for turn, message in message_of_turn.items():
        answers[message].append(texts[turn])
    return answers, {message_of_turn[turn] for turn in ended if turn in message_of_turn}, count
