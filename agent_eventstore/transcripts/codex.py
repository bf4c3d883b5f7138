"""Session files of Codex: ``~/.codex/sessions/<year>/<month>/<day>/rollout-*.jsonl``.

A line is ``session_meta``, ``turn_context``, a ``response_item`` (the model's input and output, as
items of OpenAI's Responses), an ``event_msg`` (what the program showed), ``compacted``, or a
message of another agent. Items of one answer are one event; the ``token_count`` after them gives
its tokens. Files of 2025 that contain only items, without an envelope, are read too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.agent_session_log import MOST_RANGES, AgentSessionLog, SessionFile
from agent_eventstore.transcripts.json_fields import naming_of, object_in, text_at, whole_at
from agent_eventstore.transcripts.left_out import LeftOut
from agent_eventstore.transcripts.openai_parts import parts_by
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import Transcript, identify, moment_of
from eventstore.events import (
    ContentPart,
    ConversationStart,
    ConversationUpdate,
    FilePart,
    ImagePart,
    Invocation,
    LlmError,
    OtherPart,
    ReasoningPart,
    RefusalPart,
    SystemInstruction,
    TextPart,
    TokenUsage,
    ToolCallRequest,
    ToolResult,
    Ui,
    UserMessage,
)
from eventstore.events.values import ToolStatus
from projections.context.payload_messages import FREE_TEXT
from projections.payload_text import spoken
from projections.providers.answer import request_of

__all__ = [
    "FORMAT",
    "OUTPUTS",
    "content_and_call",
    "error_of",
    "is_of_program",
    "is_reply",
    "parts_of",
    "read",
    "recognises",
    "result_of",
    "tokens_of",
]


OUTPUTS = frozenset(
    f"{kind}_output"
    for kind in ("function_call", "custom_tool_call", "local_shell_call", "tool_search")
)


"""The types of items that contain a call's result."""


_OF_PROGRAM = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<skill>",
    "<recommended_plugins>",
    "<codex_internal_context",
    "<hook_prompt",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
)


_REPLY = "<send_user_message_question_reply>"


_EXIT = re.compile(r"^(?:Process exited with code|Exit code:?) (-?\d+)\s*$", re.MULTILINE)


_WALL = re.compile(r"^Wall time: (\d+(?:\.\d+)?) seconds\s*$", re.MULTILINE)


_REFUSED = ("exec command rejected by user", "patch rejected by user", "rejected by user")


_HEAD = 1_000


def parts_of(content: Any) -> tuple[ContentPart, ...]:
    """Return the content as parts; an unknown one is kept verbatim."""
    return parts_by(_part, content)


def _part(item: Any) -> ContentPart:
    match item:
        case {"type": "refusal", "refusal": str(text)}:
            return RefusalPart(text=text)
        case {"text": str(text)}:
            return TextPart(text=text)
        case {"type": "input_image", "image_url": str(url)}:
            return ImagePart(url=url, detail=text_at(item, "detail"))
        case {"type": "input_file"}:
            data = text_at(item, "file_data") or text_at(item, "file_url")
            name, file_id = text_at(item, "filename"), text_at(item, "file_id")
            return FilePart(name=name, file_id=file_id, url=data)
    return OtherPart(raw=item)


def content_and_call(
    item: Mapping[str, Any],
) -> tuple[tuple[ContentPart, ...], ToolCallRequest | None]:
    """Return the parts, or the call, of a model's item, as the recorder has them."""
    shell = item.get("type") == "local_shell_call"
    named = naming_of({"name": "local_shell", **item} if shell else item, "name", "call_id")
    name, call = named or ("", None)
    match item:
        case {"type": "message"}:
            return parts_of(item.get("content")), None
        case {"type": "reasoning"}:
            return _thoughts(item), None
        case {"type": "function_call", "arguments": str(arguments)} if named:
            return (), request_of(name, arguments, call)
        case {"type": "custom_tool_call", "input": str()} if named:
            raw = {"type": "custom_tool_call"}
            return (), ToolCallRequest(
                name=name,
                arguments_text=item["input"],
                parse_error=FREE_TEXT,
                provider_id=call,
                raw=raw,
            )
        case {"type": "local_shell_call", "action": dict(action)} if named:
            found = request_of(name, json.dumps(action, ensure_ascii=False), call)
            return (), found.model_copy(update={"raw": {"type": "local_shell_call"}})
    return (OtherPart(raw=dict(item)),), None


def _thoughts(item: Mapping[str, Any]) -> tuple[ContentPart, ...]:
    """Return the thoughts; the last part has the data that the provider wants back."""
    lists = (item.get(key) for key in ("summary", "content"))
    blocks = [block for each in lists if isinstance(each, list) for block in each]
    texts = [text for block in blocks if (text := text_at(block, "text"))] or [""]
    signature, named = text_at(item, "encrypted_content"), text_at(item, "id")
    raw = {"type": "reasoning", **({"id": named} if named else {})}
    if signature and isinstance(item.get("summary"), list):
        raw["summary"] = item["summary"]
    last = ReasoningPart(text=texts[-1], signature=signature, raw=raw)
    return (*(ReasoningPart(text=text) for text in texts[:-1]), last)


def is_of_program(text: str) -> bool:
    """Whether a user message was added by the program, not written by a person."""
    return text.lstrip().startswith(_OF_PROGRAM)


def is_reply(text: str) -> bool:
    """Whether a user message answers a question that the model asked within its turn."""
    return text.lstrip().startswith(_REPLY)


def result_of(item: Mapping[str, Any]) -> ToolResult:
    """Return the result in an item; its call is settled when the result is added."""
    output = item.get("output", item.get("tools"))
    details = output if isinstance(output, dict) else {}
    content = details.get("content", output) if details else output
    text_content = content if isinstance(content, str) else parts_of(content) or None
    text = text_content if isinstance(text_content, str) else ""
    status, duration = _outcome(text)
    if details.get("success") is False and status == "success":
        status = "failed"
    return ToolResult(
        call_id="",
        status=status,
        content=text_content,
        duration_ms=duration,
        provider_id=text_at(item, "call_id"),
    )


def _outcome(text: str) -> tuple[ToolStatus, int | None]:
    """Return the outcome and the time in milliseconds that a result's text gives."""
    if text.startswith(_REFUSED):
        return "denied", None
    if text.startswith("{"):
        try:
            about = json.loads(text)["metadata"]
            code, seconds = about.get("exit_code"), about.get("duration_seconds")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return "success", None
    else:
        exit_code, wall = _EXIT.search(text[:_HEAD]), _WALL.search(text[:_HEAD])
        code = int(exit_code[1][:9]) if exit_code else 0
        seconds = float(wall[1][:15]) if wall else None
    known = isinstance(seconds, int | float) and 0 <= seconds < 10**8
    failed = isinstance(code, int) and code != 0
    return "failed" if failed else "success", round(seconds * 1000) if known else None


def tokens_of(raw: Any) -> TokenUsage | None:
    """Return the tokens of one model call."""
    if not isinstance(raw, dict):
        return None
    prompt, completion = whole_at(raw, "input_tokens"), whole_at(raw, "output_tokens")
    if prompt is None and completion is None:
        return None
    return TokenUsage(
        prompt_tokens=prompt or 0,
        completion_tokens=completion or 0,
        total_tokens=whole_at(raw, "total_tokens"),
        cached_prompt_tokens=whole_at(raw, "cached_input_tokens"),
        cache_write_tokens=whole_at(raw, "cache_write_input_tokens"),
        reasoning_tokens=whole_at(raw, "reasoning_output_tokens"),
        raw=raw,
    )


def error_of(event: Mapping[str, Any], *, retryable: bool) -> LlmError:
    """Return the failed call that the program reports."""
    message = event.get("message")
    text = message if isinstance(message, str) else "the program told no reason"
    limited = "rate limit" in text.lower() or "usage limit" in text.lower()
    kind = "rate_limit" if limited else "network" if retryable else "provider"
    return LlmError.model_validate({"kind": kind, "message": text, "retryable": retryable})


FORMAT = "codex"


_TYPES = frozenset(
    "session_meta session_state turn_context response_item event_msg compacted world_state "
    "token_usage_record inter_agent_communication inter_agent_communication_metadata".split()
)


_MODEL_ITEMS = frozenset(
    "message reasoning function_call custom_tool_call local_shell_call web_search_call "
    "tool_search_call image_generation_call mcp_call code_interpreter_call".split()
)


_PASSED_OVER = frozenset(
    "ghost_snapshot other compaction compaction_summary compaction_trigger context_compaction "
    "additional_tools".split()
)


_ERRORS = {"error": False, "stream_error": True}


_TURN_ENDS = frozenset(
    "task_started turn_started task_complete turn_complete turn_aborted shutdown_complete".split()
)


_UNIQUE = ("id", "call_id", "encrypted_content")


_LOOK_AHEAD = 200


_ABOUT = (
    *("cwd", "originator", "cli_version", "source", "model_provider", "git", "forked_from_id"),
    *("thread_source", "agent_nickname", "agent_role", "agent_path", "history_base"),
)


_LONGEST_ABOUT = 1_000


def recognises(value: Any) -> bool:
    """Whether a value is a line of such a file."""
    if not isinstance(value, dict):
        return False
    return _is_enveloped(value) or {"id", "timestamp", "instructions"} <= value.keys()


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's session, whose events are read on demand."""
    for item in islice(Source(source.path).lines(), _LOOK_AHEAD):
        if isinstance(item, Record) and (about := _about(item.value)) is not None:
            parent = _parent_of(about)
            yield Transcript(
                identify(FORMAT, _place_of(about)),
                file=source.file,
                line=item.line,
                parent=None if parent is None else identify(FORMAT, parent),
                stream=SessionFile(source, _CodexSession),
            )
            return
    yield source.failed(1, f"none of the first {_LOOK_AHEAD} lines names a session")


def _is_enveloped(line: Mapping[str, Any]) -> bool:
    kind = line.get("type")
    return isinstance(kind, str) and kind in _TYPES and isinstance(line.get("payload"), dict)


def _about(line: Any) -> dict[str, Any] | None:
    """Return a line's description of the session, or None."""
    if not isinstance(line, dict):
        return None
    if line.get("type") == "session_meta":
        payload = object_in(line, "payload")
        named = payload.get("id") or payload.get("session_id")
        return {**payload, "id": named} if isinstance(named, str) and named else None
    named = isinstance(line.get("id"), str) and line["id"] != "" and "timestamp" in line
    return line if named and "type" not in line else None


def _place_of(about: Mapping[str, Any]) -> str:
    """Return a file's origin; files of one session may continue from places in one another."""
    place, base = str(about["id"]), object_in(about, "history_base")
    return place if not base else f"{place}@{base.get('end_ordinal_exclusive')}"


def _parent_of(about: Mapping[str, Any]) -> str | None:
    """Return the session that opened this one, or that it was forked from or continues."""
    source = about.get("source")
    spawn = object_in(
        object_in(source if isinstance(source, dict) else {}, "subagent"), "thread_spawn"
    )
    base = object_in(about, "history_base")
    parent_id = (
        about.get("parent_thread_id"),
        spawn.get("parent_thread_id"),
        about.get("forked_from_id"),
        base.get("thread_id"),
    )
    itself = None if base else about["id"]
    return next(
        (each for each in parent_id if isinstance(each, str) and each and each != itself), None
    )


class _CodexSession:
    """The lines of one session while they become events."""

    def __init__(self, source: Source, log: AgentSessionLog, left_out: LeftOut) -> None:
        self.log = log
        self._source, self._left_out = source, left_out
        self._model: str | None = None
        self._turn_id: str | None = None
        self._total: Any = None
        self._root: str | None = None
        self._prompt = b""
        self._unique: list[str] = []
        self._spent: Any = None
        self._answers = 0
        self._instructed = self._has_prompt = False
        self._prompts: dict[bytes, int] = {}

    def line(self, record: Record) -> ImportFailed | None:
        """Process a line; return why it cannot be used, or None."""
        line = record.value
        if not isinstance(line, dict):
            return self._source.failed(record.line, "a line must be an object")
        about = _about(line)
        if about is not None:
            forked = about.get("forked_from_id")
            self._root = forked if isinstance(forked, str) and forked else about["id"]
        if about is not None and self.log.last == 0:
            self._begin(about, line)
        elif about is not None:
            self._left_out.note("session_meta of another session", known=True)
        elif isinstance(line.get("type"), str) and "payload" not in line:
            self._item(line, line)
        elif not isinstance(line.get("type"), str):
            if "record_type" not in line:
                return self._source.failed(record.line, "a line must be an object with a type")
            self._left_out.note("record_type", known=True)
        elif not isinstance(line.get("payload"), dict):
            return self._source.failed(record.line, "its payload is not an object")
        else:
            self._enveloped(line["type"], line["payload"], line)
        return None

    def _begin(self, about: dict[str, Any], line: dict[str, Any]) -> None:
        known = {key: about[key] for key in _ABOUT if about.get(key)}
        short_fields = {k: v for k, v in known.items() if len(str(v)) <= _LONGEST_ABOUT}
        instructions = object_in(about, "base_instructions").get("text", about.get("instructions"))
        start = ConversationStart(
            metadata={"codex": {"id": str(about["id"])[:_LONGEST_ABOUT], **short_fields}},
            base_instructions=instructions
            if isinstance(instructions, str) and instructions
            else None,
        )
        self.log.add(start, occurred_at=moment_of(line))
        if object_in(about, "history_base"):
            self._left_out.note("history_base: earlier history is in another file", known=False)

    def _enveloped(self, kind: str, payload: dict[str, Any], line: dict[str, Any]) -> None:
        match kind:
            case "response_item":
                self._item(payload, line)
            case "event_msg":
                self._event(payload, line)
            case "turn_context":
                self._close()
                model, turn = payload.get("model"), payload.get("turn_id")
                self._model = model if isinstance(model, str) else self._model
                self._turn_id = turn if isinstance(turn, str) and len(turn) <= 200 else None
            case "compacted":
                self._compacted(payload, line)
            case "inter_agent_communication":
                self._heard(payload, line)
            case _:
                self._left_out.note(kind, known=kind in _TYPES)

    def _meta(self, line: dict[str, Any]) -> dict[str, Any]:
        return {"occurred_at": moment_of(line), "correlation_id": self._turn_id}

    def _item(self, item: dict[str, Any], line: dict[str, Any]) -> None:
        kind = item.get("type")
        if kind == "message" and item.get("role") != "assistant":
            self._message(item, line)
        elif kind == "agent_message":
            self._heard(item, line)
        elif isinstance(kind, str) and kind in OUTPUTS:
            self.log.result(result_of(item), **self._meta(line))
        elif isinstance(kind, str) and kind in _MODEL_ITEMS:
            self._answered(item, line)
        else:
            known = isinstance(kind, str) and kind in _PASSED_OVER
            self._left_out.note(f"response_item {kind}", known=known)

    def _message(self, item: dict[str, Any], line: dict[str, Any]) -> None:
        parts, role = parts_of(item.get("content")), item.get("role")
        text = spoken(parts)
        self._close()
        program = is_of_program(text) and all(isinstance(part, TextPart) for part in parts)
        if role in ("system", "developer") or (program and role == "user" and not self._has_prompt):
            # The program's text before the first prompt is an instruction, whatever its role. Later
            # text is history: a request has its instructions at its beginning.
            aside = {"in_context": False} if self._has_prompt else {}
            data = SystemInstruction(
                text=text,
                role="system" if role == "system" else "developer",
                continues=self._instructed and not self._has_prompt,
            )
            self._instructed = self._instructed or not self._has_prompt
            self.log.add(data, **aside, **self._meta(line))
        elif role != "user":
            self._left_out.note(f"message of role {role}", known=False)
        elif is_of_program(text):
            ui = Ui(part_type="meta", collapsed=True)
            self.log.add(UserMessage(parts=parts, ui=ui), **self._meta(line))
        elif is_reply(text) and self._has_prompt:
            self.log.add(UserMessage(parts=parts), **self._meta(line))
        else:
            self._has_prompt = True
            version = self.log.prompt(UserMessage(parts=parts), **self._meta(line))
            self._prompts.pop(digest := _digest(text), None)
            self._prompts[digest] = version
            self._prompt = digest

    def _heard(self, item: dict[str, Any], line: dict[str, Any]) -> None:
        """Add another agent's message, which begins a turn if there is none yet."""
        self._close()
        author, content = item.get("author"), item.get("content")
        if not content:
            content = [{key: item[key] for key in ("encrypted_content",) if key in item}]
        name = author if isinstance(author, str) and 0 < len(author) <= 200 else None
        data = UserMessage(parts=parts_of(content), name=name)
        if self._has_prompt:
            self.log.add(data, **self._meta(line))
        else:
            self._has_prompt = True
            self.log.prompt(data, **self._meta(line))

    def _answered(self, item: dict[str, Any], line: dict[str, Any]) -> None:
        if self.log.open is not None and self.log.open.waiting:
            self._close()  # the model has seen results: this is its next answer
        answer = self.log.answer(f"codex-{self._answers}", **self._meta(line))
        parts, call = content_and_call(item)
        answer.parts += parts
        answer.calls += [] if call is None else [call]
        answer.invocation = self._invocation()
        self._unique += filter(None, (text_at(item, key) for key in _UNIQUE))
        self._identify()

    def _identify(self) -> None:
        """Note what all copies of the open answer have in common.

        A fork's file begins with the lines of the session that it was forked from, often with other
        times. So an answer is identified by its question, what it says, the tokens that the session
        has used until then, and its ids, or by the session if it has none.
        """
        answer = self.log.open
        if answer is None:
            return
        identity = (self._prompt.hex(), _digest(spoken(answer.parts)).hex())
        answer.identity = (FORMAT, self._unique or self._root, *identity, self._spent)

    def _invocation(self) -> Invocation:
        return Invocation(provider="openai", specification="openai_responses", model=self._model)

    def _close(self) -> None:
        if self.log.open is not None:
            self.log.close()
            self._answers += 1
            self._unique = []

    def _event(self, event: dict[str, Any], line: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "token_count":
            self._count(object_in(event, "info"), line)
        elif isinstance(kind, str) and kind in _ERRORS:
            self._close()
            self.log.add(error_of(event, retryable=_ERRORS[kind]), **self._meta(line))
        elif kind == "thread_rolled_back":
            back = event.get("num_turns")
            self._close()
            after = self.log.before(back if isinstance(back, int) else 0)
            self.log.withdraw(after, moment_of(line))
        elif kind == "thread_name_updated" and isinstance(event.get("thread_name"), str):
            self.log.add(ConversationUpdate(title=event["thread_name"]), **self._meta(line))
        else:
            if isinstance(kind, str) and kind in _TURN_ENDS:
                self._close()
            self._left_out.note(f"event_msg {kind}", known=isinstance(kind, str))

    def _count(self, info: dict[str, Any], line: dict[str, Any]) -> None:
        """Give the open answer its tokens; repeated totals belong to the previous answer."""
        total, spent = info.get("total_token_usage"), tokens_of(info.get("last_token_usage"))
        if spent is None or (total is not None and total == self._total):
            return
        self._total = total
        if self.log.open is None:
            self._left_out.note("token_count without an answer", known=False)
            return
        answer = self.log.answer(self.log.open.key, **self._meta(line))
        answer.usage, answer.invocation = spent, self._invocation()
        so_far = tokens_of(total)
        self._spent = [each and each.model_dump(exclude={"raw"}) for each in (so_far, spent)]
        self._identify()
        self._close()

    def _compacted(self, payload: dict[str, Any], line: dict[str, Any]) -> None:
        self._close()
        history, text = payload.get("replacement_history"), payload.get("message")
        remaining = set(islice(reversed(self._prompts.values()), MOST_RANGES))
        new_texts: list[str] = []
        if isinstance(history, list):
            remaining = set()
            for item in history:
                item_text = spoken(
                    parts_of((item if isinstance(item, dict) else {}).get("content"))
                )
                if (place := self._prompts.get(_digest(item_text))) is not None:
                    remaining.add(place)
                elif item_text.strip():
                    new_texts.append(item_text)
        # Newer versions leave the message empty: the summary is what the history adds to prompts.
        summary = text if isinstance(text, str) and text else "\n\n".join(new_texts)
        if not summary:
            self._left_out.note("compacted without a text", known=False)
            return
        self.log.summary(summary, FORMAT, remaining, **self._meta(line))


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
