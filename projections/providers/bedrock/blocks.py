"""Content of Bedrock's Converse API, which Strands uses too, as Anthropic blocks.

A block there has no ``type``: its key says what it is. A block without a counterpart is kept
verbatim. Amazon Bedrock's API reference, ``ContentBlock`` (2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from mimetypes import guess_type
from typing import Any

from eventstore.events.codec import dumps

__all__ = ["blocks_of"]

_KEYS = frozenset(
    {"text", "toolUse", "toolResult", "reasoningContent", "image", "document", "guardContent"}
)
_UNSAID = {"cachePoint"}


def blocks_of(content: Any) -> list[Any] | None:
    """Return a message's content as Anthropic blocks, or None if it is not Converse content."""
    if not isinstance(content, list) or not all(map(_is_untyped, content)):
        return None
    if _KEYS.isdisjoint(key for block in content for key in block):
        return None
    return [_block(block) for block in content if block.keys() != _UNSAID]


def _is_untyped(block: Any) -> bool:
    return isinstance(block, dict) and "type" not in block


def _block(block: Mapping[str, Any]) -> Any:
    match block:
        case {"text": str(text)}:
            return {"type": "text", "text": text}
        case {"toolUse": {"toolUseId": str(named), "name": str(name), **rest}}:
            given = rest.get("input", {})
            return {"type": "tool_use", "id": named, "name": name, "input": given}
        case {"toolResult": {"toolUseId": str(named), **rest}}:
            content = rest.get("content")
            converted = [_block(each) for each in content] if isinstance(content, list) else content
            failed = rest.get("status") == "error"
            return {"type": "tool_result", "tool_use_id": named, "content": converted} | (
                {"is_error": True} if failed else {}
            )
        case {"json": value}:
            return {"type": "text", "text": dumps(value)}
        case {"reasoningContent": {"reasoningText": {"text": str(text), **rest}}}:
            return {"type": "thinking", "thinking": text, "signature": rest.get("signature")}
        case {"reasoningContent": {"redactedContent": str(data)}}:
            return {"type": "redacted_thinking", "data": data}
        case {"image": {"format": str(kind), "source": {"bytes": str(data)}}}:
            source = {"type": "base64", "media_type": f"image/{kind}", "data": data}
            return {"type": "image", "source": source}
        case {"document": {"format": str(kind), "source": {"bytes": str(data)}, **rest}}:
            media_type = guess_type(f"file.{kind}")[0] or "application/octet-stream"
            source = {"type": "base64", "media_type": media_type, "data": data}
            return {"type": "document", "title": rest.get("name"), "source": source}
        case {"guardContent": {"text": {"text": str(text)}}}:
            return {"type": "text", "text": text}
    return block
