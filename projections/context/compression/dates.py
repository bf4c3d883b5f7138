"""Dates in a question, in the other ways in which messages write them.

Users ask about "May 7th" where a tool wrote ``2023-05-07``, and the other way round. A search by
words finds neither by the other, so that a question is also searched for in these forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["dates_in", "written_otherwise"]

_MONTHS = (
    ("january", "jan", "januar", "jän"),
    ("february", "feb", "februar"),
    ("march", "mar", "märz"),
    ("april", "apr"),
    ("may", "mai"),
    ("june", "jun", "juni"),
    ("july", "jul", "juli"),
    ("august", "aug"),
    ("september", "sep", "sept"),
    ("october", "oct", "oktober", "okt"),
    ("november", "nov"),
    ("december", "dec", "dezember", "dez"),
)
_SHORT = frozenset("jan jän feb mar apr jun jul aug sep sept oct okt nov dec dez".split())
_NUMBERS = {name: place for place, names in enumerate(_MONTHS, 1) for name in names}
_NAME = "|".join(sorted(_NUMBERS, key=len, reverse=True))
_DAY = r"(?P<day>[0-3]?\d)"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b{_YEAR}[-/.](?P<month>[01]?\d)[-/.]{_DAY}\b",
        rf"\b{_DAY}\.(?P<month>[01]?\d)\.{_YEAR}\b",
        rf"(?:{_YEAR}\s?年\s?)?(?P<month>[01]?\d)\s?月(?:\s?{_DAY}\s?[日号號])?",
        rf"\b{_DAY}(?:st|nd|rd|th|\.)?\s+(?:of\s+)?(?P<name>{_NAME})\b\.?(?:,?\s+{_YEAR}\b)?",
        rf"\b(?P<name>{_NAME})\b\.?\s+{_DAY}(?:st|nd|rd|th)?\b(?:,?\s+{_YEAR}\b)?",
        rf"\b(?P<name>{_NAME})\b\.?,?\s+{_YEAR}\b",
    )
)
_LONGEST = 2_000  # characters in which dates are looked for
_ENDINGS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}

Date = tuple[int | None, int, int | None]
"""Year, month and day; only the month is always known."""


def dates_in(text: str) -> Iterator[Date]:
    """Yield the dates that a text names in English, German, Chinese, Japanese or numbers.

    >>> [*dates_in("on May 7th, or on 2023-06-01")]
    [(2023, 6, 1), (None, 5, 7)]
    """
    for pattern in _DATES:
        for found in pattern.finditer(text[:_LONGEST]):
            named = found.groupdict()
            name, year, day = named.get("name"), named.get("year"), named.get("day")
            month = _NUMBERS[name.lower()] if name else int(named["month"])
            if 1 <= month <= 12 and (day is None or 1 <= int(day) <= 31):
                yield int(year) if year else None, month, int(day) if day else None


def written_otherwise(text: str) -> str:
    """Return the dates of a text in other forms, as text to search for; often empty.

    A year and a day are needed for forms in numbers: a month alone would find every number.

    >>> written_otherwise("Where were we on 7 May 2023?")
    'may mai 7th 2023-05-07 2023/05/07 2023.05.07 07.05.2023 7.5.2023 05/07/2023 5/7/2023'
    """
    found: dict[str, None] = {}
    for year, month, day in dates_in(text):
        found |= dict.fromkeys(name for name in _MONTHS[month - 1] if name not in _SHORT)
        if day is not None:
            found[f"{day}{_ENDINGS.get(day, 'th')}"] = None
        if year is not None and day is not None:
            found |= dict.fromkeys(f"{year}{mark}{month:02}{mark}{day:02}" for mark in "-/.")
            found |= dict.fromkeys(
                form.format(y=year, m=month, d=day)
                for form in ("{d:02}.{m:02}.{y}", "{d}.{m}.{y}", "{m:02}/{d:02}/{y}", "{m}/{d}/{y}")
            )
    return " ".join(found)
