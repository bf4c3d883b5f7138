"""Rows as chat messages for models whose chat template takes a system message only as the first.

Templates of open models raise an error at any other (observed, 2026: those of Mistral, Gemma and
Llama on servers that fill in the model's own template). So the system part is one message, and what
is told later, a digest or a summary, is a note within the user's next or last message, as
Anthropic's format has it.
"""

from __future__ import annotations

from collections.abc import Iterable

from projections.context.formats import base
from projections.context.formats.base import (
    OPENAI_CHAT,
    Additions,
    Json,
    Wire,
    call_ids,
    parts_of,
    split_front,
    system_text,
    text_in,
)
from projections.context.formats.chat import SPECIFICATION, message_of
from projections.context.rows import ContextRow

__all__ = ["ADDITIONS", "FILL_IN_TEMPLATES", "wire"]

FILL_IN_TEMPLATES = frozenset(
    {"huggingface", "llama.cpp", "llamacpp", "lmstudio", "sglang", "tgi", "vllm"}
)
"""Servers that fill in the chat template that came with a model."""

_NOTE = base.note("")
ADDITIONS = Additions(once=(_NOTE,), notes=frozenset({"summary", "aside"}), note=_NOTE)


def wire(rows: Iterable[ContextRow], *, provider: str | None = None) -> Wire:
    """Return the rows in OpenAI's chat format, with no system message but the first."""
    front, rest = split_front(rows)
    said = system_text(front)
    sent: list[Json] = [{"role": "system", "content": said}] if said else []
    added: list[str] = []
    noted = False  # whether the last message is nothing but notes
    for row, ids in zip(rest, call_ids(rest, OPENAI_CHAT), strict=True):
        is_note = row.role in ("system", "developer")
        message = _note(row) if is_note else message_of(row, ids, provider)
        added += [_NOTE] if is_note else []
        if sent and (is_note or noted) and sent[-1]["role"] == message["role"] == "user":
            sent[-1] = {**sent[-1], **message, "content": _joined(sent[-1], message)}
            noted = noted and is_note
        else:
            sent.append(message)
            noted = is_note
    return Wire(SPECIFICATION, tuple(sent), None, tuple(added))


def _note(row: ContextRow) -> Json:
    return {"role": "user", "content": base.note(text_in(row.message))}


def _joined(first: Json, second: Json) -> str | list[Json]:
    contents = first["content"], second["content"]
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(contents)
    return [*parts_of(first), *parts_of(second)]
