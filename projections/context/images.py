"""Inline images and files as providers accept them: judged by their bytes, not by their URL.

All three formats accept JPEG, PNG, GIF and WebP. They refuse a request in which the media type is
not that of the bytes, the base64 is damaged, or an image is empty or no image at all. One such
image in a history would make every later request fail, so it is described in words instead. Of an
animated GIF, which OpenAI refuses, the first picture is sent.

Of files, PDF and text are accepted by all, if not in the same form; documents of an office program
by OpenAI's Responses.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from dataclasses import dataclass
from urllib.parse import unquote, unquote_to_bytes

__all__ = [
    "IMAGE_TYPES",
    "PDF",
    "UnusableImage",
    "data_of",
    "file_url",
    "image_url",
    "is_data",
    "size_of",
    "text_of",
    "type_of",
]

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")

_OTHERS = (
    (b"BM", "BMP"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"%PDF", "PDF"),
    (b"<svg", "SVG"),
    (b"<?xml", "XML"),
    (b"\x00\x00\x01\x00", "ICO"),
)
PDF = "application/pdf"
_OFFICE = {
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "odt": "application/vnd.oasis.opendocument.text",
    "doc": "application/msword",
    "ppt": "application/vnd.ms-powerpoint",
    "xls": "application/vnd.ms-excel",
}
_CONTAINERS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_TEXTS = re.compile(
    r"text/.+|application/([a-z0-9.-]+\+)?(json|xml|yaml|toml|sql|javascript)"
    r"|application/(x-(ndjson|yaml|sh|python|javascript|httpd-php)|jsonl|typescript|graphql|rtf)"
)
_UNKNOWN = ("", "application/octet-stream", "binary/octet-stream")
_BRANDS = {b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIF", b"avif": "AVIF", b"avis": "AVIF"}
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_HEAD = 400_000  # base64 characters, in which the size of nearly every JPEG stands
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})


@dataclass(frozen=True, slots=True)
class UnusableImage:
    """An image that no provider accepts.

    Attributes:
        why: The reason, in a few words for the model.
    """

    why: str


def is_data(url: str) -> bool:
    """Whether a URL contains its data."""
    return url[:5].lower() == "data:"


def data_of(url: str) -> tuple[str, str]:
    """Return the media type of a ``data:`` URL and its bytes as base64; empty if unusable.

    The base64 text may be percent-encoded or URL-safe, contain whitespace, or lack its padding.
    """
    if not is_data(url):
        return "", ""
    head, _, data = url[len("data:") :].partition(",")
    media, *parameters = (field.strip().lower() for field in head.split(";"))
    if "base64" not in parameters:
        data = base64.b64encode(unquote_to_bytes(data)).decode("ascii")
    elif _BASE64.fullmatch(data) is None or len(data) % 4:
        data = "".join(unquote(data).split()).replace("-", "+").replace("_", "/")
        data += "=" * (-len(data) % 4)
    if _BASE64.fullmatch(data) is None:
        return "", ""
    return "image/jpeg" if media == "image/jpg" else media, data


def image_url(url: str) -> str | UnusableImage:
    """Return the URL of an image as a provider accepts it, or why none does.

    A ``data:`` URL gets the media type of its bytes, and canonical base64.
    """
    if not is_data(url):
        web = url[:8].lower().startswith(("https://", "http://"))
        return url if web else UnusableImage("its address is not on the web")
    _, data = data_of(url)
    raw = _bytes_of(url, data)
    if isinstance(raw, UnusableImage):
        return raw
    real = type_of(raw)
    if isinstance(real, UnusableImage):
        return real
    if real == "image/gif" and (still := _first_picture(raw)) is not None:
        data = base64.b64encode(still).decode("ascii")
    return url if url == (same := f"data:{real};base64,{data}") else same


def _bytes_of(url: str, data: str) -> bytes | UnusableImage:
    """Return the bytes in the base64 of a ``data:`` URL, or why there are none."""
    try:
        raw = base64.b64decode(data, validate=True)
    except binascii.Error:
        raw = b""
    if raw:
        return raw
    empty = not url.partition(",")[2].strip()
    return UnusableImage("it is empty" if empty else "its base64 is damaged")


def file_url(url: str, name: str | None) -> str | UnusableImage:
    """Return the ``data:`` URL of a file with the media type of its bytes, or why none takes it.

    Args:
        url: A ``data:`` URL.
        name: The name of the file, whose ending says what a container is.
    """
    media, data = data_of(url)
    raw = _bytes_of(url, data)
    if isinstance(raw, UnusableImage):
        return raw
    if b"%PDF-" in raw[:1024]:
        return f"data:{PDF};base64,{data}"
    ending = (name or "").rpartition(".")[2].lower()
    office = _OFFICE.get(ending, media if media in _OFFICE.values() else None)
    if office is not None and raw.startswith(_CONTAINERS):
        return f"data:{office};base64,{data}"
    if _TEXTS.fullmatch(media) or (media in _UNKNOWN and _is_text(raw)):
        if b"\0" in raw or not raw.strip():
            return UnusableImage("its data are no text" if raw.strip() else "it is empty")
        return f"data:{media if media.startswith('text/') else 'text/plain'};base64,{data}"
    if media in (PDF, *_OFFICE.values()):
        return UnusableImage(f"its data are not {'PDF' if media == PDF else 'of this type'}")
    return UnusableImage(f"{media or 'its type'} is not accepted")


def text_of(url: str) -> str | None:
    """Return the text of a file, or None if it is none."""
    media, data = data_of(url)
    if not media.startswith("text/"):
        return None
    try:
        return base64.b64decode(data).decode("utf-8", "replace")
    except binascii.Error:
        return None


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in raw


def type_of(raw: bytes) -> str | UnusableImage:
    """Return the media type of an image's bytes, or why no provider can decode them."""
    if raw.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if raw.startswith(b"\x89PNG\r\n\x1a\n"):
        whole = raw[12:16] == b"IHDR" and b"IEND" in raw[-64:] and 0 not in _png(raw)
        return "image/png" if whole else UnusableImage("its PNG data are incomplete")
    if raw.startswith((b"GIF87a", b"GIF89a")):
        whole = len(raw) > 13 and 0 not in struct.unpack("<HH", raw[6:10])
        return "image/gif" if whole else UnusableImage("its GIF data are incomplete")
    if raw.startswith(b"RIFF") and raw[8:12] == b"WEBP":
        return "image/webp" if len(raw) > 20 else UnusableImage("its WebP data are incomplete")
    kind = next((name for start, name in _OTHERS if raw.lstrip().startswith(start)), None)
    if raw[4:8] == b"ftyp":
        kind = _BRANDS.get(raw[8:12], kind)
    return UnusableImage(f"{kind} is not accepted" if kind else "its data are no image")


def size_of(data: str) -> tuple[int, int] | None:
    """Return the width and height of a base64 image in pixels, or None if its head has none."""
    raw = base64.b64decode(data[:_HEAD])
    if raw.startswith(b"\x89PNG"):
        return _png(raw)
    if raw.startswith(b"GIF8") and len(raw) >= 10:
        return struct.unpack("<HH", raw[6:10])
    if raw.startswith(b"RIFF") and len(raw) >= 30:
        return _webp(raw)
    return _jpeg(raw) if raw.startswith(b"\xff\xd8") else None


def _first_picture(raw: bytes) -> bytes | None:
    """Return a GIF of the first picture of an animated one; None if there are no others."""
    place = 13 + _table(raw[10])
    end = None
    while place < len(raw) - 1 and raw[place] in b"\x21\x2c":
        if raw[place] == 0x21:
            place = _after_blocks(raw, place + 2)
            continue
        if end is not None:
            return raw[:end] + b"\x3b"
        flags = raw[place + 9] if place + 9 < len(raw) else 0
        place = end = _after_blocks(raw, place + 11 + _table(flags))
    return None


def _table(flags: int) -> int:
    """Return the bytes of the table of colours that follows these flags."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_blocks(raw: bytes, place: int) -> int:
    while place < len(raw) and raw[place]:
        place += raw[place] + 1
    return place + 1


def _png(raw: bytes) -> tuple[int, int]:
    return struct.unpack(">II", raw[16:24]) if len(raw) >= 24 else (0, 0)


def _webp(raw: bytes) -> tuple[int, int] | None:
    kind = raw[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(raw[24:27], "little"), 1 + int.from_bytes(raw[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", raw[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(raw: bytes) -> tuple[int, int] | None:
    place = 2
    while place + 9 < len(raw) and raw[place] == 0xFF:
        marker, length = raw[place + 1], int.from_bytes(raw[place + 2 : place + 4], "big")
        if marker in _FRAMES:
            height, width = struct.unpack(">HH", raw[place + 5 : place + 9])
            return width, height
        place += 1 if marker == 0xFF else 2 + length
    return None
