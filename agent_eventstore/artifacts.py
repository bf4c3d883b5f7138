"""Tool outputs by alias: read from the log, and written as files under a state directory.

An alias under ``@state/`` names only a call or message of this conversation, so no alias can lead
to a path outside the directory (document 000: the model requests the full text of a preview). The
product chooses aliases under ``@project/artifacts/``; these are only looked up.

Requests may show a tool result as a preview, shortened, or as facts only, with an alias of the full
text. The tool ``read_output``, which a product declares and runs, lets the model read that text.
Its own output is bounded, so that it is never shown as a preview itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from agent_eventstore.errors import UnknownAlias
from eventstore import EventStore, RecordedEvent
from eventstore.blobs import alias_of, is_json
from eventstore.erasure.purge import state_root, write_output
from eventstore.errors import BlobNotFound, OutputFileError
from eventstore.events import ToolResult, UserMessage
from eventstore.events.codec import dumps
from eventstore.telemetry.log import get_logger
from eventstore.threads import to_thread
from projections import Views
from projections.context import READ_OUTPUT, ContextView
from projections.context.prompts import declared_name
from projections.payload_text import result_text, spoken

__all__ = [
    "AsyncReadOutput",
    "AsyncTools",
    "ReadOutput",
    "ToolOutputs",
    "Tools",
    "call_of_alias",
    "checked_alias",
    "read_alias",
]

MOST_CHARACTERS = 8_000
"""The most characters that one call returns; fewer if their JSON would be too large."""

# The ending is optional: some logs are older than the rule for endings, and models guess.
_ALIAS = re.compile(r"@state/logs/tool-results/([0-9]{1,18}\.[0-9]{1,9})(?:\.json|\.txt)?")
_MESSAGE = re.compile(r"@state/logs/messages/([0-9]{1,18})\.txt")
_ARTIFACTS = "@project/artifacts/"
# Relative, and without `.`, `..` and empty parts: joined with a folder, it stays in the folder.
_OWN = re.compile(
    rf"{_ARTIFACTS}(?=.{{1,200}}\Z)(?![A-Za-z]:)"
    r"(?!\.\.?(?:/|\Z))[^\s\x00-\x1f\x7f\\/]+(?:/(?!\.\.?(?:/|\Z))[^\s\x00-\x1f\x7f\\/]+)*"
)

_log = get_logger("agent_eventstore")
_LONGEST_QUOTE = 200  # characters of a wrong argument in an error
_LEFT_FREE = 1_024  # bytes of the payload in addition to its text
_DESCRIPTION = (
    "Read the whole output of an earlier tool call, or an artifact, by its path, which begins with "
    "@state/ or @project/ and stands where only a part of the output is shown."
)
_PARAMETERS = {
    "type": "object",
    "properties": {
        "alias": {"type": "string", "description": "The path, as it stands in the conversation"},
        "offset": {"type": "integer", "description": "The character to begin at, from 0"},
        "limit": {"type": "integer", "description": f"How many, at most {MOST_CHARACTERS}"},
    },
    "required": ["alias"],
    "additionalProperties": False,
}


def call_of_alias(alias: str) -> str:
    """Return the call id in an alias.

    Raises:
        UnknownAlias: It is not an alias of a tool result.
    """
    match = _ALIAS.fullmatch(alias)
    if match is None:
        raise UnknownAlias(alias)
    return match[1]


def checked_alias(alias: str | None) -> str | None:
    """Return a product's alias for an output, if it is valid.

    Raises:
        ValueError: It is not a path under ``@project/artifacts/``.
    """
    if alias is not None and _OWN.fullmatch(alias) is None:
        raise ValueError(
            f"{alias!r} is not an alias: write {_ARTIFACTS}<path>, relative, without blanks or .."
        )
    return alias


def read_alias(store: EventStore, views: Views, conversation_id: UUID, alias: str) -> str:
    """Return the full text that an alias names; see `Conversation.resolve`."""
    call = _ALIAS.fullmatch(alias)
    criteria = {"call_id": call[1]} if call else {"alias": alias}
    rows = views.tool_calls(conversation_id=conversation_id, **criteria, limit=1)
    if rows and rows[0].result_version is not None:
        return _text_of(store, conversation_id, rows[0].result_version)
    if message := _MESSAGE.fullmatch(alias):
        return _text_at(store, conversation_id, int(message[1]), alias)
    if alias.startswith(_ARTIFACTS):
        made = [
            each
            for each in views.run_state(conversation_id).artifacts
            if alias in (each.path, _ARTIFACTS + each.name) and each.content is not None
        ]
        if made:
            content = max(made, key=lambda each: each.version or 0).content
            return content if isinstance(content, str) else dumps(content)
    raise UnknownAlias(alias)


def _text_at(store: EventStore, conversation_id: UUID, version: int, alias: str) -> str:
    """Return the full text of the user message at a version."""
    found = [each.data for each in store.read(conversation_id, after=version - 1, limit=1)]
    if not found or not isinstance(found[0], UserMessage):
        raise UnknownAlias(alias)
    return spoken(found[0].parts)


def _text_of(store: EventStore, conversation_id: UUID, version: int) -> str:
    """Return the full text of the tool result at a version; empty if it was erased."""
    [event] = store.read(conversation_id, after=version - 1, limit=1)
    data = event.data
    if not isinstance(data, ToolResult):
        return ""
    if data.blob is None:
        return result_text(data) or ""
    return store.blob(conversation_id, data.blob.digest).decode("utf-8", "surrogatepass")


class ToolOutputs:
    """Writes the files of tool outputs that are not shown in full; none without a directory."""

    def __init__(self, directory: Path | None, conversation_id: UUID) -> None:
        self._provided: set[tuple[str, bool]] = set()
        self._directory = None if directory is None else state_root(directory)
        self._conversation_id = conversation_id

    def wanted(self, event: RecordedEvent, content: Any) -> bool:
        """Whether `keep` writes a file: for a tool result whose text went to a blob."""
        data = event.data
        large = isinstance(data, ToolResult) and data.blob is not None
        return self._directory is not None and large and isinstance(content, str)

    def keep(self, event: RecordedEvent, content: Any) -> None:
        """Write the file of a tool result whose text went to a blob, atomically.

        A file that cannot be written is reported in the log only: the tool has run and its result
        is recorded, so the turn goes on, and the alias can still be read from the log.
        """
        if self.wanted(event, content) and isinstance(event.data, ToolResult):
            self._try(event.data.call_id, content)

    def readable(self, tools: Iterable[Any]) -> bool:
        """Whether a model can read full outputs: with ``read_output`` in ``tools``, or as files."""
        named = any(declared_name(tool) == READ_OUTPUT for tool in tools)
        return self._directory is not None or named

    def provide(self, store: EventStore, conversation_id: UUID, view: ContextView) -> None:
        """Write the files of the outputs that a request does not show in full, each once.

        A file that cannot be written is reported in the log, and tried again with the next request.
        """
        for call_id, version, by_digest in view.in_part if self._directory is not None else ():
            if (call_id, by_digest) in self._provided:
                continue
            text = _text_of(store, conversation_id, version)
            # The digest names every file with one pattern, without the .json ending.
            plain = by_digest and is_json(text)
            if self._try(call_id, text) and (not plain or self._try(call_id, text, plain=True)):
                self._provided.add((call_id, by_digest))

    def _try(self, call_id: str, text: str, *, plain: bool = False) -> bool:
        try:
            self.write(call_id, text, plain=plain)
        except OutputFileError as error:
            _log.warning(
                "the file of a tool output was not written: its text is in the log alone",
                conversation_id=self._conversation_id,
                call_id=call_id,
                error=str(error),
            )
            return False
        return True

    def write(self, call_id: str, text: str, *, plain: bool = False) -> None:
        """Write a call's output to a file, completely or not at all.

        Raises:
            UnknownAlias: ``call_id`` is not the id of a call.
            OutputFileError: The file cannot be written, or a link leads out of the state directory.
        """
        if self._directory is None:
            return
        call_of_alias(alias := alias_of(call_id, "" if plain else text))
        content = text.encode("utf-8", "surrogatepass")
        write_output(self._directory, self._conversation_id, alias.rpartition("/")[2], content)


class ReadOutput:
    """The ``read_output`` tool of one conversation; see ``conversation.tools.read_output``."""

    name = READ_OUTPUT

    def __init__(self, store: EventStore, resolve: Callable[[str], str]) -> None:
        """Make the tool; ``resolve`` returns an alias's text, ``store`` will store the results."""
        self._resolve = resolve
        self._most_bytes = max(store.blob_threshold - _LEFT_FREE, _LEFT_FREE)

    def declaration(self, format: str = "openai_chat") -> dict[str, Any]:
        """Return the declaration, for the tools of a request.

        Args:
            format: ``openai_chat``, ``openai_responses`` or ``anthropic_messages``.

        Raises:
            ValueError: The format is unknown.
        """
        named = {"name": self.name, "description": _DESCRIPTION}
        match format:
            case "openai_chat":
                return {"type": "function", "function": {**named, "parameters": _PARAMETERS}}
            case "openai_responses":
                # Not strict: that would make every parameter required.
                return {"type": "function", **named, "parameters": _PARAMETERS, "strict": False}
            case "anthropic_messages":
                return {**named, "input_schema": _PARAMETERS}
        raise ValueError(
            f"no declaration for the format {format!r}: choose openai_chat, openai_responses or "
            "anthropic_messages"
        )

    def run(
        self, /, alias: str = "", offset: int = 0, limit: int = MOST_CHARACTERS, **others: Any
    ) -> str:
        """Return a piece of an output, and where the rest begins; wrong arguments do not raise.

        Args:
            alias: The path that the model was given.
            offset: The character to begin at, from 0.
            limit: The most characters to return: at most 8,000, or fewer if their JSON is large.
            others: Arguments that do not exist: the model is told so.
        """
        if others:
            return f"ERROR: no argument {_shown(next(iter(others)))}: use alias, offset and limit."
        try:
            text = self._resolve(str(alias))
        except UnknownAlias:
            return (
                f"ERROR: {_shown(alias)} names no output of this conversation. Copy the path from "
                "where it stands behind a shortened output, such as "
                "@state/logs/tool-results/12.0.txt."
            )
        except BlobNotFound:
            return f"ERROR: the output {_shown(alias)} was erased."
        try:
            start, count = int(offset), min(int(limit), MOST_CHARACTERS)
        except (TypeError, ValueError, OverflowError):
            return "ERROR: offset and limit are whole numbers."
        if start < 0 or count < 1 or start > len(text):
            return f"ERROR: offset is from 0 to {len(text)}, and limit at least 1."
        return self._piece(text, start, count)

    def _piece(self, text: str, start: int, count: int) -> str:
        piece = text[start : start + count]
        while len(dumps(piece).encode()) > self._most_bytes and len(piece) > 1:
            piece = piece[: len(piece) * 3 // 4]
        end = start + len(piece)
        if start == 0 and end == len(text):
            return text or "The output is empty."
        rest = "This is the end." if end == len(text) else f"Next offset: {end}."
        return f"{piece}\n[characters {start} to {end} of {len(text)}. {rest}]"


def _shown(given: Any) -> str:
    """Return what a model passed, as it is quoted to the model."""
    return repr(str(given)[:_LONGEST_QUOTE])


class AsyncReadOutput(ReadOutput):
    """`ReadOutput` for an event loop."""

    async def run(  # type: ignore[override]
        self, /, alias: str = "", offset: int = 0, limit: int = MOST_CHARACTERS, **others: Any
    ) -> str:
        """Return a piece of an output, and where the rest begins; see `ReadOutput.run`."""
        return await to_thread(super().run, alias, offset, limit, **others)


@dataclass(frozen=True, slots=True)
class Tools:
    """Tools that a conversation provides, for a product to declare and to run."""

    read_output: ReadOutput


@dataclass(frozen=True, slots=True)
class AsyncTools:
    """`Tools` for an event loop."""

    read_output: AsyncReadOutput
