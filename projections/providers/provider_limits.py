"""What the providers document about the size and form of a request, in one table.

The writers of the formats keep to it: an id or name that a provider refuses gets another one, and
an image beyond a limit is described in words. Where a limit is not documented, it was observed in
the provider's error messages; the table says so.

| | openai_chat | openai_responses | anthropic_messages |
|---|---|---|---|
| id of a call | 40 characters (1) | 64 characters (2) | letters, digits, `_`, `-` (3) |
| name of a tool | 64 letters, digits, `_`, `-` (4) | the same (4) | the same (5) |
| tools in a request | 128 (6) | 128 (6) | no limit documented |
| calls in a message | 128 (6) | no limit documented | no limit documented |
| bytes of an image | 20 MB (7) | 20 MB (7) | 5 MB, as base64 (8) |
| bytes of all images | 50 MB (7) | 50 MB (7) | 32 MB a request (8) |
| images in a request | 500 (7) | 500 (7) | 100 (8) |
| files | PDF (9) | PDF, text, office documents (9) | PDF, text (10) |
| bytes of a file | 50 MB (9) | 50 MB (9) | 32 MB a request (8) |
| id of an item | | the letters of its type in front, 64 characters (11) | |
| side of an image | no limit | no limit | 8,000 px; 2,000 px beyond 20 images (8) |

1. Error ``string_above_max_length`` of ``messages[n].tool_calls[n].id`` (observed, 2025 and 2026).
2. Error ``string_above_max_length`` of ``input[n].call_id`` (observed, 2026). Some characters are
   refused too; those that are allowed here never were.
3. Anthropic, API reference "Create a Message", ``tool_use.id``: ``^[a-zA-Z0-9_-]+$`` (2025); no
   length is documented, 64 is used here.
4. OpenAI, API reference "Create chat completion", ``function.name`` (2025).
5. Anthropic, guide "Tool use", ``^[a-zA-Z0-9_-]{1,64}$`` (2025); newer endpoints accept 128.
6. Error ``array_above_max_length`` of ``tools`` and of ``messages[n].tool_calls`` (observed, 2024
   to 2026); API reference "Create chat completion", ``tools`` (2025).
7. OpenAI, guide "Images and vision", "Image input requirements" (2025): PNG, JPEG, WebP and GIF
   that is not animated.
8. Anthropic, guide "Vision", "General limits" (2026): 100 images for models with a window of
   200,000 tokens, 600 for others; 8,000 px on a side, 2,000 px beyond 20 images; 32 MB a request.
   Error "image exceeds 5 MB maximum: ... bytes > 5242880 bytes", which counts the base64 text
   (observed, 2024 to 2026); newer endpoints accept 10 MB.
9. OpenAI, guide "File inputs" (2026): chat completions accept only PDF, by data or by id; the
   content of a text file goes there as a text.
10. Anthropic, guide "PDF support" and API reference "Create a Message", ``document`` (2025).
11. Error "Expected an ID that begins with 'rs'", and the same of ``msg`` and ``fc`` (observed,
   2025 and 2026).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from projections.context import prompts
from projections.context.images import PDF, data_of, is_data, size_of

__all__ = [
    "ITEM_IDS",
    "ITEM_STARTS",
    "LIMITS",
    "LONGEST_ITEM_ID",
    "Limits",
    "unfit_file",
    "without_excess_images",
]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a format.

    Attributes:
        call_id: The ids of calls that are accepted.
        tool_name: The longest name of a tool, in characters.
        tools: The most tools of a request; None if no limit is documented.
        calls: The most calls of a message.
        image_bytes: The most bytes of an image, as base64 if ``counts_base64``.
        counts_base64: Whether the size of an image is that of its base64 text.
        all_image_bytes: The most bytes of all images of a request.
        images: The most images of a request.
        image_side: The longest side of an image in pixels; None if the server scales it.
        many_images: The number of images beyond which ``many_side`` is the longest side.
        many_side: The longest side of one of many images, in pixels.
        files: The media types of files that are accepted by their data.
        file_bytes: The most bytes of a file.
    """

    call_id: re.Pattern[str]
    tool_name: int = 64
    tools: int | None = None
    calls: int | None = None
    image_bytes: int = 20_000_000
    counts_base64: bool = False
    all_image_bytes: int = 50_000_000
    images: int = 500
    image_side: int | None = None
    many_images: int = 500
    many_side: int | None = None
    files: re.Pattern[str] = re.compile(PDF)
    file_bytes: int = 50_000_000


LIMITS: Mapping[str, Limits] = MappingProxyType(
    {
        "openai_chat": Limits(re.compile(r"[A-Za-z0-9_-]{1,40}"), tools=128, calls=128),
        "openai_responses": Limits(
            re.compile(r"[A-Za-z0-9_-]{1,64}"),
            tools=128,
            files=re.compile(r"(application|text)/.*"),
        ),
        "anthropic_messages": Limits(
            re.compile(r"[A-Za-z0-9_-]{1,64}"),
            image_bytes=5 * 1024 * 1024,
            counts_base64=True,
            # The rest of 32 MB is left to texts; the limit counts base64, a third more than bytes.
            all_image_bytes=20_000_000,
            images=100,
            image_side=8_000,
            many_images=20,
            many_side=2_000,
            files=re.compile(rf"{PDF}|text/.*"),
            file_bytes=20_000_000,
        ),
    }
)
"""The limits by the name of the format."""

ITEM_STARTS: Mapping[str, str] = MappingProxyType(
    {
        **{"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"},
        **{"web_search_call": "ws", "file_search_call": "fs", "code_interpreter_call": "ci"},
        **{"image_generation_call": "ig", "mcp_call": "mcp", "mcp_list_tools": "mcpl"},
    }
)
"""What the id of an item of Responses begins with, by the type of the item."""

ITEM_IDS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {kind: re.compile(rf"{start}[A-Za-z0-9_-]*") for kind, start in ITEM_STARTS.items()}
)
"""What the id of an item of Responses looks like, by the type of the item."""

LONGEST_ITEM_ID = 64

_INNER = ("content", "output")
_Place = tuple[list[Json], int, str]


def without_excess_images(
    messages: Sequence[Json], format: str, text_part: Callable[[str], Json]
) -> None:
    """Describe the images beyond the format's limits in words, in place; the newest images stay.

    Beyond a limit on all images, the oldest ones go in large steps, so that the beginning of the
    next requests stays the same.

    Args:
        messages: Written messages, whose lists of content belong to the caller.
        format: The name of the format.
        text_part: Makes a part of the format from a text.
    """
    limits = LIMITS[format]
    places = [place for message in messages for place in _images(message)]
    if not places:
        return
    remaining: list[_Place] = []
    for place in places:
        if why := _unfit(place[2], limits, limits.image_side):
            _describe(place, why, text_part)
        else:
            remaining.append(place)
    sizes = [_bytes(url) for _, _, url in remaining]
    gone = _beyond([1] * len(remaining), limits.images)
    gone = max(gone, _beyond(sizes, limits.all_image_bytes))
    for place in remaining[:gone]:
        _describe(place, "too many images follow it", text_part)
    if len(remaining) - gone > limits.many_images:
        for place in remaining[gone:]:
            if why := _unfit(place[2], limits, limits.many_side):
                _describe(place, why, text_part)


def _images(message: Json) -> Iterable[_Place]:
    for key in _INNER:
        inner = message.get(key)
        if not isinstance(inner, list):
            continue
        for index, part in enumerate(inner):
            if (url := _url(part)) is not None:
                yield inner, index, url
            elif isinstance(part, dict):
                yield from _images(part)


def _url(part: Any) -> str | None:
    """Return the URL of a part, or the data of one with a type of its own; None if no image."""
    kind = part.get("type") if isinstance(part, dict) else None
    found: Any = None
    if kind == "image_url":
        found = part["image_url"].get("url")
    elif kind == "input_image":
        found = part.get("image_url")
    elif kind == "image" and isinstance(source := part.get("source"), dict):
        data = source.get("data")
        found = f"data:;base64,{data}" if isinstance(data, str) else source.get("url")
    return found if isinstance(found, str) else None


def _bytes(url: str) -> int:
    return len(url) * 3 // 4 if is_data(url) else 0


def _unfit(url: str, limits: Limits, side: int | None) -> str:
    if not is_data(url):
        return ""
    size = len(data_of(url)[1]) if limits.counts_base64 else _bytes(url)
    if size > limits.image_bytes:
        return f"it has more than {limits.image_bytes:,} bytes"
    sides = size_of(data_of(url)[1]) if side is not None else None
    if side is not None and sides is not None and max(sides) > side:
        return f"it has {sides[0]} x {sides[1]} pixels, more than {side:,} on a side"
    return ""


def unfit_file(url: str, format: str) -> str:
    """Return why a format does not accept a file's ``data:`` URL; an empty text if it does."""
    limits, media = LIMITS[format], data_of(url)[0]
    if limits.files.fullmatch(media) is None:
        return f"{media} is not accepted"
    if _bytes(url) > limits.file_bytes:
        return f"it has more than {limits.file_bytes:,} bytes"
    return ""


def _beyond(sizes: Sequence[int], most: int) -> int:
    """Return how many of the first values to leave out, so that the sum of the others fits."""
    if sum(sizes) <= most:
        return 0
    # A step leaves out half of what fits; where it falls depends on earlier values alone.
    start = total = 0
    for index, size in enumerate(sizes):
        total += size
        while total > most:
            while start <= index and total > most // 2:
                total -= sizes[start]
                start += 1
    return start


def _describe(place: _Place, why: str, text_part: Callable[[str], Json]) -> None:
    inner, index, url = place
    inner[index] = text_part(prompts.image_mention(url, why))
