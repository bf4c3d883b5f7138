"""A headless Chromium, without which these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

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
