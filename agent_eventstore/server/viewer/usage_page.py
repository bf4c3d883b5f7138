"""Usage: what the model calls of some days cost, how long they took, and how they failed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from agent_eventstore.server.viewer import charts, figures
from agent_eventstore.server.viewer.frame import Frame
from projections import Views
from projections.models.totals import UsageTotal
from projections.models.usage import UsageRow

__all__ = ["usage"]

_DAYS = (7, 30, 90)
_CALLS = 40_000
_SERIES = 5
_ROWS = 20


@dataclass(frozen=True, slots=True)
class _Total:
    """Totals of some calls."""

    name: str
    calls: int
    failed: int
    prompt: int | None
    cached: int | None
    answer: int | None
    cost: float | None
    unpriced: int
    p50: float | None
    p90: float | None
    p99: float | None

    @classmethod
    def of(cls, name: str, calls: Sequence[UsageRow]) -> _Total:
        """Return the totals of calls."""
        took = _latencies(calls)
        return cls(
            name,
            len(calls),
            sum(1 for each in calls if each.error_kind),
            _sum(each.prompt_tokens for each in calls),
            _sum(each.cached_prompt_tokens for each in calls),
            _sum(each.completion_tokens for each in calls),
            _sum(each.cost_usd for each in calls),
            sum(1 for each in calls if each.cost_usd is None),
            *(_percentile(took, share) for share in (0.5, 0.9, 0.99)),
        )


def usage(frame: Frame, request: Request) -> Response:
    """Show the usage of the last days."""
    views = frame.views(request)
    text = request.query_params.get("days", "")
    span = int(text) if text in map(str, _DAYS) else 30
    today = datetime.now(UTC)
    since = (today - timedelta(days=span - 1)).replace(hour=0, minute=0, second=0, microsecond=0)
    calls = [
        each
        for each in views.model_calls(since=since, limit=_CALLS)
        if each.started_at is not None and (each.model or each.total_tokens)
    ]
    days = [(since + timedelta(days=number)).date() for number in range(span)]
    by_day: dict[date, list[UsageRow]] = defaultdict(list)
    by_model: dict[str, list[UsageRow]] = defaultdict(list)
    for each in calls:
        assert each.started_at is not None  # noqa: S101 - filtered above
        by_day[each.started_at.astimezone(UTC).date()].append(each)
        by_model[each.model or "unknown"].append(each)
    models = sorted(
        (_Total.of(name, group) for name, group in by_model.items()),
        key=lambda total: (-(total.cost or 0), -total.calls),
    )
    plots = [
        charts.bars("Cost by day and model", days, _costs(by_day, models), figures.cost),
        _latency(days, by_day),
        charts.bars(
            "Failed calls by day and kind", days, _kinds(by_day), lambda number: f"{number:g}"
        ),
        charts.lines(
            "Share of the prompt from cache",
            days,
            {"share": _cached(by_day)},
            lambda share: f"{share:.0f} %",
            top=100,
        ),
    ]
    return frame.page(
        request,
        "usage.html",
        section="usage",
        span=span,
        spans=_DAYS,
        total=_Total.of("", calls),
        models=models,
        plots=plots,
        cut=len(calls) >= _CALLS,
        limit=_CALLS,
        users=_named(views.usage(by="user", since=since)),
        conversations=list(_titled(views, views.usage(by="conversation", since=since)[:_ROWS])),
    )


def _named(totals: Sequence[UsageTotal]) -> Sequence[UsageTotal]:
    return [each for each in totals if each.total_tokens or each.cost_usd][:_ROWS]


def _titled(views: Views, totals: Sequence[UsageTotal]) -> Iterable[tuple[UsageTotal, str]]:
    for each in totals:
        if each.key and (each.total_tokens or each.cost_usd):
            for row in views.rows("directory", conversation_id=UUID(each.key)):
                yield each, row.get("title") or "(untitled)"


def _latencies(calls: Iterable[UsageRow]) -> list[int]:
    """Return the milliseconds of answered calls, ascending."""
    return sorted(
        each.latency_ms for each in calls if each.latency_ms is not None and not each.error_kind
    )


def _sum(values: Iterable[float | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None  # type: ignore[return-value]


def _percentile(ordered: Sequence[int], share: float) -> int | None:
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def _costs(
    by_day: Mapping[date, Sequence[UsageRow]], models: Sequence[_Total]
) -> Mapping[str, Mapping[date, float]]:
    names = [total.name for total in models if total.cost][:_SERIES]
    found: dict[str, dict[date, float]] = {name: {} for name in names}
    for day, calls in by_day.items():
        for each in calls:
            if each.cost_usd:
                name = each.model if each.model in found else "other"
                values = found.setdefault(str(name), {})
                values[day] = values.get(day, 0) + each.cost_usd
    return found


def _kinds(by_day: Mapping[date, Sequence[UsageRow]]) -> Mapping[str, Mapping[date, float]]:
    counts: Counter[str] = Counter()
    for calls in by_day.values():
        counts.update(each.error_kind for each in calls if each.error_kind)
    names = [name for name, _ in counts.most_common(_SERIES)]
    found: dict[str, dict[date, float]] = {name: {} for name in names}
    for day, calls in by_day.items():
        for each in calls:
            if each.error_kind:
                name = each.error_kind if each.error_kind in names else "other"
                values = found.setdefault(name, {})
                values[day] = values.get(day, 0) + 1
    return found


def _cached(by_day: Mapping[date, Sequence[UsageRow]]) -> Mapping[date, float]:
    found = {}
    for day, calls in by_day.items():
        prompt = sum(each.prompt_tokens or 0 for each in calls)
        if prompt:
            found[day] = 100 * sum(each.cached_prompt_tokens or 0 for each in calls) / prompt
    return found


def _latency(days: Sequence[date], by_day: Mapping[date, Sequence[UsageRow]]) -> charts.Chart:
    series: dict[str, dict[date, float]] = {"median": {}, "p90": {}, "p99": {}}
    for day, calls in by_day.items():
        took = _latencies(calls)
        for name, share in (("median", 0.5), ("p90", 0.9), ("p99", 0.99)):
            if (value := _percentile(took, share)) is not None:
                series[name][day] = value / 1_000
    return charts.lines(
        "Latency of answered calls by day", days, series, lambda seconds: f"{seconds:.1f} s"
    )
