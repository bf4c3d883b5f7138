"""Tool outputs by their alias: read back from the log, and written under a state directory.

An alias names a call of this conversation and nothing else, so that no path can be made of it that
leaves the directory (document 000: the model asks for the whole of what it saw a preview of).
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from eventstore import RecordedEvent
from eventstore.blobs import alias_of
from eventstore.errors import UnknownAlias
from eventstore.events import ToolResult

__all__ = ["ToolOutputs", "call_of_alias"]

_ALIAS = re.compile(r"@state/logs/tool-results/([0-9]{1,18}\.[0-9]{1,9})\.json")


def call_of_alias(alias: str) -> str:
    """Return the call id that an alias names.

    Raises:
        UnknownAlias: It is no alias of a tool result.
    """
    match = _ALIAS.fullmatch(alias)
    if match is None:
        raise UnknownAlias(alias)
    return match[1]


class ToolOutputs:
    """The files of large tool outputs; without a directory, none are written."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = None if directory is None else directory / "logs" / "tool-results"

    def wanted(self, event: RecordedEvent, content: Any) -> bool:
        """Whether this is the result of a call, and its text went to a blob."""
        data = event.data
        large = isinstance(data, ToolResult) and data.blob is not None
        return self._directory is not None and large and isinstance(content, str)

    def keep(self, event: RecordedEvent, content: Any) -> None:
        """Write the file of a result whose text went to a blob, all of it or nothing.

        The log has the text already; so a file that could not be written is made again by reading
        the alias, and an `OSError` goes on to the caller.
        """
        if self.wanted(event, content) and isinstance(event.data, ToolResult):
            self.write(event.data.call_id, content)

    def write(self, call_id: str, text: str) -> None:
        """Write a call's output, by way of a temporary file that takes its name at the end.

        Raises:
            UnknownAlias: It is no id of a call.
            OSError: The file cannot be written, or a link leads out of the state directory.
        """
        if self._directory is None:
            return
        call_of_alias(alias_of(call_id))
        self._make_directory(self._directory)
        handle, name = tempfile.mkstemp(dir=self._directory, prefix=f".{call_id}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8", "surrogatepass"))
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._directory / f"{call_id}.json")
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _make_directory(self, directory: Path) -> None:
        # A tool may work in the state directory, and have put a link in the place of a folder.
        if directory.resolve() != directory.parents[1].resolve() / "logs" / "tool-results":
            raise OSError(f"{directory} leads out of the state directory")
        directory.mkdir(parents=True, exist_ok=True)
