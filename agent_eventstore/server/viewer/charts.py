"""Charts as data for SVG templates: every length is an attribute, because styles are not inline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

__all__ = ["Chart", "bars", "lines", "sparkline"]

WIDTH, HEIGHT = 660, 226
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 8, 8, 24


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart's geometry.

    Attributes:
        title: Its heading.
        names: The names of the series, in the order of their colours.
        grid: The horizontal lines: y and label.
        days: The labels of days: x and label.
        rects: Bars: x, y, width, height, number of the series, description.
        paths: Lines: the path and the number of the series.
        dots: The points of lines: x, y, number of the series, description.
        table: The same figures as rows, for a reader who does not see the picture.
    """

    title: str
    names: Sequence[str]
    grid: list[tuple[float, str]] = field(default_factory=list)
    days: list[tuple[float, str]] = field(default_factory=list)
    rects: list[tuple[float, float, float, float, int, str]] = field(default_factory=list)
    paths: list[tuple[str, int]] = field(default_factory=list)
    dots: list[tuple[float, float, int, str]] = field(default_factory=list)
    table: list[tuple[str, ...]] = field(default_factory=list)


def _top(highest: float) -> float:
    """Return a round number at or above the highest value, which four grid lines divide well."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (1, 1.6, 2, 4, 5, 6, 8, 10) if step * power >= highest)


def _axes(
    chart: Chart, days: Sequence[date], top: float, label: Callable[[float], str]
) -> tuple[Callable[[int], float], Callable[[float], float]]:
    inner, tall = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    step = inner / max(1, len(days))

    def x(place: int) -> float:
        return round(_LEFT + step * place, 2)

    def y(value: float) -> float:
        return round(_TOP + tall * (1 - value / top), 2)

    for quarter in range(5):
        value = top * quarter / 4
        chart.grid.append((y(value), label(value)))
    every = max(1, math.ceil(len(days) / 5))
    for place in range(0, len(days), every):
        chart.days.append((round(x(place) + step / 2, 2), f"{days[place]:%d %b}"))
    return x, y


def bars(
    title: str,
    days: Sequence[date],
    series: Mapping[str, Mapping[date, float]],
    label: Callable[[float], str],
) -> Chart:
    """Return stacked bars by day."""
    chart = Chart(title, list(series))
    sums = [sum(values.get(day, 0) for values in series.values()) for day in days]
    x, y = _axes(chart, days, _top(max(sums, default=0)), label)
    width = round(max(1.0, (WIDTH - _LEFT - _RIGHT) / max(1, len(days)) - 2), 2)
    for place, day in enumerate(days):
        base = 0.0
        for number, (name, values) in enumerate(series.items()):
            value = values.get(day, 0)
            if value:
                upper = y(base + value)
                height = round(max(0.6, y(base) - upper), 2)
                about = f"{day:%d %b}, {name}: {label(value)}"
                chart.rects.append((x(place) + 1, upper, width, height, number, about))
                base += value
        row = [label(values[day]) if day in values else "–" for values in series.values()]  # noqa: RUF001
        chart.table.append((f"{day}", *row))
    return chart


def lines(
    title: str,
    days: Sequence[date],
    series: Mapping[str, Mapping[date, float]],
    label: Callable[[float], str],
    top: float | None = None,
) -> Chart:
    """Return lines by day; a day without a value breaks no line."""
    chart = Chart(title, list(series))
    highest = max((value for values in series.values() for value in values.values()), default=0)
    x, y = _axes(chart, days, top or _top(highest), label)
    half = (WIDTH - _LEFT - _RIGHT) / max(1, len(days)) / 2
    for number, (name, values) in enumerate(series.items()):
        points = [
            (round(x(place) + half, 2), y(values[day]), day)
            for place, day in enumerate(days)
            if day in values
        ]
        if points:
            path = "M" + "L".join(f"{at} {height}" for at, height, _ in points)
            chart.paths.append((path, number))
        for at, height, day in points:
            chart.dots.append((at, height, number, f"{day:%d %b}, {name}: {label(values[day])}"))
    for day in days:
        row = [label(values[day]) if day in values else "–" for values in series.values()]  # noqa: RUF001
        chart.table.append((f"{day}", *row))
    return chart


def sparkline(
    values: Sequence[tuple[float, bool]], height: int = 18
) -> list[tuple[int, float, float, bool]]:
    """Return narrow bars, oldest first: x, y, height, and whether it is a failure."""
    highest = max((value for value, _ in values), default=0) or 1
    found = []
    for place, (value, failed) in enumerate(values):
        tall = round(max(2.0, height * value / highest), 1)
        found.append((place * 3, round(height - tall, 1), tall, failed))
    return found
