"""A conversation as a chat: its items, the user's own messages, its calls, and its past.

A page has at most `_PAGE` items; earlier ones are loaded when wanted. While the conversation is
written to, the script asks for the rows that changed and puts them in place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from agent_eventstore.server.viewer import rich_text
from agent_eventstore.server.viewer.frame import (
    HEADERS,
    Frame,
    PageError,
    conversation_of,
    place,
    whole_number,
)
from eventstore.events import UserMessage
from eventstore.events.values import ImagePart
from eventstore.ids import StreamId
from projections import Views
from projections.models.branches import BranchPoint
from projections.models.timeline_items import TimelineItem
from projections.models.tool_calls import ToolCallRow
from projections.models.usage import UsageRow

__all__ = ["changed_items", "conversation", "outline_rows", "tool_call", "whole_text"]

_PAGE = 120
_CHANGED = 400
_OUTLINE = 200
_CALLS = 40
_TICKS = 300
_IMAGES = 8
_MARK = "[image]"
_QUIET = {
    "system": "system",
    "conversation": "start",
    "session": "session",
    "mode": "mode",
    "run": "run",
    "step": "step",
    "task": "task",
    "note": "note",
    "summary": "summary",
    "retraction": "withdrawn",
    "branch": "branch",
    "erasure": "erasure",
    "erased": "erased",
}
_EMPHASIS = re.compile(r"(\*\*|`)(?=\S)(.+?)(?<=\S)\1")
_TROUBLE = frozenset({"failed", "interrupted", "cancelled", "outcome_unknown", "aborted", "error"})
_CUT = frozenset({"failed", "interrupted", "cancelled"})
_MARKS = {
    "success": ("✓", "ok", "success"),
    "failed": ("✗", "bad", "failed"),
    "denied": ("⊘", "warn", "denied"),
    "skipped": ("⊘", "second", "skipped"),
    "not_started": ("○", "second", "not started"),
    "outcome_unknown": ("?", "bad", "outcome unknown"),
    "interrupted": ("?", "bad", "interrupted"),
}


@dataclass(frozen=True, slots=True)
class _Shown:
    """An item with what the template needs of it."""

    item: TimelineItem
    shape: str
    who: str
    body: Markup | str
    size: int
    call: UsageRow | None = None
    alternatives: BranchPoint | None = None
    parallel: bool = False
    images: Sequence[str] = ()
    first_of_call: bool = False

    @property
    def anchor(self) -> str:
        """The id of its element."""
        return f"i{self.item.version}-{self.item.part}"

    @property
    def is_cut(self) -> bool:
        """Whether the text ended before its end."""
        return self.item.status in _CUT

    @property
    def is_trouble(self) -> bool:
        """Whether something went wrong."""
        return self.item.status in _TROUBLE

    @property
    def mark(self) -> tuple[str, str, str]:
        """The sign, colour and word of a tool call's status."""
        status = self.item.status or "unknown"
        return _MARKS.get(status, ("…", "second", status.replace("_", " ")))

    @property
    def arguments(self) -> str:
        """The arguments on one line."""
        given = self.item.arguments
        if not isinstance(given, dict):
            return rich_text.first_line(given or "", 160)
        pairs = (f"{name}={_brief(value)}" for name, value in list(given.items())[:12])
        return rich_text.first_line(", ".join(pairs), 220)


def _brief(value: Any) -> str:
    if isinstance(value, str):
        value = value[:200]
    return json.dumps(value, ensure_ascii=False)[:200]


def conversation(frame: Frame, request: Request) -> Response:
    """Show a page of a conversation: its end, the part before a version, or its past."""
    views, stream = frame.views(request), conversation_of(request)
    info = views.store.get(stream)
    at = whole_number(request, "at", least=1)
    if at is not None and at >= info.version:
        at = None
    before = place(request, "before")
    past = None if at is None else views.timeline(stream, at=at)
    items = _page(views, stream, before, past)
    [entry] = views.rows("directory", conversation_id=stream) or [{}]
    calls = views.model_calls(
        conversation_id=stream, before=None if at is None else at + 1, limit=_CALLS
    )
    earlier = f"{items[0].version}.{items[0].part}" if len(items) == _PAGE else None
    values: dict[str, Any] = {
        "rows": _shown(views, stream, items, at),
        "earlier": earlier,
        "at": at,
        "info": info,
        "name": info.key or str(info.conversation_id),
    }
    if request.query_params.get("part") == "items":
        return frame.page(request, "items_page.html", **values)
    values |= {
        "entry": entry,
        "writer": views.store.writer(stream),
        "usage": views.usage(by="model", conversation_id=stream),
        "calls": calls,
        "forks": _forks(views, info.conversation_id),
    }
    if request.query_params.get("part") == "aside":
        return frame.page(request, "aside.html", **values)
    outline = _outline(views, stream, past)
    return frame.page(
        request,
        "conversation.html",
        section="conversations",
        title=entry.get("title") or "(untitled)",
        outline=outline,
        ticks=_ticks(items, outline, info.version),
        before=None if before is None else before[0],
        **values,
    )


def changed_items(frame: Frame, request: Request) -> Response:
    """Return the rows that changed after a version, for the script to put in place."""
    views, stream = frame.views(request), conversation_of(request)
    after = whole_number(request, "after", least=0) or 0
    # An answer with thousands of calls changes them all at once: the newest are enough.
    items = views.timeline(stream, after=after, limit=_PAGE)[-_CHANGED:]
    shown = _shown(views, stream, [each for each in items if not each.inactive], None)
    last = max((item.end_version or 0 for item in items), default=after)
    gone = [f"i{each.version}-{each.part}" for each in items if each.inactive]
    info = views.store.get(stream)
    return frame.page(
        request,
        "items.html",
        rows=shown,
        last=last,
        gone=gone,
        at=None,
        version=info.version,
        name=info.key or str(info.conversation_id),
    )


def outline_rows(frame: Frame, request: Request) -> Response:
    """Return the outline alone."""
    views, stream = frame.views(request), conversation_of(request)
    return frame.page(request, "outline.html", outline=_outline(views, stream, None), at=None)


def tool_call(frame: Frame, request: Request) -> Response:
    """Show a tool call's arguments and result."""
    views, stream = frame.views(request), conversation_of(request)
    name = request.path_params["call"]
    found: list[ToolCallRow] = views.tool_calls(conversation_id=stream, call_id=name, limit=1)
    if not found:
        raise PageError(404, "No such tool call", f"The conversation has no tool call {name}.")
    row = found[0]
    given = row.arguments if row.arguments is not None else row.arguments_text
    result = row.result_text or ""
    alone = request.query_params.get("part") != "call"
    return frame.page(
        request,
        "tool_call.html" if alone else "tool_call_inside.html",
        section="conversations",
        row=row,
        arguments=rich_text.json_code(given if given is not None else {}),
        result=rich_text.json_code(result) if result else "",
        size=len(result) if row.result_size_chars is None else row.result_size_chars,
        cut=len(result) > rich_text.LONGEST,
        stream=str(request.path_params["conversation"]),
    )


def whole_text(frame: Frame, request: Request) -> Response:
    """Return an item's whole text, as text."""
    views, stream = frame.views(request), conversation_of(request)
    version, part = request.path_params["version"], request.path_params["part"]
    for item in views.timeline_page(stream, before=(version, part + 1), limit=1):
        if (item.version, item.part) == (version, part):
            return PlainTextResponse(rich_text.visible(item.text or ""), headers=HEADERS)
    raise PageError(404, "No such item", f"There is no item {version}.{part} on the active branch.")


def _shown(
    views: Views, stream: StreamId, items: Sequence[TimelineItem], at: int | None
) -> list[_Shown]:
    if not items:
        return []
    calls = _calls_of(views, stream, items)
    points = {}
    # Without branches now there never were any: then the past need not be read for them.
    now = views.branches(stream)
    for point in views.branches(stream, at=at) if now and at is not None else now:
        for each in point.alternatives:
            if each.active and each.turn is not None:
                points[each.turn] = point
    siblings = _siblings(items)
    user = views.store.get(stream).user_id
    images, found, seen = 0, [], set[str]()
    for item in items:
        call = None
        if item.kind in ("assistant", "reasoning", "error", "tool") and item.llm_call_id:
            call = None if item.llm_call_id in seen else calls.get(item.llm_call_id)
            seen.add(item.llm_call_id)
        pictures: Sequence[str] = ()
        if item.kind == "user" and images < _IMAGES and _MARK in (item.text or ""):
            pictures = _images(views, stream, item)
            images += len(pictures)
        found.append(
            _Shown(
                item,
                *_form(item, user),
                size=len(item.text or ""),
                call=call,
                alternatives=points.get(item.turn or 0) if item.kind == "turn" else None,
                parallel=item.call_id is not None and siblings[_message_of(item)] > 1,
                images=pictures,
            )
        )
    return found


def _calls_of(
    views: Views, stream: StreamId, items: Sequence[TimelineItem]
) -> Mapping[str, UsageRow]:
    last = max(item.end_version or item.version for item in items)
    wanted = len({item.llm_call_id for item in items if item.llm_call_id})
    if not wanted:
        return {}
    calls = views.model_calls(conversation_id=stream, before=last + 1, limit=2 * wanted + 40)
    return {call.llm_call_id: call for call in calls}


def _siblings(items: Sequence[TimelineItem]) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in items:
        if item.call_id is not None:
            message = _message_of(item)
            found[message] = found.get(message, 0) + 1
    return found


def _message_of(item: TimelineItem) -> str:
    return (item.call_id or "").partition(".")[0]


def _form(item: TimelineItem, user: str | None) -> tuple[str, str, Markup | str]:
    """Return the shape of an item's row, who it is from, and its body."""
    text = item.text or ""
    match item.kind:
        case "turn":
            return "turn", "", ""
        case "user":
            return "user", item.name or user or "user", rich_text.prose(_without_marks(text))
        case "assistant":
            return "assistant", item.name or item.agent_id or "model", rich_text.prose(text)
        case "reasoning":
            return "reasoning", "reasoning", rich_text.prose(text)
        case "tool":
            return "tool", "", ""
        case "error":
            return "error", "error", rich_text.visible(text[: rich_text.LONGEST])
        case kind:
            words = " · ".join(filter(None, (item.title, rich_text.first_line(text, 160))))
            status = "" if item.status in ("complete", "ok", None) else f"{item.status} · "
            return "quiet", _QUIET.get(kind or "", kind or "unknown"), f"{status}{words or kind}"


def _without_marks(text: str) -> str:
    return text.replace(_MARK, "").rstrip() if _MARK in text else text


def _plain(text: str) -> str:
    """Return the beginning of a text without marks of emphasis and code."""
    return _EMPHASIS.sub(r"\2", text[:200])


def _images(views: Views, stream: StreamId, item: TimelineItem) -> Sequence[str]:
    version = item.message_version or item.version
    events = list(views.store.read(stream, after=version - 1, limit=1))
    if not events or not isinstance(events[0].data, UserMessage):
        return ()
    return [
        rich_text.data_image(part.url) or ""
        for part in events[0].data.parts
        if isinstance(part, ImagePart)
    ][:_IMAGES]


@dataclass(frozen=True, slots=True)
class _OutlineEntry:
    """A user's message in the outline."""

    version: int
    turn: int | None
    text: str
    trouble: bool


def _page(
    views: Views,
    stream: StreamId,
    before: tuple[int, int] | None,
    past: Sequence[TimelineItem] | None,
) -> Sequence[TimelineItem]:
    """Return a page of items; of the past, which is read once for the whole page."""
    if past is None:
        return views.timeline_page(stream, before=before, limit=_PAGE)
    return [each for each in past if before is None or (each.version, each.part) < before][-_PAGE:]


def _outline(
    views: Views, stream: StreamId, past: Sequence[TimelineItem] | None
) -> list[_OutlineEntry]:
    if past is None:
        items = views.timeline_page(stream, kinds=("user",), limit=_OUTLINE)
        others = views.timeline_page(stream, kinds=("error", "tool"), limit=5 * _OUTLINE)
    else:
        items = [each for each in past if each.kind == "user"][-_OUTLINE:]
        others = [each for each in past if each.kind in ("error", "tool")]
    troubled = {item.turn for item in others if item.kind == "error" or item.status in _TROUBLE}
    return [
        _OutlineEntry(
            item.version,
            item.turn,
            rich_text.first_line(_plain(_without_marks(item.text or item.preview or "")), 90),
            item.turn is not None and item.turn in troubled,
        )
        for item in items
    ]


def _ticks(
    items: Sequence[TimelineItem], outline: Sequence[_OutlineEntry], version: int
) -> list[tuple[float, bool]]:
    """Return the places of user messages and errors on the scrubber, of 1,000."""
    places = [(each.version, False) for each in outline[-_TICKS:]]
    places += [(each.version, True) for each in items if each.kind == "error"]
    span = max(1, version - 1)
    return [(round(1_000 * (each - 1) / span, 1), bad) for each, bad in places]


def _forks(views: Views, conversation_id: Any) -> list[tuple[str, str]]:
    """Return the forks among the conversations that were active last."""
    return [
        (str(each.conversation_id), each.title or "(untitled)")
        for each in views.conversations(limit=200)
        if str(each.parent_conversation_id) == str(conversation_id)
    ]
