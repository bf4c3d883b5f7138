"""The table ``context_messages``: one row for each message that a request may hold.

A row is keyed by ``(version, part)``: part 0 is the message of the event at ``version``, part i + 1
the result of tool call i of the assistant message there, so that a late result lands beside its
call. A summary stands at the first version that it covers; its part is minus its own version. Tool
rows hold no ``tool_call_id``: the request that they go into settles it, see
`projections.context.wire`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from eventstore.tokens import Count, count_message, tokenizer_for
from projections.base import Column, ReadTable

__all__ = ["CONTEXT_MESSAGES", "ContextRow", "Kind", "counted"]

Kind = Literal["user", "assistant", "tool", "summary", "error", "system", "notebook"]

CONTEXT_MESSAGES = ReadTable(
    name="context_messages",
    key=("version", "part"),
    columns=(
        Column("version", "integer"),
        Column("part", "integer"),
        Column("role", "text"),
        Column("kind", "text"),
        Column("message", "json"),
        Column("tokens", "integer"),
        Column("tokens_exact", "boolean"),
        Column("tokens_margin", "float"),
        Column("encoding", "text"),
        Column("sealed", "boolean"),
        Column("hidden", "text"),
        Column("summarised_by", "integer"),
        Column("source_versions", "json"),
        Column("mode", "text"),
        Column("run_id", "text"),
        Column("turn", "integer"),
        Column("step", "integer"),
        Column("result_version", "integer"),
        Column("summary_version", "integer"),
        Column("full_alias", "text"),
    ),
    # The first serves the newest visible rows, the second the first and the latest of a kind.
    indexes=(
        ("hidden", "summarised_by", "version", "part"),
        ("kind", "hidden", "version", "part"),
    ),
)

_TOKENIZER = tokenizer_for("o200k_base")


@dataclass(frozen=True, slots=True)
class ContextRow:
    """One row of ``context_messages``.

    Attributes:
        message: In OpenAI's chat format, with the provider's own ids in ``tool_calls``.
        tokens: Of the message in a request, counted once with ``encoding``; off by at most
            the fraction ``tokens_margin``, which is 0.0 when ``tokens_exact``.
        sealed: A placeholder stands for a result that is missing or unknown.
        hidden: None, or why no request may show it: withdrawn, excluded, superseded.
        summarised_by: Version of the summary that stands for it; a request that must hold the
            row (system part, first and latest user message) shows it all the same.
        source_versions: The events that the row was made of.
        result_version: Of a tool row, the version of the result.
        summary_version: Of a summary row, the version of the summary event.
        full_alias: The path under which a model may ask for the whole output.
    """

    version: int
    part: int
    role: str
    kind: str
    message: dict[str, Any]
    tokens: int
    source_versions: list[int]
    tokens_exact: bool = True
    tokens_margin: float = 0.0
    encoding: str = _TOKENIZER.name
    sealed: bool = False
    hidden: str | None = None
    summarised_by: int | None = None
    mode: str | None = None
    run_id: str | None = None
    turn: int | None = None
    step: int | None = None
    result_version: int | None = None
    summary_version: int | None = None
    full_alias: str | None = None

    @classmethod
    def of(cls, values: Mapping[Any, Any]) -> ContextRow:
        """Make a row of its columns; those that it does not know are ignored."""
        return cls(**{name: values[name] for name in _FIELDS if name in values})

    @property
    def key(self) -> tuple[int, int]:
        """The place in the conversation."""
        return self.version, self.part

    @property
    def visible(self) -> bool:
        """Whether a request may show the row within the conversation."""
        return self.hidden is None and self.summarised_by is None

    @property
    def count(self) -> Count:
        """The stored tokens, as a count of the encoding."""
        return Count(self.tokens, exact=self.tokens_exact, margin=self.tokens_margin)


_FIELDS = tuple(field.name for field in fields(ContextRow))


def counted(message: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that hold a message: itself and its tokens, counted here and only here."""
    count = count_message(message, _TOKENIZER)
    return {
        "message": message,
        "tokens": count.tokens,
        "tokens_exact": count.exact,
        "tokens_margin": count.margin,
        "encoding": _TOKENIZER.name,
    }
