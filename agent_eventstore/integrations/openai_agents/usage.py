"""The usage of model calls: read from the runner, recorded as bills, and reported by turn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from agent_eventstore.integrations.openai_agents.history import live_events
from eventstore import EventStore
from eventstore.erasure.bill import bills
from eventstore.events import AssistantMessage, BilledCall, RetainedUsage, TokenUsage, UserMessage
from eventstore.events.base import utc_now
from eventstore.events.codec import loads_json
from eventstore.ids import new_id
from eventstore.telemetry.log import get_logger
from projections import Views
from projections.providers.stream_base import plain
from projections.providers.usage import responses_usage

__all__ = ["RunUsage", "bill_of", "calls_to_tell", "counts_of", "turn_usage", "unrecorded_calls"]

_log = get_logger("agent_eventstore")

_FEW = 20  # most turns have at most this many items

_DETAILS = ("input_tokens_details", "output_tokens_details")


class RunUsage:
    """Computes a run's usage since the last time; the SDK adds up over the whole run."""

    def __init__(self) -> None:
        self._of: Any = None
        self._counted = 0

    def since(self, wrapper: Any) -> TokenUsage | None:
        """Return the tokens of the calls since the last time; None if none are known.

        Args:
            wrapper: The SDK's `RunContextWrapper`, or None.
        """
        usage = getattr(wrapper, "usage", None)
        entries = getattr(usage, "request_usage_entries", None) or []
        if usage is not self._of:
            # A restored run's usage includes calls that earlier processes have recorded.
            self._of, self._counted = usage, max(0, len(entries) - 1)
        new, self._counted = entries[self._counted :], len(entries)
        if not new:
            return None
        added: dict[str, Any] = {}
        for entry in map(counts_of, new):
            for name, value in entry.items():
                if isinstance(value, dict):
                    inner = added.setdefault(name, {})
                    for detail, count in value.items():
                        inner[detail] = inner.get(detail, 0) + count
                else:
                    added[name] = added.get(name, 0) + value
        return responses_usage(added)


def unrecorded_calls(usage: Any, answers: Sequence[BilledCall]) -> list[BilledCall]:
    """Return the calls of a run whose items were added without usage, each with its tokens.

    Args:
        usage: The SDK's `Usage` of the run.
        answers: The calls of its turn, in order; if any of them has tokens, returns nothing.
    """
    entries = getattr(usage, "request_usage_entries", None)
    if not entries:  # only the number of requests and their total are known
        requests = getattr(usage, "requests", None) or 0
        entries = [*[None] * (requests - 1), usage] if requests else []
    if not entries or not answers or any(each.usage is not None for each in answers):
        return []
    # If there are more requests than answers, the first answer took several.
    first, missing = answers[0], len(entries) - len(answers)
    more = (f"{first.llm_call_id}.{place}" for place in range(missing))
    calls = [*(first.model_copy(update={"llm_call_id": name}) for name in more), *answers]
    return [
        call.model_copy(update={"usage": responses_usage(counts_of(entry))})
        for call, entry in zip(calls[-len(entries) :], entries, strict=True)
    ]


def calls_to_tell(store: EventStore, stream: UUID, usage: Any) -> list[BilledCall]:
    """Return the `unrecorded_calls` calls of the answers to a conversation's newest user message.

    If it has no answer yet, they are calls of that message's turn.
    """
    answers, last_request = set[int](), 0
    for event in live_events(store, stream, _FEW):
        if event.type == UserMessage.type:
            last_request = event.version
            break
        if event.type == AssistantMessage.type:
            answers.add(event.version)
    if last_request and _is_recorded(store, stream, last_request):
        return []
    if answers:
        return unrecorded_calls(usage, bills(store.read(stream), answers))
    if last_request:
        return unrecorded_calls(usage, [_call_of(store, stream, last_request)])
    _log.warning("the usage of a run is not recorded: its session has no turn yet")
    return []


def bill_of(model: Any, began: datetime, usage: Any, place: tuple[int, int, str]) -> RetainedUsage:
    """Return the usage of a model call that is not part of the conversation.

    ``place`` is the version that it follows, the turn, and the session id.
    """
    ended, (version, turn, session_id) = utc_now(), place
    call = BilledCall(
        llm_call_id=str(new_id()),
        model=None if model is None else str(model),
        specification="openai_responses",
        status="ok",
        usage=None if usage is None else responses_usage(counts_of(usage)),
        latency_ms=round((ended - began).total_seconds() * 1000),
        version=version,
        end_version=version,
        turn=turn,
        session_id=session_id,
        mode="agent",
        started_at=began,
        ended_at=ended,
    )
    return RetainedUsage(calls=(call,))


def _is_recorded(store: EventStore, stream: UUID, request_version: int) -> bool:
    """Whether usage without an answer was recorded for the turn that a user message begins."""
    name = _name_of(request_version)
    later = (event.data for event in store.read(stream, after=request_version))
    recorded = (data.calls for data in later if isinstance(data, RetainedUsage))
    return any(call.llm_call_id == name for calls in recorded for call in calls)


def _call_of(store: EventStore, stream: UUID, request_version: int) -> BilledCall:
    """Return a model call for the turn that a user message begins."""
    [message] = store.read(stream, after=request_version - 1, before=request_version + 1)
    return BilledCall(
        llm_call_id=_name_of(request_version),
        status="ok",
        version=request_version,
        end_version=request_version,
        turn=message.meta.turn,
        started_at=message.occurred_at,
        ended_at=message.occurred_at,
    )


def _name_of(request_version: int) -> str:
    return f"unanswered {request_version}"


def turn_usage(store: EventStore, stream: UUID) -> dict[int, dict[str, Any]]:
    """Return the tokens of a conversation's calls, by turn."""
    turns = dict[str, int]()
    events = list(live_events(store, stream))
    for event in reversed(events):
        if event.type == UserMessage.type:
            turns.setdefault(str(loads_json(event.meta).get("turn")), len(turns) + 1)
    found: dict[int, dict[str, Any]] = {}
    views = Views(store)
    for row in views.usage(by="turn", conversation_id=stream) if events else ():
        turn = turns.get((row.key or "").rpartition("/")[2])
        if turn is not None and row.total_tokens is not None:
            found[turn] = {
                "requests": row.calls,
                "input_tokens": row.prompt_tokens or 0,
                "output_tokens": row.completion_tokens or 0,
                "total_tokens": row.total_tokens or 0,
                "input_tokens_details": _details(
                    cached_tokens=row.cached_prompt_tokens,
                    cache_write_tokens=row.cache_write_tokens,
                ),
                "output_tokens_details": _details(reasoning_tokens=row.reasoning_tokens),
            }
    return found


def _details(**counts: int | None) -> dict[str, int] | None:
    """Return the known token counts; None if none are known."""
    return {name: count for name, count in counts.items() if count is not None} or None


def counts_of(usage: Any) -> dict[str, Any]:
    """Return the counts of the SDK's `Usage`, or of one of its requests, as a response has them."""
    found: dict[str, Any] = {
        name: getattr(usage, name, 0) or 0
        for name in ("input_tokens", "output_tokens", "total_tokens")
    }
    for name in _DETAILS:
        details = plain(getattr(usage, name, None))
        if isinstance(details, dict):
            found[name] = {key: count for key, count in details.items() if isinstance(count, int)}
    return found
