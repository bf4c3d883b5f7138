"""Exceptions in words: who stopped a block, and what is kept of errors."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from agent_eventstore.stops import (
    BY_SOMEBODY,
    BY_USER,
    error_text,
    mark_failure,
    stopped,
    stopped_or_gone,
)
from projections.providers.failures import without_directories as shown


class ClientDisconnect(Exception):
    """What Starlette raises when a client has gone away."""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (asyncio.CancelledError("Cancelled via cancel scope 7f3a"), BY_SOMEBODY),
        (GeneratorExit(), BY_SOMEBODY),
        (SystemExit("/srv/app"), BY_SOMEBODY),
        (KeyboardInterrupt(), BY_USER),
        (ClientDisconnect("/srv/app"), BY_USER),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), BY_USER),
        (ConnectionResetError("Connection lost"), BY_USER),
        (ConnectionResetError("Cannot write to closing transport"), BY_USER),
        (BaseExceptionGroup("", [asyncio.CancelledError(), ClientDisconnect()]), BY_USER),
        (BaseExceptionGroup("", [asyncio.CancelledError(), ValueError()]), None),
        (ConnectionResetError("reset by peer"), None),
        (ValueError("no"), None),
        (None, None),
    ],
    ids=repr,
)
def test_who_stopped_a_block(error: Any, words: str | None) -> None:
    """However a client's leaving reaches the product, it is told in the same words, and in ours."""
    assert words == stopped_or_gone(error)
    if words is not None and not isinstance(error, ConnectionError):
        assert words == stopped(error) == error_text(error)


def test_broken_pipe_of_a_tool_is_no_client_that_has_left() -> None:
    """A tool's own connection that breaks is that tool's failure, also further out."""
    error = BrokenPipeError(errno.EPIPE, "Broken pipe")
    mark_failure(error)
    assert stopped_or_gone(error) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No such file: '/srv/my app/keys.json'", "No such file: 'keys.json'"),
        ('File "/srv/app/main.py", line 3', 'File "main.py", line 3'),
        ("(/usr/lib/python3/json/__init__.py)", "(__init__.py)"),
        ("/srv/a/b.py:12 and ~/secret/x", "b.py:12 and x"),
        (r"C:\Users\me\x.txt is gone", "x.txt is gone"),
        ("sqlite:////srv/app/agent.db: locked", "agent.db: locked"),
        ("https://api.example.com/v1/chat: 404", "https://api.example.com/v1/chat: 404"),
        ("read and/or write, 3 / 4, '/'", "read and/or write, 3 / 4, '/'"),
    ],
)
def test_directories_are_left_out(text: str, expected: str) -> None:
    """Of an absolute path the last name is kept; URLs and other slashes stay as they are."""
    assert expected == shown(text)


def test_error_in_words_is_bounded() -> None:
    """An exception that holds a whole page does not fill the log."""
    assert len(error_text(ValueError("x" * 1_000_000))) < 5_000
