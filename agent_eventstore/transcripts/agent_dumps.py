"""Histories as agent programs write them out: Pydantic AI, ADK, AI Studio, tau2-bench.

- Pydantic AI: an array of messages, as ``ModelMessagesTypeAdapter`` or ``all_messages_json()``
  writes them. A system prompt, user prompts, results and retries are parts of requests.
- ADK: a session, as ``Session.model_dump_json()`` or its API server writes it, under either naming.
- AI Studio: a prompt saved to Google Drive, ``{"chunkedPrompt": {"chunks": [...]}}``.
- tau2-bench: the results of a run; each simulation is a conversation. The simulated user has tools
  too: its calls, and what they returned, stay fields of its next message.

Each message becomes one of a chat API, with its other fields. Pieces of a stream that a whole event
repeats, and events without content, are passed over, and counted. There is no export to these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.json_fields import as_text, object_in, text_at
from agent_eventstore.transcripts.openai_messages import transcript_of
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import Origin, Transcript, explicit_id, identify

__all__ = ["ADK", "AI_STUDIO", "PYDANTIC_AI", "TAU2_BENCH", "AgentDump"]

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AgentDump:
    """A reader of one program's histories.

    Attributes:
        FORMAT: The name of the format.
        recognises: Whether a value is a history, or a message of one.
        messages: Returns the messages of a chat API for a record, and counts what it passes over.
        holder: The field under which a history has its messages; None if it is an array of them.
        histories: The field under which a record has its histories; None if it is one.
    """

    FORMAT: str
    recognises: Callable[[Any], bool]
    messages: Callable[[Message, Counter[str]], list[Message]]
    holder: str | None
    histories: str | None = None

    def read(self, source: Source) -> Iterator[Transcript | ImportFailed]:
        """Iterate over the file's conversations, and over reports of those that cannot be read."""
        if self.holder is None:
            yield from self._whole(source)
            return
        for ordinal, record in enumerate(source.records()):
            if isinstance(record, ImportFailed):
                yield record
            elif not self.recognises(record.value):
                yield source.failed(record.line, f"it is not a history of {self.FORMAT}")
            else:
                several = [record.value] if self.histories is None else record.value[self.histories]
                for number, value in enumerate(several):
                    rest = {key: each for key, each in value.items() if key != self.holder}
                    place = (value, ordinal, number) if self.histories else (value, ordinal)
                    origin = identify(self.FORMAT, explicit_id(rest, "id"), place)
                    yield self._read(source, [value], rest, record.line, origin)

    def _whole(self, source: Source) -> Iterator[Transcript | ImportFailed]:
        """Yield the conversation of a file whose records are its messages."""
        records, whole = list[Record](), True
        for record in source.records():
            if isinstance(record, ImportFailed):
                whole = False
                yield record
            elif not self.recognises(record.value):
                whole = False
                yield source.failed(record.line, f"it is not a message of {self.FORMAT}")
            else:
                records.append(record)
        if records and whole:
            values = [record.value for record in records]
            origin = identify(self.FORMAT, None, values[:1])
            yield self._read(source, values, {}, records[0].line, origin)

    def _read(
        self, source: Source, values: list[Message], rest: Message, line: int, origin: Origin
    ) -> Transcript:
        passed_over = Counter[str]()
        messages = [each for value in values for each in self.messages(value, passed_over)]
        return transcript_of(source, messages, rest, line, origin, passed_over)


def _beside(message: Mapping[str, Any], *names: str) -> Message:
    return {key: value for key, value in message.items() if key not in names and value is not None}


# Pydantic AI: [{"kind": "request", "parts": [{"part_kind": "user-prompt", ...}]}, ...]


def _is_pydantic_ai(value: Any) -> bool:
    parts = value.get("parts") if isinstance(value, dict) else None
    return isinstance(parts, list) and any(
        isinstance(part, dict) and isinstance(part.get("part_kind"), str) for part in parts
    )


def _pydantic_ai_messages(message: Message, passed_over: Counter[str]) -> list[Message]:
    beside = _beside(message, "parts", "kind", "model_name", "usage")
    if message.get("kind") == "response":
        return [{**beside, **_pydantic_ai_answer(message)}]
    found = list[Message]()
    for part in message["parts"]:
        kind = part.get("part_kind") if isinstance(part, dict) else None
        content = part.get("content") if isinstance(part, dict) else None
        moment = {"timestamp": part["timestamp"]} if kind and "timestamp" in part else {}
        if kind == "system-prompt":
            found.append({**moment, "role": "system", "content": content})
        elif kind in ("tool-return", "retry-prompt") and part.get("tool_name"):
            named = {"tool_call_id": part.get("tool_call_id"), "name": part["tool_name"]}
            failed = {"error": as_text(content)} if kind == "retry-prompt" else {}
            found.append({**moment, **named, "role": "tool", "content": as_text(content), **failed})
        elif kind is not None:
            found.append({**moment, "role": "user", "content": _pydantic_ai_content(content)})
        else:
            passed_over["part without a kind"] += 1
    if found:
        found[0] = {**beside, **found[0]}
    return found


def _pydantic_ai_answer(message: Message) -> Message:
    texts, thoughts, calls, others = list[str](), list[str](), list[Message](), list[Any]()
    for part in message["parts"]:
        kind = part.get("part_kind") if isinstance(part, dict) else None
        if kind == "text":
            texts.append(as_text(part.get("content") or ""))
        elif kind == "thinking":
            thoughts.append(as_text(part.get("content") or ""))
        elif kind == "tool-call":
            function = {"name": part.get("tool_name"), "arguments": as_text(part.get("args") or {})}
            own_id = part.get("tool_call_id")
            calls.append({"id": own_id, "type": "function", "function": function})
        else:
            others.append(part)
    answer: Message = {"role": "assistant", "content": "\n\n".join(texts) or None}
    answer |= {"tool_calls": calls} if calls else {}
    answer |= {"reasoning_content": "\n\n".join(filter(None, thoughts))} if any(thoughts) else {}
    answer |= {"other_parts": others} if others else {}
    answer |= {"model": message["model_name"]} if message.get("model_name") else {}
    counts = object_in(message, "usage")
    prompt = counts.get("input_tokens", counts.get("request_tokens"))
    completion = counts.get("output_tokens", counts.get("response_tokens"))
    if type(prompt) is int and type(completion) is int:
        answer["usage"] = {"prompt_tokens": prompt, "completion_tokens": completion}
    return answer


def _pydantic_ai_content(content: Any) -> Any:
    if not isinstance(content, list):
        return as_text(content)
    found = list[Message]()
    for each in content:
        kind = each.get("kind") if isinstance(each, dict) else None
        if isinstance(each, str):
            found.append({"type": "text", "text": each})
        elif kind == "image-url" and isinstance(each.get("url"), str):
            found.append({"type": "image_url", "image_url": {"url": each["url"]}})
        elif kind == "binary" and str(each.get("media_type")).startswith("image/"):
            url = f"data:{each['media_type']};base64,{each.get('data')}"
            found.append({"type": "image_url", "image_url": {"url": url}})
        else:
            found.append(
                each if isinstance(each, dict) else {"type": "text", "text": as_text(each)}
            )
    return found


# ADK: {"id", "appName", "userId", "events": [{"author", "content": {"role", "parts"}}]}


def _is_adk(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("events"), list):
        return False
    named = value.keys() & {"appName", "app_name"}
    return bool(named) and all(isinstance(each, dict) for each in value["events"])


def _adk_messages(session: Message, passed_over: Counter[str]) -> list[Message]:
    found = list[Message]()
    for event in session["events"]:
        content = object_in(event, "content")
        parts = content.get("parts")
        if event.get("partial") is True:
            passed_over["piece of a stream"] += 1
        elif not isinstance(parts, list) or not parts:
            passed_over["event without content"] += 1
        else:
            role = text_at(content, "role") or (
                "user" if event.get("author") == "user" else "model"
            )
            shown = [_beside(part) if isinstance(part, dict) else part for part in parts]
            names = ("content", "actions", "longRunningToolIds", "long_running_tool_ids")
            found.append({**_beside(event, *names), "role": role, "parts": shown})
    return found


# AI Studio: {"runSettings", "systemInstruction", "chunkedPrompt": {"chunks": [{"role", "text"}]}}


def _is_ai_studio(value: Any) -> bool:
    prompt = object_in(value, "chunkedPrompt") if isinstance(value, dict) else {}
    chunks = prompt.get("chunks")
    return isinstance(chunks, list) and all(isinstance(each, dict) for each in chunks)


def _ai_studio_messages(prompt: Message, passed_over: Counter[str]) -> list[Message]:
    found, thoughts = list[Message](), list[str]()
    for chunk in prompt["chunkedPrompt"]["chunks"]:
        text = text_at(chunk, "text") or ""
        if chunk.get("isThought") is True:
            thoughts.append(text)
            continue
        role = "user" if chunk.get("role") == "user" else "assistant"
        files = [f"[{key} {value['id']}]" for key, value in chunk.items() if _is_file(value)]
        content = "\n\n".join(filter(None, (text, *files)))
        if not content:
            passed_over["chunk without text"] += 1
            continue
        message: Message = {**_beside(chunk, "text", "role", "parts"), "role": role}
        message["content"] = content
        if thoughts and role == "assistant":
            message["reasoning_content"] = "\n\n".join(thoughts)
            thoughts = []
        found.append(message)
    if thoughts:
        last = {"role": "assistant", "content": "", "reasoning_content": "\n\n".join(thoughts)}
        found.append(last)
    return found


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("id"), str)


# tau2-bench: {"info", "tasks", "simulations": [{"id", "task_id", "messages": [{"role", ...}]}]}


def _is_tau2(value: Any) -> bool:
    runs = value.get("simulations") if isinstance(value, dict) else None
    return (
        isinstance(runs, list)
        and bool(runs)
        and all(isinstance(run, dict) and isinstance(run.get("messages"), list) for run in runs)
        and any("task_id" in run for run in runs)
    )


def _tau2_messages(run: Message, passed_over: Counter[str]) -> list[Message]:
    found, of_user = list[Message](), list[Message]()
    for message in run["messages"]:
        if not isinstance(message, dict):
            passed_over["message that is not an object"] += 1
            continue
        role, calls = message.get("role"), message.get("tool_calls")
        if message.get("requestor") == "user" or (role == "user" and calls):
            of_user.append({"role": role, "tool_calls": calls, "content": message.get("content")})
            if role == "tool" or not message.get("content"):
                continue
        written = _beside(message, "role", "tool_calls", "error", "id" if role == "tool" else "")
        written |= {"role": role, "content": message.get("content")}
        if role == "assistant" and isinstance(calls, list):
            written["tool_calls"] = [_tau2_call(each) for each in calls if isinstance(each, dict)]
        elif role == "tool":
            written["tool_call_id"] = message.get("id")
            written |= {"error": message.get("content")} if message.get("error") else {}
        elif role == "user" and of_user:
            written["own_tools"], of_user = of_user, []
        found.append(written)
    if of_user:
        passed_over["tool of the user after its last message"] += len(of_user)
    return found


def _tau2_call(call: Message) -> Message:
    function = {"name": call.get("name"), "arguments": as_text(call.get("arguments") or {})}
    return {"id": call.get("id"), "type": "function", "function": function}


PYDANTIC_AI = AgentDump("pydantic-ai", _is_pydantic_ai, _pydantic_ai_messages, None)
ADK = AgentDump("google-adk", _is_adk, _adk_messages, "events")
AI_STUDIO = AgentDump("ai-studio", _is_ai_studio, _ai_studio_messages, "chunkedPrompt")
TAU2_BENCH = AgentDump("tau2-bench", _is_tau2, _tau2_messages, "messages", "simulations")
