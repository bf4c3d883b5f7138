"""Mutants from a seeded generator: the same number gives the same mutant, wherever it runs."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

from tests.properties.hostile import HOSTILE, NUMBERS, PIECES, WORDS, places_in

__all__ = ["Mutator"]

T = TypeVar("T")

_TEXTS = (
    *(
        "",
        " ",
        "\0",
        "a\0b",
        "\ud800",
        "\u202e\x1b[31m",
        "9" * 5_000,
        "../../..",
        "%s{}",
        "' OR 1=1",
    ),
    *(
        "@state/x",
        "Ω" * 300,
        "not " * 50,
        "./" * 200,
        "1.0",
        "sk-" + "a" * 40,
        "\U000e0041",
        "\r\n",
    ),
)
_SELDOM = 0.01


class Mutator:
    """Draws values that nobody means, and changes those that somebody meant.

    Args:
        seed: The run's seed.
        number: Which mutant of the run.
    """

    def __init__(self, seed: int, number: int) -> None:
        # A text gives the same numbers everywhere; nothing here is to be secret.
        self.random = Random(f"{seed}:{number}")  # noqa: S311

    def one_of(self, values: Sequence[T]) -> T:
        """Return one of these."""
        return self.random.choice(values)

    def chance(self, share: float) -> bool:
        """Tell whether something happens that does so in this share of cases."""
        return self.random.random() < share

    def text(self) -> str:
        """Return a text."""
        return self.one_of(self.one_of((_TEXTS, WORDS)))

    def number(self) -> int:
        """Return an integer, most of them small."""
        if self.chance(0.7):
            return self.random.randint(-2, 20)
        return int(self.one_of(NUMBERS))

    def value(self, depth: int = 2) -> Any:
        """Return a JSON value, or what only Python takes for one."""
        match self.random.randrange(8 if depth else 6):
            case 0:
                return self.one_of((None, True, False))
            case 1:
                return self.number()
            case 2:
                return self.one_of((*NUMBERS, 1.5, float("nan"), float("inf")))
            case 6:
                return [self.value(depth - 1) for _ in range(self.random.randrange(4))]
            case 7:
                names = [self.one_of(WORDS) for _ in range(self.random.randrange(4))]
                return {name: self.value(depth - 1) for name in names}
            case _:
                return self.text()

    def changed(self, value: Any) -> Any:
        """Return a document of which some values are others, lost, repeated or renamed."""
        holder = [copy.deepcopy(value)]
        for _ in range(self.random.randint(1, 4)):
            at, key = self.one_of(places_in(holder))
            match self.random.randrange(6):
                case 0 if at is not holder:
                    del at[key]
                case 1 if isinstance(at, list) and at is not holder:
                    at.insert(self.random.randint(0, len(at)), copy.deepcopy(at[key]))
                case 2 if isinstance(at, dict):
                    at[self.one_of(WORDS)] = at.pop(key)
                case _:
                    at[key] = self.value()
        return holder[0]

    def changed_bytes(self, content: bytes) -> bytes:
        """Return bytes of which pieces are lost, repeated, moved or written over."""
        for _ in range(self.random.randint(1, 4)):
            start = self.random.randint(0, len(content))
            end = min(len(content), start + self.one_of((1, 8, 200, len(content))))
            before, lost, after = content[:start], content[start:end], content[end:]
            match self.random.randrange(5):
                case 0:
                    content = before + after
                case 1:
                    content = before + lost + lost + after
                case 2:
                    content = after + lost + before
                case 3:
                    content = before + self.one_of(PIECES) + after
                case _:
                    content = before + self.one_of(PIECES) + lost + after
        return content

    def file(self, document: Any, *, by_line: bool) -> bytes:
        """Return the content of a file that was to hold a document."""
        if self.chance(_SELDOM):
            return self.one_of(HOSTILE)
        if self.chance(0.5):
            document = self.changed(document)
        values = document if by_line and isinstance(document, list) else [document]
        content = "\n".join(json.dumps(value) for value in values).encode()
        return self.changed_bytes(content) if self.chance(0.5) else content
