"""Which tool call a result answers, in transcripts whose call ids are not unique.

Calls get our own id, ``<version of the assistant message>.<index>``; a foreign result is paired
with the earliest open call of the latest assistant message that fits, then with the latest open
one of earlier messages. A result without an id fits by the tool's name, or by its place alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from eventstore.events import ToolCallRequest
from eventstore.ids import call_id

__all__ = ["Calls"]

_Key = tuple[str, str]


@dataclass(slots=True)
class _Call:
    call_id: str
    answered: bool = False


class Calls:
    """The tool calls of one transcript so far."""

    def __init__(self) -> None:
        self._latest: dict[_Key, deque[_Call]] = {}
        self._open: dict[_Key, list[_Call]] = {}
        self._last: dict[_Key, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._orphans = 0

    def note(self, version: int, requests: Iterable[ToolCallRequest]) -> None:
        """Take in the calls of the assistant message at ``version``."""
        self._latest = {}
        for index, request in enumerate(requests):
            call = _Call(call_id(version, index))
            self._by_id[call.call_id] = call
            for key in _keys_of(request):
                self._latest.setdefault(key, deque()).append(call)
                self._open.setdefault(key, []).append(call)
                self._last[key] = call

    def answer(self, provider_id: str | None, name: str | None = None) -> str:
        """Return our own id of the call that a result answers, and take it as answered.

        A second result of a call that was answered gets that call's id; a result of a call that
        was never seen gets an id of its own, ``0.<n>``.
        """
        key = _key(provider_id, name)
        latest = self._latest.get(key, deque())
        while latest:
            call = latest.popleft()
            if not call.answered:
                call.answered = True
                return call.call_id
        earlier = self._open.get(key, [])
        while earlier and earlier[-1].answered:
            earlier.pop()
        found = earlier[-1] if earlier else self._last.get(key)
        if found is None:
            self._orphans += 1
            return call_id(0, self._orphans - 1)
        found.answered = True
        return found.call_id

    def settle(self, own_id: str) -> None:
        """Take the call with this own id as answered."""
        if (call := self._by_id.get(own_id)) is not None:
            call.answered = True


def _key(provider_id: str | None, name: str | None) -> _Key:
    if provider_id is not None:
        return ("id", provider_id)
    return ("any", "") if name is None else ("name", name)


def _keys_of(request: ToolCallRequest) -> frozenset[_Key]:
    keys = {("any", ""), ("name", request.name)}
    if request.provider_id is not None:
        keys.add(("id", request.provider_id))
    return frozenset(keys)
