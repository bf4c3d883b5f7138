"""The table ``context_messages``: one row for each message that a request may contain.

A row's key is ``(version, part)``: part 0 is the message of the event at ``version``, part i + 1
the result of tool call i of the assistant message there, so that a late result is placed next to
its call. A summary is placed at the first version that it covers; its part is minus its own
version. Tool rows contain no ``tool_call_id``: each request sets it, see
`projections.providers.request_formats`.

A row read from a database decodes a column when it is first used: a request reads a few hundred
rows and sends the JSON of some; of the others it only needs the size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from sys import getsizeof
from typing import Any, Literal, Self

from eventstore.database import json_in, json_out, text_out
from eventstore.errors import RowDamaged
from projections.context.counting import ENCODING, CountedMessages
from projections.context.prompts import QuotedMessages, message_of
from projections.engine.heads import NotSaved
from projections.engine.projection import Column, ReadTable
from projections.engine.quoting import PLACE
from projections.tokens import Count

__all__ = [
    "COLUMNS",
    "CONTEXT_MESSAGES",
    "ENCODING",
    "ContextRow",
    "Key",
    "Kind",
    "StoredRow",
    "counted",
    "letters",
    "unsaved_rows",
]


Key = tuple[int, int]
"""The place of a row or of a group in a conversation: version and part."""

Kind = Literal["user", "assistant", "tool", "summary", "error", "system", "notebook", "aside"]

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
        Column("ordinal", "integer"),
        Column("given", "json"),
        Column("result", "json"),
        Column("native", "json"),
        Column("native_tokens", "integer"),
        Column("lasting", "integer"),
        *PLACE,
    ),
    # The first finds the newest visible rows, the second the first and the latest row of a kind.
    indexes=(
        ("hidden", "summarised_by", "version", "part"),
        ("kind", "hidden", "version", "part"),
    ),
    # Retractions and summaries search by the first three, requests by ``lasting``.
    sparse=("summarised_by", "summary_version", "result_version", "lasting"),
    storage=QuotedMessages(),
    counting=CountedMessages(),
)


class _Noting:
    """Values derived from a row, cached for as long as the row exists."""

    __slots__ = ("came", "ends", "fresh", "grouped", "noted", "short", "table", "words")
    ends: Any  # The row as the two ends of its texts, by their bytes.
    fresh: bool  # Whether this process has just folded the row, so that nothing of it is stored.
    came: Any  # For a row whose result is a table, the row as it came.
    grouped: Any  # The group that begins with the row, and what it was made from.
    noted: Any  # The row's lower levels.
    short: Any  # The row at the level ``shortened``; the row itself if it has no shorter form.
    table: Any  # The row with its result as a table; False if it has no table.
    words: Any  # How often each term to search for occurs in the row.

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Create a row without cached values."""
        made = super().__new__(cls)
        object.__setattr__(made, "fresh", False)
        object.__setattr__(made, "came", None)
        object.__setattr__(made, "ends", None)
        object.__setattr__(made, "grouped", None)
        object.__setattr__(made, "noted", None)
        object.__setattr__(made, "short", None)
        object.__setattr__(made, "table", None)
        object.__setattr__(made, "words", None)
        return made

    def note(self, name: str, made: Any) -> None:
        """Cache a derived value under one of these names; it is not part of the row's value."""
        object.__setattr__(self, name, made)


@dataclass(frozen=True, slots=True, eq=False)
class ContextRow(_Noting):
    """One row of ``context_messages``.

    Attributes:
        version: The version of the event, or the first version that a summary covers.
        part: 0 for a message, i + 1 for the result of call i, minus the version of a summary.
        role: The message's role.
        kind: The kind of message; ``aside`` is a system message that is not an instruction.
        message: The message in OpenAI's chat format, with the provider's own ids in ``tool_calls``.
        tokens: The message's tokens in a request, counted once with ``encoding``; off by at most
            the fraction ``tokens_margin``, which is 0.0 if ``tokens_exact``.
        source_versions: The versions of the events that the row was made from.
        sealed: Whether the row is a placeholder for a result that is missing, unknown or not shown.
        hidden: None, or why no request may show it: withdrawn, inactive, excluded, superseded.
        summarised_by: The label of the summary that covers the row: its version, or that of an
            earlier summary that it replaced. A request that must contain the row (system part,
            first and latest user message) shows it all the same.
        result_version: For a tool row, the version of the result.
        summary_version: For a summary row, the version of the summary event.
        full_alias: The path under which a model may request the whole output.
        ordinal: The 1-based index of the message in the conversation; None for results, system
            part, notebook and summaries.
        given: The product's own texts for lower levels of detail, under ``shortened`` and
            ``facts``; other levels are computed when needed, see `projections.context.levels`. Of
            a failed call, ``partial`` is the length of the text that had streamed.
        result: For a tool row that shows a result, what its shorter form shows: ``tool``,
            ``status`` and ``path``.
        native: Provider-specific content that only some formats can send: of an assistant message
            what its provider needs back verbatim, of a tool message its status and images; see
            `projections.providers.openai_chat.write`. None in a shortened row.
        native_tokens: The tokens that ``native`` adds to a request that contains it; an estimate.
        lasting: The row's version, if it is a user message with rules or identifiers; see
            `projections.context.older_digest`.
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
    encoding: str = ENCODING
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
    ordinal: int | None = None
    given: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    native: dict[str, Any] | None = None
    native_tokens: int = 0
    lasting: int | None = None

    @classmethod
    def of(cls, values: Mapping[Any, Any]) -> ContextRow:
        """Make a row from columns; unknown columns are ignored."""
        return cls(**{name: values[name] for name in COLUMNS if name in values})

    def __eq__(self, other: object) -> bool:
        """Whether all columns are equal, regardless of how the rows were made."""
        if not isinstance(other, ContextRow):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in COLUMNS)

    def __hash__(self) -> int:
        """Return the hash of the key."""
        return hash(self.key)

    def with_(self, **changes: Any) -> ContextRow:
        """Return the row with different values in some columns."""
        return ContextRow(**{name: getattr(self, name) for name in COLUMNS} | changes)

    @property
    def key(self) -> tuple[int, int]:
        """The row's place in the conversation: version and part."""
        return self.version, self.part

    @property
    def visible(self) -> bool:
        """Whether a request may show the row within the conversation."""
        return self.hidden is None and self.summarised_by is None

    @property
    def count(self) -> Count:
        """The stored token count of the row's encoding."""
        return Count(self.tokens, exact=self.tokens_exact, margin=self.tokens_margin)


def counted(message: dict[str, Any], count: Count, encoding: str) -> dict[str, Any]:
    """Return the columns of a message and of its token count in an encoding."""
    fields = {"tokens": count.tokens, "tokens_exact": count.exact, "tokens_margin": count.margin}
    return {"message": message, **fields, "encoding": encoding}


COLUMNS = tuple(field.name for field in fields(ContextRow))
"""The columns of a stored row, in their order."""

_QUOTED = len(COLUMNS)
_MESSAGE, _NATIVE = COLUMNS.index("message"), COLUMNS.index("native")
_BYTES = 1_400  # of a row and its group in addition to the text: measured

_set = object.__setattr__


class StoredRow(ContextRow):
    """A `ContextRow` of the table that decodes a column when it is first read.

    Attributes:
        bytes: About how much memory the row takes, with the values derived from it.
    """

    __slots__ = ("_raw", "bytes")
    bytes: int

    def __init__(self, raw: Sequence[Any]) -> None:
        """Create the row from the driver's values, in the order of ``COLUMNS``.

        The last value is the text that a row without a message quotes.
        """
        _set(self, "_raw", raw)
        for name, index in _PLAIN:
            _set(self, name, raw[index])
        text, native = raw[_MESSAGE] or raw[_QUOTED], raw[_NATIVE]
        # Encoded and, once read, decoded.
        size = getsizeof(text) if native is None else getsizeof(text) + getsizeof(native)
        _set(self, "bytes", _BYTES + 2 * size)

    def with_(self, **changes: Any) -> StoredRow:
        """Return the row with different values in some columns; decodes nothing."""
        row = type(self)(self._raw)
        _set(row, "fresh", self.fresh)
        for name, value in changes.items():
            _set(row, name, value)
        return row

    def __getattr__(self, name: str) -> Any:
        """Decode a column; called only once for each, since this fills its slot.

        Raises:
            RowDamaged: The column holds a value that no fold has written.
        """
        place = _PLACES.get(name)
        if place is None:
            raise AttributeError(name)
        value = self._value(name, *place)
        _set(self, name, value)
        return value

    def _value(self, name: str, index: int, decode: Callable[[Any], Any]) -> Any:
        value = self._raw[index]
        if value is not None:
            value = decode(value)
            if name == "message" and not isinstance(value, dict):
                raise RowDamaged("message is not an object")
        elif name == "message":
            value = message_of(self.role, self._raw[_QUOTED])
        if name == "source_versions" and not isinstance(value, list):
            raise RowDamaged("source_versions is not a list")
        return value


class FoldedRow(StoredRow):
    """A `ContextRow` that this process has folded and not saved: its values are Python's."""

    __slots__ = ()

    def __init__(self, raw: Sequence[Any]) -> None:
        """Create the row from its values, in the order of ``COLUMNS``."""
        _set(self, "_raw", raw)
        _set(self, "fresh", True)
        for name, index in _PLAIN:
            _set(self, name, raw[index])
        message, native = raw[_MESSAGE], raw[_NATIVE]
        size = letters(message) if native is None else letters(message) + letters(native)
        _set(self, "bytes", _BYTES + 2 * size)

    def _value(self, name: str, index: int, decode: Callable[[Any], Any]) -> Any:
        value = self._raw[index]
        if name == "message":
            nested = isinstance(value["content"], list)
        else:
            nested = name in _NESTED and value is not None
        # A request must not share nested values with the row that is saved later.
        return json_out(json_in(value)) if nested else value


def letters(value: Any) -> int:
    """Return the total length of all texts in a JSON value, in characters."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        value = value.values()
    return sum(map(letters, value)) if isinstance(value, Iterable) else 0


_NESTED = ("native", "source_versions")


def _same(value: Any) -> Any:
    return value


# Read from every row, and returned by every driver without encoding.
_PLAIN = [
    (name, COLUMNS.index(name))
    for name in (
        "version",
        "part",
        "kind",
        "tokens",
        "encoding",
        "ordinal",
        "native_tokens",
    )
]
_DECODERS: dict[str, Callable[[Any], Any]] = {"json": json_out, "text": text_out, "boolean": bool}
_TYPES = {column.name: column.type for column in CONTEXT_MESSAGES.columns}
_PLACES = {name: (index, _DECODERS.get(_TYPES[name], _same)) for index, name in enumerate(COLUMNS)}


def unsaved_rows(
    unsaved: Mapping[tuple[Any, ...], Mapping[str, Any]], after: int
) -> list[FoldedRow]:
    """Return the unsaved rows that are not hidden, as if read from the table, newest first.

    Args:
        unsaved: The fold's unsaved values, by key.
        after: Return only rows after this version.

    Raises:
        NotSaved: There are unsaved changes to rows that are already in the table.
    """
    if any("kind" not in values for values in unsaved.values()):
        raise NotSaved
    new = sorted((key for key in unsaved if key[0] > after), reverse=True)
    rows = [FoldedRow([*key, *map(unsaved[key].get, COLUMNS[2:])]) for key in new]
    return [row for row in rows if row.hidden is None]
