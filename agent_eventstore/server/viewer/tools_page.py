"""Audit: tool calls with filters, unknown outcomes first, and questions in SQL."""

from __future__ import annotations

from collections import Counter

from starlette.requests import Request
from starlette.responses import Response

from agent_eventstore.server.viewer import rich_text, sql_box
from agent_eventstore.server.viewer.frame import Frame
from projections.models.tool_calls import ToolCallRow
from projections.queries import TOOL_STATUSES

__all__ = ["tools"]

_SHOWN = 200
_COUNTED = 2_000
_UNKNOWN = "outcome_unknown"


def tools(frame: Frame, request: Request) -> Response:
    """Show the tool calls, and the result of a query."""
    views, chosen = frame.views(request), request.query_params
    status = chosen.get("status") if chosen.get("status") in TOOL_STATUSES else None
    tool = chosen.get("tool") or None
    calls = views.tool_calls(tool=tool, status=status, limit=_SHOWN)
    if status is None:
        unknown = views.tool_calls(tool=tool, status=_UNKNOWN, limit=_SHOWN)
        known = {(each.conversation_id, each.call_id) for each in unknown}
        rest = [each for each in calls if (each.conversation_id, each.call_id) not in known]
        calls = [*unknown, *rest][:_SHOWN]
    counted = views.tool_calls(limit=_COUNTED)
    statement = chosen.get("sql", "").strip()
    free = not views.store.owner.asks
    return frame.page(
        request,
        "tools.html",
        section="tools",
        calls=[(each, _arguments(each)) for each in calls],
        tools=_by_tool(counted),
        counted=len(counted),
        statuses=TOOL_STATUSES,
        status=status,
        tool=tool,
        free=free,
        statement=statement,
        answer=sql_box.query(views.store, statement) if free and statement else None,
        questions=sql_box.QUESTIONS,
        limit=sql_box.MOST_ROWS,
    )


def _arguments(call: ToolCallRow) -> str:
    given = call.arguments_text if call.arguments_text is not None else call.arguments
    return rich_text.first_line("" if given is None else given, 160)


def _by_tool(calls: list[ToolCallRow]) -> list[tuple[str, int, int, float, float]]:
    """Return each tool with its calls and failures, and both as lengths of at most 200."""
    number = Counter(each.name or "unknown" for each in calls)
    failed = Counter(
        each.name or "unknown" for each in calls if each.status in ("failed", _UNKNOWN)
    )
    most = max(number.values(), default=1)
    return [
        (name, count, failed[name], 200 * count / most, 200 * failed[name] / most)
        for name, count in number.most_common(14)
    ]
