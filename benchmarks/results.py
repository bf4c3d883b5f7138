"""What was measured, compared with targets: works, the lines of their candidates, and targets.

A work has several candidates, and the first is the floor. Ratios are relative to it, per event if
events are counted; lower is better. A target belongs to one candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from benchmarks.measure import Amount, Figure, Measured

__all__ = ["HEADINGS", "Line", "Target", "Work", "work"]

HEADINGS = (
    "work",
    "candidate",
    "median",
    "p99",
    "events/s",
    "ratio to floor",
    "target",
    "reached",
)

_ENOUGH = 20
"""Number of times below which a 99th percentile would only be the slowest."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a candidate should reach; None means no target.

    Attributes:
        ratio: At most, to ``against``.
        against: Another candidate of the same work; the floor by default.
        rate: Events per second, at least.
        median_ms: At most, in milliseconds.
        p99_ms: At most, in milliseconds.
        amount: At most, in the unit of an `Amount`.
    """

    ratio: float | None = None
    against: str | None = None
    rate: float | None = None
    median_ms: float | None = None
    p99_ms: float | None = None
    amount: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One candidate of a work: the cells of a row, as text; no target, empty ``reached``."""

    candidate: str
    median: str
    p99: str
    rate: str
    ratio: str
    target: str = ""
    reached: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """All cells, in the order of `HEADINGS`, without the first."""
        return astuple(self)


@dataclass(frozen=True, slots=True)
class Work:
    """What was measured: its name, how to read it, and a line for each candidate."""

    name: str
    note: str
    lines: tuple[Line, ...]


def work(
    name: str,
    measured: Sequence[Measured],
    targets: Mapping[str, Target] | None = None,
    *,
    note: str = "",
) -> Work:
    """Combine the figures of a work; the first one is the floor.

    Args:
        name: What was measured.
        measured: The candidates.
        targets: By the candidate's name.
        note: How to read it, in sentences.
    """
    named = {each.name: each for each in measured}
    return Work(
        name,
        note,
        tuple(_line(each, named, measured[0], (targets or {}).get(each.name)) for each in measured),
    )


def _line(
    each: Measured, named: Mapping[str, Measured], floor: Measured, target: Target | None
) -> Line:
    ratio = f"{each.value / floor.value:.2f}" if floor.value and each is not floor else ""
    if isinstance(each, Figure):
        rate = f"{each.rate:,.0f}" if each.events else ""
        p99 = _duration(each.p99) if len(each.times) >= _ENOUGH else ""
        line = Line(each.name, _duration(each.median), p99, rate, ratio)
    else:
        line = Line(each.name, f"{each.value:,.2f} {each.unit}", "", "", ratio)
    if target is None:
        return line
    checks = list(_checks(target, each, named, floor))
    wanted = "; ".join(text for text, _, _ in checks)
    missed = [f"no: {found}" for _, found, reached in checks if not reached]
    verdict = "; ".join(missed) or "yes"
    if target.against is not None and not missed:
        verdict = f"yes: {checks[0][1]}"
    return replace(line, target=wanted, reached=verdict)


def _checks(
    target: Target, each: Measured, named: Mapping[str, Measured], floor: Measured
) -> Iterable[tuple[str, str, bool]]:
    """Yield, for each part of the target: the target, the value, whether it is reached."""
    if target.ratio is not None:
        base = floor if target.against is None else named[target.against]
        ratio = each.value / base.value if base.value else float("inf")
        other = "floor" if target.against is None else target.against
        yield f"at most {target.ratio:g} x {other}", f"{ratio:.2f} x", ratio <= target.ratio
    if isinstance(each, Amount):
        if target.amount is not None:
            wanted, found = f"at most {target.amount:g} {each.unit}", f"{each.value:,.2f}"
            yield wanted, found, each.value <= target.amount
        return
    if target.rate is not None:
        yield f"{target.rate:,.0f} events/s", f"{each.rate:,.0f}", each.rate >= target.rate
    for name, limit, seconds in (
        ("median", target.median_ms, each.median),
        ("p99", target.p99_ms, each.p99),
    ):
        if limit is not None:
            wanted = f"{name} at most {limit:g} ms"
            yield wanted, _duration(seconds), seconds * 1e3 <= limit


_UNITS: tuple[tuple[float, float, str], ...] = (
    (1e-3, 1e6, "{:,.0f} us"),
    (1.0, 1e3, "{:,.2f} ms"),
    (float("inf"), 1.0, "{:,.2f} s"),
)


def _duration(seconds: float) -> str:
    scale, form = next((scale, form) for below, scale, form in _UNITS if seconds < below)
    return form.format(seconds * scale)
