"""The threads of the library's own: context variables, and processes that are forked."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import threading
from contextvars import ContextVar

import pytest

from eventstore.threads import begin_in_thread, to_thread

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


def test_what_is_raised_is_the_callers() -> None:
    """An error in the thread is raised where the call is awaited."""

    async def asked() -> None:
        with pytest.raises(ZeroDivisionError):
            await to_thread(lambda: 1 / 0)

    asyncio.run(asked())


def test_a_call_that_nobody_awaits_any_more_is_not_begun() -> None:
    """One that is cancelled while all threads are busy has never happened."""
    gate, ran = threading.Event(), list[str]()

    async def asked() -> None:
        busy = [asyncio.create_task(to_thread(gate.wait, 60)) for _ in range(64)]
        late = asyncio.create_task(to_thread(ran.append, "late"))
        await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        gate.set()
        await asyncio.gather(*busy, to_thread(ran.append, "last"))

    asyncio.run(asked())
    assert ["last"] == ran


def test_a_call_outlives_its_event_loop() -> None:
    """What was begun goes on to its end where the event loop was closed meanwhile."""
    gate = threading.Event()

    async def begun() -> tuple[object, object]:
        return begin_in_thread(gate.wait, 60)

    _, running = asyncio.run(begun())
    gate.set()

    assert (True, None) == running.result(60)  # type: ignore[attr-defined]


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
