"""Parts of chat messages as Anthropic's content blocks.

Rules: Anthropic's guides "Vision" and "PDF support", and the API reference "Create a Message" (all
2025): texts hold more than blanks; images are JPEG, PNG, GIF or WebP, as base64 or behind an
``https:`` URL; documents are PDF or plain text. A file id is another provider's, and means nothing
here, so it is told as text; so is whatever else has no block.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

from projections.context import prompts
from projections.context.wire import words
from projections.context.wire.base import Json

__all__ = ["blocks_of", "text_block"]

_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=]")


def text_block(text: str) -> Json:
    """Return a text as a block."""
    return {"type": "text", "text": text}


def blocks_of(parts: Iterable[Json]) -> list[Json]:
    """Return parts as blocks; texts that hold only blanks are left out."""
    blocks = (_block(part) for part in parts)
    return [block for block in blocks if block.get("text", "x").strip()]


def _block(part: Json) -> Json:
    match part.get("type"):
        case "text":
            return text_block(part["text"])
        case "image_url":
            url = part["image_url"]["url"]
            return _image(url) or text_block(prompts.image_mention(url))
        case "file":
            file = part["file"]
            name, url = file.get("filename"), file.get("file_data")
            mention = prompts.file_mention(name, file.get("file_id"))
            return _document(name, url) or text_block(mention)
        case "input_audio":
            return text_block(words.AUDIO)
    return text_block(json.dumps(part, ensure_ascii=False))


def _image(url: str) -> Json | None:
    if url.startswith("https://"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    media, data = _data_of(url)
    if media not in _IMAGES or not data:
        return None
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


def _document(name: Any, url: Any) -> Json | None:
    media, data = _data_of(url) if isinstance(url, str) else ("", "")
    source: Json
    if media == "application/pdf" and data:
        source = {"type": "base64", "media_type": media, "data": data}
    elif media.startswith("text/") and (text := _decoded(data)).strip():
        source = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        return None
    titled = {"title": name} if isinstance(name, str) and name.strip() else {}
    return {"type": "document", "source": source, **titled}


def _data_of(url: str) -> tuple[str, str]:
    """Return the media type of a ``data:`` URL and its bytes as base64; empty where unusable."""
    if not url.startswith("data:"):
        return "", ""
    head, _, data = url[len("data:") :].partition(",")
    media, *parameters = (field.strip().lower() for field in head.split(";"))
    if "base64" not in parameters:
        data = base64.b64encode(unquote_to_bytes(data)).decode("ascii")
    else:
        data = "".join(data.split())
    if _NOT_BASE64.search(data):
        return "", ""
    return "image/jpeg" if media == "image/jpg" else media, data


def _decoded(data: str) -> str:
    try:
        return base64.b64decode(data).decode("utf-8", "replace")
    except binascii.Error:
        return ""
