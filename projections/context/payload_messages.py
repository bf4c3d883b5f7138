"""Payloads as messages of OpenAI's chat format: pure functions, one message for each payload.

The format's rules are those of OpenAI's API reference, "Create chat completion" (2025): user
messages may contain text, images, audio and files; all other messages only text. All strings are
valid UTF-8: half a surrogate pair, which no HTTP client can send, becomes U+FFFD.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, NoReturn

from eventstore.events import (
    AssistantMessage,
    ContentPart,
    FilePart,
    ImagePart,
    LlmError,
    OtherPart,
    ReasoningPart,
    RefusalPart,
    Sections,
    TextPart,
    ToolCallRequest,
    ToolResult,
    UserMessage,
)
from eventstore.events.content import to_plain_text, without_live_screen
from projections.context import prompts
from projections.context.images import (
    PDF,
    UnusableImage,
    data_of,
    file_url,
    image_url,
    is_data,
    text_of,
)
from projections.provider_actions import legible, mention

__all__ = [
    "FREE_TEXT",
    "INPUT",
    "INVALID",
    "OWN_FILE",
    "Message",
    "assistant",
    "error",
    "screen_of",
    "scrub",
    "strict_json",
    "strict_object",
    "system",
    "text_in_arguments",
    "tool",
    "user",
    "user_parts",
    "wire_arguments",
    "wire_name",
    "wire_names",
]


Message = dict[str, Any]


FREE_TEXT = "a custom tool takes its input as text, so it is not parsed"


"""The ``parse_error`` of a call whose arguments are not JSON by design."""


INPUT = "input"


INVALID = "invalid_arguments"


"""The keys under which arguments that are no JSON object are sent."""


# Tuples, since a union would be created again for every message.
_WITH_TEXT = (TextPart, RefusalPart, ReasoningPart)


_NOT_CONTENT = (ReasoningPart, RefusalPart)


_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


_LONGEST_NAME = 64  # see `projections.providers.provider_limits`


_DIGEST = 8


_TEXT_CALLS = ("custom", "custom_tool_call")


_DETAILS = ("auto", "low", "high")


_SOUNDS = ("wav", "mp3")


OWN_FILE = re.compile(r"(file|assistant)-[A-Za-z0-9_-]+")


"""Ids of files at OpenAI and Azure; those of Anthropic and Google have other forms."""


_OPENAI_PARTS = {
    "image_url": (("url",), ("detail",)),
    "input_audio": (("data", "format"), ()),
    "file": (("file_id", "file_data"), ("filename",)),
}


def system(text: str, *, role: str = "system", name: str | None = None) -> Message:
    """Return a message of the system part, or a system message within the conversation."""
    return _named({"role": role, "content": scrub(text)}, name)


def user(payload: UserMessage) -> Message:
    """Return a user message; a single text is a plain string, anything else a list of parts."""
    parts = [part for part in payload.parts if not isinstance(part, ReasoningPart)]
    content: str | list[Message]
    if not parts:
        content = scrub(_sections(payload.sections))
    elif len(parts) == 1 and isinstance(parts[0], TextPart):
        content = scrub(parts[0].text)
    else:
        content = user_parts(parts)
    if parts:
        content = _with_screen(content, payload.sections)
    if is_blank(content):
        content = prompts.EMPTY_USER
    return _named({"role": "user", "content": content}, payload.name)


def is_blank(content: str | Sequence[Message] | None) -> bool:
    """Whether the content of a message is nothing but whitespace, which some servers refuse."""
    if content is None or isinstance(content, str):
        return not (content or "").strip()
    return all(part.get("type") == "text" and not part["text"].strip() for part in content)


def assistant(payload: AssistantMessage) -> Message:
    """Return an assistant message with the provider's own call ids; a missing id is empty."""
    refusals = [part.text for part in payload.parts if isinstance(part, RefusalPart)]
    spoken = [part for part in payload.parts if not isinstance(part, _NOT_CONTENT)]
    answer_text = scrub(_as_text(spoken, _spoken))
    silent = not answer_text and not any(isinstance(part, TextPart) for part in spoken)
    content = None if payload.tool_calls and silent else answer_text
    message = _named({"role": "assistant", "content": content}, payload.name)
    if refusals:
        message["refusal"] = scrub("".join(refusals))
    if payload.tool_calls:
        message["tool_calls"] = [_call(request) for request in payload.tool_calls]
    return message


def tool(payload: ToolResult, name: str | None = None) -> Message:
    """Return a tool message, without the id of its call: each request sets that.

    The message explains the status in words, unless the content already does. A preview shows the
    tool's ``name``.
    """
    if isinstance(payload.content, str):
        content = payload.content
    elif payload.content is not None:
        content = _as_text(payload.content)
    elif payload.blob is not None or payload.preview is not None:
        size = payload.blob.size_bytes if payload.blob else None
        content = prompts.preview(
            payload.preview, payload.alias, size, name=name, status=payload.status
        )
    else:
        return _result_message(payload, _sections(payload.sections))
    message = _result_message(payload, content)
    return {**message, "content": _with_screen(message["content"], payload.sections)}


def _result_message(payload: ToolResult, content: str) -> Message:
    if payload.status == "success" and content.strip():
        return {"role": "tool", "content": scrub(content)}
    status_line = prompts.status(payload.status, payload.error, content)
    texts = [each for each in (status_line, content) if each.strip()]
    return {"role": "tool", "content": scrub("\n".join(texts))}


def screen_of(sections: Sections | None) -> str:
    """Return the text to add to a message for the screen in its sections, or an empty text."""
    screen = without_live_screen(sections.live)[1] if sections else None
    return f"\n\n{scrub(screen)}" if screen else ""


def _with_screen(content: Any, sections: Sections | None) -> Any:
    screen = screen_of(sections)
    if not screen:
        return content
    if isinstance(content, str):
        return content + screen
    return [*content, {"type": "text", "text": screen.strip()}]


def error(payload: LlmError) -> Message:
    """Return a failed model call as an assistant message: the partial text, then the error."""
    content = prompts.llm_error(
        payload.kind,
        payload.message,
        attempt=payload.attempt,
        partial_text=payload.partial_text,
        partial_tools=tuple(call.name or "unnamed" for call in payload.partial_tool_calls),
    )
    return {"role": "assistant", "content": scrub(content)}


def shorter_error(payload: LlmError) -> Message | None:
    """Return a failed model call with only the end of its partial text; None if not shorter."""
    partial, error_text = prompts.end_of(payload.partial_text), prompts.start_of(payload.message)
    if (partial, error_text) == (payload.partial_text, payload.message):
        return None
    return error(payload.model_copy(update={"partial_text": partial, "message": error_text}))


def user_parts(parts: Sequence[ContentPart]) -> list[Message]:
    """Return the parts of a user message; only user messages may contain images and files."""
    return [scrub(_user_part(p)) for p in parts if not isinstance(p, ReasoningPart)]


def wire_name(name: str) -> str:
    """Return the nearest name that the formats accept; empty if nothing is left.

    A name that loses letters gets a digest, so that different names stay different.
    """
    found = _NOT_IN_NAMES.sub("_", name)
    if len(found) <= _LONGEST_NAME and _NOT_ASCII.search(name) is None:
        return found
    return _with_digest(name, found)


def wire_names(names: Iterable[str]) -> dict[str, str]:
    """Return the name on the wire of each of these names, no two of which are the same.

    A name that providers accept stays as it is; of others that would be the same, each gets a
    digest.
    """
    nearest = {name: wire_name(name) for name in names}
    uses = Counter(nearest.values())
    return {
        name: found if name == found or uses[found] == 1 else _with_digest(name, found)
        for name, found in nearest.items()
    }


def _with_digest(name: str, found: str) -> str:
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{found[: _LONGEST_NAME - _DIGEST - 1]}_{digest}"


def wire_arguments(request: ToolCallRequest) -> str:
    """Return a call's arguments as the text of a JSON object, which every provider requires.

    They are the model's own text if it is an object. Arguments that were parsed although their form
    was unusual are sent as they were parsed, since the tool ran with these. Anything else is sent
    in words, under `INPUT` if the tool takes text, otherwise under `INVALID`; `text_in_arguments`
    returns it.
    """
    text = request.arguments_text
    if _takes_text(request):
        return json.dumps({INPUT: text}, ensure_ascii=False)
    if not text.strip():
        return "{}"
    if strict_object(text) is not None:
        return text
    if request.arguments is not None:
        return json.dumps(request.arguments, ensure_ascii=False)
    return json.dumps({INVALID: text}, ensure_ascii=False)


def _takes_text(request: ToolCallRequest) -> bool:
    raw = request.raw or {}
    return raw.get("type") in _TEXT_CALLS or request.parse_error == FREE_TEXT


def text_in_arguments(arguments: str, key: str) -> str | None:
    """Return the text that `wire_arguments` has put under a key, or None if it has not."""
    found = strict_object(arguments) if arguments.startswith(f'{{"{key}": ') else None
    text = found.get(key) if found is not None and len(found) == 1 else None
    return text if isinstance(text, str) else None


def strict_object(text: str) -> Message | None:
    """Return the object in a JSON text whose numbers are all finite, or None if it is not one."""
    try:
        value = strict_json(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def strict_json(text: str) -> Any:
    """Return the value of a JSON text in which all numbers are finite.

    Raises:
        ValueError: The text is not JSON, or a number is not finite.
        RecursionError: The text nests too deeply.
    """
    return _STRICT.decode(text)


def _refuse(token: str) -> NoReturn:
    raise ValueError(f"{token} is not a JSON value")


def _finite(token: str) -> float:
    value = float(token)
    if abs(value) == float("inf"):
        raise ValueError(f"{token[:40]} is out of range")
    return value


# Created once: `json.loads` would create a decoder for every call.
_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def scrub(value: Any) -> Any:
    """Return a JSON value with all strings made valid UTF-8."""
    if isinstance(value, str):
        if value.isascii():
            return value
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value
    if isinstance(value, dict):
        return {scrub(key): scrub(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub(item) for item in value]
    return value


def _named(message: Message, name: str | None) -> Message:
    cleaned = wire_name(name) if name else ""
    return {**message, "name": cleaned} if cleaned else message


def _call(request: ToolCallRequest) -> Message:
    function = {
        "name": wire_name(request.name) or prompts.UNNAMED_TOOL,
        "arguments": scrub(wire_arguments(request)),
    }
    return {"id": scrub(request.provider_id or ""), "type": "function", "function": function}


def _user_part(part: ContentPart) -> Message:
    if isinstance(part, ImagePart) and part.url:
        return _image(part.url, part.detail)
    if isinstance(part, FilePart) and part.file_id and OWN_FILE.match(part.file_id):
        return {"type": "file", "file": {"file_id": part.file_id}}
    if isinstance(part, FilePart) and part.url and is_data(part.url):
        return _file(part.url, part.name)
    if isinstance(part, OtherPart) and _is_openai_part(part.raw):
        inner = part.raw[part.raw["type"]]
        if part.raw["type"] == "text":
            return dict(part.raw)
        if part.raw["type"] == "image_url":
            return _image(inner["url"], inner.get("detail"))
        if part.raw["type"] == "file" and "file_data" in inner:
            return _file(inner["file_data"], inner.get("filename"))
        if part.raw["type"] == "input_audio":
            return _audio(inner["data"], inner["format"])
        if OWN_FILE.match(inner["file_id"]):
            return dict(part.raw)
    return {"type": "text", "text": _part_text(part)}


def _image(url: str, detail: Any) -> Message:
    usable = image_url(url)
    if isinstance(usable, UnusableImage):
        why = usable.why if is_data(url) else ""
        return {"type": "text", "text": prompts.image_mention(url, why)}
    fields = {"detail": detail} if detail in _DETAILS else {}
    return {"type": "image_url", "image_url": {"url": usable, **fields}}


def _audio(sound: str, form: str) -> Message:
    data = data_of(f"data:;base64,{sound}")[1]
    if form not in _SOUNDS or not data:
        return {"type": "text", "text": prompts.AUDIO}
    return {"type": "input_audio", "input_audio": {"data": data, "format": form}}


def _file(url: str, name: str | None) -> Message:
    """Return a file that at least one provider accepts, an image as such, or a description."""
    if not is_data(url):  # Some write the base64 alone.
        url = f"data:;base64,{url}"
    usable = file_url(url, name)
    if isinstance(usable, UnusableImage):
        if not isinstance(image_url(url), UnusableImage):
            return _image(url, None)
        return {"type": "text", "text": prompts.file_mention(name, why=usable.why)}
    named = name or ("file.pdf" if data_of(usable)[0] == PDF else "file")
    return {"type": "file", "file": {"filename": named, "file_data": usable}}


def _is_openai_part(raw: object) -> bool:
    """Whether a part of unknown type looks like one that OpenAI accepts, judged by its fields."""
    if not isinstance(raw, dict):
        return False
    kind = raw.get("type")
    if kind == "text":
        return isinstance(raw.get("text"), str)
    required, optional = _OPENAI_PARTS.get(kind, ((), ())) if isinstance(kind, str) else ((), ())
    inner = raw.get(kind) if required else None
    if not isinstance(inner, dict) or not {*inner} <= {*required, *optional}:
        return False
    return all(isinstance(value, str) for value in inner.values()) and (
        bool(inner.get("file_id") or inner.get("file_data"))
        if kind == "file"
        else all(field in inner for field in required)
    )


def _as_text(parts: Sequence[ContentPart], tell: Callable[[ContentPart], str] | None = None) -> str:
    """Return parts as one text; adjacent text parts are joined without a separator."""
    tell = tell or _part_text
    texts: list[str] = []
    before = False
    for part in parts:
        if isinstance(part, ReasoningPart) or not (described := tell(part)):
            continue
        is_text = isinstance(part, TextPart)
        if before and is_text:
            texts[-1] += described
        else:
            texts.append(described)
        before = is_text
    return "\n".join(texts)


def _spoken(part: ContentPart) -> str:
    """Return the text of a part of an answer; provider-specific parts are described in words."""
    return mention(part.raw) if isinstance(part, OtherPart) else _part_text(part)


def _part_text(part: ContentPart) -> str:
    if isinstance(part, _WITH_TEXT):
        return part.text
    if isinstance(part, ImagePart):
        return prompts.image_mention(part.url)
    if isinstance(part, FilePart):
        text = text_of(part.url) if part.url and is_data(part.url) else None
        if text is not None and not isinstance(file_url(part.url or "", part.name), UnusableImage):
            return prompts.file_text(part.path or part.name, text)
        return prompts.file_mention(part.path, part.name, part.url, part.file_id)
    if isinstance(part.raw, dict) and part.raw.get("type") == "input_audio":
        return prompts.AUDIO
    return json.dumps(legible(part.raw), ensure_ascii=False, default=str)


def _sections(sections: Sections | None) -> str:
    return to_plain_text(sections.live) if sections else ""


def depth_of(value: Any) -> int:
    """Return how many levels of arrays and objects a JSON value has; a plain value has one."""
    depth, level = 0, [value]
    while level:
        depth += 1
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        level = inner
    return depth
