"""Which tool calls of a session have a result, and which results a request adds.

The store gives each tool call its own id. A request's calls are matched to these by position:
providers' ids are not unique, so the last call with an id in the request is the last one with that
id in the log, and so on backwards. Frameworks may send a call back with an id of their own, or
another id of the item: an id that no call has is matched to a call with the same name and
arguments. The last `KEPT` calls are kept in memory; after opening, older calls are read from the
log.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

from agent_eventstore.requests import SentCall, SentResult
from eventstore.events import Meta, RecordedEvent, ToolCallRequest
from eventstore.ids import call_id
from projections.models.tool_calls import ToolCallRow
from projections.payload_text import SEALS

__all__ = ["KEPT", "UNSETTLED", "Answer", "Answers", "RequestedCall", "milliseconds"]

KEPT = 2_000

_OURS = frozenset(
    {
        *("TOOL_RESULT_MISSING", "TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED"),
        *("TOOL_RESULT_WITHDRAWN", "TOOL_RESULT_NOT_SHOWN"),
    }
)
"""First lines of the texts that messages[] shows for a missing result."""

UNSETTLED = frozenset({"requested", "running", *SEALS})
"""The statuses of calls that may still get a result."""


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, never negative."""
    return max(0, round(seconds * 1000))


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call that the model requested.

    ``arguments`` is the parsed object, or None with the reason in ``parse_error``; the model's text
    is ``arguments_text``, and ``parse_warning`` says what was unusual about it. ``call_id`` is the
    store's own id, ``provider_id`` the provider's. ``answer_id`` is the id of the assistant
    message's event.
    """

    call_id: str
    name: str
    arguments: dict[str, Any] | None
    arguments_text: str
    parse_error: str | None
    provider_id: str | None
    meta: Meta
    answer_id: UUID | None = None
    parse_warning: str | None = None

    @classmethod
    def of(
        cls, answer: RecordedEvent, index: int, request: ToolCallRequest, meta: Meta
    ) -> RequestedCall:
        """Return the ``index``-th call of an assistant message."""
        return cls(
            call_id=call_id(answer.version, index),
            name=request.name,
            arguments=request.arguments,
            arguments_text=request.arguments_text,
            parse_error=request.parse_error,
            provider_id=request.provider_id,
            meta=meta,
            answer_id=answer.event_id,
            parse_warning=request.parse_warning,
        )


Answer = tuple[RequestedCall, SentResult]


@dataclass(slots=True)
class _KnownCall:
    call: RequestedCall
    elsewhere: bool
    answered: bool = False


@dataclass(slots=True)
class _Sent:
    """A call in a request; ``group`` numbers the answers that contain calls."""

    group: int
    name: str = ""
    arguments: Any = None
    result: SentResult | None = None


class Answers:
    """The tool calls of a session, and whether they have a result; threads may share it.

    Attributes:
        unread: Whether the log may contain older calls that have not been read.
    """

    def __init__(self, *, unread: bool = False) -> None:
        self.unread = unread
        self._known: dict[str, _KnownCall] = {}
        self._recorded: dict[str, str] = {}
        self._running: WeakValueDictionary[str, object] = WeakValueDictionary()
        self._by_hand = False
        self._lock = threading.RLock()

    @property
    def elsewhere(self) -> bool:
        """Whether tools may run elsewhere: the recorder has run none in this session."""
        return not self._by_hand

    def requested(self, calls: Iterable[RequestedCall], *, elsewhere: bool) -> None:
        """Add the calls that a model has just requested."""
        with self._lock:
            for call in calls:
                self._known[call.call_id] = _KnownCall(call, elsewhere)
                self._recorded.pop(call.call_id, None)
            for old in list(self._known)[:-KEPT]:
                del self._known[old]

    def earlier(self, rows: Sequence[ToolCallRow]) -> None:
        """Add calls of the log, newest first, before the known ones."""
        with self._lock:
            older = {
                row.call_id: _KnownCall(_call_of(row), False, row.status not in UNSETTLED)
                for row in reversed(rows)
            }
            self._known = older | self._known
            self.unread = False

    def by_hand(self) -> None:
        """Note that the recorder runs this session's tools: a call it has not run has not run."""
        self._by_hand = True

    def begins(self, call_id: str, who: object) -> bool:
        """Note that an execution of a call begins; return whether another one is running.

        An execution that was never left ends when ``who`` is garbage-collected.
        """
        return self._running.setdefault(call_id, who) is not who

    def ends(self, call_id: str, who: object) -> None:
        """Note that an execution of a call has ended."""
        if self._running.get(call_id) is who:
            del self._running[call_id]

    def settled(self, call_id: str, status: str) -> None:
        """Note that a call has a result with this status."""
        with self._lock:
            known = self._known.get(call_id)
            if status in SEALS:
                return
            if known is not None:
                known.answered = True
            self._recorded[call_id] = status
            for old in list(self._recorded)[:-KEPT]:
                del self._recorded[old]

    def status_of(self, call_id: str) -> str | None:
        """Return the status of a call's result that the recorder wrote; None if it wrote none."""
        return self._recorded.get(call_id)

    def unseen(self, turn: int | None) -> list[RequestedCall]:
        """Return a turn's calls that run elsewhere and whose result was not seen, once each."""
        with self._lock:
            found = [
                known
                for known in self._known.values()
                if known.elsewhere and not known.answered and known.call.meta.turn == turn
            ]
            for known in found:
                known.elsewhere = False
            return [] if self._by_hand else [known.call for known in found]

    def news(self, sent: Sequence[SentCall | SentResult]) -> list[Answer]:
        """Return a request's results for calls that had none, in call order, once each."""
        with self._lock:
            if all(known.answered for known in self._known.values()):
                return []
            shown = _paired(sent)
            ours: dict[str, list[_KnownCall]] = {}
            for known in self._known.values():
                for key in _keys_of(known.call):
                    ours.setdefault(key, []).append(known)
            pairs = [
                pair for key, calls in shown.items() for pair in _aligned(ours.get(key, []), calls)
            ]
            pairs += _renamed(ours, shown, self._running)
            found: list[tuple[_KnownCall, SentResult]] = []
            for known, result in pairs:
                if not known.answered and result.first_line not in _OURS:
                    known.answered = True
                    found.append((known, result))
        found.sort(key=lambda pair: _place(pair[0].call.call_id))
        return [(known.call, result) for known, result in found]


def _keys_of(call: RequestedCall) -> set[str]:
    """Return the keys that a request may use for a call; messages[] uses its own ids."""
    own = f"call_{call.call_id.replace('.', '_')}"
    return {call.provider_id or call.name, own}


def _place(call_id: str) -> tuple[int, ...]:
    return tuple(int(number) for number in call_id.split(".") if number.isdecimal())


def _paired(sent: Sequence[SentCall | SentResult]) -> dict[str, list[_Sent]]:
    """Return the calls of a request by key, with their results.

    A result belongs to the first call without a result in the latest group. A result without a
    call, as when the provider stores the conversation, counts as the call too.
    """
    found: dict[str, list[_Sent]] = {}
    repeated: set[str] = set()
    group, calling = 0, False
    for each in sent:
        calls = found.setdefault(each.key, [])
        if isinstance(each, SentCall):
            group, calling = group + (not calling), True
            repeated.add(each.key)
            calls.append(_Sent(group, each.name, each.arguments))
            continue
        calling = False
        waiting = [call for call in calls if call.result is None]
        latest = [call for call in waiting if call.group == waiting[-1].group]
        if latest:
            latest[0].result = each
        elif each.key not in repeated:
            calls.append(_Sent(group, result=each))
    return found


def _aligned(ours: list[_KnownCall], shown: list[_Sent]) -> list[tuple[_KnownCall, SentResult]]:
    """Return known calls with a request's results for them, both lists aligned at the end."""
    pairs: list[tuple[_KnownCall, SentResult]] = []
    end = len(ours)
    for call in reversed(shown):
        at = end - 1
        while at >= 0 and len(ours) > 1 and not _fits(ours[at].call, call):
            at -= 1
        if at < 0:
            continue
        end = at
        if call.result is not None:
            pairs.append((ours[at], call.result))
    return pairs


def _renamed(
    ours: dict[str, list[_KnownCall]], shown: dict[str, list[_Sent]], running: Container[str]
) -> list[tuple[_KnownCall, SentResult]]:
    """Return known calls that a request shows with ids that no call has, with their results.

    Running calls are excluded: a running tool may itself call a model, with a history that contains
    an equal, earlier call.
    """
    foreign: dict[str, list[_Sent]] = {}
    for key, calls in shown.items():
        for call in () if key in ours else calls:
            if call.name:
                foreign.setdefault(_signature(call.name, call.arguments), []).append(call)
    if not foreign:
        return []
    named = {id(known) for key in shown for known in ours.get(key, ())}
    free: dict[str, dict[str, _KnownCall]] = {}
    for known in (each for calls in ours.values() for each in calls if id(each) not in named):
        request = known.call
        if request.call_id in running:
            continue
        free.setdefault(_signature(request.name, request.arguments), {})[request.call_id] = known
    return [
        pair
        for signature, calls in foreign.items()
        for pair in _aligned(
            sorted(free.get(signature, {}).values(), key=lambda known: _place(known.call.call_id)),
            calls,
        )
    ]


def _signature(name: str, arguments: Any) -> str:
    return json.dumps([name, arguments], sort_keys=True)


def _fits(ours: RequestedCall, shown: _Sent) -> bool:
    return shown.arguments is None or ours.arguments is None or ours.arguments == shown.arguments


def _call_of(row: ToolCallRow) -> RequestedCall:
    meta = Meta.model_validate(
        {
            name: getattr(row, name)
            for name in ("session_id", "turn", "step", "mode", "run_id", "agent_id")
        }
    )
    return RequestedCall(
        call_id=row.call_id,
        name=row.name or "",
        arguments=row.arguments if isinstance(row.arguments, dict) else None,
        arguments_text=row.arguments_text or "",
        parse_error=row.parse_error,
        provider_id=row.provider_id,
        meta=meta,
    )
