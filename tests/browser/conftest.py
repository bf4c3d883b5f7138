"""A headless Chromium, without which these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agent_eventstore import EventStore
from agent_eventstore.server import create_app
from agent_eventstore.server.shared import Identity
from tests.server.serving import serving

WAIT_MS = 60_000
"""How long a test waits for what must happen; only a failure takes that long."""

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Give a headless Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as running:
        # A container's shared memory may be too small for a page.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        found = running.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield found
        found.close()


@pytest.fixture(scope="module")
def address(store: EventStore) -> Iterator[str]:
    """Serve the module's store in a thread, and give the service's address."""
    app = create_app(store, authenticate=lambda request: Identity(), hosts=["127.0.0.1"])
    with serving(app) as found:
        yield found


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page that fails the test for errors of scripts and for requests to other hosts."""
    with _watched(browser, address) as opened:
        yield opened


@contextmanager
def _watched(browser: Any, address: str) -> Iterator[Any]:
    """Yield a page; at the end no script has failed, and no other host was asked for anything."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, base_url=address)
    opened = context.new_page()
    opened.set_default_timeout(WAIT_MS)
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    opened.on(
        "request",
        lambda made: None if made.url.startswith((address, "data:")) else problems.append(made.url),
    )
    yield opened
    context.close()
    assert not problems
