"""Session files of Claude Code: ``~/.claude/projects/<directory>/<session>.jsonl``.

A line is a message of a user, of the model (one block of an answer, so several lines with one
``message.id`` are one answer), of the program (``system``), or bookkeeping. ``parentUuid`` makes
the lines a tree: a prompt that follows an earlier line instead of the newest leaves a branch.
Subagents' lines (``isSidechain``) are recorded in the conversation, but outside the context. A file
that begins with such a line belongs to the subagent: it becomes a conversation whose parent is its
session, with the agent's description from ``<file>.meta.json`` next to it. The ``stream-json``
output of ``claude -p`` has the same messages, without a tree, and becomes a separate conversation.
The format has no specification: this reader is based on files of the versions 1.0 to 2.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.agent_session_log import AgentSessionLog, SessionFile
from agent_eventstore.transcripts.json_fields import object_in, text_at, whole_at
from agent_eventstore.transcripts.left_out import LeftOut
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import Transcript, copied, identify, moment_of
from eventstore.events import (
    ContentPart,
    ConversationStart,
    ConversationUpdate,
    Invocation,
    LlmError,
    OtherPart,
    ReasoningPart,
    SystemInstruction,
    TextPart,
    ToolCallRequest,
    ToolResult,
    Ui,
    UserMessage,
)
from eventstore.events.codec import dumps
from eventstore.events.values import LlmErrorKind, ToolStatus
from projections.payload_text import spoken
from projections.providers.answer import request_of
from projections.providers.content_blocks import content_part
from projections.providers.gemini.contents import message_in
from projections.providers.usage import anthropic_usage, gemini_usage

__all__ = [
    "FORMAT",
    "api_error",
    "as_session_line",
    "attached",
    "begins_turn",
    "block_of",
    "call_of",
    "failure_kind",
    "is_printed",
    "parts_of",
    "read",
    "recognises",
    "result_of",
    "retried_error",
    "shown",
    "text_in",
]


BESIDE = "toolUseResult"


"""The key in a result's ``raw`` for the program's own record of the tool, if that is small."""


_MOST_BESIDE = 8_192


_INTERRUPTED = "[Request interrupted by user"


_BY_PROGRAM = (
    "<local-command-",
    "<bash-stdout>",
    "<bash-stderr>",
    "<command-contents>",
    "<task-notification>",
    "<system-reminder>",
    "<user-prompt-submit-hook>",
)


_REFUSED = (
    "The user doesn't want to proceed with this tool use",
    "The user doesn't want to take this action right now",
    "Permission to use ",
)


def as_session_line(line: Any) -> Any:
    """Return a line of the printed output, or of Qwen Code, in the form of session files."""
    if not isinstance(line, dict):
        return line
    message = line.get("message")
    content = message_in(message) if isinstance(message, dict) else None
    if content is not None:  # Gemini content, as Qwen Code stores it
        kind = "user" if line.get("type") == "tool_result" else line.get("type")
        session_line = {"model": line.get("model"), "usage": line.get("usageMetadata")}
        return {**line, "type": kind, "message": {**session_line, **content}}
    if "sessionId" in line or "session_id" not in line:
        return line
    session_line = {**line, "sessionId": line["session_id"]}
    if isinstance(agent := line.get("parent_tool_use_id"), str):
        session_line |= {"isSidechain": True, "agentId": agent}
    if "tool_use_result" in line:
        session_line[BESIDE] = line["tool_use_result"]
    return session_line


def is_printed(line: dict[str, Any]) -> bool:
    """Whether a line comes from ``--output-format stream-json``."""
    if "session_id" not in line:
        return False
    kind = line.get("type")
    if kind in ("user", "assistant"):
        return "parent_tool_use_id" in line and isinstance(line.get("message"), dict)
    return kind in ("system", "result") and "subtype" in line


def block_of(value: Any) -> str | None:
    """Return the type of a content block, or None."""
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else None


def parts_of(content: Any) -> tuple[ContentPart, ...] | None:
    """Return the parts of a message's content; None if it is neither a text nor a list."""
    if isinstance(content, str):
        return (TextPart(text=content),)
    if not isinstance(content, list):
        return None
    return tuple(_part(block) for block in content)


def text_in(content: Any) -> str:
    """Return the text of a message's content."""
    found = parts_of(content) or ()
    return spoken(found)


def _part(block: Any) -> ContentPart:
    match block:
        case str():
            return TextPart(text=block)
        case {"type": "text", "text": str(text)}:
            return TextPart(text=text)
        case {"type": "thinking", "thinking": str(text), "thoughtSignature": str(signed)}:
            raw = {"thoughtSignature": signed}  # of Gemini
            return ReasoningPart(text=text, signature=signed, raw=raw)
        case {"type": "thinking", "thinking": str(text)}:
            return ReasoningPart(text=text, signature=text_at(block, "signature"))
        case {"type": "thinking", "thinking": list(blocks)}:  # as Mistral has it
            return ReasoningPart(text=text_in(blocks))
        case {"type": "redacted_thinking", "data": str()}:
            return ReasoningPart(text="", raw=dict(block))
    return content_part(block) or OtherPart(raw=block)


def call_of(block: Any) -> ToolCallRequest | None:
    """Return the tool call in a block; None if it is not one, or if the provider runs it."""
    match block:
        case {"type": "tool_use", "name": str(name), "input": given}:
            text = given if isinstance(given, str) else dumps(given)
            found = request_of(name, text, text_at(block, "id"))
            signed = text_at(block, "thoughtSignature")  # of Gemini, which wants it back
            raw = {"thoughtSignature": signed} if signed else None
            return found.model_copy(update={"raw": raw})
    return None


def result_of(block: Mapping[str, Any], beside: Any) -> ToolResult:
    """Return the result in a block; its call is settled when the result is added."""
    content = block.get("content")
    text_content = content if isinstance(content, str) else parts_of(content)
    if (
        isinstance(text_content, tuple)
        and len(text_content) == 1
        and isinstance(text_content[0], TextPart)
    ):
        text_content = text_content[0].text
    text = text_content if isinstance(text_content, str) else text_in(content)
    status: ToolStatus = "failed" if block.get("is_error") is True else "success"
    if status == "failed" and text.startswith(_REFUSED):
        status = "denied"
    keeps_beside = beside is not None and beside != text and len(dumps(beside)) <= _MOST_BESIDE
    details = beside if isinstance(beside, dict) else {}
    return ToolResult(
        call_id="",
        status=status,
        content=text_content or None,
        provider_id=text_at(block, "tool_use_id"),
        duration_ms=whole_at(
            details, "durationMs" if "durationMs" in details else "totalDurationMs"
        ),
        raw={BESIDE: beside} if keeps_beside else None,
    )


def attached(attachment: Mapping[str, Any]) -> str | None:
    """Return what the program sent to the model with a prompt: a file, or a hook's addition."""
    match attachment:
        case {"type": "file", "content": {"type": "text", "file": {"content": str(text)}}}:
            return f"{text_at(attachment, 'filename') or 'file'}:\n{text}"
        case {"type": "hook_additional_context", "content": list(texts)}:
            return "\n".join(each for each in texts if isinstance(each, str)) or None
    return None


def begins_turn(content: Any, line: Mapping[str, Any]) -> bool:
    """Whether a user line was written by a person, not by the program."""
    text = text_in(content)
    return line.get("isMeta") is not True and not text.startswith((*_BY_PROGRAM, _INTERRUPTED))


def shown(content: Any, line: Mapping[str, Any]) -> Ui | None:
    """Return how a user line is shown: text added by the program is collapsed."""
    text = text_in(content)
    if line.get("isMeta") is True and line.get("type") != "attachment":
        return Ui(part_type="meta", collapsed=True)
    return Ui(part_type="command", collapsed=True) if text.startswith(_BY_PROGRAM) else None


def api_error(line: Mapping[str, Any]) -> LlmError:
    """Return the failed call that an assistant line describes."""
    status = whole_at(line, "apiErrorStatus")
    text = text_in(line["message"].get("content"))
    return LlmError(kind=failure_kind(status, text), message=text, status_code=status)


def retried_error(line: Mapping[str, Any]) -> LlmError:
    """Return the failed call that a line of the program describes, which retries it."""
    error = object_in(line, "error")
    status = whole_at(error, "status")
    content = line.get("content")
    text = content if isinstance(content, str) else dumps(error)[:2_000]
    attempt = whole_at(line, "retryAttempt") or 1
    return LlmError(
        kind=failure_kind(status, text),
        message=text,
        retryable=True,
        attempt=max(attempt, 1),
        status_code=status,
    )


def failure_kind(status: int | None, text: str) -> LlmErrorKind:
    """Return the kind of a failure, from its HTTP status and message."""
    if status in (429, 529) or "rate limit" in text.lower():
        return "rate_limit"
    if status is not None and 400 <= status < 500:
        return "invalid"
    if "timed out" in text.lower():
        return "timeout"
    return "network" if "connection error" in text.lower() else "provider"


FORMAT = "claude-code"


_BOOKKEEPING = frozenset(
    "file-history-snapshot queue-operation progress last-prompt permission-mode mode agent-name "
    "agent-color agent-setting atis-latch pr-link frame-link relocated worktree-state tag "
    "compact_boundary content-replacement system attachment summary result stream_event "
    "rate_limit_event tool_progress tool_use_summary auth_status started file-history-delta "
    "api-request api-request-blob api-request-shape".split()
)


_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle"}


_LOOK_AHEAD = 200


_LONGEST_TITLE = 500


_ABOUT = (
    *("cwd", "gitBranch", "version", "sessionId", "agentId", "slug", "entrypoint"),
    *("agentType", "toolUseId", "parentAgentId"),
)


def recognises(value: Any) -> bool:
    """Whether a value is a line of such a file."""
    if not isinstance(value, dict) or not isinstance(kind := value.get("type"), str):
        return False
    if "uuid" in value and not {"parentUuid", "sessionId"}.isdisjoint(value):
        return True
    if is_printed(value):
        return True
    session_key = {"summary": "leafUuid", "file-history-snapshot": "snapshot"}.get(
        kind, "sessionId"
    )
    return session_key in value and (kind in _BOOKKEEPING or kind in _TITLES)


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's session, whose events are read on demand."""
    first, named, dated = None, None, dict[str, Any]()
    bare = True
    for item in islice(Source(source.path).lines(), _LOOK_AHEAD):
        value = as_session_line(item.value) if isinstance(item, Record) else None
        bare = bare and text_at(value, "type") in _BOOKKEEPING
        if (
            isinstance(value, dict)
            and isinstance(found_value := value.get("sessionId"), str)
            and found_value
        ):
            first = first or (found_value, value, item.line or 1)
            # A file may begin with bookkeeping, which has neither time nor directory.
            dated = dated or (value if moment_of(value) is not None else {})
            # A file that continues another one may begin with lines of that session.
            named = found_value if found_value == source.path.stem else named
    if first is None:
        found_value = ": it contains only the program's bookkeeping" if bare else ""
        yield source.failed(
            1, f"none of the first {_LOOK_AHEAD} lines names a session{found_value}"
        )
        return
    session, line, number = first
    own_agent = _agent_of(line) if _is_aside(line) else None
    place, parent, beside = named or session, None, dict[str, Any]()
    if "session_id" in line:
        place = f"{place}/printed"
    if own_agent is not None:
        for found_value in source.beside(f"{source.path.stem}.meta.json"):
            if isinstance(found_value, ImportFailed):
                yield found_value
            elif isinstance(found_value, dict):
                beside = found_value
        above = text_at(beside, "parentAgentId")
        parent = identify(FORMAT, place if above is None else f"{place}/{above}")
        place = f"{place}/{own_agent}"
    begin = partial(_ClaudeCodeSession, own_agent=own_agent, opening={**dated, **line, **beside})
    yield Transcript(
        identify(FORMAT, place),
        file=source.file,
        line=number,
        parent=parent,
        stream=SessionFile(source, begin),
    )


class _ClaudeCodeSession:
    """The lines of one session while they become events."""

    def __init__(
        self,
        source: Source,
        log: AgentSessionLog,
        left_out: LeftOut,
        own_agent: str | None,
        opening: Mapping[str, Any],
    ) -> None:
        self.log = log
        self._opening, self._moment = opening, moment_of(opening)
        self._source, self._left_out, self._own_agent = source, left_out, own_agent
        self._places: dict[str, int] = {}
        self._digests: dict[str, bytes] = {}
        self._unwithdrawn: frozenset[int] = frozenset()
        self._title: str | None = None
        self._instructed = False

    def line(self, record: Record) -> ImportFailed | None:
        """Process a line; return why it cannot be used, or None."""
        line = as_session_line(record.value)
        if not isinstance(line, dict) or not isinstance(line.get("type"), str):
            return self._source.failed(record.line, "a line must be an object with a type")
        uuid = line.get("uuid")
        if isinstance(uuid, str) and "session_id" not in line:
            # Qwen Code writes the thought and the text of an answer as two lines with one id.
            digest = blake2b(
                dumps(line.get("message")).encode("utf-8", "surrogatepass"), digest_size=8
            ).digest()
            if uuid in self._places and self._digests.get(uuid) == digest:
                self._left_out.note(f"{line['type']} that occurs twice", known=True)
                return None
            self._digests[uuid] = digest
        self._begin(line)
        before = self.log.last
        match line["type"]:
            case "user" | "assistant" if not isinstance(line.get("message"), dict):
                return self._source.failed(record.line, "its message is not an object")
            case "user" | "assistant" if parts_of(line["message"].get("content")) is None:
                reason = "the content of its message is neither a text nor a list of blocks"
                return self._source.failed(record.line, reason)
            case "user":
                self._user(line)
            case "assistant":
                self._assistant(line)
            case _:
                self._other(line)
        if isinstance(uuid, str):
            moved = self.log.last > before or line["type"] == "assistant"
            self._places[uuid] = self._place_of(line, moved=moved)
        return None

    def _begin(self, line: dict[str, Any]) -> None:
        if self.log.last == 0 and isinstance(line.get("sessionId"), str):
            opening_line = self._opening
            about = {
                key: opening_line[key] for key in _ABOUT if isinstance(opening_line.get(key), str)
            }
            known = {key: value for key, value in about.items() if value and len(value) <= 1_000}
            title = text_at(opening_line, "description") if self._own_agent is not None else None
            start = ConversationStart(
                title=title[:_LONGEST_TITLE] if title else None, metadata={"claude_code": known}
            )
            self.log.add(start, occurred_at=self._moment)

    def _place_of(self, line: dict[str, Any], *, moved: bool) -> int:
        """Return the version after which a line comes; lines that follow it look this up."""
        parent = self._places.get(str(line.get("parentUuid")))
        if parent is None or _is_aside(line):
            return self.log.last
        if line["type"] == "user" and line.get("isMeta") is True:
            return parent if self.log.has_prompt(parent) else self.log.last
        return self.log.last if moved else parent

    def _meta(self, line: dict[str, Any]) -> dict[str, Any]:
        self._moment = moment_of(line) or self._moment
        fields: dict[str, Any] = {"occurred_at": self._moment}
        ids = {key: line.get(key) for key in ("uuid", "parentUuid", "requestId")}
        fields["extra"] = {k: v for k, v in ids.items() if isinstance(v, str) and len(v) <= 200}
        if _is_aside(line):
            fields["agent_id"] = _agent_of(line)
            fields["in_context"] = self._own_agent is not None
        elif line.get("isVisibleInTranscriptOnly") is True:
            fields["in_context"] = line.get("isCompactSummary") is True
        return fields

    def _user(self, line: dict[str, Any]) -> None:
        content = line["message"].get("content")
        meta = self._meta(line)
        if line.get("isCompactSummary") is True:
            text = text_in(content)
            self.log.summary(text, FORMAT, self._unwithdrawn, **meta)
            self._unwithdrawn = frozenset()
            return
        blocks = content if isinstance(content, list) else []
        results = [each for each in blocks if block_of(each) == "tool_result"]
        for block in results:
            # The rest of a tool result concerns one tool: lines with several do not have it.
            beside = line.get("toolUseResult") if len(results) == 1 else None
            self.log.result(result_of(block, beside), **meta)
        user_blocks = [each for each in blocks if block_of(each) != "tool_result"]
        if user_blocks or isinstance(content, str):
            self._user_message(content if isinstance(content, str) else user_blocks, line, meta)

    def _user_message(self, content: Any, line: dict[str, Any], meta: dict[str, Any]) -> None:
        parts = parts_of(content)
        data = UserMessage(parts=parts or (), ui=shown(content, line))
        if _is_aside(line) and self._own_agent is None:
            self.log.add(data, **meta)
        elif line.get("isMeta") is True and not self.log.has_prompt(0) and _is_text(data):
            # The program's text before the first prompt is an instruction, not the user's task.
            text = text_in(content)
            self.log.add(SystemInstruction(text=text, continues=self._instructed), **meta)
            self._instructed = True
        elif begins_turn(content, line):
            self._branch(line)
            self.log.prompt(data, **meta)
        else:
            self.log.add(data, **meta)

    def _branch(self, line: dict[str, Any]) -> None:
        """Leave the branch if a prompt follows an earlier line instead of the newest."""
        parent = line.get("parentUuid")
        if isinstance(parent, str) and parent in self._places:
            self.log.withdraw(self._places[parent], self._moment)
        elif parent is None and "parentUuid" in line:
            self.log.withdraw(1, self._moment)

    def _assistant(self, line: dict[str, Any]) -> None:
        message, meta = line["message"], self._meta(line)
        if line.get("isApiErrorMessage") is True:
            self._failed(api_error(line), line, meta)
            return
        model = message.get("model")
        if model == "<synthetic>":  # written by the program in the model's place
            meta["in_context"] = False
        key = message.get("id") if isinstance(message.get("id"), str) else line.get("uuid")
        aside = meta.get("agent_id", "")
        answer = self.log.answer(f"{key}" if not aside else f"{aside}/{key}", **meta)
        if isinstance(key, str):  # a line without any id is counted wherever it is
            request = text_at(line, "requestId")
            answer.identity = answer.identity or (FORMAT, key, request)
        content = message.get("content")
        for block in content if isinstance(content, list) else [content]:
            if (call := call_of(block)) is not None:
                answer.calls.append(call)
            else:
                answer.parts.extend(parts_of([block]) or ())
        if isinstance(usage := message.get("usage"), dict):
            answer.usage = anthropic_usage(usage) or gemini_usage(usage) or answer.usage
        reason = message.get("stop_reason")
        answer.finish_reason = reason if isinstance(reason, str) else answer.finish_reason
        anthropics = "usageMetadata" not in line
        answer.invocation = Invocation(
            provider="anthropic" if anthropics else None,
            specification="anthropic_messages" if anthropics else None,
            model=model if isinstance(model, str) else None,
        )

    def _failed(self, error: LlmError, line: dict[str, Any], meta: dict[str, Any]) -> None:
        if uuid := text_at(line, "uuid"):
            meta["extra"] |= copied((FORMAT, uuid))
        self.log.add(error, **meta)

    def _other(self, line: dict[str, Any]) -> None:
        kind = line["type"]
        subtype = line.get("subtype") if kind == "system" else None
        attachment = object_in(line, "attachment")
        if kind in _TITLES:
            self._rename(line.get(_TITLES[kind]), line)
        elif kind == "summary" and line.get("leafUuid") in self._places:
            self._rename(line.get("summary"), line)
        elif subtype == "api_error":
            self._failed(retried_error(line), line, self._meta(line))
        elif kind == "attachment" and attachment.get("type") == "queued_command":
            # A prompt typed while the model was working, delivered within the turn.
            content = attachment.get("prompt")
            if parts_of(content):
                self._user_message(content, {**line, "isMeta": True}, self._meta(line))
        elif kind == "attachment" and (added := attached(attachment)) is not None:
            self._user_message(added, {**line, "type": "user", "isMeta": True}, self._meta(line))
        else:
            if "compact_boundary" in (kind, subtype):
                self._keep(object_in(line, "compactMetadata"))
            named = subtype if kind == "system" else attachment.get("type")
            label = f"{kind} {named}" if isinstance(named, str) else kind
            self._left_out.note(label, known=kind in _BOOKKEEPING)

    def _rename(self, title: Any, line: dict[str, Any]) -> None:
        if isinstance(title, str) and title and title != self._title and self.log.last:
            self._title = title
            self.log.add(
                ConversationUpdate(title=title), occurred_at=moment_of(line) or self._moment
            )

    def _keep(self, about: dict[str, Any]) -> None:
        """Note which messages remain next to the summary that follows."""
        uuids = object_in(about, "preservedMessages").get("uuids")
        found = [self._places.get(str(uuid)) for uuid in uuids] if isinstance(uuids, list) else []
        self._unwithdrawn = frozenset(version for version in found if version is not None)


def _is_aside(line: Mapping[str, Any]) -> bool:
    """Whether a line belongs to a subagent."""
    return line.get("isSidechain") is True


def _is_text(data: UserMessage) -> bool:
    return all(isinstance(part, TextPart) for part in data.parts)


def _agent_of(line: Mapping[str, Any]) -> str:
    agent = line.get("agentId")
    return agent if isinstance(agent, str) and 0 < len(agent) <= 200 else "subagent"
