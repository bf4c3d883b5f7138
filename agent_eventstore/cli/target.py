"""The database of a command, and where its logs go."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from agent_eventstore.cli.program import Failed

if TYPE_CHECKING:
    from eventstore import DirectoryKeys, EventStore, Redactor

__all__ = [
    "DEFAULT_URL",
    "KEYS_VARIABLE",
    "KEY_FILE_VARIABLE",
    "URL_VARIABLE",
    "StderrHandler",
    "Target",
    "configure",
]

DEFAULT_URL = "sqlite:///eventstore.db"
URL_VARIABLE = "EVENTSTORE_URL"
KEYS_VARIABLE = "EVENTSTORE_KEYS"
KEY_FILE_VARIABLE = "EVENTSTORE_KEY_FILE"
_KEYS_HINT = f" or {KEYS_VARIABLE}"


@dataclass(slots=True)
class Target:
    """The database of a command; ``by_hand`` if it was named on the command line."""

    named: str | None = field(repr=False)
    by_hand: bool = False
    read_only: bool = False
    key_directory: Path | None = None
    key_files: tuple[Path, ...] = ()

    @property
    def url(self) -> str:
        """The given URL, or the default."""
        return self.named or DEFAULT_URL

    def keys(self, *, create: bool = False) -> DirectoryKeys | None:
        """Return the keys of sealed conversations, if any were given.

        Raises:
            Failed: The directory does not exist and is not created, a wrapping key is invalid, or
                the encryption package is not installed.
        """
        if self.key_directory is None:
            if self.key_files:
                raise Failed(f"--key-file requires --keys{_KEYS_HINT}, the directory of the keys")
            return None
        if not create and not self.key_directory.is_dir():
            raise Failed(
                f"the key directory {self.key_directory} does not exist (--keys{_KEYS_HINT})"
            )
        if find_spec("cryptography") is None:
            raise Failed("--keys needs the extra: pip install 'agent-eventstore[encryption]'")
        from eventstore import DirectoryKeys

        try:
            return DirectoryKeys(self.key_directory, self.key_files)
        except ValueError as error:
            raise Failed(f"--key-file: {error}") from error

    def open(self) -> EventStore:
        """Open an existing store without changing its schema.

        Raises:
            Failed: The file does not exist; it is not created.
            StoreUnavailable: See `EventStore.open`.
        """
        from eventstore import EventStore

        self.require_file()
        return EventStore.open(self.url, migrate=False, read_only=self.read_only, keys=self.keys())

    def open_to_write(self) -> EventStore:
        """Open an existing store for writing."""
        self._refuse_read_only()
        return self.open()

    def create(self, redact: Redactor | None = None) -> EventStore:
        """Open a store; create it, or upgrade its schema, if needed."""
        from eventstore import EventStore

        self._refuse_read_only()
        return EventStore.open(self.url, redact=redact, keys=self.keys(create=True))

    def _refuse_read_only(self) -> None:
        if self.read_only:
            raise Failed("this command writes, so it cannot be used with --read-only")

    def require_file(self) -> None:
        """Raise if the URL names a SQLite file that does not exist."""
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError

        from eventstore.database import file_of

        try:
            url = make_url(self.url)
        except (ArgumentError, ValueError):
            return
        path = file_of(url)
        if path is not None and not path.startswith("file:") and not Path(path).exists():
            raise Failed(
                f"the database file {path} does not exist: name another with --db, or create it "
                "with `eventstore import` or `eventstore db upgrade`"
            )


class StderrHandler(logging.Handler):
    """Writes log records as lines on stderr, without breaking a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        from agent_eventstore.cli.console import note

        note(f"{record.levelname.lower()} {record.name} {self.format(record)}")


def configure(verbose: bool) -> None:
    """Send the library's logs to stderr: warnings, or everything with ``verbose``."""
    handler = StderrHandler()
    for name in ("eventstore", "projections", "agent_eventstore"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
