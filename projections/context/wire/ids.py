"""Ids of tool calls that are unique within a request, as every provider demands.

Providers do not make call ids unique: here each call gets an id of its own, and its result the
same one. A provider's id is kept where that is possible, so that what was sent once is sent again
to the byte; any other is replaced by one made of the call's place in the log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from eventstore.errors import RowDamaged
from projections.context.rows import ContextRow

__all__ = ["ANTHROPIC", "OPENAI_CHAT", "OPENAI_RESPONSES", "IdRule", "call_ids"]


@dataclass(frozen=True, slots=True)
class IdRule:
    """Which ids a provider takes."""

    pattern: re.Pattern[str]

    def accepts(self, wire_id: str) -> bool:
        """Whether the provider takes the id."""
        return self.pattern.fullmatch(wire_id) is not None


# OpenAI's chat endpoint answers "string_above_max_length" beyond 40 (observed, 2024 and 2025).
OPENAI_CHAT = IdRule(re.compile(r"[A-Za-z0-9_-]{1,40}"))
# OpenAI, API reference "Create a model response" (2025): call_id has 1 to 64 characters.
OPENAI_RESPONSES = IdRule(re.compile(r"[A-Za-z0-9_-]{1,64}"))
# Anthropic, API reference "Create a Message" (2025): ^[a-zA-Z0-9_-]+$; ours end at 64.
ANTHROPIC = IdRule(re.compile(r"[A-Za-z0-9_-]{1,64}"))


def call_ids(rows: Sequence[ContextRow], rule: IdRule) -> list[tuple[str, ...]]:
    """Return for each row the ids on the wire: of its calls, or of the call that it answers.

    Raises:
        RowDamaged: The answer to a call stands at no call's place.
    """
    used: set[str] = set()
    open_ids: tuple[str, ...] = ()
    found: list[tuple[str, ...]] = []
    for row in rows:
        if row.kind == "tool":
            if not 0 < row.part <= len(open_ids):
                raise RowDamaged("no place among the calls")
            found.append((open_ids[row.part - 1],))
        elif calls := row.message.get("tool_calls"):
            open_ids = tuple(
                _unused(call["id"], row.version, index, used, rule)
                for index, call in enumerate(calls)
            )
            found.append(open_ids)
        else:
            found.append(())
    return found


def _unused(provider_id: str, version: int, index: int, used: set[str], rule: IdRule) -> str:
    chosen = provider_id
    if chosen in used or not rule.accepts(chosen):
        chosen = own = f"call_{version}_{index}"
        number = 1
        while chosen in used:
            number += 1
            chosen = f"{own}_{number}"
    used.add(chosen)
    return chosen
