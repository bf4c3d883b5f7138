"""Independent judges of what goes to a provider; they share no code with what they judge.

Sources: OpenAI's API reference, "Create chat completion" and "Create a model response" (2025, and
the parameter types of its Python library, 2026); Anthropic's API reference "Create a Message", its
guides "Tool use" and "Extended thinking" (2025); and the errors that the endpoints are known to
answer with. Each returns one sentence for each thing that would be refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["CHECKERS", "anthropic_messages", "check_openai_messages", "openai_responses"]

_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
_FIELDS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "refusal", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}


def check_openai_messages(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what OpenAI's chat endpoint would refuse, one sentence each; empty if nothing."""
    problems: list[str] = []
    seen: set[str] = set()
    waiting: list[str] = []
    for place, message in enumerate(messages):
        where = f"message {place}"
        role = message.get("role")
        if role not in _FIELDS:
            problems.append(f"{where} has the role {role!r}")
            continue
        problems += [f"{where}: {problem}" for problem in _shape(role, message)]
        if role == "tool":
            wanted = waiting.pop(0) if waiting else None
            if message.get("tool_call_id") != wanted or wanted is None:
                problems.append(f"{where} answers no call that waits")
            continue
        if waiting:
            problems.append(f"{where} comes before the results of {waiting}")
        waiting = [str(call.get("id")) for call in message.get("tool_calls", [])]
        for wire_id in waiting:
            if wire_id in seen:
                problems.append(f"{where} uses the id {wire_id!r} again")
            seen.add(wire_id)
    if waiting:
        problems.append(f"the last calls {waiting} have no results")
    return problems


def _shape(role: str, message: Mapping[str, Any]) -> list[str]:
    problems = [f"unknown field {field}" for field in sorted(message.keys() - _FIELDS[role])]
    problems += _unsendable(message)
    if "name" in message and not _NAME.match(str(message["name"])):
        problems.append(f"bad name {message['name']!r}")
    problems += _content(role, message)
    if "tool_calls" in message:
        problems += _calls(message["tool_calls"])
    return problems


def _content(role: str, message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        empty = not content and role in ("user", "system", "developer")
        return [f"an empty {role} message"] if empty else []
    if content is None:
        allowed = role == "assistant" and bool(message.get("tool_calls"))
        return [] if allowed else ["content is missing"]
    if not isinstance(content, list) or not content:
        return ["content is neither text nor a list of parts"]
    return [
        f"part {part!r} may not stand in a {role} message"
        for part in content
        if not isinstance(part, dict)
        or part.get("type") not in _PARTS[role]
        or part["type"] not in part
    ] + [problem for part in content if isinstance(part, dict) for problem in _part(part)]


def _part(part: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a part of a chat message that is no text."""
    match part:
        case {"type": "image_url", "image_url": image}:
            return _image_url(image.get("url"))
        case {"type": "file", "file": file}:
            return _file(file, PDF_ALONE)
        case {"type": "input_audio", "input_audio": audio}:
            known = audio.keys() == {"data", "format"} and audio["format"] in ("wav", "mp3")
            return [] if known and _decoded(audio["data"]) else [f"audio {audio.keys()}"]
    return []


PDF_ALONE = r"application/pdf"
INPUT_FILES = (
    r"application/pdf|text/[a-z0-9.+-]+|application/(msword|vnd\.ms-(excel|powerpoint)"
    r"|vnd\.openxmlformats-officedocument\..*|vnd\.oasis\.opendocument\.text)"
)


def _decoded(data: object) -> bytes:
    """Return the bytes of canonical base64, or none."""
    try:
        return base64.b64decode(str(data), validate=True)
    except binascii.Error:
        return b""


def _file(file: Mapping[str, Any], types: str) -> list[str]:
    """Return what is wrong with a file: by an id of OpenAI's, or with a name and its data."""
    if "file_id" in file:
        own = re.fullmatch(r"(file|assistant)-[A-Za-z0-9_-]+", str(file["file_id"]))
        return [] if own else [f"a file with the id {file['file_id']!r}"]
    found = re.fullmatch(r"data:([^;,]*);base64,(.*)", str(file.get("file_data")), re.DOTALL)
    if found is None or not re.fullmatch(types, found[1]):
        return [f"a file of type {found and found[1]!r}"]
    raw = _decoded(found[2])
    if not raw or not file.get("filename"):
        return ["a file without data, or without a name"]
    bad = found[1] == "application/pdf" and b"%PDF-" not in raw[:1024]
    return ["a PDF that is none"] if bad else []


_MAGIC = {
    "image/jpeg": b"\xff\xd8\xff",
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


def _image_url(url: object) -> list[str]:
    """Return what is wrong with an image's address: on the web, or data of the type they claim."""
    if not isinstance(url, str):
        return [f"the image's URL is {url!r}"]
    if re.match(r"https?://", url):
        return []
    found = re.fullmatch(r"data:([^;,]*);base64,(.*)", url, re.DOTALL)
    return [f"the image's URL is {url[:40]!r}"] if found is None else _image(found[1], found[2])


def _image(media: object, data: object) -> list[str]:
    if media not in _MAGIC:
        return [f"an image of type {media!r}"]
    try:
        raw = base64.b64decode(str(data), validate=True)
    except binascii.Error:
        return ["an image that is not base64"]
    if not raw.startswith(_MAGIC[str(media)]):
        return [f"an image that is not {media}"]
    # A picture of a GIF begins with its descriptor behind a control block of its own.
    pictures = len(re.findall(rb"\x21\xf9\x04.{4}\x00\x2c", raw, re.DOTALL))
    return ["an animated GIF"] if media == "image/gif" and pictures > 1 else []


def _object(arguments: object) -> list[str]:
    """Return what is wrong with arguments, which are the text of a JSON object."""

    def refuse(token: str) -> None:
        raise ValueError(token)

    try:
        value = json.loads(str(arguments), parse_constant=refuse)
    except ValueError:
        return [f"arguments are not JSON: {arguments!r}"]
    return [] if isinstance(value, dict) else [f"arguments are no object: {arguments!r}"]


def _calls(calls: object) -> list[str]:
    if not isinstance(calls, list) or not calls:
        return ["tool_calls is not a list, or empty"]
    problems = []
    for call in calls:
        if set(call) != {"id", "type", "function"} or call["type"] != "function":
            problems.append(f"a call has the fields {sorted(call)}")
            continue
        wire_id, function = call["id"], call["function"]
        if not isinstance(wire_id, str) or not 1 <= len(wire_id) <= 40:
            problems.append(f"bad call id {wire_id!r}")
        if not isinstance(function.get("name"), str) or not _NAME.match(function["name"]):
            problems.append(f"bad function name {function.get('name')!r}")
        if not isinstance(function.get("arguments"), str) or not function["arguments"]:
            problems.append("arguments are not text")
        problems += _object(function.get("arguments"))
    if len(calls) > 128:
        problems.append(f"{len(calls)} calls in one message")
    return problems


def openai_responses(body: Mapping[str, Any]) -> list[str]:
    """Return what OpenAI's Responses endpoint would refuse of ``input`` and ``instructions``."""
    items = body.get("input")
    if not isinstance(items, list) or not items:
        return ["input is missing or empty"]
    problems = _unsendable(body) + _text_or_nothing("instructions", body)
    item_ids: set[str] = set()
    calls: dict[str, str] = {}
    answered: set[str] = set()
    for place, item in enumerate(items):
        kind = item.get("type")
        found = [f"field {key} is null" for key, value in item.items() if value is None]
        if (item_id := item.get("id")) is not None:
            form = rf"{_STARTS.get(str(kind), '')}[A-Za-z0-9_-]*"
            if item_id in item_ids or not re.fullmatch(form, str(item_id)) or len(item_id) > 64:
                found.append(f"bad or repeated id {item_id!r}")
            item_ids.add(item_id)
        if kind == "message":
            found += _responses_message(item)
        elif kind in ("function_call", "custom_tool_call"):
            found += _responses_call(item, calls)
            calls[item["call_id"]] = f"{kind}_output"
        elif kind in ("function_call_output", "custom_tool_call_output"):
            found += _responses_output(item, calls, answered)
        elif kind == "reasoning":
            found += _responses_reasoning(item, [one.get("type") for one in items[place + 1 :]])
        elif kind not in _HOSTED:
            found.append(f"unknown type {kind!r}")
        problems += [f"item {place}: {problem}" for problem in found]
    return problems + [f"call {call!r} has no output" for call in calls if call not in answered]


_STARTS = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
_HOSTED = {
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
}
_INPUT_PARTS = {
    "input_text": ({"text"}, {"type", "text"}),
    "input_image": (set(), {"type", "image_url", "file_id", "detail"}),
    "input_file": (set(), {"type", "file_id", "file_data", "file_url", "filename"}),
}


def _responses_message(item: Mapping[str, Any]) -> list[str]:
    role, content = item.get("role"), item.get("content")
    problems = []
    if role not in ("user", "assistant", "system", "developer"):
        problems.append(f"the role is {role!r}")
    if "id" in item and (role != "assistant" or "status" not in item):
        problems.append("an id without being a whole output message")
    allowed = {"type", "role", "content", "phase"} | ({"id", "status"} if "id" in item else set())
    problems += [f"unknown field {field}" for field in sorted(item.keys() - allowed)]
    if "phase" in item and (
        role != "assistant" or item["phase"] not in ("commentary", "final_answer")
    ):
        problems.append(f"bad phase {item['phase']!r}")
    if isinstance(content, str):
        found = ["output text is not a list"] if "id" in item else []
        return [*problems, *found, *([] if content else ["an empty message"])]
    if not isinstance(content, list) or not content:
        return [*problems, "content is neither text nor parts"]
    if "id" in item:
        kinds = {part.get("type") for part in content}
        return problems + [f"bad output part {k}" for k in kinds - {"output_text", "refusal"}]
    return problems + _input_parts(content)


def _input_parts(parts: Sequence[Any]) -> list[str]:
    problems = []
    for part in parts:
        required, allowed = _INPUT_PARTS.get(part.get("type"), (set(), set()))
        if not allowed or not required <= part.keys() <= allowed:
            problems.append(f"bad part {part!r}")
        elif not {"text", "image_url", "file_id", "file_data"} & part.keys():
            problems.append("a part without a source")
        elif "image_url" in part:
            problems += _image_url(part["image_url"])
        elif part["type"] == "input_file":
            problems += _file(part, INPUT_FILES)
    return problems


def _responses_call(item: Mapping[str, Any], calls: Mapping[str, str]) -> list[str]:
    call_id = item.get("call_id")
    problems = []
    if not isinstance(call_id, str) or not 1 <= len(call_id) <= 64:
        problems.append(f"bad call_id {call_id!r}")
    if call_id in calls:
        problems.append(f"call_id {call_id!r} again")
    if not _NAME.match(str(item.get("name", ""))):
        problems.append(f"bad name {item.get('name')!r}")
    field = "arguments" if item["type"] == "function_call" else "input"
    if not isinstance(item.get(field), str):
        problems.append(f"{field} is not text")
    elif field == "arguments":
        problems += _object(item[field])
    if "id" in item and not str(item["id"]).startswith(("fc", "ct")):
        problems.append(f"bad id {item['id']!r}")
    return problems


def _responses_output(
    item: Mapping[str, Any], calls: Mapping[str, str], answered: set[str]
) -> list[str]:
    call_id, output = item.get("call_id"), item.get("output")
    problems = []
    if calls.get(str(call_id)) != item["type"] or call_id in answered:
        problems.append(f"answers no call that waits: {call_id!r}")
    answered.add(str(call_id))
    if isinstance(output, list):
        return problems + _input_parts(output)
    return problems if isinstance(output, str) else [*problems, "output is missing"]


def _responses_reasoning(item: Mapping[str, Any], later: Sequence[Any]) -> list[str]:
    problems = []
    if not isinstance(item.get("id", ""), str) or not isinstance(item.get("summary"), list):
        problems.append("reasoning with a bad id, or without a summary")
    if not item.get("encrypted_content"):
        problems.append("reasoning that only the server could know")
    following = next((kind for kind in later if kind != "reasoning"), None)
    if following not in {"message", "function_call", "custom_tool_call", *_HOSTED}:
        problems.append("reasoning without its following item")
    return problems


def anthropic_messages(body: Mapping[str, Any]) -> list[str]:
    """Return what Anthropic's Messages endpoint would refuse of ``messages`` and ``system``."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return ["messages are missing or empty"]
    problems = _unsendable(body) + _text_or_nothing("system", body)
    roles = [message.get("role") for message in messages]
    if roles != [("user", "assistant")[place % 2] for place in range(len(roles))]:
        problems.append(f"roles do not alternate from the user on: {roles}")
    if roles[-1] != "user":
        problems.append("the last message is an assistant's: prefill is not supported")
    seen: set[str] = set()
    waiting: list[str] = []
    for place, message in enumerate(messages):
        blocks = message.get("content")
        if message.keys() != {"role", "content"} or not isinstance(blocks, list) or not blocks:
            problems.append(f"message {place} has no content blocks, or other fields")
            continue
        found = [problem for block in blocks for problem in _block(roles[place], block)]
        found += _results_first(blocks, waiting)
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        found += _server_tools(blocks)
        if roles[place] == "assistant" and "thinking" in str(blocks[-1].get("type")):
            found.append("an assistant message ends in thinking")
        for one in waiting:
            found += [f"tool_use id {one!r} again"] if one in seen else []
            seen.add(one)
        problems += [f"message {place}: {problem}" for problem in found]
    return problems + [f"tool_use {one!r} has no result" for one in waiting]


def _results_first(blocks: Sequence[Mapping[str, Any]], waiting: Sequence[str]) -> list[str]:
    kinds = [block["type"] for block in blocks]
    answers = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    problems = []
    if sorted(answers) != sorted(waiting):
        problems.append(f"results {answers} do not answer the calls {waiting}")
    if "tool_result" in kinds[len(answers) :]:
        problems.append("a tool_result stands after other content")
    return problems


def _server_tools(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    made = [block["id"] for block in blocks if block["type"] == "server_tool_use"]
    answers = [b["tool_use_id"] for b in blocks if b["type"] == "web_search_tool_result"]
    return [] if sorted(made) == sorted(answers) else ["server tools and results do not pair"]


_BLOCKS: dict[str, tuple[set[str], set[str]]] = {
    "text": ({"type", "text"}, {"citations"}),
    "image": ({"type", "source"}, set()),
    "document": ({"type", "source"}, {"title"}),
    "tool_use": ({"type", "id", "name", "input"}, {"caller", "toolset_name"}),
    "tool_result": ({"type", "tool_use_id"}, {"content", "is_error"}),
    "thinking": ({"type", "thinking", "signature"}, set()),
    "redacted_thinking": ({"type", "data"}, set()),
    "server_tool_use": ({"type", "id", "name", "input"}, {"caller"}),
    "web_search_tool_result": ({"type", "tool_use_id", "content"}, {"caller"}),
}
_OF_USER = {"text", "image", "document", "tool_result"}
_OF_ASSISTANT = _BLOCKS.keys() - {"image", "document", "tool_result"}


def _block(role: object, block: Mapping[str, Any]) -> list[str]:
    kind = str(block.get("type"))
    if kind not in (_OF_USER if role == "user" else _OF_ASSISTANT):
        return [f"a {role} may not say {kind!r}"]
    required, optional = _BLOCKS[kind]
    if not required <= block.keys() <= required | optional:
        return [f"{kind} has the fields {sorted(block)}"]
    if kind == "text" and not str(block["text"]).strip():
        return ["text is empty"]
    if kind == "thinking" and not block["signature"]:
        return ["thinking without a signature"]
    if kind == "tool_use":
        named = _NAME.match(block["name"]) and re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", block["id"])
        return [] if named and isinstance(block["input"], dict) else ["bad tool_use"]
    if kind in ("image", "document"):
        return _source(block["source"])
    content = block.get("content") if kind == "tool_result" else None
    if isinstance(content, str):
        return [] if content.strip() else ["an empty result"]
    inner = ("text", "image", "document")
    return [
        problem
        for part in content or ()
        for problem in (_block(role, part) if part["type"] in inner else ["bad result content"])
    ]


def _source(source: Mapping[str, Any]) -> list[str]:
    match source.get("type"):
        case "url":
            return [] if str(source.get("url")).startswith("https://") else ["a URL without TLS"]
        case "base64":
            if source.get("media_type") != "application/pdf":
                big = len(str(source.get("data"))) > 5 * 1024 * 1024
                found = _image(source.get("media_type"), source.get("data"))
                return [*found, "an image of more than 5 MB"] if big else found
            is_pdf = b"%PDF-" in _decoded(source.get("data"))[:1024]
            return [] if is_pdf else ["a PDF that is none"]
        case "text":
            return [] if source.get("media_type") == "text/plain" else ["bad text source"]
    return [f"unknown source {source!r}"]


def _unsendable(body: Mapping[str, Any]) -> list[str]:
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (UnicodeEncodeError, ValueError, TypeError) as error:
        return [f"cannot be sent: {error}"]
    return []


def _text_or_nothing(field: str, body: Mapping[str, Any]) -> list[str]:
    if field in body and not (isinstance(body[field], str) and body[field].strip()):
        return [f"{field} is not text, or empty"]
    return []


CHECKERS: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "openai_chat": lambda body: check_openai_messages(body["messages"]),
    "openai_responses": openai_responses,
    "anthropic_messages": anthropic_messages,
}
"""The judge of each provider's request body, by the name of its specification."""
