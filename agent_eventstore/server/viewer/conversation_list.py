"""The list of conversations: search as one types, filters, and what each conversation cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from agent_eventstore.server.viewer.charts import sparkline
from agent_eventstore.server.viewer.frame import Frame
from agent_eventstore.server.viewer.rich_text import visible
from eventstore.errors import ConversationNotFound, OwnerMismatch
from eventstore.leases import Lease
from projections import ConversationEntry, SearchHit, Views
from projections.models.usage import UsageRow

__all__ = ["conversations"]

_PAGE = 50
_FOUND = 120  # messages of a search
_SCANNED = 2_000  # conversations that a filter without an index looks at for one page
_BARS = 32
_CALLS = 5_000  # model calls in which a model's conversations are looked for
STATES = {
    "live": "a live process has it open",
    "died": "its process died",
    "errors": "has errors",
}


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the table."""

    entry: ConversationEntry
    under: str | Markup
    state: str
    models: tuple[str, ...]
    tokens: int | None
    cost: float | None
    bars: Sequence[tuple[int, float, float, bool]]

    @property
    def about_state(self) -> str:
        """The state in words."""
        return STATES.get(self.state, "")


def conversations(frame: Frame, request: Request) -> Response:
    """Show the list, or with ``part=rows`` only its rows."""
    views, chosen = frame.views(request), request.query_params
    sought = chosen.get("q", "").strip()
    user, model = chosen.get("user") or None, chosen.get("model") or None
    status = chosen.get("status") if chosen.get("status") in ("open", "archived") else None
    with_errors = chosen.get("errors") == "1"
    wanted = _Filters(views, user, status, model, with_errors)
    hits: dict[UUID, SearchHit] = {}
    if sought:
        hits = _hits(views, sought, user)
        found, cursor = (
            [each for each in _entries(views, hits, sought) if wanted.allows(each)],
            None,
        )
    else:
        found, cursor = wanted.page(chosen.get("after") or None)
    lines = [_line(views, entry, hits.get(entry.conversation_id)) for entry in found]
    values: dict[str, Any] = {
        "lines": lines,
        "cursor": cursor,
        "sought": sought,
        "user": user,
        "model": model,
        "status": status,
        "with_errors": with_errors,
    }
    if chosen.get("part") == "rows":
        return frame.page(request, "conversation_rows.html", **values)
    users = [each.key for each in views.usage(by="user")[:200] if each.key]
    models = [each.key for each in views.usage(by="model")[:100] if each.key]
    return frame.page(
        request,
        "conversations.html",
        section="conversations",
        users=sorted(users),
        models=models,
        **values,
    )


class _Filters:
    """The filters of the list."""

    def __init__(
        self, views: Views, user: str | None, status: Any, model: str | None, with_errors: bool
    ) -> None:
        self._views, self._user, self._status, self._errors = views, user, status, with_errors
        self._with_model: set[UUID] | None = None
        if model is not None:
            calls = views.model_calls(model=model, limit=_CALLS)
            self._with_model = {call.conversation_id for call in calls}

    def allows(self, entry: ConversationEntry) -> bool:
        """Whether an entry passes the filters."""
        if self._status is not None and entry.status != self._status:
            return False
        if self._user is not None and entry.user_id != self._user:
            return False
        if self._with_model is not None and entry.conversation_id not in self._with_model:
            return False
        return not self._errors or bool(entry.error_count)

    def page(self, after: str | None) -> tuple[list[ConversationEntry], str | None]:
        """Return a page of entries that pass, and the place where the next page begins."""
        found: list[ConversationEntry] = []
        seen = 0
        while True:
            page = self._views.conversations(
                user_id=self._user, status=self._status, after=after, limit=_PAGE
            )
            for place, entry in enumerate(page):
                if self.allows(entry):
                    found.append(entry)
                if len(found) == _PAGE:
                    last = place == len(page) - 1
                    return found, page.cursor if last else _place_of(entry)
            seen, after = seen + len(page), page.cursor
            if after is None or seen >= _SCANNED:
                return found, after


def _place_of(entry: ConversationEntry) -> str | None:
    active = entry.last_activity_at
    return None if active is None else f"{active.isoformat()}/{entry.conversation_id}"


def _hits(views: Views, sought: str, user: str | None) -> dict[UUID, SearchHit]:
    """Return the best message of each conversation; the last word may be a beginning."""
    words = sought if sought[-1] in '"*' or not sought[-1].isalnum() else f"{sought}*"
    found: dict[UUID, SearchHit] = {}
    for hit in views.search(words, user_id=user, limit=_FOUND):
        found.setdefault(hit.conversation_id, hit)
    return found


def _entries(views: Views, hits: dict[UUID, SearchHit], sought: str) -> Iterator[ConversationEntry]:
    named: list[UUID] = []
    with suppress(ValueError):
        named.append(UUID(sought))
    with suppress(OwnerMismatch):
        if (known := views.store.find(key=sought)) is not None:
            named.append(known.conversation_id)
    for stream in dict.fromkeys((*named, *hits)):
        with suppress(ConversationNotFound, OwnerMismatch):
            info = views.store.get(stream)
            for row in views.rows("directory", conversation_id=stream):
                yield ConversationEntry.from_row(
                    {
                        **row,
                        "version": info.version,
                        "tenant_id": info.tenant_id,
                        "user_id": info.user_id,
                        "key": info.key,
                    }
                )


def _line(views: Views, entry: ConversationEntry, hit: SearchHit | None) -> _Line:
    stream = entry.conversation_id
    calls = views.model_calls(conversation_id=stream, limit=_BARS)
    totals = views.usage(by="conversation", conversation_id=stream)
    total = totals[0] if totals else None
    models = tuple(dict.fromkeys(call.model for call in calls if call.model))
    return _Line(
        entry,
        _snippet(hit) if hit else entry.last_user_text or "",
        _state(entry, views.store.writer(stream)),
        models,
        total.total_tokens if total else None,
        total.cost_usd if total else None,
        _bars(calls),
    )


def _bars(calls: Sequence[UsageRow]) -> Sequence[tuple[int, float, float, bool]]:
    shown = [
        (float(call.total_tokens or call.estimated_prompt_tokens or 0), bool(call.error_kind))
        for call in reversed(calls)
        if call.model
    ]
    return sparkline(shown) if any(tokens for tokens, _ in shown) else ()


def _state(entry: ConversationEntry, writer: Lease | None) -> str:
    if writer is not None:
        return "live" if writer.live else "died"
    return "errors" if entry.error_count else ""


def _snippet(hit: SearchHit) -> Markup:
    parts, end = Markup(""), 0
    for first, last in hit.marks:
        parts += escape(visible(hit.snippet[end:first]))
        parts += Markup("<mark>{}</mark>").format(visible(hit.snippet[first:last]))
        end = last
    return parts + escape(visible(hit.snippet[end:]))
