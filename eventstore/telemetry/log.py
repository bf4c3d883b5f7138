"""Structured logging, and database URLs with their passwords masked.

A library must not print. Log events go to a logger of the standard library, rendered as
``key=value``, and appear where the product configures logging. Each field is also an attribute of
the record, where formatters that write JSON find it. They carry ids, versions and durations, but
never payloads or passwords.

Everything that shows a URL (errors, logs, the command line, ``repr``) passes it through `masked`.
In a text that is not a valid URL, too much is masked rather than too little: a password may contain
any character.
"""

from __future__ import annotations

import logging
import re
from collections.abc import MutableMapping
from functools import cache
from typing import Any

from sqlalchemy import URL

__all__ = ["HIGHEST_PORT", "MaskedUrl", "get_logger", "masked"]

HIGHEST_PORT = 65_535
_MASK = "***"
_SCHEME = re.compile(r"(?:[\w+.-]+:/{1,2})?")
_HOST = re.compile(r"\[[^]]*\]|[^:/?]*")
_PORT = re.compile(r":(\d{1,5})(?=[/?]|\Z)")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_SETTINGS = re.compile(
    r"(\w*(?:passw|pwd|secret|token)\w*\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&;]*)", re.I | re.S
)
_SHOWN = frozenset(
    """
    host hostaddr port dbname user connect_timeout client_encoding options application_name
    fallback_application_name keepalives keepalives_idle keepalives_interval keepalives_count
    tcp_user_timeout sslmode sslnegotiation sslcert sslkey sslrootcert sslcrl sslcrldir sslsni
    requirepeer channel_binding require_auth gssencmode krbsrvname target_session_attrs
    load_balance_hosts service passfile
    lock_timeout response_timeout idle_in_transaction_session_timeout synchronous_commit
    pooler schema
    mode uri cache immutable nolock psow vfs timeout isolation_level detect_types
    check_same_thread cached_statements
    """.split()
)
"""The options whose values are shown; all others, including misspelt ones, show only the name."""


_OF_RECORD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
"""Attributes of every record; a field of such a name gets an underscore."""


def _as_record(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> tuple[tuple[Any], dict[str, Any]]:
    """Return the arguments for the standard logger: the text, and the fields beside it."""
    passed = {name: event.pop(name) for name in ("exc_info", "stack_info") if name in event}
    fields = {
        f"{name}_" if name in _OF_RECORD else name: value
        if isinstance(value, str | int | float | None)
        else str(value)
        for name, value in event.items()
    }
    return (_renderer()(logger, method, event),), {**passed, "extra": fields}


@cache
def _renderer() -> Any:
    from structlog.processors import KeyValueRenderer

    return KeyValueRenderer(key_order=["event"])


@cache
def _structured(name: str) -> Any:
    import structlog  # imports rich too: only for what is written

    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            _as_record,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


class _Logger:
    """A structlog logger that is made for the first event of an enabled level."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        level = logging.getLevelNamesMapping().get(method.upper())
        if level is not None and not logging.getLogger(self._name).isEnabledFor(level):
            return _ignore
        return getattr(_structured(self._name), method)


def _ignore(*_: Any, **__: Any) -> None:
    """Write nothing: the level is not enabled."""


def get_logger(name: str) -> Any:
    """Return a structlog logger on top of ``logging.getLogger(name)``."""
    return _Logger(name)


class MaskedUrl(URL):
    """A SQLAlchemy URL that is masked wherever SQLAlchemy shows it, as in ``repr(engine)``."""

    def render_as_string(self, hide_password: bool = True) -> str:
        """Return the URL as text, by default masked."""
        return masked(self) if hide_password else super().render_as_string(hide_password=False)


def masked(url: str | URL) -> str:
    """Return a URL, or a text that was meant to be one, without passwords and other secrets."""
    if isinstance(url, URL):
        try:
            text = URL.render_as_string(url, hide_password=False)
        except UnicodeEncodeError:
            return f"{url.drivername}://{_MASK}"
    else:
        text = url
    text = text.replace("///file%3A", "///file:", 1)
    scheme = _SCHEME.match(text)[0]  # type: ignore[index]  # it may be empty
    rest = text[len(scheme) :]
    if not scheme:
        rest = _SETTINGS.sub(rf"\1{_MASK}", rest)
        if _DRIVE.match(rest):
            return rest
    if not rest.startswith("/"):
        rest = _without_password(rest)
    return f"{scheme}{_without_secrets(rest)}"


def _without_password(text: str) -> str:
    """Return user, host and the rest, with the password masked."""
    before, at, after = text.rpartition("@")
    if not at:
        # A host and its port, or a user and a password.
        host = _HOST.match(text)[0]  # type: ignore[index]  # it may be empty
        port = _PORT.match(text, len(host))
        if text[len(host) : len(host) + 1] != ":" or (port and int(port[1]) <= HIGHEST_PORT):
            return text
        return f"{host}:{_MASK}"
    user, colon, _ = before.partition(":")
    if not colon:
        return text
    # After a question mark the "@" may be part of a secret in the query.
    return f"{user}:{_MASK}" if "?" in before else f"{user}:{_MASK}@{after}"


def _without_secrets(text: str) -> str:
    """Mask the values in a text's query, except those of options known to be harmless."""
    rest, mark, query = text.partition("?")
    shown = [_without_secret(each) for each in re.split("([&;])", query)]
    return f"{rest}{mark}{''.join(shown)}"


def _without_secret(part: str) -> str:
    name, equals, _ = part.partition("=")
    if name.lower() in _SHOWN or part in ("", "&", ";"):
        return part
    return f"{name}={_MASK}" if equals else _MASK
