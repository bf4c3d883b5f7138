"""Contents of Gemini's API, as in its requests and chats, as Anthropic messages.

A part there has no ``type``: its key says what it is, in camel or snake case. A result often has
only its function's name. A part without a counterpart is kept verbatim. Gemini's API reference,
``Content`` (2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventstore.events.codec import dumps

__all__ = ["message_in", "text_of_parts"]

_ROLES = {"user": "user", "model": "assistant", "function": "user", "tool": "user"}
_PLAIN = ("result", "output", "content")


def message_in(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the message in a content, with Anthropic blocks, or None if it is not a content."""
    parts, role = content.get("parts"), content.get("role", "user")
    if not isinstance(parts, list) or "content" in content:
        return None
    if not isinstance(role, str) or role not in _ROLES:
        return None
    if not all(isinstance(part, dict) and "type" not in part for part in parts):
        return None
    return {"role": _ROLES[role], "content": [block for part in parts for block in _blocks(part)]}


def text_of_parts(content: Any) -> str:
    """Return the text of a content, such as ``systemInstruction``."""
    parts = content.get("parts") if isinstance(content, dict) else None
    listed = parts if isinstance(parts, list) else [parts]
    texts = [part.get("text") for part in listed if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _blocks(part: Mapping[str, Any]) -> list[Any]:
    """Return a part as blocks; the signature of a text is a thought without text behind it."""
    block, signature = _block(part), _signature(part)
    if signature is None or not isinstance(part.get("text"), str):
        return [block]
    if part.get("thought") is True:
        return [{**block, "thoughtSignature": signature}]
    return [block, {"type": "thinking", "thinking": "", "thoughtSignature": signature}]


def _signature(part: Mapping[str, Any]) -> str | None:
    found = part.get("thoughtSignature", part.get("thought_signature"))
    return found if isinstance(found, str) and found else None


def _block(part: Mapping[str, Any]) -> Any:
    text = part.get("text")
    if isinstance(text, str) and part.get("thought") is True:
        return {"type": "thinking", "thinking": text}
    if isinstance(text, str):
        return {"type": "text", "text": text}
    if (call := _inner(part, "functionCall", "function_call")) and isinstance(
        call.get("name"), str
    ):
        given = call.get("args")
        signature = part.get("thoughtSignature", part.get("thought_signature"))
        return {
            "type": "tool_use",
            "id": call.get("id"),
            "name": call["name"],
            "input": {} if given is None else given,
            **({"thoughtSignature": signature} if isinstance(signature, str) else {}),
        }
    if result := _inner(part, "functionResponse", "function_response"):
        return _result(result)
    data = _inner(part, "inlineData", "inline_data", "fileData", "file_data") or {}
    return _file(data) or part


def _file(data: Mapping[str, Any]) -> dict[str, Any] | None:
    kind, url = data.get("mimeType", data.get("mime_type")), data.get("fileUri")
    url = data.get("file_uri") if url is None else url
    if not isinstance(kind, str):
        return None
    image = kind.startswith("image/")
    if isinstance(data.get("data"), str):
        source = {"type": "base64", "media_type": kind, "data": data["data"]}
    elif isinstance(url, str):
        source = {"type": "url", "media_type": kind, "url": url}
        image = image and url.startswith("https://")
    else:
        return None
    return {"type": "image" if image else "document", "source": source}


def _inner(part: Mapping[str, Any], *keys: str) -> dict[str, Any] | None:
    found = next((part[key] for key in keys if key in part), None)
    return found if isinstance(found, dict) else None


def _result(result: Mapping[str, Any]) -> dict[str, Any]:
    response = result.get("response")
    failed = isinstance(response, dict) and response.keys() == {"error"}
    if isinstance(response, dict) and len(response) == 1:
        (key,) = response
        response = (
            response[key]
            if failed or (key in _PLAIN and isinstance(response[key], str))
            else response
        )
    text: Any = response if isinstance(response, str) else dumps(response)
    files = result.get("parts")  # other output of a function, such as images
    if isinstance(files, list) and files and all(isinstance(each, dict) for each in files):
        text = [{"type": "text", "text": text}, *map(_block, files)]
    block = {
        "type": "tool_result",
        "tool_use_id": result.get("id"),
        "name": result.get("name"),
        "content": text,
    }
    return block | ({"is_error": True} if failed else {})
