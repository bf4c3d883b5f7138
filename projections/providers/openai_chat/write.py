"""Rows as messages of OpenAI's chat completions, with what providers need back verbatim.

Rules: OpenAI's API reference, "Create chat completion" (2025); many other servers accept the same.
Rows already hold messages in this format; only the ids are decided here. ``reasoning_content`` is
returned only to providers that ask for it, with their own messages. DeepSeek's guide "Thinking
Mode" (2026) requires it in every later request once tools were called, and ignores it otherwise;
Moonshot's guide to Kimi's thinking models (2025) asks to keep it in the context. OpenAI has no such
field. Gemini signs its thoughts in ``extra_content`` of a call or a message, and Gemini 3 refuses a
call that comes back without it (Google, "Thought signatures", 2025): it is returned to Google, and
to the server that sent it.

Content that a provider needs back verbatim and that this format cannot hold is stored next to a
message, tagged with its maker: Anthropic's thinking with its signatures (and the order of all
blocks around it), OpenAI's reasoning items with their encrypted content, ``phase`` of its messages,
DeepSeek's ``reasoning_content``, Gemini's signatures. Tool calls in it are positions
(``{"call": 0}``): ids, names and arguments stay in the message, since ids are decided for each
request. Of a tool result, from any maker, the status is stored, and images and files as chat parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from eventstore.events import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Invocation,
    OtherPart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallRequest,
    ToolResult,
)
from projections.context import images, payload_messages, prompts
from projections.context.payload_messages import is_blank
from projections.context.rows import ContextRow
from projections.provider_actions import mention
from projections.providers.anthropic.block_shapes import as_inputs
from projections.providers.openai_responses import items
from projections.providers.openai_responses.items import WORDS
from projections.providers.provider_limits import LIMITS, unfit_file, without_excess_images
from projections.providers.reasoning import (
    ANTHROPIC,
    GOOGLE,
    OPENAI,
    chat_fields,
    owner_of,
    signature_in,
    thinking_blocks,
)
from projections.providers.request_base import (
    EMPTY_USER,
    SELLERS_OF_GEMINI,
    Additions,
    Json,
    Wire,
    call_ids,
    note,
    parts_of,
    split_front,
    system_text,
    text_in,
)

__all__ = [
    "ADDITIONS",
    "FILL_IN_TEMPLATES",
    "SPECIFICATION",
    "WANT_REASONING_BACK",
    "gives_back",
    "message_of",
    "of_assistant",
    "of_tool",
    "openai_chat",
    "wire",
    "wire_with_notes",
]

SPECIFICATION = "openai_chat"

WANT_REASONING_BACK = frozenset({"deepseek", "moonshot", "moonshotai"})

_SAID = (TextPart, RefusalPart)
_SYSTEM = ("system", "developer")
_OF_PRODUCT = frozenset({"tool_use", "function_call", "custom_tool_call"})
_CALL_ITEMS = {
    **dict.fromkeys(("function_call", "custom_tool_call", "computer_call"), "call_id"),
    **dict.fromkeys(("local_shell_call", "shell_call", "apply_patch_call"), "call_id"),
    **{"tool_search_call": "call_id", "mcp_approval_request": "id"},
}
_NO_CONTENT = frozenset({"role", "content", "name"})
_IN_MESSAGE = ("arguments", "input", "name")


def of_assistant(payload: AssistantMessage) -> Json | None:
    """Return what the maker of a message needs back, or None if the message itself is enough."""
    made = payload.invocation or Invocation()
    maker, native = _owned(payload, made)
    if chat := chat_fields(payload):
        others = (native or {}).get("chat", ())
        native = {**(native or {"specification": SPECIFICATION}), "chat": [*chat, *others]}
    # A signature covers exact bytes: content that UTF-8 cannot encode cannot be sent back.
    if native is None or payload_messages.scrub(native) != native:
        return None
    named = {"provider": maker, "model": made.model}
    return {"specification": made.specification, **payload_messages.scrub(named), **native}


def _owned(payload: AssistantMessage, made: Invocation) -> tuple[str | None, Json | None]:
    """Return whose the items in a message are, and the items, in the format of their owner."""
    raw = payload.raw if isinstance(payload.raw, dict) else {}
    owners = [
        (owner, part)
        for part in payload.parts
        if isinstance(part, ReasoningPart) and (owner := owner_of(part, made))
    ]
    specification = made.specification
    if specification == "anthropic_messages":
        return made.provider, _anthropic(payload, raw.get("content"))
    if specification == "openai_responses" or isinstance(raw.get("output"), list):
        maker = made.provider if specification == "openai_responses" else OPENAI
        output = raw.get("output")
        sent = output if isinstance(output, list) else _items(payload)
        return maker, _typed("openai_responses", _responses(payload, sent))
    thoughts = thinking_blocks(payload)
    if thoughts or any(owner == ANTHROPIC for owner, _ in owners):
        blocks = thoughts + (_blocks(payload, ANTHROPIC, thoughts=not thoughts) or [])
        if (native := _anthropic(payload, blocks)) is not None:
            return ANTHROPIC, _typed("anthropic_messages", native)
    if any(owner == OPENAI for owner, _ in owners):
        return OPENAI, _typed("openai_responses", _responses(payload, _items(payload)))
    if (native := _signed(payload, made)) is not None:
        return made.provider if specification == SPECIFICATION else GOOGLE, native
    thought = "".join(part.text for part in payload.parts if isinstance(part, ReasoningPart))
    if thought and not owners and specification in (None, SPECIFICATION):
        if made.provider in WANT_REASONING_BACK:
            return made.provider, _typed(SPECIFICATION, {"reasoning_content": thought})
        if made.provider is None:  # Plain text; those who want it take any.
            to, fields = sorted(WANT_REASONING_BACK), {"reasoning_content": thought}
            return None, _typed(SPECIFICATION, {"chat": [{"to": to, "fields": fields}]})
    return made.provider, None


def _typed(specification: str, native: Json | None) -> Json | None:
    return None if native is None else {**native, "specification": specification}


def of_tool(payload: ToolResult) -> Json | None:
    """Return a result's status, unless it is success, and its parts if any is an image or file."""
    native: Json = {} if payload.status == "success" else {"status": payload.status}
    parts = payload.content
    if not isinstance(parts, str | None) and any(
        isinstance(part, ImagePart | FilePart) for part in parts
    ):
        native["content"] = payload_messages.user_parts(parts)
    return native or None


def _anthropic(payload: AssistantMessage, raw: Any) -> Json | None:
    blocks = raw if isinstance(raw, list) else _blocks(payload, None)
    if blocks is None or not all(isinstance(block, dict) for block in blocks):
        return None
    blocks = as_inputs(blocks)
    placed = _placed(blocks, {"tool_use": "id"}, payload.tool_calls)
    paused = payload.finish_reason == "pause_turn"
    if placed is None or not (paused or any(map(_is_telling, blocks))):
        return None
    return {"content": placed, **({"paused": True} if paused else {})}


def _blocks(
    payload: AssistantMessage, owner: str | None, *, thoughts: bool = True
) -> list[Json] | None:
    """Return blocks made from parts and calls, or None if a part has no block.

    Args:
        payload: The message.
        owner: Whose thoughts to include; None for all.
        thoughts: Whether to include any.
    """
    found: list[Json] = []
    made = payload.invocation or Invocation()
    for part in payload.parts:
        if isinstance(part, ReasoningPart):
            if thoughts and owner in (None, owner_of(part, made)):
                found.append(_thinking(part))
        elif isinstance(part, TextPart):
            found.append({"type": "text", "text": part.text})
        elif isinstance(part, OtherPart) and isinstance(part.raw, dict):
            found.append(part.raw)
        else:
            return None
    calls = payload.tool_calls
    return found + [
        {**_of_block(call.raw), "type": "tool_use", "id": call.provider_id} for call in calls
    ]


def _thinking(part: ReasoningPart) -> Json:
    """Return a thought as a block; Bedrock has other names for the same."""
    raw = part.raw or {}
    redacted = raw.get("reasoningContent")
    data = redacted.get("redactedContent") if isinstance(redacted, dict) else None
    if isinstance(data, str):
        return {"type": "redacted_thinking", "data": data}
    if raw.get("type") == "redacted_thinking":
        return raw
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _of_block(raw: Json | None) -> Json:
    return {key: value for key, value in (raw or {}).items() if key in ("caller", "toolset_name")}


def _items(payload: AssistantMessage) -> list[Json]:
    """Return items of Responses made from parts and calls."""
    found: list[Json] = []
    made = payload.invocation or Invocation()
    for part in payload.parts:
        if isinstance(part, ReasoningPart) and owner_of(part, made) == OPENAI:
            summary = [{"type": "summary_text", "text": part.text}] if part.text else []
            item = {"summary": summary, "encrypted_content": part.signature, **(part.raw or {})}
            found.append({**item, "type": "reasoning"})
        elif isinstance(part, TextPart):
            text = {"type": "output_text", "text": part.text, "annotations": []}
            found.append({"type": "message", "role": "assistant", "content": [text]})
    for call in payload.tool_calls:
        free = (call.raw or {}).get("type") == "custom_tool_call"
        kind, field = ("custom_tool_call", "input") if free else ("function_call", "arguments")
        named = {"call_id": call.provider_id, "name": call.name}
        found.append({"type": kind, **named, field: call.arguments_text})
    return found


def _is_telling(block: Json) -> bool:
    """Whether a block has anything that text and calls cannot express."""
    if block["type"] not in ("text", "tool_use"):
        return True
    caller = block.get("caller")
    return bool(block.get("citations") or (isinstance(caller, dict) and caller.get("tool_id")))


def _responses(payload: AssistantMessage, raw: Any) -> Json | None:
    if not isinstance(raw, list) or not all(isinstance(item, dict) for item in raw):
        return None
    messages = sum(item.get("type") == "message" for item in raw)
    if messages < 2 and not any(map(items.is_needed, raw)):
        return None
    inputs = [items.as_input(item) or {"type": WORDS, "text": mention(item)} for item in raw]
    spoken_text = "".join(part.text for part in payload.parts if isinstance(part, _SAID))
    if spoken_text != "".join(map(items.text_of, inputs)):
        return None  # a final event may garble what was streamed
    placed = _placed(inputs, _CALL_ITEMS, payload.tool_calls)
    return None if placed is None else {"content": placed}


def _signed(payload: AssistantMessage, made: Invocation) -> Json | None:
    """Return Gemini's signatures of a message and its calls, or None if there are none."""
    raw = payload.raw if isinstance(payload.raw, dict) else {}
    signatures = [signature_in(raw.get(key)) for key in ("message", "openai_message")]
    signatures += [
        part.signature or signature_in(part.raw)
        for part in payload.parts
        if isinstance(part, ReasoningPart) and owner_of(part, made) == GOOGLE
    ]
    blocks = [
        {"type": "text", **_signature(raw.get("message"), signature)}
        for signature in list(filter(None, signatures))[-1:]
    ]
    blocks += [
        {"type": "function_call", "call": index, **_signature(call.raw, signature)}
        for index, call in enumerate(payload.tool_calls)
        if (signature := signature_in(call.raw))
    ]
    return {"specification": SPECIFICATION, "content": blocks} if blocks else None


def _signature(raw: Any, signature: str) -> Json:
    """Return a signature in the form of this format, under the maker's name that it came with."""
    extra = raw.get("extra_content") if isinstance(raw, dict) else None
    makers = extra if isinstance(extra, dict) else {}
    came = (maker for maker, value in makers.items() if signature_in({"google": value}))
    return {"extra_content": {next(came, "google"): {"thought_signature": signature}}}


def _placed(
    blocks: Sequence[Json], kinds: Mapping[str, str], calls: Sequence[ToolCallRequest]
) -> list[Json] | None:
    """Return the blocks with calls as positions, or None unless they contain exactly the calls.

    Blocks need not be in the order of the calls, and ids may repeat: a block stands for the first
    call with its id that no earlier block stands for. The product answers only some of the calls of
    a shell or a search; the others are not calls here.
    """
    free = dict(enumerate(calls))
    placed: list[Json] = []
    for block in blocks:
        kind = str(block.get("type"))
        wire_id = block.get(kinds[kind]) if kind in kinds else None
        index = next((i for i, call in free.items() if call.provider_id == wire_id), None)
        if kind not in kinds or (index is None and kind not in _OF_PRODUCT):
            placed.append(block)
            continue
        if index is None:
            return None
        del free[index]
        named_fields = _IN_MESSAGE if kind in _OF_PRODUCT else ()
        remaining = {k: v for k, v in block.items() if k not in (*named_fields, "call_id")}
        if kind == "tool_use":
            remaining.pop("id", None)
        placed.append({**remaining, "call": index})
    return None if free else placed


def openai_chat(rows: Iterable[ContextRow], *, provider: str | None = None) -> tuple[Json, ...]:
    """Return the messages of the rows, in order, without empty ones; the rows are not changed."""
    all_rows = tuple(rows)
    ids = call_ids(all_rows, SPECIFICATION)
    made = [message_of(row, own, provider) for row, own in zip(all_rows, ids, strict=True)]
    sent = [message for message in made if not _is_nothing(message)]
    without_excess_images(sent, SPECIFICATION, _text_part)
    return tuple(_in_portions(sent))


def _in_portions(messages: Iterable[Json]) -> Iterable[Json]:
    """Yield the messages; the calls beyond the most of a message are in messages that follow it.

    Each of these is followed by the results of its own calls.
    """
    most = LIMITS[SPECIFICATION].calls
    more: list[Json] = []  # calls that were not yet sent
    left = 0  # results until the next of them
    for message in messages:
        if most is not None and len(message.get("tool_calls", ())) > most:
            more = message["tool_calls"][most:]
            message = {**message, "tool_calls": message["tool_calls"][:most]}
            left = most
        elif message["role"] == "tool":
            if more and not left and most is not None:
                yield {"role": "assistant", "content": None, "tool_calls": more[:most]}
                more, left = more[most:], most
            left -= 1
        yield message


def _text_part(text: str) -> Json:
    return {"type": "text", "text": text}


def _is_nothing(message: Json) -> bool:
    """Whether a message has no content and nothing beside it.

    An empty answer is in the log, and an import may bring one; some servers refuse it, and a model
    reads it as its own silence.
    """
    return is_blank(message.get("content")) and not message.keys() - _NO_CONTENT


def wire(rows: Iterable[ContextRow], *, provider: str | None = None) -> Wire:
    """Return the rows in this format; the system part stays among the messages."""
    return Wire(SPECIFICATION, openai_chat(rows, provider=provider))


def message_of(row: ContextRow, ids: tuple[str, ...], provider: str | None) -> Json:
    """Return the message of a row, with these ids for its calls."""
    if row.kind == "tool":
        return {"role": "tool", "tool_call_id": ids[0], **row.message}
    # The row may be used again, so the caller's changes to the message must not affect it.
    message = row.message.copy()
    content = message["content"]
    if is_blank(content):
        message["content"] = EMPTY_USER if row.role == "user" else None
    elif not isinstance(content, str):
        message["content"] = [_part(part) for part in content if not is_blank([part])]
    if "tool_calls" in message:
        message["tool_calls"] = [
            {**call, "id": wire_id, "function": call["function"].copy()}
            for call, wire_id in zip(message["tool_calls"], ids, strict=True)
        ]
    native = row.native if provider is not None and row.kind == "assistant" else None
    if native and provider is not None:
        for call, fields in _fields_for(native, provider):
            (message if call is None else message["tool_calls"][call]).update(deepcopy(fields))
    return message


def _part(part: Json) -> Json:
    """Return a copy of a part; a file other than PDF as its text, or described in words."""
    file = part["file"] if part.get("type") == "file" else {}
    if "file_data" not in file:
        return deepcopy(part)
    name, url = file.get("filename"), file["file_data"]
    if not (why := unfit_file(url, SPECIFICATION)):
        return deepcopy(part)
    text = images.text_of(url)
    content = prompts.file_mention(name, why=why) if text is None else prompts.file_text(name, text)
    return _text_part(content)


def gives_back(native: Json, provider: str | None) -> bool:
    """Whether a message to this provider includes anything that it made for its own use."""
    return provider is not None and any(_fields_for(native, provider))


def _fields_for(native: Json, provider: str) -> Iterable[tuple[int | None, Json]]:
    """Yield what a provider made for its own use: the index of its call or None, and fields."""
    if native.get("specification") == SPECIFICATION:
        if provider == native["provider"] and "reasoning_content" in native:
            yield None, {"reasoning_content": native["reasoning_content"]}
        if provider in SELLERS_OF_GEMINI or provider == native["provider"]:
            for block in native.get("content", ()):
                yield block.get("call"), {"extra_content": block["extra_content"]}
    for entry in native.get("chat", ()):
        if provider in entry["to"]:
            yield entry.get("call"), entry["fields"]


FILL_IN_TEMPLATES = frozenset(
    {"huggingface", "llama.cpp", "llamacpp", "lmstudio", "sglang", "tgi", "vllm"}
)
"""Servers that fill in the chat template of the model itself."""

_NOTE = note("")
ADDITIONS = Additions(once=(_NOTE,), notes=frozenset({"summary", "aside"}), note=_NOTE)


def wire_with_notes(rows: Iterable[ContextRow], *, provider: str | None = None) -> Wire:
    """Return the rows in this format, with no system message except the first.

    Templates of open models raise an error for any other (observed, 2026: those of Mistral, Gemma
    and Llama on servers that fill in the model's own template). So the system part is one message,
    and a later digest or summary is a note in the user's next or last message, as in Anthropic's
    format.
    """
    front, rest = split_front(rows)
    front_text = system_text(front)
    sent: list[Json] = [{"role": "system", "content": front_text}] if front_text else []
    added: list[str] = []
    noted = False  # whether the last message is nothing but notes
    for row, ids in zip(rest, call_ids(rest, SPECIFICATION), strict=True):
        is_note = row.role in _SYSTEM
        message = _note_of(row) if is_note else message_of(row, ids, provider)
        if _is_nothing(message):
            continue
        added += [_NOTE] if is_note else []
        if sent and (is_note or noted) and sent[-1]["role"] == message["role"] == "user":
            sent[-1] = {**sent[-1], **message, "content": _joined(sent[-1], message)}
            noted = noted and is_note
        else:
            sent.append(message)
            noted = is_note
    without_excess_images(sent, SPECIFICATION, _text_part)
    return Wire(SPECIFICATION, tuple(_in_portions(sent)), None, tuple(added))


def _note_of(row: ContextRow) -> Json:
    return {"role": "user", "content": note(text_in(row.message))}


def _joined(first: Json, second: Json) -> str | list[Json]:
    contents = first["content"], second["content"]
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(contents)
    return [*parts_of(first), *parts_of(second)]
