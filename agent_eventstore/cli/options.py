"""Shared by the commands: the database, names of conversations, and the common options.

The argument types reject values that would cause an error of Python or a driver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import click
from pydantic import HttpUrl, TypeAdapter, ValidationError

from agent_eventstore.cli.program import Failed
from agent_eventstore.cli.target import Target, configure
from eventstore import ArchivedConversation, EventStore, StreamInfo
from eventstore.errors import ConversationArchived, InvalidEvent
from eventstore.ids import uuid_in
from projections.tokens.text import require_tokenizer

__all__ = [
    "Days",
    "InputFile",
    "Moment",
    "Number",
    "OutputPath",
    "Seconds",
    "ServerUrl",
    "TokenizerName",
    "Versions",
    "common",
    "conversation_argument",
    "find_archived",
    "find_conversation",
    "json_option",
    "limit_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])

_HTTP = TypeAdapter(HttpUrl)
_HEX_DIGITS = 32
_AMBIGUOUS = 3

_MOST = 2**53
"""The largest version or limit; both databases can count further."""


class Number(click.IntRange):
    """An integer, at most `_MOST`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        number = int(super().convert(value, param, ctx))
        if abs(number) > _MOST:
            self.fail(f"the number is out of range: at most {_MOST:,}", param, ctx)
        return number


class Versions(click.ParamType):  # type: ignore[type-arg] # click 8.1 takes no argument
    """A version, or an inclusive range of versions as in ``5-9``."""

    name = "versions"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> range:
        """Return the versions."""
        if isinstance(value, range):
            return value
        first, dash, last = str(value).partition("-")
        bounds = [
            Number(min=1).convert(each, param, ctx) for each in (first, last if dash else first)
        ]
        if bounds[0] > bounds[1]:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return range(bounds[0], bounds[1] + 1)


class Seconds(click.FloatRange):
    """A finite time in seconds."""

    unit = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the time."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a time in {self.unit}", param, ctx)
        return seconds


class Days(Seconds):
    """A finite time in days."""

    unit = "days"


class TokenizerName(click.ParamType):  # type: ignore[type-arg] # click 8.1 takes no argument
    """The name of an encoding, or of a model whose tokens can be counted."""

    name = "tokenizer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name unchanged."""
        try:
            require_tokenizer(str(value))
        except ValueError:
            self.fail(f"{str(value)[:100]!r} is neither an encoding nor a known model", param, ctx)
        return str(value)


class Moment(click.ParamType):  # type: ignore[type-arg] # click 8.1 takes no argument
    """A date or time in ISO 8601; without a time zone it is in UTC."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return the time."""
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            message = (
                f"{str(value)[:40]!r} is no date or time: 2026-03-02 or 2026-03-02T09:00+01:00"
            )
            self.fail(message, param, ctx)


class ServerUrl(click.ParamType):  # type: ignore[type-arg] # click 8.1 takes no argument
    """The URL of an HTTP server."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the URL unchanged."""
        address = str(value)
        with suppress(ValidationError):
            _HTTP.validate_python(address)
            if address.isascii() and address.isprintable() and " " not in address:
                return address
        self.fail(f"{value!r} is not the address of a server: http(s)://HOST/PATH", param, ctx)


class InputFile(click.Path):
    """An existing regular file: no pipe, which can be read only once, and no device."""

    def __init__(self, *, folders: bool = False) -> None:
        super().__init__(exists=True, dir_okay=folders, readable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the file's path."""
        path = Path(super().convert(value, param, ctx))  # type: ignore[arg-type]
        if not path.is_file() and not path.is_dir():
            self.fail(f"{path} is not a regular file: save its content to one", param, ctx)
        return path


class OutputPath(click.Path):
    """A path to write to; ``-`` is None, and means stdout."""

    def __init__(self) -> None:
        super().__init__(writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        return None if value == "-" else super().convert(value, param, ctx)


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command its `Target`, and the global options, because many users write them last."""
    command = click.make_pass_decorator(Target)(command)
    command = click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_take_verbose,
        help="Show log messages on stderr.",
    )(command)
    # Accepted here too, because users try it after the command.
    command = click.option(
        "--read-only",
        is_flag=True,
        hidden=True,
        expose_value=False,
        callback=_take_read_only,
        help="Write nothing.",
    )(command)
    return click.option(
        "--db", metavar="URL", expose_value=False, callback=_take_url, help="The database."
    )(command)


def _take_url(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        target = context.find_object(Target)
        if target is not None:
            target.named, target.by_hand = value, True


def _take_read_only(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and (target := context.find_object(Target)) is not None:
        target.read_only = True


def _take_verbose(_: click.Context, __: click.Parameter, value: bool) -> None:
    if value:
        configure(verbose=True)


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
conversation_argument = click.argument("conversation", metavar="CID")


def limit_option(default: int | None, what: str) -> Callable[[Command], Command]:
    """Return an option that limits the number of listed items."""
    return click.option(
        "--limit",
        type=Number(min=1),
        default=default,
        show_default=default is not None,
        help=f"The most {what} to list.",
    )


def find_conversation(store: EventStore, named: str) -> UUID:
    """Return the conversation with this id, key, or start of an id.

    A key with a tenant is written ``TENANT/KEY``.

    Raises:
        Failed: There is no such conversation, or several ids start like this.
    """
    found_by_key = _by_key(store, named)
    if found_by_key is not None:
        return found_by_key
    digits = named.replace("-", "").lower()
    if not digits or len(digits) > _HEX_DIGITS or set(digits) - set("0123456789abcdef"):
        raise Failed(
            f"there is no conversation with the key {named!r}: give a key, a UUID or the start of "
            "one; `eventstore list` shows the existing ones"
        )
    first = int(digits.ljust(_HEX_DIGITS, "0"), 16)
    after = UUID(int=first - 1) if first else None
    found = _starting(digits, store.list(after=after, limit=_AMBIGUOUS + 1))
    if not found:
        page = store.archived(after=after, limit=_AMBIGUOUS + 1)
        if archived := _starting(digits, page):
            raise ConversationArchived(_only(named, archived))
        raise Failed(f"there is no conversation {named}: `eventstore list` shows the existing ones")
    return _only(named, found)


def find_archived(store: EventStore, named: str) -> UUID:
    """Return the conversation in the archive with this id, key, or start of an id.

    Raises:
        Failed: There is no such conversation, or several ids start like this.
    """
    try:
        find_conversation(store, named)
    except ConversationArchived as error:
        return error.conversation_id
    raise Failed(f"{named} is not in the archive: `eventstore archive list` shows what is")


def _starting(
    digits: str, page: Sequence[StreamInfo] | Sequence[ArchivedConversation]
) -> list[UUID]:
    return [each.conversation_id for each in page if each.conversation_id.hex.startswith(digits)]


def _only(named: str, found: list[UUID]) -> UUID:
    if len(found) > 1:
        candidates = ", ".join(map(str, found[:_AMBIGUOUS]))
        more = ", ..." if len(found) > _AMBIGUOUS else ""
        raise Failed(f"{named!r} is the start of several conversations' ids: {candidates}{more}")
    return found[0]


def _by_key(store: EventStore, named: str) -> UUID | None:
    """Return the conversation with a key, or None."""
    tenant, slash, key = named.partition("/")
    candidates: list[tuple[str, str | None]] = [(named, None)] if named else []
    candidates += [(key, tenant)] if slash and tenant and key else []
    for each, of_tenant in candidates:
        with suppress(InvalidEvent):
            found = None if uuid_in(each) else store.find(key=each, tenant_id=of_tenant)
            if found is not None:
                return found.conversation_id
    return None
