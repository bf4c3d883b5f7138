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
| bytes of an image | 20 MB (7) | 20 MB (7) | 5 MB (8) |
| bytes of all images | 50 MB (7) | 50 MB (7) | 32 MB a request (8) |
| images in a request | 500 (7) | 500 (7) | 100 (8) |
| side of an image | no limit | no limit | 8,000 px; 2,000 px beyond 20 images (8) |

1. Error ``string_above_max_length`` of ``tool_call_id`` (observed, 2024 and 2025).
2. OpenAI, API reference "Create a model response", ``call_id`` (2025).
3. Anthropic, API reference "Create a Message", ``tool_use.id``: ``^[a-zA-Z0-9_-]+$`` (2025); no
   length is documented, 64 is used here.
4. OpenAI, API reference "Create chat completion", ``function.name`` (2025).
5. Anthropic, guide "Tool use", ``^[a-zA-Z0-9_-]{1,64}$`` (2025); newer endpoints accept 128.
6. Error ``array_above_max_length`` of ``tools`` and of ``messages[n].tool_calls`` (observed, 2024
   and 2025); API reference "Create chat completion", ``tools`` (2025).
7. OpenAI, guide "Images and vision", "Image input requirements" (2025).
8. Anthropic, guide "Vision", "Evaluate image size", and API overview, "Request size limits" (2025).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from projections.context import prompts
from projections.context.images import data_of, is_data, size_of

__all__ = ["LIMITS", "Limits", "without_excess_images"]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a format.

    Attributes:
        call_id: The ids of calls that are accepted.
        tool_name: The longest name of a tool, in characters.
        tools: The most tools of a request; None if no limit is documented.
        calls: The most calls of a message.
        image_bytes: The most bytes of an image.
        all_image_bytes: The most bytes of all images of a request.
        images: The most images of a request.
        image_side: The longest side of an image in pixels; None if the server scales it.
        many_images: The number of images beyond which ``many_side`` is the longest side.
        many_side: The longest side of one of many images, in pixels.
    """

    call_id: re.Pattern[str]
    tool_name: int = 64
    tools: int | None = None
    calls: int | None = None
    image_bytes: int = 20_000_000
    all_image_bytes: int = 50_000_000
    images: int = 500
    image_side: int | None = None
    many_images: int = 500
    many_side: int | None = None


LIMITS: Mapping[str, Limits] = MappingProxyType(
    {
        "openai_chat": Limits(re.compile(r"[A-Za-z0-9_-]{1,40}"), tools=128, calls=128),
        "openai_responses": Limits(re.compile(r"[A-Za-z0-9_-]{1,64}"), tools=128),
        "anthropic_messages": Limits(
            re.compile(r"[A-Za-z0-9_-]{1,64}"),
            image_bytes=5 * 1024 * 1024,
            # The rest of 32 MB is left to texts; the limit counts base64, a third more than bytes.
            all_image_bytes=20_000_000,
            images=100,
            image_side=8_000,
            many_images=20,
            many_side=2_000,
        ),
    }
)
"""The limits by the name of the format."""

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
    kept: list[_Place] = []
    for place in places:
        if why := _unfit(place[2], limits, limits.image_side):
            _describe(place, why, text_part)
        else:
            kept.append(place)
    sizes = [_bytes(url) for _, _, url in kept]
    gone = _beyond([1] * len(kept), limits.images)
    gone = max(gone, _beyond(sizes, limits.all_image_bytes))
    for place in kept[:gone]:
        _describe(place, "too many images follow it", text_part)
    if len(kept) - gone > limits.many_images:
        for place in kept[gone:]:
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
    if _bytes(url) > limits.image_bytes:
        return f"it has more than {limits.image_bytes:,} bytes"
    sides = size_of(data_of(url)[1]) if side is not None else None
    if side is not None and sides is not None and max(sides) > side:
        return f"it has {sides[0]} x {sides[1]} pixels, more than {side:,} on a side"
    return ""


def _beyond(sizes: Sequence[int], most: int) -> int:
    """Return how many of the first values to leave out, so that the sum of the others fits."""
    if sum(sizes) <= most:
        return 0
    # A step leaves out half of what fits; where it falls depends on earlier values alone.
    start = held = 0
    for index, size in enumerate(sizes):
        held += size
        while held > most:
            while start <= index and held > most // 2:
                held -= sizes[start]
                start += 1
    return start


def _describe(place: _Place, why: str, text_part: Callable[[str], Json]) -> None:
    inner, index, url = place
    inner[index] = text_part(prompts.image_mention(url, why))
