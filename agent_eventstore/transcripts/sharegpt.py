"""ShareGPT: data sets of conversations, ``{"conversations": [{"from": "human", "value": ...}]}``.

A file holds one, a JSON array of them, or JSON Lines of them; ``conversation`` and turns with
``role`` and ``content`` are read too. Understood are the names that such data sets give to the
user, the model, the system and tools, and calls as LLaMA-Factory writes them (``function_call``,
with JSON of ``name`` and ``arguments``, before ``observation``). A turn of anyone else is kept
verbatim, and counted. Each event keeps its turn under ``raw["sharegpt_turn"]`` without its text,
and the conversation's start keeps the object's other fields. There is no export to this format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.openai_wire import marked, payload_of
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import (
    UNINTERPRETED,
    Calls,
    Transcript,
    TranscriptDraft,
    identify,
    moment_of,
    title_of,
)
from eventstore.events import ConversationStart, Meta, UnknownEvent
from eventstore.events.records import EventData

__all__ = ["FORMAT", "ORIGINAL", "read", "recognises"]

FORMAT = "sharegpt"
ORIGINAL = "sharegpt_turn"
"""The key in ``raw`` of the original turn, without its text."""

_HOLDERS = ("conversations", "conversation")
_ROLES = {
    **dict.fromkeys(("human", "user", "prompter"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "assistant", "model", "bot", "bing", "bard"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "observation", "function_response"), "tool"),
    "function_call": "function_call",
}


def recognises(value: Any) -> bool:
    """Whether a value is a conversation of such a file."""
    turns = _turns(value)
    return bool(turns) and any(
        isinstance(each, dict) and _speaker_and_key(each) for each in turns or ()
    )


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Iterate over the file's conversations, and over reports of those that cannot be read."""
    for ordinal, record in enumerate(source.records()):
        if isinstance(record, ImportFailed):
            yield record
            continue
        turns = _turns(record.value)
        if not turns or not all(isinstance(each, dict) for each in turns):
            yield source.failed(record.line, "it is not an object with a list of turns")
        else:
            yield _conversation(source, record, ordinal, turns)


def _turns(value: Any) -> list[Any] | None:
    """Return the turns in an object."""
    lists = (value.get(key) for key in _HOLDERS) if isinstance(value, dict) else ()
    return next((each for each in lists if isinstance(each, list)), None)


def _speaker_and_key(turn: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the names of a turn's fields for the speaker and the text."""
    pairs = (("from", "value"), ("role", "content"))
    return next((pair for pair in pairs if pair[0] in turn and pair[1] in turn), None)


def _conversation(
    source: Source, record: Record, ordinal: int, turns: list[dict[str, Any]]
) -> Transcript:
    value: dict[str, Any] = record.value
    origin = identify(FORMAT, None, (value, ordinal))
    draft = TranscriptDraft(origin, source.file, record.line)
    rest = {key: field_value for key, field_value in value.items() if field_value is not turns}
    system = rest.get("system")
    start = ConversationStart(
        title=title_of(rest),
        base_instructions=system if isinstance(system, str) and system else None,
        raw=rest or None,
    )
    draft.start(start, Meta(occurred_at=moment_of(rest)))
    for turn in turns:
        data = _payload(turn, draft.next_version, draft.calls)
        draft.add(data, draft.place(data, occurred_at=moment_of(turn)))
    return draft.finish()


def _payload(turn: dict[str, Any], version: int, calls: Calls) -> EventData:
    turn_text = _speaker_and_key(turn)
    speaker, text_key = turn_text or ("", "")
    role, text = _ROLES.get(str(turn.get(speaker)).lower()), turn.get(text_key)
    message: dict[str, Any] = {"role": role, "content": text}
    if role == "function_call":
        call = _call(text)
        message = {"role": "assistant", "content": text if call is None else None}
        message |= {} if call is None else {"tool_calls": [call]}
    if turn_text is None or role is None:
        return UnknownEvent(UNINTERPRETED, 1, {ORIGINAL: turn})
    data = payload_of(message, version, calls)
    if isinstance(data, UnknownEvent):
        return UnknownEvent(UNINTERPRETED, 1, {ORIGINAL: turn})
    remaining = (
        {**turn, text_key: None} if isinstance(text, str) and role != "function_call" else turn
    )
    return marked(data, {"raw": {ORIGINAL: remaining}})


def _call(text: Any) -> dict[str, Any] | None:
    """Return the call in a text, in OpenAI's form, or None if it is not one."""
    try:
        call = json.loads(text)
        name, arguments = call["name"], call["arguments"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(name, str):
        return None
    arguments_text = (
        arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    )
    return {"type": "function", "function": {"name": name, "arguments": arguments_text}}
