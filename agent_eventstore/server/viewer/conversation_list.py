"""The list of conversations: search as one types, filters, and what each conversation cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from markupsafe import Markup, escape
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from agent_eventstore.server.viewer.charts import sparkline
from agent_eventstore.server.viewer.frame import Frame
from agent_eventstore.server.viewer.rich_text import visible
from eventstore.errors import ConversationNotFound, OwnerMismatch
from eventstore.leases import Lease
from eventstore.owners import Owned
from projections import ConversationEntry, SearchHit, Views
from projections.models.directory import ConversationStatus
from projections.models.usage import UsageRow

__all__ = ["conversations"]

_PAGE = 50
_FOUND = 120  # messages of a search
_SCANNED = 2_000  # conversations that a filter without an index looks at for one page
_BARS = 32
_CALLS = 5_000  # calls in which the conversations of a model or of a tool are looked for
_STATUSES: dict[str, ConversationStatus] = {"open": "open", "archived": "archived"}
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
    sought, wanted = chosen.get("q", "").strip(), _Filters.of(chosen)
    filtered = _Filtered(views, wanted)
    hits, looked_at, cursor = dict[UUID, SearchHit](), None, None
    if sought:
        hits = _hits(views, sought, wanted)
        found = [each for each in _entries(views, hits, sought) if filtered.allows(each)]
    else:
        found, cursor, looked_at = filtered.page(chosen.get("after") or None)
    lines = [_line(views, entry, hits.get(entry.conversation_id)) for entry in found]
    values: dict[str, Any] = {
        "lines": lines,
        "cursor": cursor,
        "looked_at": looked_at,
        "sought": sought,
        "wanted": wanted,
        "users": sorted({each.entry.user_id for each in lines if each.entry.user_id}),
        "tenants": sorted({each.entry.tenant_id for each in lines if each.entry.tenant_id}),
        "models": sorted({model for each in lines for model in each.models}),
    }
    if chosen.get("part") == "rows":
        return frame.page(request, "conversation_rows.html", **values)
    return frame.page(request, "conversations.html", section="conversations", **values)


@dataclass(frozen=True, slots=True)
class _Filters:
    """The filters of the list, as its address has them."""

    user: str | None = None
    tenant: str | None = None
    model: str | None = None
    tool: str | None = None
    status: ConversationStatus | None = None
    errors: bool = False
    cost: float | None = None

    @classmethod
    def of(cls, chosen: QueryParams) -> _Filters:
        """Return the filters of an address; a cost that is no number is left out."""
        cost = None
        with suppress(ValueError):
            cost = float(chosen.get("cost", ""))
        return cls(
            user=chosen.get("user") or None,
            tenant=chosen.get("tenant") or None,
            model=chosen.get("model") or None,
            tool=chosen.get("tool") or None,
            status=_STATUSES.get(chosen.get("status", "")),
            errors=chosen.get("errors") == "1",
            cost=cost if cost is not None and cost > 0 else None,
        )

    @property
    def address(self) -> dict[str, str]:
        """The filters as parameters of an address."""
        found = asdict(self) | {"errors": "1" if self.errors else ""}
        return {name: str(value) for name, value in found.items() if value not in (None, "")}


class _Filtered:
    """The list with its filters."""

    def __init__(self, views: Views, wanted: _Filters) -> None:
        self._views, self._wanted = views, wanted
        self._among: set[UUID] | None = None  # where the model was called, and the tool
        owner: Owned = {"user_id": wanted.user, "tenant_id": wanted.tenant}
        if wanted.model is not None:
            calls = views.model_calls(model=wanted.model, limit=_CALLS, **owner)
            self._among = {call.conversation_id for call in calls}
        if wanted.tool is not None:
            used = views.tool_calls(tool=wanted.tool, limit=_CALLS, **owner)
            streams = {call.conversation_id for call in used}
            self._among = streams if self._among is None else self._among & streams

    def allows(self, entry: ConversationEntry) -> bool:
        """Whether an entry passes the filters."""
        wanted = self._wanted
        if wanted.status is not None and entry.status != wanted.status:
            return False
        if wanted.user is not None and entry.user_id != wanted.user:
            return False
        if wanted.tenant is not None and entry.tenant_id != wanted.tenant:
            return False
        if self._among is not None and entry.conversation_id not in self._among:
            return False
        if wanted.errors and not entry.error_count:
            return False
        return wanted.cost is None or self._cost(entry) >= wanted.cost

    def page(self, after: str | None) -> tuple[list[ConversationEntry], str | None, int | None]:
        """Return a page of entries that pass, where the next page begins, and how many it saw.

        The number is None if the page is full, or nothing follows.
        """
        found: list[ConversationEntry] = []
        wanted, seen = self._wanted, 0
        most = _SCANNED if wanted.cost is None else _SCANNED // 5
        while True:
            page = self._views.conversations(
                user_id=wanted.user,
                tenant_id=wanted.tenant,
                status=wanted.status,
                after=after,
                limit=_PAGE,
            )
            for place, entry in enumerate(page):
                if self.allows(entry):
                    found.append(entry)
                if len(found) == _PAGE:
                    last = place == len(page) - 1
                    return found, page.cursor if last else _place_of(entry), None
            seen, after = seen + len(page), page.cursor
            if after is None or seen >= most:
                return found, after, None if after is None else seen

    def _cost(self, entry: ConversationEntry) -> float:
        stream = entry.conversation_id
        calls = self._views.model_calls(conversation_id=stream, limit=_BARS)
        return _sums(self._views, stream, calls)[1] or 0.0


def _place_of(entry: ConversationEntry) -> str | None:
    active = entry.last_activity_at
    return None if active is None else f"{active.isoformat()}/{entry.conversation_id}"


def _hits(views: Views, sought: str, wanted: _Filters) -> dict[UUID, SearchHit]:
    """Return the best message of each conversation; the last word may be a beginning."""
    words = sought if sought[-1] in '"*' or not sought[-1].isalnum() else f"{sought}*"
    found: dict[UUID, SearchHit] = {}
    for hit in views.search(words, user_id=wanted.user, tenant_id=wanted.tenant, limit=_FOUND):
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
    tokens, cost = _sums(views, stream, calls)
    models = tuple(dict.fromkeys(call.model for call in calls if call.model))
    return _Line(
        entry,
        _snippet(hit) if hit else entry.last_user_text or "",
        _state(entry, views.store.writer(stream)),
        models,
        tokens,
        cost,
        _bars(calls),
    )


def _sums(views: Views, stream: UUID, calls: Sequence[UsageRow]) -> tuple[int | None, float | None]:
    """Return a conversation's tokens and cost, given its newest calls; None if nothing is known."""
    if len(calls) < _BARS:  # These are all: a query that groups takes longer than to add them up.
        tokens = [call.total_tokens for call in calls if call.total_tokens is not None]
        costs = [call.cost_usd for call in calls if call.cost_usd is not None]
        return sum(tokens) if tokens else None, sum(costs) if costs else None
    totals = views.usage(by="conversation", conversation_id=stream)
    return (totals[0].total_tokens, totals[0].cost_usd) if totals else (None, None)


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
