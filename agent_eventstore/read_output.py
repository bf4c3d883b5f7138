"""The tool ``read_output``: a model reads the whole of an output that it saw a part of.

Results of tools are shown by their beginnings, shortened, or as facts alone, with an alias that
names the whole (document 000). A product declares this tool, and runs it when the model calls it.
What it returns is bounded, so that it is never itself shown as a preview.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eventstore import EventStore
from eventstore.errors import BlobNotFound, UnknownAlias
from eventstore.events.codec import dumps
from projections.context import READ_OUTPUT

__all__ = ["AsyncReadOutput", "AsyncTools", "ReadOutput", "Tools"]

MOST_CHARACTERS = 8_000
"""Characters that one call returns at most, unless their JSON is too large even so."""

_LEFT_FREE = 1_024  # bytes of the payload beside its text
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


class ReadOutput:
    """The tool, for one conversation; made by it as ``conversation.tools.read_output``."""

    name = READ_OUTPUT

    def __init__(self, store: EventStore, resolve: Callable[[str], str]) -> None:
        """Take what finds the text of an alias, and the store that results will be kept in."""
        self._resolve = resolve
        self._most_bytes = max(store.blob_threshold - _LEFT_FREE, _LEFT_FREE)

    def declaration(self, format: str = "openai_chat") -> dict[str, Any]:
        """Return the declaration, to be sent among a request's tools.

        Args:
            format: ``openai_chat``, ``openai_responses`` or ``anthropic_messages``.

        Raises:
            ValueError: There is no such format.
        """
        named = {"name": self.name, "description": _DESCRIPTION}
        match format:
            case "openai_chat":
                return {"type": "function", "function": {**named, "parameters": _PARAMETERS}}
            case "openai_responses":
                # Not strict, which would make every parameter a required one.
                return {"type": "function", **named, "parameters": _PARAMETERS, "strict": False}
            case "anthropic_messages":
                return {**named, "input_schema": _PARAMETERS}
        raise ValueError(
            f"there is no declaration for {format!r}: choose openai_chat, openai_responses or "
            "anthropic_messages"
        )

    def run(self, alias: str, offset: int = 0, limit: int = MOST_CHARACTERS) -> str:
        """Return a piece of an output, and what remains of it; never raises for what a model says.

        Args:
            alias: The path that the model was told.
            offset: The character to begin at, from 0.
            limit: How many characters; at most 8,000, and fewer of what takes much room as JSON.
        """
        try:
            text = self._resolve(str(alias))
        except UnknownAlias:
            return (
                f"ERROR: {alias!r} names no output of this conversation. Copy the path from where "
                "it stands behind a shortened output, such as @state/logs/tool-results/12.0.txt."
            )
        except BlobNotFound:
            return f"ERROR: the output {alias!r} was erased."
        try:
            start, count = int(offset), min(int(limit), MOST_CHARACTERS)
        except (TypeError, ValueError):
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


class AsyncReadOutput(ReadOutput):
    """`ReadOutput` for an event loop."""

    async def run(  # type: ignore[override]
        self, alias: str, offset: int = 0, limit: int = MOST_CHARACTERS
    ) -> str:
        """Return a piece of an output, and what remains of it; see `ReadOutput.run`."""
        return await asyncio.to_thread(super().run, alias, offset, limit)


@dataclass(frozen=True, slots=True)
class Tools:
    """Tools that come with a conversation, for a product to declare and to run."""

    read_output: ReadOutput


@dataclass(frozen=True, slots=True)
class AsyncTools:
    """`Tools` for an event loop."""

    read_output: AsyncReadOutput
