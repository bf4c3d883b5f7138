"""What a request may hold, and the groups that it is filled with.

A group is what must stay together: an assistant message with the results of its calls, or any
other message alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from projections.compression.monitor import Thresholds
from projections.context.rows import ContextRow

__all__ = ["Budget", "Group", "groups_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one request; None is no limit.

    Attributes:
        max_tokens: Upper limit for the prompt's tokens.
        max_messages: Upper limit for its messages.
        max_chars: Upper limit for the characters of its messages.
        thresholds: When the history is trimmed, and how far; None to trim it at every request to
            what just fits.
    """

    max_tokens: int | None = None
    max_messages: int | None = None
    max_chars: int | None = None
    thresholds: Thresholds | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Messages that stay together.

    Attributes:
        rows: In order; an assistant row comes before the rows of its results.
        tokens: Of all its messages within a request.
        label: What a mandatory group is, for errors and the ledger; empty for others.
        lasting: Of the tokens, those that shortening leaves: of what its maker alone can read, in
            rows that have no shorter form.
        yields: Whether its shorter form may stand for it, though it is mandatory.
        whole: The group as it was said, where a limit does not let it be sent so: then ``rows``
            are the shorter ones, and ``tokens`` 0 if these are not sent either.
        why: Why that is.
        key: The place of its first row.
    """

    rows: tuple[ContextRow, ...]
    tokens: int
    label: str = ""
    lasting: int = 0
    yields: bool = False
    whole: Group | None = None
    why: str = ""
    key: tuple[int, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Note the place, which is looked at again and again."""
        object.__setattr__(self, "key", self.rows[0].key)

    @property
    def kind(self) -> str:
        """The kind of its first row."""
        return self.rows[0].kind

    @property
    def left_out(self) -> bool:
        """Whether no form of it can be sent."""
        return self.whole is not None and not self.tokens

    @property
    def source_versions(self) -> tuple[int, ...]:
        """The events that it was made of, ascending."""
        return tuple(sorted({version for row in self.rows for version in row.source_versions}))


def groups_of(rows: Iterable[ContextRow]) -> Iterator[tuple[ContextRow, ...]]:
    """Yield whole groups, newest first, from rows in descending order of (version, part).

    Rows are taken one at a time, and none beyond the first row of the group after the last that
    the caller asks for. Results without their assistant message make no group.
    """
    results: list[ContextRow] = []
    for row in rows:
        if results and results[0].version != row.version:
            results = []
        if row.kind == "tool":
            results.append(row)
        else:
            yield (row, *reversed(results)) if row.kind == "assistant" else (row,)
            results = []
