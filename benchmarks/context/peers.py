"""Other ways to fit a budget: what products do today.

LangChain's ``trim_messages`` is the real one, if it is installed (the extra ``bench``). The other
two are implemented here: clearing old tool results, as Anthropic's context editing does by default
(``clear_tool_uses_20250919``, which keeps three and has no upper limit), and a window.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

from benchmarks.context.candidates import Candidate, stateless
from benchmarks.context.transcripts import Message, message_tokens, request_tokens
from projections.errors import BudgetInfeasible

__all__ = [
    "CLEARED",
    "LANGCHAIN",
    "clear_old_tool_results",
    "first_user_and_newest",
    "groups",
    "peers",
    "trim_messages",
]

CLEARED = "[Old tool result content cleared]"
_KEPT_RESULTS = 3

_INSTALLED = importlib.util.find_spec("langchain_core") is not None
LANGCHAIN = f"langchain-core {version('langchain-core')}" if _INSTALLED else "no langchain-core"
"""The measured version, for the tables."""


def peers() -> list[Candidate]:
    """Return the peers; LangChain's is left out if it is not installed."""
    found = [
        stateless("clear old tool results, keep 3", clear_old_tool_results),
        stateless("first user + newest groups", first_user_and_newest),
    ]
    if not _INSTALLED:
        return found
    return [
        stateless("LangChain trim_messages", trim_messages),
        stateless(
            "LangChain trim_messages, from human",
            lambda messages, budget: trim_messages(messages, budget, start_on="human"),
        ),
        *found,
    ]


def trim_messages(
    messages: Sequence[Message], budget: int, start_on: str | None = None
) -> list[Message]:
    """Trim with LangChain: strategy "last", system message included, this project's count."""
    from langchain_core import messages as langchain

    made = langchain.convert_to_messages([dict(message) for message in messages])
    originals = {}
    for place, (theirs, ours) in enumerate(zip(made, messages, strict=True)):
        theirs.id = str(place)
        originals[theirs.id] = ours

    def counter(trimmed: Sequence[Any]) -> int:
        return sum(message_tokens(originals[each.id]) for each in trimmed)

    # The counter sees only messages, so the request's other tokens are subtracted first.
    kept: Any = langchain.trim_messages(
        made,
        max_tokens=budget - request_tokens(()),
        token_counter=counter,
        strategy="last",
        include_system=True,
        start_on=start_on,
    )
    return [originals[each.id] for each in kept]


def clear_old_tool_results(messages: Sequence[Message], budget: int) -> list[Message]:
    """Clear all tool results but the newest three once the request is over the budget."""
    if request_tokens(messages) <= budget:
        return list(messages)
    results = [place for place, message in enumerate(messages) if message["role"] == "tool"]
    old = frozenset(results[:-_KEPT_RESULTS])
    return [
        {**message, "content": CLEARED} if place in old else message
        for place, message in enumerate(messages)
    ]


def first_user_and_newest(messages: Sequence[Message], budget: int) -> list[Message]:
    """Keep the system messages, the first user message, and the newest whole groups that fit.

    Raises:
        BudgetInfeasible: The system messages and the first user message are over the budget.
    """
    listed = list(groups(messages))
    first = next((place for place, group in enumerate(listed) if _is(group, "user")), None)
    kept = {place for place, group in enumerate(listed) if place == first or _is(group, "system")}
    tokens = request_tokens(message for place in kept for message in listed[place])
    if tokens > budget:
        raise BudgetInfeasible(budget, {"system messages and first user message": tokens})
    for place in range(len(listed) - 1, -1, -1):
        if place not in kept:
            tokens += sum(map(message_tokens, listed[place]))
            if tokens > budget:
                break
            kept.add(place)
    return [message for place in sorted(kept) for message in listed[place]]


_Group = list[Message]


def _is(group: _Group, role: str) -> bool:
    return bool(group[0]["role"] == role)


def groups(messages: Sequence[Message]) -> Iterator[_Group]:
    """Yield each assistant message with the results after it, and every other message alone."""
    group: _Group = []
    for message in messages:
        if group and not (message["role"] == "tool" and _is(group, "assistant")):
            yield group
            group = []
        group.append(message)
    if group:
        yield group
