"""The threads of the library's own: context variables, and processes that are forked."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import threading
from contextvars import ContextVar

import pytest

from eventstore.threads import to_thread

_ASKED = ContextVar("asked", default="nobody")


def told() -> tuple[str, bool]:
    """Return who has asked, and whether this is another thread than the main one."""
    return _ASKED.get(), threading.current_thread() is threading.main_thread()


def ask() -> None:
    """Ask as Ada."""

    async def asked() -> tuple[str, bool]:
        _ASKED.set("ada")
        return await to_thread(told)

    assert ("ada", False) == asyncio.run(asked())


def test_context_variables_are_the_callers() -> None:
    """As with `asyncio.to_thread`: what is set there is seen in the thread, and not after it."""
    ask()

    assert ("nobody", True) == told()


@pytest.mark.skipif(sys.platform == "win32", reason="nothing forks on Windows")
def test_a_child_has_threads_of_its_own() -> None:
    """A process that is forked once the parent has used its threads does not wait for those."""
    ask()
    child = multiprocessing.get_context("fork").Process(target=ask)
    child.start()
    child.join(30)
    over = child.exitcode
    child.kill()

    assert over == 0
