"""The front: what contexts keep, by cost, as a chart of characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase

__all__ = ["Point", "picture"]

_WIDTH, _HEIGHT = 64, 17


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate in the chart.

    Attributes:
        name: Its name in the legend.
        cost: Cost of all prompts, with the whole history as 1; less is better.
        kept: Share of what was examined that is still there, 0.0 to 1.0; more is better.
        own: Whether it is one of ours, drawn in capital letters.
    """

    name: str
    cost: float
    kept: float
    own: bool = False


def picture(points: Sequence[Point], kept: str = "calls") -> str:
    """Return the points with both axes, the best in the upper left corner, and a legend.

    ``kept`` names the upright axis. If two points coincide, the first one is drawn.
    """
    left, right = min(each.cost for each in points), max(each.cost for each in points)
    low, high = min(each.kept for each in points), max(each.kept for each in points)
    canvas = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    legend = []
    for letter, each in zip(ascii_lowercase, points, strict=False):
        mark = letter.upper() if each.own else letter
        column = round((each.cost - left) / ((right - left) or 1) * (_WIDTH - 1))
        row = round((high - each.kept) / ((high - low) or 1) * (_HEIGHT - 1))
        if canvas[row][column] == " ":
            canvas[row][column] = mark
        legend.append(f"  {mark}  {each.name}: {each.kept:.1%} for {each.cost:.3f}")
    lines = []
    for number, cells in enumerate(canvas):
        scale = f"{high - (high - low) * number / (_HEIGHT - 1):.1%}" if number % 4 == 0 else ""
        lines.append(f"{scale:>7} |{''.join(cells)}".rstrip())
    lines.append(f"{'':>7} +{'-' * _WIDTH}")
    lines.append(f"{kept:>7}  {left:<.2f}{'cost':^{_WIDTH - 8}}{right:.2f}")
    return "\n".join([*lines, "", *legend])
