"""Products behind HTTP: called within the process as a server calls them, and served by uvicorn."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect

from tests.products.harness import Scene

__all__ = ["chat", "served"]


async def chat(app: Any, scene: Scene) -> None:
    """Say hello, and keep what the application answers, as a server does it.

    The scene says after how many pieces of the answer the user goes away, and how the server tells:
    by a message, or by an error of the next piece that is sent.
    """
    pieces: list[str] = []
    body = json.dumps({"said": "hello"}).encode()
    incoming = [{"type": "http.request", "body": body, "more_body": False}]
    gone = asyncio.Event()
    if scene.leaves_after == 0:
        gone.set()

    async def receive() -> dict[str, Any]:
        if incoming:
            return incoming.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        await asyncio.sleep(0)  # as a server does whose client reads slowly
        if gone.is_set() and scene.spec >= "2.4":
            raise OSError
        if message.get("body") and not gone.is_set():
            pieces.append(message["body"].decode())
            if not pieces[-1].startswith(("[", ":")):  # which is the product's own word
                scene.shown.append(pieces[-1])
            if len(pieces) == scene.leaves_after:
                gone.set()

    try:
        await app(_scope(len(body), scene.spec), receive, send)
    except ClientDisconnect:
        pass  # which a server passes over
    finally:
        scene.left = gone.is_set()


def _scope(length: int, spec: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": spec},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/chat",
        "raw_path": b"/chat",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % length)],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "state": {},
    }


@contextmanager
def served(make: Callable[[], Any]) -> Iterator[str]:
    """Serve an application on the loopback interface, and give its URL.

    Args:
        make: Makes the application, in the thread and the event loop that serve it.
    """
    began = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            began.set()

    config = uvicorn.Config(
        make, factory=True, port=0, log_level="critical", lifespan="on", timeout_graceful_shutdown=9
    )
    server = Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert began.wait(30)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
