"""Structured logging, and how a database's URL may be shown: without its passwords.

A library must not print. Events go to a logger of the standard library, rendered as ``key=value``,
and are seen where the product configures logging. Messages carry ids, versions and durations, and
never payloads or passwords.

Whatever shows a URL (errors, logs, the command line, ``repr``) passes it through `masked`. A text
that is not a valid URL has too much masked rather than too little: a password may hold any
character.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import structlog
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
    lock_timeout idle_in_transaction_session_timeout synchronous_commit pooler schema
    mode uri cache immutable nolock psow vfs timeout isolation_level detect_types
    check_same_thread cached_statements
    """.split()
)
"""The options whose values are shown; of all others, misspelt ones too, only the names are."""


def get_logger(name: str) -> Any:
    """Return a structlog logger on top of ``logging.getLogger(name)``."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


class MaskedUrl(URL):
    """A URL of SQLAlchemy that is masked wherever SQLAlchemy shows it, as in ``repr(engine)``."""

    def render_as_string(self, hide_password: bool = True) -> str:
        """Return the URL as text, by default masked."""
        return masked(self) if hide_password else super().render_as_string(hide_password=False)


def masked(url: str | URL) -> str:
    """Return a URL, or what was meant to be one, without passwords and other secrets."""
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
    """Return user, host and what follows, with the password masked."""
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
    # After a question mark the "@" may stand within a secret of the query.
    return f"{user}:{_MASK}" if "?" in before else f"{user}:{_MASK}@{after}"


def _without_secrets(text: str) -> str:
    """Return a text whose query shows no values but of options that are known to be harmless."""
    rest, mark, query = text.partition("?")
    shown = [_without_secret(each) for each in re.split("([&;])", query)]
    return f"{rest}{mark}{''.join(shown)}"


def _without_secret(part: str) -> str:
    name, equals, _ = part.partition("=")
    if name.lower() in _SHOWN or part in ("", "&", ";"):
        return part
    return f"{name}={_MASK}" if equals else _MASK
