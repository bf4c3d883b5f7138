"""The example's backend over HTTP: many users, two workers, and one of them killed at work."""

from __future__ import annotations

import asyncio
import json
import os
import random
import runpy
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from eventstore import AsyncEventStore, EventStore
from eventstore.events import ModeState
from projections import AsyncViews, Views
from projections.upkeep import compare
from tests.exhaustive import partly
from tests.warm import Programs, programs

EXAMPLES = Path(__file__).parents[2] / "examples"
USERS, FEW_USERS = 20, 5
_PATIENCE_S = 5
LONG = " ".join(f"word{number}" for number in range(25))


class Worker:
    """A process of the backend, on a port that outlives it."""

    def __init__(self, programs: Programs, url: str, log: Path) -> None:
        self._programs = programs
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1_000)
        self._environment = {**os.environ, "STORE": url, "PIECE_S": "0.01"}
        self._log = log
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.start()

    def start(self) -> None:
        """Start the process."""
        options = ["--app-dir", str(EXAMPLES), "--log-level", "critical"]
        number = self._socket.fileno()
        with self._log.open("ab") as output:
            self._process = self._programs.start(
                *("-m", "uvicorn", *options, f"--fd={number}", "chat_backend:app"),
                environment=self._environment,
                kept=[number],
                stdout=output,
            )

    def kill(self) -> None:
        """Kill it as a machine that fails does, and start it again."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.start()

    def close(self) -> None:
        """End it, as a deployment does."""
        self._process.terminate()
        self._process.wait()
        self._socket.close()


class Browser:
    """One user with one conversation; requests go to any worker, and are repeated if it is gone."""

    def __init__(self, client: httpx2.AsyncClient, workers: list[Worker], number: int) -> None:
        self.name, self.chosen, self.cid = f"user-{number}", uuid4(), UUID(int=0)
        self.said: list[str] = []
        self._client, self._workers = client, workers
        self._choose = random.Random(number)  # noqa: S311 - no secret

    @property
    def path(self) -> str:
        """Of the conversation."""
        return f"/conversations/{self.chosen}"

    def _url(self, path: str) -> str:
        return self._choose.choice(self._workers).url + path

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        """Send a request that may be repeated; return its answer."""
        options.setdefault("headers", {"X-User": self.name})
        while True:
            try:
                return await self._client.request(method, self._url(path), **options)
            except httpx2.TransportError:
                await asyncio.sleep(0.05)

    async def screen(self) -> tuple[list[dict[str, Any]], int]:
        """Return the items that are shown, and their version."""
        shown = (await self.ask("GET", self.path)).json()
        return shown["items"], shown["version"]

    async def say(self, text: str) -> None:
        """Say something until it is known to be said; twice is refused."""
        _, version = await self.screen()
        body = {"text": text, "after": version}
        answered = [
            (await self.ask("POST", f"{self.path}/messages", json=body)).status_code
            for _ in range(2)
        ]
        assert answered in ([202, 409], [409, 409]), answered
        self.said.append(text)

    async def updates(self) -> AsyncIterator[tuple[int, list[dict[str, Any]]]]:
        """Yield the stream's events, and resume after the last one seen when it breaks."""
        last = 0
        while True:
            headers = {"X-User": self.name, "Last-Event-ID": str(last)}
            try:
                async with self._client.stream(
                    "GET", self._url(f"{self.path}/stream"), headers=headers
                ) as response:
                    async for line in response.aiter_lines():
                        if line.startswith("id: "):
                            last = int(line[4:])
                        elif line.startswith("data: "):
                            yield last, json.loads(line[6:])
            except httpx2.TransportError:
                await asyncio.sleep(0.05)

    async def whole(self, expected: str) -> None:
        """Follow until an answer is whole; regenerate it when its worker was killed."""
        while True:
            shown: dict[tuple[int, int], dict[str, Any]] = {}
            seen: list[int] = []
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    async for version, changes in self.updates():
                        seen.append(version)
                        for change in changes:
                            apply(shown, change)
                        if expected in answers(shown):
                            assert sorted({*seen}) == seen, "an update came twice"
                            return
            except TimeoutError:
                items, version = await self.screen()
                assert [item for item in items if item["kind"] == "user"]
                await self.ask("POST", f"{self.path}/regenerate", json={"after": version})


def apply(shown: dict[tuple[int, int], dict[str, Any]], change: dict[str, Any]) -> None:
    """Do what a browser's few lines do with a change."""
    if change["kind"] == "added":
        shown[change["item"]["version"], change["item"]["part"]] = change["item"]
    elif change["kind"] == "appended":
        item = shown[change["version"], change["part"]]
        item["text"] = (item["text"] or "") + change["text"]
    elif change["kind"] == "changed":
        shown[change["version"], change["part"]].update(change["values"])
    elif change["kind"] == "withdrawn":
        for item in shown.values():
            if change["first"] <= (item["message_version"] or 0) <= change["last"]:
                item["status"] = "withdrawn"
    elif change["kind"] == "left":
        for key, item in list(shown.items()):
            if change["first"] <= (item["message_version"] or 0) <= change["last"]:
                del shown[key]
    else:
        shown.clear()
        shown.update({(item["version"], item["part"]): item for item in change["items"]})


def answers(shown: dict[tuple[int, int], dict[str, Any]]) -> list[str]:
    """Return the answers that stand complete on a screen."""
    return [
        item["text"].strip()
        for item in shown.values()
        if item["kind"] == "assistant" and item["status"] == "complete"
    ]


async def begin(browser: Browser) -> None:
    """Begin a conversation, by a double click, and say something."""
    begun = [await browser.ask("PUT", browser.path) for _ in range(2)]
    assert [201, 201] == [each.status_code for each in begun]
    [browser.cid] = {UUID(each.json()["id"]) for each in begun}
    await browser.say(f"{browser.name} begins: {LONG}")


async def go_on(browser: Browser) -> None:
    """Edit, stop, look for what was said, and for what others said."""
    items, version = await browser.screen()
    last = [item["version"] for item in items if item["kind"] == "user"][-1]
    edited = {"after": version, "text": f"edited by {browser.name}"}
    done = await browser.ask("PUT", f"{browser.path}/messages/{last}", json=edited)
    assert 202 == done.status_code
    await browser.whole(f"You said: edited by {browser.name}")
    await there_and_back(browser)
    await browser.say(f"stopped {LONG}")
    assert 204 == (await browser.ask("POST", f"{browser.path}/stop")).status_code
    found = (await browser.ask("GET", "/search", params={"q": '"edited by"'})).json()
    assert {str(browser.cid)} == {hit["conversation_id"] for hit in found}
    page = (await browser.ask("GET", "/conversations")).json()
    assert [str(browser.cid)] == [entry["conversation_id"] for entry in page["conversations"]]
    assert [total["key"] for total in (await browser.ask("GET", "/usage")).json()] == ["gpt-4o"]
    forked = await browser.ask("POST", f"{browser.path}/fork", json={"before": last})
    other_cid = forked.json()["id"]
    shown = (await browser.ask("GET", f"/conversations/{other_cid}")).json()["items"]
    said = [item["text"] for item in shown if item["kind"] == "user"]
    assert [f"{browser.name} begins: {LONG}"] == said
    other = {"X-User": f"{browser.name}x"}
    for method, path in (("GET", ""), ("GET", "/stream"), ("POST", "/stop"), ("DELETE", "")):
        hidden = await browser.ask(method, f"{browser.path}{path}", headers=other)
        assert 404 == hidden.status_code


async def there_and_back(browser: Browser) -> None:
    """Go to the message as it was before, and back; and go on from it in a fork."""
    [*_, point] = (await browser.ask("GET", browser.path)).json()["branches"]
    assert [False, True] == [each["active"] for each in point["alternatives"]]
    for at, text in ((0, "pay 5"), (1, f"edited by {browser.name}")):
        body = {"version": point["alternatives"][at]["version"]}
        assert 204 == (await browser.ask("PUT", f"{browser.path}/branch", json=body)).status_code
        items, _ = await browser.screen()
        users = [item for item in items if item["kind"] == "user"]
        assert text == users[-1]["text"]
    refused = await browser.ask("PUT", f"{browser.path}/branch", json={"version": 1})
    assert 404 == refused.status_code


def paying(log: Path) -> None:
    """Return once a tool runs."""
    while b"paid" not in log.read_bytes():
        time.sleep(0.001)


async def day(workers: list[Worker], users: int, log: Path) -> list[Browser]:
    """Have all users at work, and a worker killed in mid-stream and in a tool."""
    async with httpx2.AsyncClient(timeout=60) as client:
        browsers = [Browser(client, workers, number) for number in range(users)]
        await asyncio.gather(*map(begin, browsers))
        workers[0].kill()
        await asyncio.gather(
            *(each.whole(f"You said: {each.name} begins: {LONG}") for each in browsers)
        )
        await asyncio.gather(*(each.say("pay 5") for each in browsers))
        await asyncio.to_thread(paying, log)
        workers[0].kill()
        await asyncio.gather(*(each.whole("You said: 5 paid") for each in browsers))
        await asyncio.gather(*map(go_on, browsers))
        assert 204 == (await browsers[0].ask("DELETE", browsers[0].path)).status_code
        return browsers


def test_a_screen_without_items_begins_at_the_first_version(store: EventStore) -> None:
    """A conversation may have only events that no screen shows."""
    place = store.append(uuid4(), [ModeState(mode="agent", state={})])
    program = runpy.run_path(str(EXAMPLES / "chat_backend.py"))

    shown = asyncio.run(
        program["timeline"](AsyncViews(AsyncEventStore(store)), place.conversation_id)
    )

    assert {"items": [], "branches": [], "version": 0} == shown


def test_a_wrong_request_is_refused(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was an error of the server, which operators are woken up for."""
    monkeypatch.setenv("STORE", database_url)
    program = runpy.run_path(str(EXAMPLES / "chat_backend.py"))
    path, big, none = f"/conversations/{uuid4()}", 2**63, 2**63 - 1
    said = {"text": "Hello", "after": 0}
    wrong: list[tuple[str, str, Any, int]] = [
        ("GET", "/conversations?limit=-1", None, 422),
        ("GET", f"/conversations?limit={none}", None, 200),
        ("GET", "/conversations?after=x", None, 400),
        ("GET", f"{path}/stream?after={big}", None, 422),
        ("POST", f"{path}/messages", said | {"after": big}, 422),
        ("PUT", f"{path}/messages/{big}", said, 422),
        ("PUT", f"{path}/messages/{none}", said | {"after": 9}, 404),
        ("POST", f"{path}/regenerate", {"after": -1}, 422),
        ("PUT", f"{path}/branch", {"version": big}, 422),
        ("POST", f"{path}/fork", {"before": 1}, 404),
        ("POST", f"{path}/fork", {"before": none}, 404),
    ]

    async def ask() -> None:
        app = program["app"]
        transport = httpx2.ASGITransport(app)
        async with (
            program["lifespan"](app),
            httpx2.AsyncClient(transport=transport, base_url="http://test") as client,
        ):
            client.headers["X-User"] = "ada"
            assert 201 == (await client.put(path)).status_code
            for method, url, body, expected in wrong:
                answer = await client.request(method, url, json=body)
                assert expected == answer.status_code, (method, url, answer.text)
            answer = await client.get("/usage", headers={"X-User": ""})
            assert 400 == answer.status_code

    asyncio.run(ask())


def test_nobody_learns_which_ids_others_use(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beginning with an id that another user chose was a 404, with any other a 201."""
    monkeypatch.setenv("STORE", database_url)
    program = runpy.run_path(str(EXAMPLES / "chat_backend.py"))

    async def probe() -> tuple[list[list[int]], set[str]]:
        app = program["app"]
        async with (
            program["lifespan"](app),
            httpx2.AsyncClient(
                transport=httpx2.ASGITransport(app), base_url="http://test"
            ) as client,
        ):
            ada, eve = {"X-User": "ada"}, {"X-User": "eve"}
            chosen = f"/conversations/{uuid4()}"
            begun = (await client.put(chosen, headers=ada)).json()["id"]
            codes = [
                [
                    (await client.request(method, path, headers=eve)).status_code
                    for method in ("GET", "PUT", "PUT", "GET", "DELETE")
                ]
                for path in (chosen, f"/conversations/{begun}", f"/conversations/{uuid4()}")
            ]
            shown = (await client.get("/conversations", headers=ada)).json()["conversations"]
            return codes, {each["conversation_id"] for each in shown} ^ {begun}

    codes, others = asyncio.run(probe())
    assert [[404, 201, 201, 200, 204]] * 3 == codes
    assert set() == others


@pytest.fixture(scope="module")
def servers() -> Iterator[Programs]:
    """Give what starts processes that have imported what the backend needs."""
    with programs("fastapi", "uvicorn.protocols.http.auto", "uvicorn.lifespan.on") as found:
        yield found


@pytest.mark.parametrize("users", partly([FEW_USERS, USERS]))
@pytest.mark.parametrize("count", partly([2, 1]))
def test_nothing_is_lost_nothing_twice_nothing_of_others(
    count: int, users: int, servers: Programs, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One worker on SQLite, two on PostgreSQL; each user with a conversation."""
    url = str(request.getfixturevalue("sqlite_url" if count == 1 else "postgres_url"))
    log = tmp_path / "log"
    EventStore.open(url).close()
    with ExitStack() as stack:
        workers = [Worker(servers, url, log) for _ in range(count)]
        for worker in workers:
            stack.callback(worker.close)
        browsers = asyncio.run(day(workers, users, log))
    paid = [line for line in log.read_text().splitlines() if line.startswith("paid ")]
    assert len({*paid}) == len(paid)
    with EventStore.open(url) as store:
        views = Views(store)
        for browser in browsers[1:]:
            shown = [item for item in views.timeline(browser.cid) if item.status != "withdrawn"]
            said = [item.text for item in shown if item.kind == "user"]
            first, _, last = browser.said
            assert [first, f"edited by {browser.name}", last] == said
        assert [] == views.search(f'"{browsers[0].name} begins"')
        assert compare(store).ok
        assert store.verify().ok
