"""Trajectories in the Agent Trajectory Interchange Format (ATIF), as Harbor and others write them.

A file holds one as an object with ``steps``, or several as an array or JSON Lines. A step is a
message of the system or a user, or an answer of the agent with its calls and, as its observation,
their results. Part of an observation without a call becomes a message that the program sends to the
model. A subagent's nested trajectory becomes its own conversation, with this one as its parent. The
schema is that of versions 1.0 to 1.8. A step is kept under ``raw["atif_step"]``, without what its
events hold. There is no export to this format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.agent_session_log import AgentSessionLog
from agent_eventstore.transcripts.json_fields import (
    FieldTypes,
    naming_of,
    object_in,
    text_at,
    unheld,
    whole_at,
)
from agent_eventstore.transcripts.openai_parts import parts_by
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import (
    UNINTERPRETED,
    Identities,
    Origin,
    Transcript,
    identify,
    moment_of,
)
from eventstore.events import (
    ContentPart,
    ConversationStart,
    FilePart,
    ImagePart,
    Invocation,
    OtherPart,
    ReasoningPart,
    SystemInstruction,
    TextPart,
    TokenUsage,
    ToolResult,
    Ui,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.codec import dumps
from projections.payload_text import spoken
from projections.providers.answer import request_of

__all__ = ["FORMAT", "ORIGINAL", "read", "recognises"]

FORMAT = "atif"
ORIGINAL = "atif_step"
"""The key in ``raw`` of the original step, except for what its events hold."""

_WITHIN = "subagent_trajectories"
_IDS = ("session_id", "trajectory_id")
_SAID: FieldTypes = {
    **{"step_id": (int, str), "source": str, "message": object, "reasoning_content": str},
    **{"tool_calls": object, "observation": object},
}
_OF_CALL: FieldTypes = {"tool_call_id": str, "function_name": str, "arguments": object}
_OF_RESULT: FieldTypes = {"source_call_id": str, "content": object}
_URLS = ("http://", "https://", "data:")


def recognises(value: Any) -> bool:
    """Whether a value is a trajectory."""
    if not isinstance(value, dict) or not isinstance(steps := value.get("steps"), list):
        return False
    first = steps[0] if steps else None
    is_atif = (text_at(value, "schema_version") or "").startswith("ATIF")
    return is_atif or (isinstance(first, dict) and {"step_id", "source", "message"} <= first.keys())


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's trajectories, each followed by those of its subagents."""
    for found in source.lists("steps"):
        if isinstance(found, ImportFailed):
            yield found
        else:
            yield from _trajectories(source, *found, parent=None)


def _trajectories(
    source: Source, about: dict[str, Any], steps: list[Record], parent: Origin | None
) -> Iterator[Transcript | ImportFailed]:
    """Yield a trajectory and its nested ones; one broken step excludes the whole trajectory."""
    for number, record in enumerate(steps, start=1):
        if not isinstance(record.value, dict):
            yield source.failed(record.line, f"step {number} is not an object")
            return
    own = _transcript(source, about, steps, parent)
    yield own
    within = about.get(_WITHIN)
    for each in within if isinstance(within, list) else ():
        inner = each.get("steps") if isinstance(each, dict) else None
        if not isinstance(inner, list) or not inner:
            yield source.failed(own.line, "a subagent's trajectory has no steps")
            continue
        trajectory_fields = {key: value for key, value in each.items() if key != "steps"}
        records = [Record(step, own.line or 1) for step in inner]
        yield from _trajectories(
            source, trajectory_fields, records, own.origin if own.origin.place else None
        )


def _transcript(
    source: Source, about: dict[str, Any], steps: list[Record], parent: Origin | None
) -> Transcript:
    model = text_at(object_in(about, "agent"), "model_name")
    reader = _AtifReader(model, text_at(about, "session_id"))
    metadata = {key: value for key, value in about.items() if key != _WITHIN}
    reader.log.add(ConversationStart(raw=metadata or None), occurred_at=moment_of(steps[0].value))
    for record in steps:
        reader.take(record.value)
    reader.log.close()
    named = [name for key in _IDS if (name := text_at(about, key))]
    above = [str(parent.place[-1])] if parent is not None else []
    stated = "/".join([*above, *named]) if named else None
    return Transcript(
        identify(FORMAT, stated, (record.value for record in steps)),
        tuple(reader.log.take()),
        file=source.file,
        line=steps[0].line,
        parent=parent,
    )


class _AtifReader:
    """Turns one trajectory's steps into events."""

    def __init__(self, model: str | None, session: str | None) -> None:
        self.log = AgentSessionLog({})
        self._model, self._answers, self._instructed = model, 0, False
        # A trajectory that continues another repeats its steps, under the same session.
        self._session, self._identities = session, Identities(FORMAT)

    def take(self, step: dict[str, Any]) -> None:
        """Process a step."""
        meta, raw = {"occurred_at": moment_of(step)}, _rest_of_step(step)
        match step.get("source"):
            case "system":
                leads = not self.log.has_prompt(0)
                text = spoken(_parts(step))
                instruction = SystemInstruction(
                    text=text, continues=leads and self._instructed, raw=raw
                )
                self._instructed = self._instructed or leads
                self.log.add(instruction, **meta, **({} if leads else {"in_context": False}))
            case "user":
                self.log.prompt(UserMessage(parts=_parts(step), raw=raw), **meta)
            case "agent":
                self._answered(step, raw, meta)
            case _:
                self.log.add(UnknownEvent(UNINTERPRETED, 1, {ORIGINAL: step}), **meta)
                return
        calls = _calls_in(step)
        only = text_at(calls[0], "tool_call_id") if len(calls) == 1 else None
        for result in _listed(object_in(step, "observation"), "results"):
            if isinstance(result, dict):
                self._observed(result, text_at(result, "source_call_id") or only, meta)

    def _answered(
        self, step: dict[str, Any], raw: dict[str, Any] | None, meta: dict[str, Any]
    ) -> None:
        self._answers += 1
        answer = self.log.answer(f"atif-{self._answers}", **meta)
        if thought := text_at(step, "reasoning_content"):
            answer.parts.append(ReasoningPart(text=thought))
        answer.parts += [part for part in _parts(step) if part != TextPart(text="")]
        for call in _listed(step, "tool_calls"):
            if (named := naming_of(call, "function_name", "tool_call_id")) is None:
                answer.parts.append(OtherPart(raw=call))
                continue
            given = call.get("arguments")
            text = given if isinstance(given, str) else dumps({} if given is None else given)
            answer.calls.append(request_of(named[0], text, named[1]))
        answer.usage, answer.raw = _tokens(object_in(step, "metrics")), raw
        answer.invocation = Invocation(model=text_at(step, "model_name") or self._model)
        moment, place = meta["occurred_at"], f"step {step.get('step_id')}"
        if moment is not None or self._session is not None:
            known = place if moment is not None else f"{self._session}/{place}"
            answer.identity = self._identities.of(known, moment, answer.usage)
        self.log.close()

    def _observed(self, result: dict[str, Any], named: str | None, meta: dict[str, Any]) -> None:
        beside = unheld(result, _OF_RESULT)
        raw = {ORIGINAL: beside} if any(value is not None for value in beside.values()) else None
        if named is None:
            ui = Ui(part_type="observation", collapsed=True)
            self.log.add(
                UserMessage(parts=parts_by(_part, result.get("content")), ui=ui, raw=raw), **meta
            )
            return
        shown = result.get("content")
        content = shown if isinstance(shown, str) else parts_by(_part, shown) or None
        self.log.result(ToolResult(call_id="", content=content, provider_id=named, raw=raw), **meta)


def _rest_of_step(step: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a step's ``raw``: whatever its events do not hold, or None."""
    unknown_fields = unheld(step, _SAID)
    listed = _listed(step, "tool_calls")
    odd = [call for call in listed if not isinstance(call, dict) or unheld(call, _OF_CALL)]
    if odd:
        unknown_fields["tool_calls"] = odd
    observed = step.get("observation")
    if isinstance(observed, dict) and observed.keys() <= {"results"}:
        odd = [each for each in _listed(observed, "results") if not isinstance(each, dict)]
        observed = {"results": odd} if odd else None
    if observed is not None:
        unknown_fields["observation"] = observed
    return (
        {ORIGINAL: unknown_fields}
        if any(value is not None for value in unknown_fields.values())
        else None
    )


def _listed(value: Mapping[str, Any], key: str) -> list[Any]:
    """Return the list under a key; any other value except null as a list of one."""
    found = value.get(key)
    return found if isinstance(found, list) else [] if found is None else [found]


def _calls_in(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = _listed(step, "tool_calls")
    return [call for call in listed if naming_of(call, "function_name", "tool_call_id")]


def _parts(step: Mapping[str, Any]) -> tuple[ContentPart, ...]:
    return parts_by(_part, step.get("message"))


def _part(item: Any) -> ContentPart:
    match item:
        case {"type": "text", "text": str(text)}:
            return TextPart(text=text)
        case {"type": "image" | "audio" as kind, "source": {"path": str(path), **about}}:
            media_type = text_at(about, "media_type")
            if not path.startswith(_URLS):
                return FilePart(path=path, media_type=media_type)
            if kind == "image":
                return ImagePart(url=path, media_type=media_type)
            return FilePart(url=path, media_type=media_type)
    return OtherPart(raw=item)


def _tokens(metrics: Mapping[str, Any]) -> TokenUsage | None:
    prompt, completion = whole_at(metrics, "prompt_tokens"), whole_at(metrics, "completion_tokens")
    if prompt is None and completion is None:
        return None
    return TokenUsage(
        prompt_tokens=prompt or 0,
        completion_tokens=completion or 0,
        cached_prompt_tokens=whole_at(metrics, "cached_tokens"),
    )
