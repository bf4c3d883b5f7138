"""A running service for tests: an application behind uvicorn, and a client that has its token."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn

from agent_eventstore import ModelRequest
from agent_eventstore.server import create_app
from eventstore import EventStore

__all__ = ["TOKEN", "Answering", "KillableServer", "Running", "events_in", "running", "serving"]

TOKEN = "a-token-of-the-tests"


@dataclass
class Answering:
    """A model that answers in pieces with its prefix and the number of the call.

    Attributes:
        prefix: What its answers begin with.
        requests: What it was sent.
        active: How many calls run at the moment.
        most: The most that ever did.
        gate: If set, calls wait for it.
    """

    prefix: str
    requests: list[ModelRequest] = field(default_factory=list)
    active: int = 0
    most: int = 0
    pause_s: float = 0.0
    gate: threading.Event | None = None
    started: threading.Event = field(default_factory=threading.Event)

    def __call__(self, request: ModelRequest) -> Iterator[str]:
        """Yield the pieces of an answer."""
        self.requests.append(request)
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            yield f"{self.prefix} "
            self.started.set()
            if self.gate is not None:
                self.gate.wait(20)
            time.sleep(self.pause_s)
            yield str(len(self.requests))
        finally:
            self.active -= 1


@dataclass(frozen=True)
class Running:
    """A service that runs, and a client with its token."""

    client: httpx.Client
    address: str
    app: Any

    def chat(self, message: str, **more: Any) -> dict[str, Any]:
        """Send a message, which must succeed."""
        response = self.client.post("/api/chat", json={"message": message, **more})
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an application on a free port of loopback; return its address."""
    config = uvicorn.Config(
        app, log_level="critical", lifespan="off", timeout_graceful_shutdown=2, access_log=False
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def running(store: EventStore, **options: Any) -> Iterator[Running]:
    """Serve a store."""
    if not {"authenticate", "user_header"} & set(options):
        options.setdefault("token", TOKEN)
    app = create_app(store, **options)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with ExitStack() as stack:
        address = stack.enter_context(serving(app))
        client = httpx.Client(base_url=address, headers=headers, timeout=30)
        yield Running(stack.enter_context(client), address, app)


class KillableServer:
    """``eventstore serve --demo`` in a process of its own, which can be killed and started again.

    Attributes:
        address: Where it serves, each time.
        client: A client with its token.
    """

    def __init__(self, database_url: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(
            base_url=self.address, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30
        )
        command = ("--db", database_url, "serve", "--demo", "--port", str(port))
        self._command = [sys.executable, "-m", "agent_eventstore.cli", *command]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KillableServer:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it."""
        self.kill()
        self.client.close()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        environment = {**os.environ, "EVENTSTORE_TOKEN": TOKEN}
        self._process = subprocess.Popen(
            self._command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(1_200):
            try:
                self.client.get("/api/usage")
            except httpx.TransportError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError("the server does not answer")

    def kill(self) -> None:
        """Kill it, in the middle of whatever it does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


def events_in(lines: Iterator[str]) -> Iterator[tuple[str, str | None, Any]]:
    """Yield the name, id and data of each server-sent event."""
    name, own_id, data = "message", None, ""
    for line in lines:
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if key == "event":
            name = value
        elif key == "id":
            own_id = value
        elif key == "data":
            data += value
        elif not line and data:
            yield name, own_id, json.loads(data)
            name, own_id, data = "message", None, ""
