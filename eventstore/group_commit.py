"""Group commit: concurrent appends of many tasks become durable in one transaction.

No append in a group waits for a lock on behalf of the others. On PostgreSQL another session may
have locked the row of a single conversation, on SQLite the whole file: the appends that the lock
concerns are held and retried together with new ones, for as long as the store waits for a lock.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from eventstore.errors import DatabaseBusy, StoreClosed
from eventstore.sql.failures import lacks_connection
from eventstore.sql.requests import Append, Appended

__all__ = ["CLOSED", "GroupCommit"]

CLOSED = "this store is closed: close it after its conversations, or open another"

_GROUP = 256
_AGAIN_S = 0.01
_SELDOM_S = 0.2


class AppendGroup(Protocol):
    """Runs many appends together, like `EventStore._append_group`."""

    def __call__(
        self, requests: Sequence[Append], *, wait: bool = True
    ) -> list[Appended | Exception]: ...


@dataclass(slots=True, eq=False)
class _Waiting:
    """An append that a task awaits; while its stream is locked, it is retried up to ``until``."""

    make: Callable[[], Append]
    future: asyncio.Future[Appended]
    wait: bool
    made: Append | None = None
    until: float = 0.0

    @property
    def request(self) -> Append:
        """The append, encoded."""
        assert self.made is not None  # noqa: S101 - those that failed to encode are dropped
        return self.made


class GroupCommit:
    """Collects appends while a transaction is running, and commits them together in the next."""

    def __init__(self, append_group: AppendGroup, patience_s: float) -> None:
        self._append_group = append_group
        self._patience_s = patience_s
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="eventstore-group")
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._running = False

    async def submit(self, request: Callable[[], Append], *, wait: bool = True) -> Appended:
        """Return the append's result once it is durable.

        The request is built in a thread, since encoding a large payload would block the loop.
        """
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        with self._changed:
            if not self._running:
                # Under the lock, so that no task relies on a thread that cannot be started.
                try:
                    self._executor.submit(self._drain)
                except RuntimeError as error:
                    raise StoreClosed(CLOSED) from error
                self._running = True
            self._waiting.append(_Waiting(request, future, wait))
            self._changed.notify()
        return await future

    def close(self) -> None:
        """Wait for running appends, and accept no more."""
        self._executor.shutdown()

    def _drain(self) -> None:
        held: list[_Waiting] = []
        again, pause = 0.0, _AGAIN_S
        while True:
            with self._changed:
                if held and not self._waiting:
                    self._changed.wait(max(0.0, again - time.monotonic()))
                size = min(_GROUP, len(self._waiting))
                new = [self._waiting.popleft() for _ in range(size)]
                if not new and not held:
                    self._running = False
                    return
            due = time.monotonic() >= again
            group, held = _parted(held, self._made(new), due)
            if group:
                held = self._append(group) + held
            if not held:
                pause = _AGAIN_S
            elif due:
                again, pause = time.monotonic() + pause, min(2 * pause, _SELDOM_S)

    def _made(self, new: Sequence[_Waiting]) -> list[_Waiting]:
        well, failed = list[_Waiting](), list[tuple[_Waiting, Appended | Exception]]()
        for each in new:
            try:
                each.made = each.make()
            except Exception as error:
                failed.append((each, error))
            else:
                each.until = time.monotonic() + self._patience_s
                well.append(each)
        _tell(failed)
        return well

    def _append(self, group: Sequence[_Waiting]) -> list[_Waiting]:
        """Append without waiting for locks, report the outcomes, return the appends to retry."""
        outcomes = self._append_group([each.request for each in group], wait=False)
        held, told = list[_Waiting](), list[tuple[_Waiting, Appended | Exception]]()
        for each, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, DatabaseBusy) and _may_try_again(each, outcome):
                held.append(each)
            else:
                told.append((each, outcome))
        _tell(told)
        return held


def _may_try_again(each: _Waiting, error: DatabaseBusy) -> bool:
    return each.wait and not lacks_connection(error) and time.monotonic() < each.until


def _parted(
    held: list[_Waiting], new: list[_Waiting], due: bool
) -> tuple[list[_Waiting], list[_Waiting]]:
    """Return the appends to try now and those to try later; each stream keeps its order."""
    if due:
        return held + new, []
    streams = {each.request.conversation_id for each in held}
    later = [each for each in new if each.request.conversation_id in streams]
    return [each for each in new if each not in later], held + later


def _tell(outcomes: Sequence[tuple[_Waiting, Appended | Exception]]) -> None:
    answers: dict[asyncio.AbstractEventLoop, list[tuple[_Waiting, Appended | Exception]]] = {}
    for each, outcome in outcomes:
        answers.setdefault(each.future.get_loop(), []).append((each, outcome))
    for loop, answered in answers.items():
        # If the loop has been closed in the meantime, nothing awaits the outcome.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_answer, answered)


def _answer(answered: Sequence[tuple[_Waiting, Appended | Exception]]) -> None:
    for each, outcome in answered:
        if each.future.done():  # its task was cancelled
            continue
        if isinstance(outcome, Exception):
            each.future.set_exception(outcome)
        else:
            each.future.set_result(outcome)
