"""``eventstore serve``: what it refuses, and what it prints."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from agent_eventstore.cli.serve import _bound
from tests.docs.document import ROOT, blocks
from tests.warm import Programs

COMMAND = (sys.executable, "-m", "agent_eventstore.cli")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--host", "0.0.0.0"), "name a secret with --token"),  # noqa: S104 - it is refused
        (("--host", "example.com"), "name a secret with --token"),
        (("--user-header", "X-User"), "--user-header needs --token"),
        (("--token", "short"), "at least 16 characters"),
        (("--demo", "--model", "gpt-4o"), "contradict each other"),
        (("--host", "203.0.113.1", "--token", "x" * 16), "cannot listen on"),
        (("--read-only",), "does not exist"),
    ],
)
def test_what_is_unsafe_is_refused(tmp_path: Path, options: tuple[str, ...], reason: str) -> None:
    """With one line on stderr and the status of wrong use."""
    done = subprocess.run(
        [*COMMAND, "--db", f"sqlite:///{tmp_path / 'x.db'}", "serve", "--port", "0", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_response_does_not_wait_for_an_acknowledgement() -> None:
    """Headers and body are two packets; with Nagle's algorithm each response took 40 ms longer."""
    with _bound("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_printed_address_opens(tmp_path: Path) -> None:
    """Its token opens the service; without it, nothing is served; SIGTERM ends it."""
    command = [*COMMAND, "--db", f"sqlite:///{tmp_path / 'x.db'}", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            address = line.removeprefix("serving ")
            place, _, token = address.partition("?token=")
            assert len(token) >= 32
            assert httpx.get(f"{place}api/usage").status_code == 401
            with httpx.Client(follow_redirects=True) as browser:
                found = browser.get(f"{place}api/usage", params={"token": token})
                assert found.status_code == 200
                assert "token" not in str(found.url)
        finally:
            process.terminate()
            process.wait(20)


def test_the_page_can_be_believed(programs: Programs, tmp_path: Path) -> None:
    """Its program runs, and prints what the page says."""
    page = ROOT / "docs" / "server.md"
    done = programs.run("-c", blocks(page, "python")[0], directory=tmp_path)
    done.check_returncode()
    assert blocks(page, "text") == [done.stdout]
