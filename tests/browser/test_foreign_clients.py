"""Clients of others follow and chat: Chromium's EventSource, and packages from npm.

Run with ``make test-browser``, which installs them. ``curl`` is in tests/server/test_live.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import Conversation, EventStore
from tests.browser.conftest import WAIT_MS
from tests.server.serving import TOKEN, Answering, KillableServer, running

SCRIPTS = Path(__file__).parent / "clients"
PACKAGES = os.environ.get("NPM_PACKAGES", "")

needs_npm = pytest.mark.skipif(not PACKAGES, reason="NPM_PACKAGES does not name node_modules")


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """Give a new SQLite database."""
    return f"sqlite:///{tmp_path}/followed.db"


@contextmanager
def client_of(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script with npm's packages; it is killed in the end."""
    # A script from standard input finds packages beside the working directory.
    command = ["node", "--input-type=module", "-", *arguments]
    with (
        (SCRIPTS / script).open("rb") as source,
        subprocess.Popen(
            command,
            cwd=Path(PACKAGES).parent,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def batches_until(process: subprocess.Popen[str], version: int) -> tuple[list[int], str]:
    """Return the versions that a follower prints up to one, and the offset after them."""
    seen: list[int] = []
    assert process.stdout is not None
    for line in process.stdout:
        batch = json.loads(line)
        seen += batch["versions"]
        if seen and seen[-1] >= version:
            return seen, batch["offset"]
    assert process.stderr is not None
    raise AssertionError(f"ended after {seen[-1:]}: {process.stderr.read()}")


def renamed(database_url: str, stream: str, *titles: str) -> int:
    """Rename a conversation in another process than the server's; return its version."""
    with EventStore.open(database_url) as store:
        with Conversation.open(store, stream) as conversation:
            for title in titles:
                conversation.rename(title)
        return store.get(stream).version


@needs_npm
@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_the_official_client_of_durable_streams(database_url: str, live: str) -> None:
    """Killed, it goes on where it was; it survives a server that is killed; nothing comes twice."""
    with KillableServer(database_url) as server:
        made = server.client.post("/api/chat", json={"message": "@ada hello"}).json()
        stream, version = made["thread_id"], made["version"]
        place = f"{server.address}/streams/{stream}"
        with client_of("follow_stream.mjs", place, TOKEN, "-1", live) as process:
            first, offset = batches_until(process, version)
        version = renamed(database_url, stream, "while nobody looked")
        with client_of("follow_stream.mjs", place, TOKEN, offset, live) as process:
            second, _ = batches_until(process, version)
            server.kill()
            version = renamed(database_url, stream, "while no server was there")
            server.start()
            third, _ = batches_until(process, version)
    assert [*first, *second, *third] == list(range(1, version + 1))


@needs_npm
def test_the_transport_of_the_ai_sdk(database_url: str) -> None:
    """Its default transport sends, and its own parser builds the message that was streamed."""
    with (
        EventStore.open(database_url) as store,
        running(store, models={"tom": Answering("tom says")}) as service,
    ):
        thread = service.chat("hi")["thread_id"]
        arguments = (f"{service.address}/api/ui-chat", TOKEN, thread, "and now?")
        with client_of("chat.mjs", *arguments) as process:
            output, errors = process.communicate(timeout=WAIT_MS / 1_000)
        assert process.returncode == 0, errors
        found = json.loads(output)
        assert found["role"] == "assistant"
        assert found["states"] > 1
        texts = [part["text"] for part in found["parts"] if part["type"] == "text"]
        assert texts == ["tom says 2"]


_FOLLOW = """(place) => {
    const source = new EventSource(place);
    window.seen = [];
    source.onmessage = (event) => window.seen.push([event.lastEventId, JSON.parse(event.data)]);
}"""
_TITLES = """() => window.seen.flatMap(([, data]) => data.changes)
    .filter((each) => each.kind === "added" && each.item.kind === "conversation")
    .map((each) => each.item.title)"""


def test_event_source_reconnects_by_itself(browser: Any, database_url: str) -> None:
    """The browser's own client survives a server that is killed; each change comes once."""
    with KillableServer(database_url) as server:
        stream = server.client.post("/api/chat", json={"message": "@ada hello"}).json()["thread_id"]
        context = browser.new_context(base_url=server.address)
        page = context.new_page()
        page.goto(f"/operations?token={TOKEN}")
        page.evaluate(_FOLLOW, f"/api/conversations/{stream}/follow")
        page.wait_for_function("() => window.seen.length > 0", timeout=WAIT_MS)
        renamed(database_url, stream, "one")
        page.wait_for_function(f"() => ({_TITLES})().includes('one')", timeout=WAIT_MS)
        server.kill()
        renamed(database_url, stream, "two")
        server.start()
        page.wait_for_function(f"() => ({_TITLES})().includes('two')", timeout=WAIT_MS)
        titles = [each for each in page.evaluate(_TITLES) if each in ("one", "two")]
        assert titles == ["one", "two"]
        ids = page.evaluate("() => window.seen.map(([id]) => Number(id))")
        assert ids == sorted(ids)
        context.close()
