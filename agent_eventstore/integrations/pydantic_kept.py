"""Messages of Pydantic AI as they are kept: to the ``raw`` of an event, and out of it again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from agent_eventstore.integrations.pydantic_messages import KEY
from eventstore.events.codec import dumps_json, loads_json

__all__ = ["KeptMessage", "message_in", "messages_of", "raw_of"]


class KeptMessage(NamedTuple):
    """A message as it is kept, with its id and that of the one before it.

    Attributes:
        span: Of how many events it is the last.
        text: Its JSON.
    """

    id: str
    parent: str | None
    span: int
    text: str


_BEGINS = f'"raw":{{"{KEY}":{{"id":'
_ENTRY = re.compile(r'"([^"\\]+)","parent":(?:null|"([^"\\]+)"),"span":(\d+),"message":')
_ENDS = -len("}}}")
_TOGETHER = 32  # messages that are validated at once; more take longer, as do fewer


def raw_of(message: ModelMessage, entry_id: str, parent_id: str | None, span: int) -> Any:
    """Return the ``raw`` of the last of ``span`` events, which is that of the message."""
    [made] = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    return {KEY: {"id": entry_id, "parent": parent_id, "span": span, "message": made}}


def message_in(text: str, *, cut: bool = True) -> KeptMessage | None:
    """Return the message that a payload, given as JSON text, keeps at its end, if it keeps one.

    It is ``cut`` out, so that what was understood of it, which is as long, is not read. Where the
    same keys stand deeper down too, what is cut has more brackets closed than opened: it is no
    JSON then, and to be asked for again.
    """
    begin = text.find(_BEGINS) + len(_BEGINS)
    if cut and begin >= len(_BEGINS) and text.find(_BEGINS, begin) < 0:
        found = _ENTRY.match(text, begin)
        if found is not None:
            return KeptMessage(found[1], found[2], int(found[3]), text[found.end() : _ENDS])
    raw = loads_json(text).get("raw") if KEY in text else None
    if not isinstance(raw, dict) or KEY not in raw:
        return None
    kept = raw[KEY]
    return KeptMessage(kept["id"], kept["parent"], kept["span"], dumps_json(kept["message"]))


def messages_of(kept: Sequence[KeptMessage]) -> list[ModelMessage]:
    """Return the messages that are kept.

    Raises:
        ValueError: One of them is no JSON.
    """
    texts = [each.text for each in kept]
    read = map(_read, (texts[at : at + _TOGETHER] for at in range(0, len(texts), _TOGETHER)))
    return [*chain.from_iterable(read)]


def _read(texts: Sequence[str]) -> list[ModelMessage]:
    found: list[ModelMessage]
    try:
        found = ModelMessagesTypeAdapter.validate_json(f"[{','.join(texts)}]")
    except ValueError:  # a lone surrogate, which this parser refuses, or a message cut wrongly
        found = ModelMessagesTypeAdapter.validate_python([loads_json(each) for each in texts])
    return found
