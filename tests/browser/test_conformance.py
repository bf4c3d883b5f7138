"""What the public conformance suite of Durable Streams asks of reading.

The suite makes its streams by appending, which the service leaves to the recorder (docs/server.md
says why), so that a shim appends for it. Its tests of appending itself, of expiry, of binary
streams and of pages on other origins are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from agent_eventstore.server import Identity, create_app
from agent_eventstore.server.shared import ServiceLimits
from eventstore import EventStore
from tests.browser.appending import AppendingShim, unwrapped
from tests.server.serving import serving

PACKAGES = os.environ.get("NPM_PACKAGES", "")
SUITE = Path(__file__).parent / "clients" / "conformance.test.mjs"

READING = (
    "Read Operations",
    "Long-Poll Operations",
    "HTTP Protocol should (return correct headers on GET|return empty body|read from offset)",
    "Browser Security Headers",
    "Content-Type Validation should return stream content-type on GET",
    "HEAD Metadata should",
    "Offset Validation and Resumability",
    "Protocol Edge Cases should (preserve|generate|reject (empty|multiple) offset|ignore unknown)",
    "Long-Poll Edge Cases",
    "Caching and ETag",
    "Chunking and Large Payloads",
    "Read-Your-Writes Consistency",
    "SSE Mode",
    "JSON Mode",
    "Property-Based Tests .*(Byte-Exactness|Operation Sequence|Immutability|Offset|State Hash)",
    "Stream Closure (HEAD|Read Closed|Long-poll with|SSE with)",
    "Stream Closure .*offset-now-on-closed-stream",
    "Fork - (Reading|Live Modes|JSON Mode)",
)
LEFT_OUT = (
    "on (PUT|POST) responses",  # of the shim
    "reject (POST|invalid JSON|empty JSON)",
    "preflight",  # there is no CORS
    "[Bb]inary|base64|protobuf|image/png",
)
EXPECTED = 127
"""How many tests of version 0.3.6 that is, so that a name that matches nothing is noticed."""


@pytest.mark.skipif(not PACKAGES, reason="NPM_PACKAGES does not name node_modules")
def test_the_public_suite_of_durable_streams(tmp_path: Path) -> None:
    """All that it asks of reading holds: catch-up, long polls, live, ETags, closure, forks."""
    folder, report = Path(PACKAGES).parent, tmp_path / "report.json"
    shutil.copy(SUITE, folder)  # it finds packages beside it
    names = f"^(?!.*({'|'.join(LEFT_OUT)})).*({'|'.join(READING)})"
    command = [f"{PACKAGES}/.bin/vitest", "run", SUITE.name, "-t", names, "--reporter=json"]
    with EventStore.open(f"sqlite:///{tmp_path}/streams.db", synchronous="NORMAL") as store:
        limits = ServiceLimits(long_poll_s=2)
        app = create_app(store, authenticate=lambda request: Identity(), limits=limits)
        with unwrapped(), serving(AppendingShim(app, store)) as address:
            ended = subprocess.run(
                [*command, f"--outputFile={report}"],
                cwd=folder,
                env={**os.environ, "CONFORMANCE_TEST_URL": address},
                capture_output=True,
                text=True,
                timeout=300,
            )
    assert report.exists(), ended.stderr
    found = json.loads(report.read_text("utf-8"))
    failed = [
        (each["fullName"], each["failureMessages"][0].splitlines()[0])
        for file in found["testResults"]
        for each in file["assertionResults"]
        if each["status"] == "failed"
    ]
    assert failed == []
    assert found["numPassedTests"] == EXPECTED
