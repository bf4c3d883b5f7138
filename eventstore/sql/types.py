"""Column types that behave the same on SQLite and PostgreSQL, and lose no text.

PostgreSQL refuses NUL characters and lone surrogates in text, and `json` refuses to extract them.
`SafeText` and `SafeJson` escape such characters, using a Unicode noncharacter that never occurs in
real text, and unescape them on reading. Any other text is stored verbatim, so a plain SQL client
can read it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from pydantic_core import (
    PydanticSerializationError,
    SchemaValidator,
    core_schema,
    from_json,
    to_json,
)
from sqlalchemy import (
    ColumnElement,
    DateTime,
    Dialect,
    LargeBinary,
    Text,
    TypeDecorator,
    Uuid,
    cast,
    type_coerce,
    types,
)
from sqlalchemy.types import TypeEngine

from eventstore.errors import RowDamaged
from eventstore.events.codec import dumps, dumps_json

__all__ = [
    "Digest",
    "Id",
    "IndexedText",
    "JsonText",
    "SafeJson",
    "SafeText",
    "Timestamp",
    "all_json_in",
    "escape",
    "indexed",
    "is_plain",
    "unescape",
]

_ESCAPE = "\U0010fffe"
_UNSAFE = re.compile(f"[\x00\ud800-\udfff{_ESCAPE}]")
_ESCAPED = re.compile(f"{_ESCAPE}([0-9a-f]{{6}})")
_CUT_ESCAPE = re.compile(f"{_ESCAPE}[0-9a-f]{{0,5}}$")
_LONGEST_INDEXED = 800  # bytes; three such columns fit in an index
_START_INDEXED = 700
_DIGEST_INDEXED = 32  # hexadecimal digits
_ELLIPSIS = "…"
_ID = SchemaValidator(core_schema.uuid_schema())  # takes a fifth of the time of UUID(text)
_NOT_PLAIN = ("\\u0000", "\\ud", _ESCAPE, "NaN", "Infinity")
_UNREADABLE = re.compile(r"\\u(?:0000|d)")


def escape(text: str) -> str:
    """Return the text in a form that both databases can store; most texts stay unchanged."""
    if (text.isascii() and "\x00" not in text) or _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub(lambda match: f"{_ESCAPE}{ord(match[0]):06x}", text)


def unescape(text: str) -> str:
    """Undo `escape`.

    Raises:
        RowDamaged: The value is not text.
    """
    try:
        if _ESCAPE not in text:
            return text
    except TypeError as error:
        raise RowDamaged("not text") from error
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def indexed(text: str) -> str:
    """Return the text in a form that fits in an index: escaped; if long, its start and a digest.

    PostgreSQL's limit is 2,704 bytes for all columns of an index together. The function is
    idempotent, so a long text can be found by itself or by its stored form.
    """
    escaped = escape(text)
    if len(escaped) * 4 <= _LONGEST_INDEXED or len(raw := escaped.encode()) <= _LONGEST_INDEXED:
        return escaped
    start = _CUT_ESCAPE.sub("", raw[:_START_INDEXED].decode(errors="ignore"))
    return f"{start}{_ELLIPSIS}{sha256(raw).hexdigest()[:_DIGEST_INDEXED]}"


def is_plain(json_text: str) -> bool:
    """Whether SQL can extract strings from a payload's JSON text, as `SafeText` stores them.

    PostgreSQL extracts nothing from a JSON text with an escaped NUL or lone surrogate anywhere.
    """
    if _ESCAPE in json_text:
        return False
    return "\\u" not in json_text or _UNREADABLE.search(json_text) is None


def _walk(value: Any, convert: Any) -> Any:
    if isinstance(value, str):
        return convert(value)
    if isinstance(value, dict):
        return {convert(key): _walk(item, convert) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walk(item, convert) for item in value]
    return value


class SafeText(TypeDecorator[str]):
    """Text that may hold any Python string."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape on the way in."""
        return None if value is None else escape(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Unescape on the way out."""
        return None if value is None else unescape(value)


class IndexedText(SafeText):
    """`SafeText` in an index; a long text is shortened by `indexed`.

    Values compared with the column are shortened in the same way.
    """

    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape and shorten on the way in."""
        return None if value is None else indexed(value)


class PgJson(types.UserDefinedType[str]):
    """PostgreSQL's ``json``, exchanged as text: the database stores it byte for byte."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Return the SQL name of the type."""
        return "JSON"


class JsonText(TypeDecorator[str]):
    """A JSON text, stored and returned verbatim: ``json`` on PostgreSQL, TEXT on SQLite."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the column type of the database."""
        return PgJson() if dialect.name == "postgresql" else Text()

    def column_expression(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """Read the column as text, which keeps the driver from parsing it."""
        return type_coerce(cast(column, Text), self)


class SafeJson(JsonText):
    """A JSON value whose strings are escaped like those of `SafeText`.

    This way ``column ->> 'key'`` never fails in SQL, whatever a tool returned.
    """

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Write the value as JSON text."""
        return None if value is None else json_in(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Return the value of the JSON text."""
        return None if value is None else json_out(value)


def json_in(value: Any) -> str:
    """Return a JSON value as the text that `SafeJson` writes."""
    text = dumps_json(value)
    if "\\u0000" in text or "\\ud" in text or _ESCAPE in text:
        return dumps(_walk(value, escape))
    return text


def all_json_in(values: Sequence[Any]) -> list[str | None]:
    """Return JSON values like `json_in`, in half the time if all are plain, as most are."""
    try:
        texts = [None if value is None else to_json(value).decode() for value in values]
    except PydanticSerializationError:
        texts = [_ESCAPE]
    together = "".join(filter(None, texts))
    if any(mark in together for mark in _NOT_PLAIN):
        return [None if value is None else json_in(value) for value in values]
    return texts


def json_out(text: str) -> Any:
    """Return the value of a JSON text that `SafeJson` wrote.

    Raises:
        RowDamaged: It is not JSON.
    """
    try:
        # Written texts hold neither NaN nor lone surrogates, so the fast parser is enough.
        parsed = from_json(text)
    except (TypeError, ValueError) as error:
        raise RowDamaged("not JSON") from error
    return _walk(parsed, unescape) if _ESCAPE in text else parsed


class Timestamp(TypeDecorator[datetime]):
    """An aware UTC datetime: ``timestamptz``, or ISO text with microseconds and ``Z``."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the column type of the database."""
        return DateTime(timezone=True) if dialect.name == "postgresql" else Text()

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Write text on SQLite."""
        if value is None or dialect.name == "postgresql":
            return value
        return time_to_text(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Return an aware UTC datetime."""
        if value is None:
            return None
        return value.astimezone(UTC) if isinstance(value, datetime) else text_to_time(value)


class Id(TypeDecorator[UUID]):
    """A UUID: native on PostgreSQL, its usual text of 36 characters on SQLite."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the column type of the database."""
        return Uuid() if dialect.name == "postgresql" else Text()

    def process_bind_param(self, value: UUID | None, dialect: Dialect) -> Any:
        """Write text on SQLite."""
        return value if value is None or dialect.name == "postgresql" else str(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> UUID | None:
        """Return a UUID."""
        return value if value is None or isinstance(value, UUID) else text_to_id(value)


def time_to_text(moment: datetime) -> str:
    """Return a time's text on SQLite: sortable, and understood by its date functions."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    # Like `isoformat` but faster: each append passes through here.
    return "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ" % (  # noqa: UP031 - an f-string is no clearer
        moment.year,
        moment.month,
        moment.day,
        moment.hour,
        moment.minute,
        moment.second,
        moment.microsecond,
    )


def text_to_time(text: str) -> datetime:
    """Return the time of a text written by `time_to_text`.

    Raises:
        RowDamaged: It is not a time.
    """
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise RowDamaged("not a time") from error


def text_to_id(text: str) -> UUID:
    """Return the UUID of its text.

    Raises:
        RowDamaged: It is not a UUID.
    """
    try:
        found: UUID = _ID.validate_strings(text)  # type: ignore[arg-type]
    except ValueError as error:
        raise RowDamaged("not an id") from error
    return found


class Digest(TypeDecorator[bytes]):
    """A digest of 16 bytes; PostgreSQL stores it as a ``uuid``, in exactly 16 bytes."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the column type of the database."""
        return Uuid() if dialect.name == "postgresql" else LargeBinary()

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> Any:
        """Convert to the driver's type."""
        return value if value is None or dialect.name != "postgresql" else UUID(bytes=value)

    def process_result_value(self, value: Any, dialect: Dialect) -> bytes | None:
        """Return the bytes."""
        return value.bytes if isinstance(value, UUID) else value
