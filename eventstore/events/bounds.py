"""Limits on the values in an event: numbers, names, and the depth of JSON.

The types of payloads declare their limits with `Most`, and every `Any` or JSON object nests at most
`DEEPEST` levels. An append refuses values beyond their limit (`excesses`). Data that must not be
lost to a refusal, such as a model's answer, is `fitted` first: numbers are set to the limit, names
keep their start and a digest, and JSON becomes its own text. Numbers that were stored before there
were limits are `clamped` when they are read. Sums of four billion counts fit 64 bits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from operator import is_
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, Field

__all__ = [
    "DEEPEST",
    "LONGEST_NAME",
    "Count",
    "Excess",
    "Extra",
    "Handle",
    "Metadata",
    "Most",
    "Name",
    "Ordinal",
    "Size",
    "Whole",
    "clamped",
    "excess_of",
    "excesses",
    "fitted",
    "read_json",
    "types_of",
]


@dataclass(frozen=True, slots=True)
class Most:
    """The largest absolute value of a number, or the maximum length of a text in characters."""

    limit: int


@dataclass(frozen=True, slots=True)
class MostJson:
    """The maximum size of an object as JSON text, in bytes."""

    limit: int


LONGEST_NAME = 512
DEEPEST = 100
"""Levels that the JSON of one field may nest. Readers accept 200, and the payload adds some."""

Count = Annotated[int, Field(ge=0), Most(2**31 - 1)]
"""A number of things, or an index that counts from 0."""
Ordinal = Annotated[int, Field(ge=1), Most(2**31 - 1)]
"""A version, or another number that counts from 1."""
Whole = Annotated[int, Most(2**31 - 1)]
"""Any other whole number."""
Size = Annotated[int, Field(ge=0), Most(2**40 - 1)]
"""Bytes or milliseconds: a terabyte, or 34 years."""
Name = Annotated[str, Most(LONGEST_NAME)]
"""An id or a name that a product assigns or searches for."""
Handle = Annotated[str, Most(65_536)]
"""A provider's id, which the provider expects back unchanged; some contain a signature."""

Metadata = Annotated[dict[str, Any], MostJson(16_384)]
"""The product's JSON object about a conversation, shown in lists."""
Extra = Annotated[dict[str, Any], MostJson(2_048)]
"""The product's JSON object about an event."""

_MOST_DIGITS = 4_000  # of a whole number within JSON; Python reads 4,300
_MOST_BITS = 13_000
_FEWEST_DIGITS = 3_900  # of a number that has more bits
_FARTHEST = 2**63 - 1  # for numbers in a product's own events; the maximum of its own columns
_FAR = 10**18  # replaces a number of more digits until it is clamped


@dataclass(frozen=True, slots=True)
class Excess:
    """A value beyond its limit: the path of the field, what was found, and the limit."""

    field: str
    found: str
    limit: str

    def __str__(self) -> str:
        return f"{self.field} {self.found}; at most {self.limit} can be kept"


V = TypeVar("V", bound=BaseModel)
_Report = Callable[[Excess], None]
_Fit = Callable[[Any, str, _Report], Any]
_Scope = Literal["all", "flat", "numbers"]
"""What is checked: everything with a limit, everything but JSON, or only numbers."""
_Plan = tuple[tuple[str, int | None, _Fit], ...]
"""For a class: its fields with limits, the limit of numbers and names, and how to fit them."""


def excesses(value: BaseModel, text: str | None = None) -> list[Excess]:
    """Return the values of a payload or metadata that are beyond their limits.

    Args:
        value: The payload or metadata.
        text: Its JSON text, if known. JSON in a short text with few brackets cannot be nested too
            deeply or hold too long a number, so it is not traversed.
    """
    found: list[Excess] = []
    _fit(value, "", found.append, _plan(type(value), _scope_of(text)))
    return found


def _scope_of(text: str | None) -> _Scope:
    if text is None or len(text) > _FEWEST_DIGITS:
        return "all"
    return "flat" if text.count("{") + text.count("[") <= DEEPEST else "all"


def excess_of(kind: Any, field: str, value: Any) -> list[Excess]:
    """Return the excess of a value outside a payload, such as a tenant's `Name`."""
    found: list[Excess] = []
    if (fit := _fit_of(kind, "all")) is not None and value is not None:
        fit(value, field, found.append)
    return found


def fitted(value: V, report: _Report) -> V:
    """Return a payload or metadata within all limits; the same object if it already is."""
    return _fit(value, "", report, _plan(type(value), "all"))


def clamped(value: V) -> V:
    """Return a payload or metadata whose numbers are within their limits."""
    return _fit(value, "", _silent, _plan(type(value), "numbers"))


def read_json(text: str) -> Any:
    """Return the value of a JSON text, whatever the length of its numbers.

    Raises:
        ValueError: The text is not JSON.
        RecursionError: It is nested too deeply.
    """
    return _LENIENT.decode(text)


_NONE = ()


def _fit(value: V, path: str, report: _Report, plan: _Plan) -> V:
    changed: dict[str, Any] = {}
    values = value.__dict__
    for name, limit, fit in plan:
        before = values.get(name)
        if before is None or before is _NONE:
            continue
        # Checked inline, because every append and every read runs this loop.
        if limit is None or (len(before) if type(before) is str else abs(before)) > limit:
            after = fit(before, f"{path}{name}", report)
            if after is not before:
                changed[name] = after
    return value.model_copy(update=changed) if changed else value


def types_of(cls: type[BaseModel]) -> dict[str, Any]:
    """Return the types of a class's fields, with their limits.

    As pydantic has resolved them: `get_type_hints` does not find the classes of a function.
    """
    return {name: field.rebuild_annotation() for name, field in cls.model_fields.items()}


@cache
def _plan(cls: type[BaseModel], scope: _Scope, around: frozenset[type] = frozenset()) -> _Plan:
    found = (
        (name, _limit_of(kind), _fit_of(kind, scope, around | {cls}))
        for name, kind in types_of(cls).items()
    )
    return tuple((name, limit, fit) for name, limit, fit in found if fit is not None)


def _limit_of(kind: Any) -> int | None:
    """Return the limit of a number or a name, which may be None; None for any other type."""
    if get_origin(kind) is tuple:
        return None
    if get_origin(kind) is Annotated:
        return next((mark.limit for mark in get_args(kind) if isinstance(mark, Most)), None)
    limits = [_limit_of(each) for each in get_args(kind) if each is not type(None)]
    return limits[0] if len(limits) == 1 else None


def _fit_of(kind: Any, scope: _Scope, around: frozenset[type] = frozenset()) -> _Fit | None:
    """Return the function that fits a value of this type to its limits, or None if it has none.

    ``around`` are the enclosing classes: a class may contain values of itself.
    """
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        # Every read checks numbers, every append checks names, and most values have neither.
        has_any = scope == "all" or kind in around or _plan(kind, scope, around)
        return _value(scope) if has_any else None
    if kind is Any or get_origin(kind) is dict:
        return _json if scope == "all" else None
    if kind is int:  # The catalogue's numbers have their own limits.
        return _number(_FARTHEST)
    if get_origin(kind) is not Annotated:
        inner = [fit for each in get_args(kind) if (fit := _fit_of(each, scope, around))]
        if not inner:
            return None
        # All members of a union are of one kind: values, or a text and parts of a message.
        return _each(inner[0]) if get_origin(kind) in (tuple, list) else inner[0]
    of, *marks = get_args(kind)
    if small := next((mark for mark in marks if isinstance(mark, MostJson)), None):
        return None if scope == "numbers" else _small(small.limit)
    most = next((mark.limit for mark in marks if isinstance(mark, Most)), None)
    if most is None:
        return _fit_of(of, scope, around)
    if of is int:
        return _number(most)
    return None if scope == "numbers" else _name(most)


def _number(most: int) -> _Fit:
    def fit(value: int, path: str, report: _Report) -> int:
        if not isinstance(value, int) or -most <= value <= most:
            return value
        report(Excess(path, "is a larger number", f"{most:,}"))
        return most if value > 0 else -most

    return fit


def _name(most: int) -> _Fit:
    def fit(value: str, path: str, report: _Report) -> str:
        if not isinstance(value, str) or len(value) <= most:
            return value
        report(Excess(path, f"is {len(value):,} characters long", f"{most:,}"))
        digest = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return f"{value[: most - 33]}…{digest}"

    return fit


def _each(fit: _Fit) -> _Fit:
    def each(value: Any, path: str, report: _Report) -> Any:
        if not isinstance(value, tuple | list):
            return value
        if all(fit(one, path, _silent) is one for one in value):  # as nearly always
            return value
        after = [fit(one, f"{path}[{place}]", report) for place, one in enumerate(value)]
        return value if all(map(is_, value, after)) else type(value)(after)

    return each


def _value(scope: _Scope) -> _Fit:
    def fit(value: Any, path: str, report: _Report) -> Any:
        if isinstance(value, BaseModel) and (plan := _plan(type(value), scope)):
            return _fit(value, f"{path}.", report, plan)
        return value

    return fit


def _json(value: Any, path: str, report: _Report) -> Any:
    """Return JSON that is too deep, or holds too long a number, as text; other JSON unchanged."""
    level, depth, excess = [value], 0, None
    while level and excess is None:
        if depth > DEEPEST:
            excess = Excess(path, "is nested more deeply", f"{DEEPEST} levels")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list | tuple):
                inner.extend(item)
            elif isinstance(item, int) and item.bit_length() > _MOST_BITS:
                excess = Excess(path, "holds a longer number", f"{_MOST_DIGITS:,} digits")
        level, depth = inner, depth + 1
    if excess is None:
        return value
    report(excess)
    return _as_text(value)


def _small(most: int) -> _Fit:
    def fit(value: Any, path: str, report: _Report) -> Any:
        json_value = _json(value, path, report)
        size = len(_text_of(json_value).encode("utf-8", "surrogatepass"))
        if size <= most:
            return json_value
        report(Excess(path, f"has {size:,} bytes of JSON", f"{most:,} bytes"))
        return None

    return fit


def _as_text(value: Any) -> Any:
    text = _text_of(value)
    # An object stays an object, because the field may accept nothing else.
    return {"$text": text} if isinstance(value, dict) else text


def _text_of(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError, TypeError):
        return f"(a value that cannot be written as JSON: {type(value).__name__})"


def _silent(_: Excess) -> None:
    """Report nothing: the value was stored before there were limits."""


def _int(token: str) -> int:
    if len(token) <= _MOST_DIGITS:
        return int(token)
    return -_FAR if token.startswith("-") else _FAR


_LENIENT = json.JSONDecoder(parse_int=_int)
