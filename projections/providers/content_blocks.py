"""Content blocks as parts, in every dialect that providers and frameworks write.

A block says what it is by its ``type``, or by its only key. The dialects differ in the names of the
same few fields: where the data are, of which media type, or by which URL or id they are found. So
one function reads them all: OpenAI's chat and Responses, Anthropic, Gemini, Bedrock's Converse,
Mistral and Cohere, LangChain's standard blocks (version 0 with ``source_type``, and version 1), the
AI SDK and MCP. Tool calls, results and reasoning are not content; their readers are elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from mimetypes import guess_type
from typing import Any

from eventstore.events import ContentPart, FilePart, ImagePart, OtherPart, RefusalPart, TextPart
from eventstore.events.codec import dumps

__all__ = ["content_part", "media_part"]

_TEXTS = frozenset(
    {"text", "input_text", "output_text", "text-plain", "plain_text", "summary_text"}
)
_MEDIA = frozenset({"image", "audio", "video", "file", "document", "media"})
_UNTYPED = ("inlineData", "inline_data", "fileData", "file_data", *sorted(_MEDIA - {"media"}))
_MEDIA_TYPES = ("mime_type", "mimeType", "media_type", "mediaType", "contentType", "content_type")
_DATA = ("base64", "data", "file_data", "fileData", "bytes", "blob")
_URLS = ("url", "file_url", "fileUrl", "file_uri", "fileUri", "uri", "gcs_uri")
_IDS = ("file_id", "fileId")
_NAMES = ("filename", "name", "title", "document_name", "display_name", "displayName")
_OTHERWISE = {
    "image": "image/png",
    "audio": "audio/wav",
    "video": "video/mp4",
    "text": "text/plain",
}
_MAGIC = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)
_MIME = re.compile(r"[\w.+-]+/[\w.+*-]+(?:;.*)?", re.ASCII)
_AUDIO = re.compile(r"data:audio/(x-wav|wav|mp3|mpeg);base64,")
"""Audio that chat completions take; it is stored in their form, and others have it in words."""
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:", re.ASCII | re.IGNORECASE)


def content_part(block: Any) -> ContentPart | None:
    """Return the part in a content block, or None if no dialect has such content.

    Args:
        block: A block as its framework writes it; data may be ``bytes``.
    """
    if isinstance(block, str):
        return TextPart(text=block)
    if not isinstance(block, Mapping):
        return None
    kind = block.get("type")
    if not isinstance(kind, str):
        return _untyped(block)
    inner = block.get(kind)
    match kind:
        case "non_standard":
            value = block.get("value")
            is_again = isinstance(value, Mapping) and value.get("type") == kind
            return None if is_again else content_part(value)
        case "refusal":
            text = inner if isinstance(inner, str) else block.get("text")
            return RefusalPart(text=text) if isinstance(text, str) else None
        case "search_result":
            return _search_result(block)
        case "resource" if isinstance(inner, Mapping):
            text = inner.get("text")
            return TextPart(text=text) if isinstance(text, str) else media_part(inner, "file")
        case "resource_link":
            return media_part(block, "file")
    if kind in _TEXTS:
        text = next((block[key] for key in ("text", "content") if key in block), None)
        if isinstance(text, str):
            return TextPart(text=text)
    if (family := _family(kind)) is None:
        return None
    return media_part(block, family)


def media_part(block: Mapping[str, Any], family: str) -> ContentPart | None:
    """Return the image or file that a block contains, by data, URL or id; None if it has none.

    Args:
        block: The block; its fields may be in an object of its own, such as ``source``.
        family: What the block says that it is: image, audio, video, text or file.
    """
    places = _places(block)
    if (text := _text_of(places)) is not None:
        return TextPart(text=text)
    media_type, name = _media_type(places, family), _first(places, _NAMES)
    url = file_id = None
    for place in places:
        url = url or _url(place, family, media_type or (guess_type(name)[0] if name else None))
        file_id = file_id or next((place[key] for key in _IDS if _is_text(place.get(key))), None)
        if url is None and place.get("source_type") == "id" and _is_text(place.get("id")):
            file_id = file_id or place["id"]
    if url is None and file_id is None and (name is None or family == "image"):
        return None
    if url is not None and (audio := _AUDIO.match(url)) is not None:
        form = "wav" if audio[1].endswith("wav") else "mp3"
        inner = {"data": url[audio.end() :], "format": form}
        return OtherPart(raw={"type": "input_audio", "input_audio": inner})
    is_image = family == "image" or (media_type or (url or "")[5:]).startswith("image/")
    if is_image and url is not None and url.startswith(("https:", "http:", "data:")):
        return ImagePart(url=url, detail=_first(places, ("detail",)), media_type=media_type)
    return FilePart(name=name, url=url, file_id=file_id, media_type=media_type)


def _untyped(block: Mapping[str, Any]) -> ContentPart | None:
    """Return the part in a block of Gemini or Converse, whose key says what it is."""
    if isinstance(block.get("text"), str):
        return TextPart(text=block["text"])
    for key in _UNTYPED:
        if isinstance(inner := block.get(key), Mapping):
            return media_part(inner, key if key in _MEDIA else "file")
    return None


def _family(kind: str) -> str | None:
    """Return what a block of this type contains; None if it is no content."""
    words = re.split(r"[_-]", kind)
    words = words[1:] if words[0] == "input" else words
    if words[:1] == ["computer"] and words[1:] == ["screenshot"]:
        return "image"
    if not words or words[0] not in _MEDIA | {"text"}:
        return None
    if any(word not in ("url", "data", "id", "file", "plain", "reference") for word in words[1:]):
        return None
    return words[0] if words[0] in _OTHERWISE else "file"


def _places(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the objects in which a block's fields can be, the innermost first."""
    places = [block]
    for key in (block.get("type"), "document", "source", "s3Location", "extras", "metadata"):
        inner = block.get(key) if isinstance(key, str) else None
        if isinstance(inner, Mapping):
            source = inner.get("source")
            places = [*([source] if isinstance(source, Mapping) else []), inner, *places]
    return places


def _text_of(places: list[Mapping[str, Any]]) -> str | None:
    """Return the text of a document that consists of text."""
    for place in places:
        content = place.get("content")
        if isinstance(content, list):
            texts = [each.get("text") for each in content if isinstance(each, Mapping)]
            content = "\n".join(str(text) for text in texts if _is_text(text)) or None
        if isinstance(content, str):
            return content
        if _is_text(place.get("text")):
            return str(place["text"])
        data = place.get("data")
        if isinstance(data, Mapping) and data.get("type") != "Buffer":
            return dumps(data)
    return None


def _media_type(places: list[Mapping[str, Any]], family: str) -> str | None:
    found = _first(places, _MEDIA_TYPES)
    if found is not None and _MIME.fullmatch(found):
        return found
    named = _first(places, ("format",))
    if named is not None and family in ("image", "audio", "video"):
        return f"{family}/{named}"
    return guess_type(f"file.{named}")[0] if named is not None else None


def _url(place: Mapping[str, Any], family: str, media_type: str | None) -> str | None:
    """Return the URL in an object, or its data as a ``data:`` URL."""
    for key in (*_DATA, family, f"{family}_url", "document_url", "input_audio"):
        if (data := _data(place.get(key))) is None:
            continue
        if key == "data" and "text" in (place.get("type"), place.get("source_type")):
            plain = base64.b64encode(data.encode("utf-8", "surrogatepass")).decode()
            return f"data:text/plain;base64,{plain}"
        if _SCHEME.match(data):
            return data
        kind = media_type or _kind_of(data) or _OTHERWISE.get(family) or "application/octet-stream"
        return f"data:{kind};base64,{data}"
    return _first([place], _URLS)


def _data(value: Any) -> str | None:
    """Return data as text: base64, or a URL in its place."""
    if isinstance(value, Mapping) and value.get("type") == "Buffer":  # as Node.js has bytes in JSON
        value = value.get("data")
        try:
            value = bytes(value) if isinstance(value, list) else value
        except (TypeError, ValueError):
            return None
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return value if _is_text(value) else None


def _kind_of(data: str) -> str | None:
    try:
        start = base64.b64decode(data[:16])
    except (binascii.Error, ValueError):
        return None
    return next((kind for magic, kind in _MAGIC if start.startswith(magic)), None)


def _search_result(block: Mapping[str, Any]) -> ContentPart:
    head = [block.get(key) for key in ("title", "source")]
    text = _text_of([block])
    return TextPart(text="\n".join(str(each) for each in (*head, text) if _is_text(each)))


def _first(places: list[Mapping[str, Any]], keys: tuple[str, ...]) -> str | None:
    return next((place[key] for place in places for key in keys if _is_text(place.get(key))), None)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""
