"""Recorded streams of real providers, as dicts and as the official SDKs' objects."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from anthropic._models import construct_type_unchecked as construct_anthropic
from anthropic.types import RawMessageStreamEvent
from openai._models import construct_type_unchecked as construct_openai
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

from projections.providers import Delta, StreamParser, parser_for

FOLDER = Path(__file__).parents[3].parent / "shared" / "data" / "streams"
NAMES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def chunks_of(name: str) -> list[dict[str, Any]]:
    """Return the chunks of a recorded stream."""
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def as_sdk_object(name: str, chunk: dict[str, Any]) -> Any:
    """Return a chunk as the provider's SDK yields it."""
    kind: Any = RawMessageStreamEvent
    if name.startswith("anthropic"):
        return construct_anthropic(type_=kind, value=chunk)
    kind = ResponseStreamEvent if "responses" in name else ChatCompletionChunk
    return construct_openai(type_=kind, value=chunk)


def fed(chunks: Iterable[Any]) -> StreamParser:
    """Return a parser that was fed these chunks."""
    return fed_deltas(chunks)[0]


def fed_deltas(chunks: Iterable[Any]) -> tuple[StreamParser, list[Delta]]:
    """Return a parser that was fed these chunks, and what each of them added."""
    chunks = list(chunks)
    parser = parser_for(chunks[0])
    return parser, [parser.feed(chunk) for chunk in chunks]


def text_of(parser: StreamParser, kind: str = "text") -> str:
    """Return the text of all parts of a kind."""
    return "".join(getattr(p, "text", "") for p in parser.message().parts if p.kind == kind)
