"""Trajectories of OpenHands: a list of actions and observations, as in its event stream.

A file holds one as an array, or objects with one under ``history`` or ``trajectory`` (outputs of
its benchmarks). Understood are messages, thoughts, the system part, every agent action as a tool
call, the observation that it caused as the result, and ``finish``. Changes of the agent's state say
nothing about the conversation: they are passed over, and counted. Any other event is kept verbatim,
and counted. Each event of the log keeps the events it was made from under
``raw["openhands_event"]``. There is no export to this format. Events of the newer SDK, which have a
``kind``, are read by `agent_eventstore.transcripts.openhands`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.agent_session_log import AgentSessionLog, cuts_in
from agent_eventstore.transcripts.json_fields import object_in, text_at, whole_at
from agent_eventstore.transcripts.left_out import LeftOut
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import (
    UNINTERPRETED,
    Transcript,
    explicit_id,
    identify,
    moment_of,
)
from eventstore.events import (
    ContentPart,
    ConversationStart,
    ImagePart,
    Invocation,
    ReasoningPart,
    SystemInstruction,
    TextPart,
    ToolResult,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.codec import dumps
from eventstore.events.records import RecordedEvent
from projections.providers.answer import request_of
from projections.providers.reasoning import thought_of

__all__ = ["FORMAT", "KINDS", "ORIGINAL", "SILENT_KINDS", "read", "recognises", "take_kind"]


_RESULTS = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")


SILENT_KINDS = (
    "CondensationRequest",
    "ConversationStateUpdateEvent",
    "LLMCompletionLogEvent",
    "PauseEvent",
    "StreamingDeltaEvent",
    "TokenEvent",
)


"""Events that say nothing about the conversation."""


KINDS = frozenset(
    {"SystemPromptEvent", "MessageEvent", "ActionEvent", "Condensation", *_RESULTS, *SILENT_KINDS}
)


"""The kinds that identify a file."""


def take_kind(event: dict[str, Any], log: AgentSessionLog, key: str) -> bool:
    """Add an event's content to a log; return whether the event is understood here.

    Args:
        event: The event; a silent one is not understood here.
        log: The log to add to.
        key: The key in ``raw`` under which events are kept.
    """
    kind, at = event["kind"], moment_of(event)
    llm_message = object_in(event, "llm_message")
    if kind == "SystemPromptEvent":
        texts = (_text_in(event, name) for name in ("system_prompt", "dynamic_context"))
        text = "\n\n".join(filter(None, texts))
        log.add(SystemInstruction(text=text, raw={key: event}), occurred_at=at)
    elif kind == "MessageEvent" and llm_message.get("role") == "user":
        parts = _parts(llm_message.get("content"))
        log.prompt(UserMessage(parts=parts, raw={key: event}), occurred_at=at)
    elif kind == "ActionEvent" or (
        kind == "MessageEvent" and llm_message.get("role") == "assistant"
    ):
        _answered(event, llm_message or event, log, key)
    elif kind in _RESULTS and isinstance(event.get("tool_call_id"), str):
        log.result(_result(event, key), occurred_at=at)
    else:
        return False
    return True


def _answered(
    event: dict[str, Any], message_fields: Mapping[str, Any], log: AgentSessionLog, key: str
) -> None:
    response = text_at(event, "llm_response_id") or text_at(event, "id") or "openhands"
    answer = log.answer(response[:200], occurred_at=moment_of(event))
    if answer.lines == 1:  # each action of an answer may repeat the thought
        answer.parts += _reasoning(message_fields)
    answer.parts += _parts(message_fields.get("content", message_fields.get("thought")))
    if event["kind"] == "ActionEvent":
        call = object_in(event, "tool_call")
        call = object_in(call, "function") or call
        action = dict(object_in(event, "action"))
        action.pop("kind", None)
        name = text_at(call, "name") or text_at(event, "tool_name") or ""
        arguments = text_at(call, "arguments")
        text = dumps(action) if arguments is None else arguments
        answer.calls.append(request_of(name, text, text_at(event, "tool_call_id")))
    if named := text_at(event, "llm_response_id"):
        answer.identity = ("openhands", named)
    answer.keep(key, event)


def _result(event: dict[str, Any], key: str) -> ToolResult:
    observed = object_in(event, "observation")
    given = {"provider_id": event["tool_call_id"], "name": text_at(event, "tool_name")}
    if event["kind"] == "UserRejectObservation":
        content = text_at(event, "rejection_reason")
        return ToolResult(call_id="", status="denied", content=content, raw={key: event}, **given)
    if event["kind"] == "AgentErrorEvent":
        content = text_at(event, "error")
        return ToolResult(call_id="", status="failed", content=content, raw={key: event}, **given)
    code = observed.get("exit_code", object_in(observed, "metadata").get("exit_code"))
    failed = observed.get("is_error") is True or (isinstance(code, int) and code != 0)
    content_key = "content" if "content" in observed else "output"
    parts = _parts(observed.get(content_key))
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return ToolResult(
        call_id="",
        status="failed" if failed else "success",
        content=texts[0] if len(texts) == len(parts) == 1 else parts,
        raw={key: {**event, "observation": {**observed, content_key: None}}},
        **given,
    )


def _text_in(event: Mapping[str, Any], name: str) -> str | None:
    found = event.get(name)
    return found if isinstance(found, str) else text_at(found, "text")


def _parts(content: Any) -> tuple[ContentPart, ...]:
    """Return the texts and images of a content, which is a list of them or a text."""
    if isinstance(content, str):
        return (TextPart(text=content),) if content else ()
    parts: list[ContentPart] = []
    for each in content if isinstance(content, list) else ():
        if text := text_at(each, "text"):
            parts.append(TextPart(text=text))
        urls = each.get("image_urls") if isinstance(each, dict) else None
        for url in urls if isinstance(urls, list) else ():
            parts += (ImagePart(url=url),) if isinstance(url, str) else ()
    return tuple(parts)


def _reasoning(message_fields: Mapping[str, Any]) -> list[ContentPart]:
    item = message_fields.get("responses_reasoning_item")
    if isinstance(item, dict) and (sealed := thought_of({"type": "reasoning", **item})) is not None:
        return [sealed]
    listed = message_fields.get("thinking_blocks")
    blocks = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    signed = [part for part in map(thought_of, blocks) if part is not None]
    if any(part.text or part.raw for part in signed):
        return [*signed]
    thoughts = [text_at(each, "thinking") for each in blocks]
    if not any(thoughts):
        thoughts = [text_at(message_fields, "reasoning_content")]
    return [ReasoningPart(text=text) for text in thoughts if text]


FORMAT = "openhands"


ORIGINAL = "openhands_event"


"""The key in ``raw`` of the original event, or of an answer's events."""


_HOLDERS = ("history", "trajectory")


_SILENT = ("agent_state_changed", "change_agent_state", "null", "pause", "resume", "think")


_SAID = ("message", "finish", "reject")


_REJECTED = "user_rejected"


def recognises(value: Any) -> bool:
    """Whether a value is an event, or an object that holds a list of them."""
    lists = (value.get(key) for key in _HOLDERS) if isinstance(value, dict) else ()
    events = next((each for each in lists if isinstance(each, list)), None)
    first = events[0] if events else value
    if not isinstance(first, dict):
        return False
    return _is_action(first) or _is_observation(first) or text_at(first, "kind") in KINDS


def _is_action(event: Mapping[str, Any]) -> bool:
    return isinstance(event.get("action"), str) and isinstance(event.get("args"), dict)


def _is_observation(event: Mapping[str, Any]) -> bool:
    observation = event.get("observation"), event.get("content")
    return all(isinstance(each, str) for each in observation) and "extras" in event


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's conversations: its bare events as one, and one per object with events."""
    for found in source.lists(*_HOLDERS):
        yield found if isinstance(found, ImportFailed) else _conversation(source, *found)


def _conversation(
    source: Source, rest: dict[str, Any], events: list[Record]
) -> Transcript | ImportFailed:
    """Return a conversation; one broken event excludes all of it."""
    for number, record in enumerate(events, start=1):
        if not isinstance(record.value, dict):
            return source.failed(record.line, f"event {number} is not an object")
    reader = _read(rest, events, ())
    stated = explicit_id(rest, "instance_id")
    # A trajectory grows. Its first event identifies it if it has a time: ids count from 0 in each.
    content = events[:1] if moment_of(events[0].value) is not None else events
    return Transcript(
        identify(FORMAT, stated, (record.value for record in content)),
        tuple(reader.log.take()),
        file=source.file,
        line=events[0].line,
        left_out=reader.left_out,
        grown=lambda stored: tuple(_read(rest, events, stored).log.take()),
    )


def _read(
    rest: dict[str, Any], events: list[Record], stored: Iterable[RecordedEvent]
) -> _OpenHandsReader:
    """Return the reader of a conversation's events, given those that an import has stored."""
    reader = _OpenHandsReader(cuts_in(stored))
    reader.log.add(ConversationStart(raw=rest or None), occurred_at=moment_of(events[0].value))
    for record in events:
        reader.take(record.value)
    reader.log.close()
    return reader


class _OpenHandsReader:
    """Turns the events of one conversation into events of the log."""

    def __init__(self, cuts: Mapping[int, int]) -> None:
        self.log, self.left_out = AgentSessionLog(cuts), LeftOut()
        self._requested: dict[int, str] = {}
        # For each event: the last version before it.
        self._before: dict[int, int] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Process an event."""
        if (number := whole_at(event, "id")) is not None:
            self._before[number] = self.log.last
        if (newer := text_at(event, "kind")) in SILENT_KINDS:
            self.left_out.note(newer, known=True)
            return
        if newer is not None and take_kind(event, self.log, ORIGINAL):
            return
        kind = text_at(event, "action") or text_at(event, "observation")
        call = (
            self._requested.get(cause) if (cause := whole_at(event, "cause")) is not None else None
        )
        if kind in _SILENT and not (kind == "think" and _is_action(event)):
            self.left_out.note(kind, known=True)
        elif _is_observation(event) and call is not None:
            self._result(event, call)
        elif _is_action(event) and event["action"] == "system":
            text = text_at(event["args"], "content") or ""
            self._add(SystemInstruction(text=text, raw={ORIGINAL: event}), event)
        elif _is_action(event) and event["action"] == "message" and event.get("source") == "user":
            data = UserMessage(parts=_content_of(event["args"]), raw={ORIGINAL: event})
            self.log.prompt(data, occurred_at=moment_of(event))
        elif _is_action(event) and kind == "condensation" and self._condensed(event):
            pass
        elif _is_action(event) and event.get("source") == "agent":
            self._answered(event)
        else:
            self._add(UnknownEvent(UNINTERPRETED, 1, {ORIGINAL: event}), event)

    def _condensed(self, event: dict[str, Any]) -> bool:
        """Add the summary of the events that the program forgot; return whether there is one."""
        args = event["args"]
        listed, summary = args.get("forgotten_event_ids"), text_at(args, "summary")
        ends = (
            listed
            if isinstance(listed, list)
            else [args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")]
        )
        forgotten = [each for each in ends if isinstance(each, int) and each in self._before]
        if not summary or not forgotten:
            return False
        self.log.close()
        after = min((each for each in self._before if each > max(forgotten)), default=None)
        end = self.log.last if after is None else self._before[after]
        self.log.summary(
            summary,
            FORMAT,
            range(2, self._before[min(forgotten)] + 1),
            before=end + 1,
            occurred_at=moment_of(event),
        )
        return True

    def _add(self, data: SystemInstruction | UnknownEvent, event: dict[str, Any]) -> None:
        self.log.add(data, occurred_at=moment_of(event))

    def _answered(self, event: dict[str, Any]) -> None:
        args, about = event["args"], object_in(event, "tool_call_metadata")
        response, number = object_in(about, "model_response"), whole_at(event, "id")
        key = text_at(response, "id") or f"openhands-{number}"
        if self.log.open is not None and self.log.open.waiting:
            self.log.close()  # the model has seen results: this is its next answer
        answer = self.log.answer(key[:200], occurred_at=moment_of(event))
        if named := text_at(response, "id"):
            answer.identity = ("openhands", named)
        thought = text_at(args, "thought")
        if event["action"] in _SAID:
            answer.parts += _content_of(args) or ((TextPart(text=thought),) if thought else ())
        elif event["action"] == "think":
            answer.parts += (ReasoningPart(text=thought or ""),)
        else:
            answer.parts += (TextPart(text=thought),) if thought else ()
            named = f"event-{number}"
            given = {name: argument for name, argument in args.items() if name != "thought"}
            tool = text_at(about, "function_name") or event["action"]
            answer.calls.append(request_of(tool, dumps(given), named))
            if number is not None:
                self._requested[number] = named
        answer.keep(ORIGINAL, event)
        answer.invocation = Invocation(model=text_at(response, "model"))

    def _result(self, event: dict[str, Any], call: str) -> None:
        code = object_in(object_in(event, "extras"), "metadata").get("exit_code")
        wrong = event["observation"] == "error" or event.get("success") is False
        failed = wrong or (isinstance(code, int) and code != 0)
        denied = event["observation"] == _REJECTED
        self.log.result(
            ToolResult(
                call_id="",
                status="denied" if denied else "failed" if failed else "success",
                content=event["content"],
                provider_id=call,
                raw={ORIGINAL: {**event, "content": None}},
            ),
            occurred_at=moment_of(event),
        )


def _content_of(args: Mapping[str, Any]) -> tuple[ContentPart, ...]:
    text = text_at(args, "content") or text_at(args, "final_thought")
    listed = args.get("image_urls")
    urls = [url for url in listed if isinstance(url, str)] if isinstance(listed, list) else []
    return (*((TextPart(text=text),) if text else ()), *(ImagePart(url=url) for url in urls))
