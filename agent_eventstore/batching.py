"""Batching a stream's deltas into events by time and size, and writing batches of stalled streams.

The first delta is written at once, so the log shows after a crash that the model had begun. Later
deltas are gathered for 100 ms or 512 characters, whichever comes first. So a kill loses at most one
batch, and a stream of two thousand chunks does not become two thousand events.

The next chunk writes a batch that is due. If no chunk arrives, a background thread of the process
writes it; the thread sleeps until the earliest batch is due, and exits when none is held. It only
makes writes that wait for no lock (`Journal.offer`), and retries later those that fail. If a write
takes long even so, another thread takes over the watch.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from eventstore.events import AssistantChunk, ToolCallDelta
from projections.providers import Delta

__all__ = [
    "AGAIN_S",
    "BATCH_CHARS",
    "BATCH_S",
    "SELDOM_S",
    "Batcher",
    "StreamFlusher",
    "run_in_background",
]


_LONGEST_LINE = 4_096
"""The most characters of a line that are held until it ends."""
BATCH_S = 0.1
BATCH_CHARS = 512
AGAIN_S = 0.05
SELDOM_S = 1.0
"""Seconds between retries of a write: from `AGAIN_S`, doubled each time up to `SELDOM_S`."""

_THREADS = 8
_STAYS_S = 1.0


class Batcher:
    """Gathers the deltas of one model call into events.

    It does no I/O; the caller passes the time, in seconds of a monotonic clock. If a redactor
    checks each event (``in_lines``), texts are split only at line ends and tool calls are not split
    at all, so that the redactor sees each secret in one piece.
    """

    def __init__(self, llm_call_id: str, *, in_lines: bool = False) -> None:
        self._llm_call_id = llm_call_id
        self._in_lines = in_lines
        self._index = 0
        self._since: float | None = None
        self._clear()

    def _clear(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[ToolCallDelta] = []
        self._raw: list[Any] = []
        self._size = 0

    @property
    def due_at(self) -> float | None:
        """When the held deltas must be written; None if none are held."""
        return None if self._since is None else self._since + BATCH_S

    def add(self, delta: Delta, now: float) -> AssistantChunk | None:
        """Add a delta; return the batch to write now, if one is due."""
        if not delta:
            return self.take(now) if self._due(now) else None
        self._text.append(delta.text)
        self._reasoning.append(delta.reasoning)
        self._refusal.append(delta.refusal)
        self._calls += delta.tool_calls
        self._raw += delta.raw
        self._size += len(delta.text) + len(delta.reasoning) + len(delta.refusal)
        self._size += sum(len(call.arguments) for call in delta.tool_calls)
        if self._since is None:
            self._since = now
        return self.take(now) if self._index == 0 or self._due(now) else None

    def take(self, now: float, *, last: bool = False) -> AssistantChunk | None:
        """Return the held deltas as one batch; None if there are none.

        With ``in_lines``, only complete lines are returned, except in the ``last`` batch.
        """
        if self._since is None and not (last and self._in_lines):
            return None
        texts = ["".join(each) for each in (self._text, self._reasoning, self._refusal)]
        calls, raw = self._calls, tuple(self._raw)
        rests: list[str] = []
        self._clear()
        if self._in_lines and not last:
            texts, rests = map(list, zip(*map(_cut, texts), strict=True))
            self._text, self._reasoning, self._refusal = ([rest] for rest in rests)
            self._calls, calls = calls, []
        elif self._in_lines:
            calls = sorted(calls, key=lambda call: call.index)
        self._since = None
        if not (any(texts) or calls or raw):
            return None
        text, reasoning, refusal = texts
        chunk = AssistantChunk(
            llm_call_id=self._llm_call_id,
            index=self._index,
            text=text,
            reasoning=reasoning,
            refusal=refusal,
            tool_calls=_joined(calls),
            raw=raw,
        )
        self._index += 1
        return chunk

    def _due(self, now: float) -> bool:
        return self._since is not None and (
            self._size >= BATCH_CHARS or now - self._since >= BATCH_S
        )


def _cut(text: str) -> tuple[str, str]:
    """Return the complete lines of a text, and its incomplete last line."""
    end = text.rfind("\n") + 1
    if len(text) - end > _LONGEST_LINE:
        end = text.rfind(" ") + 1 or len(text)
    return text[:end], text[end:]


def _joined(deltas: list[ToolCallDelta]) -> tuple[ToolCallDelta, ...]:
    """Join adjacent deltas of the same tool call; the order is kept."""
    joined: list[ToolCallDelta] = []
    for delta in deltas:
        last = joined[-1] if joined else None
        if last is None or last.index != delta.index or delta.name or delta.provider_id:
            joined.append(delta)
            continue
        joined[-1] = last.model_copy(update={"arguments": last.arguments + delta.arguments})
    return tuple(joined)


class _Woken(Protocol):
    @property
    def wake(self) -> Callable[[], None]: ...


class _Clock:
    """The background threads, at least one of them watching, and the streams to wake."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset, as in a forked child, which has none of the parent's threads and streams."""
        self._condition = threading.Condition()
        self._due: list[tuple[float, int, _Woken]] = []
        self._numbers = itertools.count()
        self._threads = self._watching = 0

    def watch(self, at: float, stalls: _Woken) -> None:
        """Wake a stream at a time of the monotonic clock."""
        with self._condition:
            heapq.heappush(self._due, (at, next(self._numbers), stalls))
            self._have_watched()
            self._condition.notify_all()

    def _have_watched(self) -> None:
        """Start a thread if none is watching."""
        if self._due and not self._watching and self._threads < _THREADS:
            self._threads, self._watching = self._threads + 1, 1
            threading.Thread(target=self._run, name="eventstore-stalls", daemon=True).start()

    def _run(self) -> None:
        while (stalls := self._next()) is not None:
            stalls.wake()
            with self._condition:
                self._watching += 1

    def _next(self) -> _Woken | None:
        """Wait for the next stream that is due; return None if the thread must exit."""
        with self._condition:
            # Streams come in bursts, so an idle thread stays for a while.
            stays_until = time.monotonic() + _STAYS_S
            while True:
                now, at = time.monotonic(), self._due[0][0] if self._due else None
                if at is not None and at <= now:
                    stalls = heapq.heappop(self._due)[2]
                    self._watching -= 1
                    self._have_watched()
                    return stalls
                if now >= stays_until and (at is None or self._watching > 1):
                    self._threads, self._watching = self._threads - 1, self._watching - 1
                    return None
                self._condition.wait((stays_until if at is None else at) - now)


_clock = _Clock()

if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_clock.reset)


@dataclass(frozen=True, slots=True)
class _Timer:
    wake: Callable[[], None]


def run_in_background(work: Callable[[], None]) -> None:
    """Run work that raises nothing in the background thread, as soon as possible."""
    _clock.watch(time.monotonic(), _Timer(work))


class StreamFlusher:
    """Watches one stream; whoever writes the stream's batches holds ``lock``.

    ``flush`` writes the held batch without waiting, and returns False if it must be retried.
    """

    def __init__(self, flush: Callable[[], bool]) -> None:
        self.lock = threading.RLock()
        self._flush = flush
        self._watched = False
        self._stopped = False
        self._due: float | None = None
        self._again: float | None = None
        self._pause = AGAIN_S
        self._failed: BaseException | None = None

    def watch(self, due_at: float | None) -> None:
        """Schedule the writing of a batch in case the stream stalls; call with ``lock`` held."""
        self._due = due_at
        first = self._first
        if first is not None and not self._watched:
            self._watched = True
            _clock.watch(first, self)

    @property
    def _first(self) -> float | None:
        """The earlier of the batch's due time and the next retry."""
        return min((at for at in (self._due, self._again) if at is not None), default=None)

    def check(self) -> None:
        """Raise the error of a batch that was written in the background, once."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def stop(self) -> None:
        """Stop watching; call with ``lock`` held."""
        self._stopped = True

    def wake(self) -> None:
        """Write the batch if it is still due, or keep waiting; called by the background thread."""
        if not self.lock.acquire(blocking=False):
            # Another thread is writing this stream: other streams must not wait for it.
            _clock.watch(time.monotonic() + AGAIN_S, self)
            return
        try:
            self._watched = False
            first = self._first
            if self._stopped or first is None:
                return
            if first <= time.monotonic():
                self._due = self._again = None
                self._write()
            self.watch(self._due)
        except Exception as error:
            self._failed = error
        finally:
            self.lock.release()

    def _write(self) -> None:
        if self._flush():
            self._pause = AGAIN_S
        else:
            self._again = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, SELDOM_S)
