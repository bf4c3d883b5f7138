"""Why does it not know X? Where a text occurs, its form in a request, and what would have sent it.

What would have sent it is not guessed: requests with larger budgets and other strategies are built
for the same moment, as many as a few seconds allow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from agent_eventstore.server.viewer import rich_text
from agent_eventstore.server.viewer.frame import Frame, conversation_of, whole_number
from agent_eventstore.server.viewer.request_page import text_of
from eventstore.errors import EventStoreError
from eventstore.ids import StreamId
from projections import Views
from projections.context import ContextView, LedgerEntry
from projections.models.timeline_items import TimelineItem

__all__ = ["why"]

_SCANNED = 10_000  # items
_PAGE = 500
_SHOWN = 40
_LATER = 8
_PATIENCE_S = 3.0
_LONGEST = 200
_KINDS = ("user", "assistant", "tool", "error", "note", "summary")
_STRATEGIES = ("retrieval", "hybrid", "level_of_detail", "key_messages")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the text occurs."""

    version: int
    anchor: str
    turn: int | None
    who: str
    what: Markup
    level: str
    tokens: str
    reason: str


def why(frame: Frame, request: Request) -> Response:
    """Show the answer for one request: by default the latest one."""
    views, stream = frame.views(request), conversation_of(request)
    info = views.store.get(stream)
    sought = request.query_params.get("q", "").strip()[:_LONGEST]
    version = whole_number(request, "r", least=1)
    calls = views.model_calls(conversation_id=stream, limit=500)
    known = [call.version for call in calls if call.version is not None and call.model]
    if version is None:
        version = known[0] if known else None
    [entry] = views.rows("directory", conversation_id=stream) or [{}]
    values: dict[str, Any] = {
        "section": "conversations",
        "title": entry.get("title") or "(untitled)",
        "name": info.key or str(info.conversation_id),
        "version": version,
        "sought": sought,
        "places": [],
        "more": False,
        "verdict": None,
        "others": [],
        "later": [],
        "unsent": False,
    }
    if sought:
        view, unsent = _request(views, stream, version)
        until = None if unsent else version
        found = list(_found(views, stream, sought, until))
        places = [_place(each, view, sought) for each in found[:_SHOWN]]
        missing = not (view is not None and _contains(view, sought))
        values.update(
            places=places,
            more=len(found) > _SHOWN,
            unsent=unsent,
            verdict=_verdict(view, found, places, sought, version, unsent=unsent),
        )
        if view is not None and not unsent and version is not None and found:
            if missing:
                values["others"] = _others(views, stream, version, view, sought)
            later = sorted(each for each in known if each > version)[:_LATER]
            values["later"] = _later(views, stream, later, sought)
    return frame.page(request, "why.html", **values)


def _request(
    views: Views, stream: StreamId, version: int | None
) -> tuple[ContextView | None, bool]:
    """Return the request; if it cannot be built again, what would be sent now."""
    if version is not None:
        try:
            return views.context_of(stream, version), False
        except (EventStoreError, ValueError):
            pass
    try:
        return views.context(stream), True
    except (EventStoreError, ValueError):
        return None, True


def _found(
    views: Views, stream: StreamId, sought: str, until: int | None
) -> Iterator[TimelineItem]:
    """Yield the items that contain the text, newest first; arguments of tools count too."""
    low = sought.lower()
    before: int | tuple[int, int] | None = until
    for _ in range(_SCANNED // _PAGE):
        items = views.timeline_page(stream, before=before, limit=_PAGE, kinds=_KINDS)
        for item in reversed(items):
            if low in _whole(item).lower():
                yield item
        if len(items) < _PAGE:
            return
        before = items[0].version, items[0].part


def _whole(item: TimelineItem) -> str:
    if item.kind != "tool":
        return item.text or ""
    return f"{item.name} {item.arguments or ''} {item.text or ''}"


def _place(item: TimelineItem, view: ContextView | None, sought: str) -> _Place:
    entry = None if view is None else _entry_of(view, item)
    level, tokens, reason = "not sent", "", ""
    if entry is not None:
        beyond = entry.version is None and entry.level == "dropped"
        level = "beyond the window" if beyond else entry.level
        before = "?" if entry.tokens_before is None else f"{entry.tokens_before:,}"
        same = entry.tokens_before == entry.tokens_after
        tokens = before if same else f"{before} → {entry.tokens_after:,}"
        reason = entry.reason
    elif view is not None:
        _, _, reason = view.why(item.end_version or item.version).partition(": ")
    who = f"tool {item.name}" if item.kind == "tool" else str(item.kind)
    return _Place(
        item.version,
        f"i{item.version}-{item.part}",
        item.turn,
        who,
        rich_text.marked(_whole(item), sought),
        level,
        tokens,
        rich_text.first_line(reason, 260),
    )


def _entry_of(view: ContextView, item: TimelineItem) -> LedgerEntry | None:
    versions = {item.version, item.message_version, item.end_version} - {None}
    for entry in view.ledger:
        if entry.version in versions or versions.intersection(entry.source_versions):
            return entry
    read = [entry.version for entry in view.ledger if entry.version and entry.kind != "system"]
    older = next((entry for entry in view.ledger if entry.version is None), None)
    rest = [version for version in sorted(read) if version > 0]
    if older is not None and (not rest or item.version < rest[-1]):
        return older
    return None


def _contains(view: ContextView, sought: str) -> bool:
    low = sought.lower()
    if view.system is not None and low in view.system.lower():
        return True
    return any(low in text_of(message).lower() for message in view.messages)


def _verdict(
    view: ContextView | None,
    found: Sequence[TimelineItem],
    places: Sequence[_Place],
    sought: str,
    version: int | None,
    *,
    unsent: bool,
) -> tuple[str, str]:
    """Return a colour and a sentence."""
    times = f"{len(found):,} {'time' if len(found) == 1 else 'times'}"
    where = "the next request" if unsent else f"request {version}"
    if view is None:
        return "warn", f"It occurs {times}, but this request cannot be built again."
    inside = _contains(view, sought)
    if not found and inside:
        return "ok", f"No message contains it, but {where} does: it is in the system part."
    if not found:
        return "bad", f"It occurs nowhere in this conversation before {where}."
    if not inside:
        return (
            "bad",
            f"It occurs {times} in the conversation, but no message of {where} contains it.",
        )
    whole = sum(1 for each in places if each.level == "full")
    if whole:
        return "ok", f"{where.capitalize()} contains it: {whole:,} of {times} whole."
    return "warn", f"{where.capitalize()} contains it, but only shortened or as a fact."


def _others(
    views: Views, stream: StreamId, version: int, view: ContextView, sought: str
) -> list[tuple[str, dict[str, Any], str, int | None]]:
    """Return other choices, built one after the other while there is time."""
    found: list[tuple[str, dict[str, Any], str, int | None]] = []
    end = time.monotonic() + _PATIENCE_S
    tried: list[tuple[str, dict[str, Any]]] = []
    if view.policy.get("max_tokens"):
        for factor in (2, 4, 8, 16):
            budget = int(view.policy["max_tokens"]) * factor
            tried.append((f"budget {budget:,}", {"max_tokens": budget}))
    tried += [
        (f"strategy {name}", {"strategy": name})
        for name in _STRATEGIES
        if name != view.policy.get("name")
    ]
    enough = False
    for label, changes in tried:
        if enough and "max_tokens" in changes:
            continue  # the smallest budget that is enough says it all
        if time.monotonic() > end:
            found.append((label, changes, "not built: no time left", None))
            continue
        try:
            other = views.context_of(stream, version, changes=changes)
        except (EventStoreError, ValueError) as error:
            found.append((label, changes, rich_text.first_line(str(error), 100), None))
            continue
        outcome = "yes" if _contains(other, sought) else "no"
        enough = enough or outcome == "yes"
        found.append((label, changes, outcome, other.tokens.tokens))
    return found


def _later(
    views: Views, stream: StreamId, versions: Sequence[int], sought: str
) -> list[tuple[int, str]]:
    end, found = time.monotonic() + _PATIENCE_S / 2, []
    for version in versions:
        if time.monotonic() > end:
            break
        try:
            view = views.context_of(stream, version)
        except (EventStoreError, ValueError):
            found.append((version, "cannot be built again"))
            continue
        found.append((version, "contains it" if _contains(view, sought) else "does not contain it"))
    return found
