"""Other ways to fit a budget: what products do today.

LangChain's ``trim_messages`` is the real one, if it is installed (the extra ``bench``). The others
are implemented here: clearing old tool results, as Anthropic's context editing does by default
(``clear_tool_uses_20250919``, which keeps three and has no upper limit), a window, and BM25 as in
textbooks, with a neighbour on each side of a match.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from typing import Any

from benchmarks.context.candidates import Reduction
from benchmarks.context.transcripts import Message, message_tokens, request_tokens, said
from projections.errors import BudgetInfeasible

__all__ = [
    "CLEARED",
    "LANGCHAIN",
    "best_matches",
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


def peers() -> dict[str, Reduction]:
    """Return the peers by name; LangChain's is left out if it is not installed."""
    langchain: dict[str, Reduction] = {
        "LangChain trim_messages": trim_messages,
        "LangChain trim_messages, from human": partial(trim_messages, start_on="human"),
    }
    return {
        **(langchain if _INSTALLED else {}),
        "clear old tool results, keep 3": clear_old_tool_results,
        "newest suffix": first_user_and_newest,
        "plain BM25, a neighbour each side": best_matches,
    }


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

    tokens = {key: message_tokens(message) for key, message in originals.items()}

    def counter(trimmed: Sequence[Any]) -> int:
        return sum(tokens[each.id] for each in trimmed)

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


def best_matches(messages: Sequence[Message], budget: int) -> list[Message]:
    """Keep the groups that match the latest user message best by BM25, each with its neighbours.

    The system messages, the latest user message, and what follows it are always kept.

    Raises:
        BudgetInfeasible: Those are over the budget.
    """
    listed = list(groups(messages))
    last = max(place for place, group in enumerate(listed) if _is(group, "user"))
    kept = {place for place, group in enumerate(listed) if place >= last or _is(group, "system")}
    room = budget - request_tokens(message for place in kept for message in listed[place])
    if room < 0:
        raise BudgetInfeasible(budget, {"system messages and the current turn": budget - room})
    scores = _bm25(set(_words(said(listed[last]))), [_words(said(group)) for group in listed])
    for hit in sorted(range(len(listed)), key=lambda place: -scores[place]):
        for place in (hit, hit - 1, hit + 1):
            if 0 <= place < len(listed) and place not in kept:
                tokens = sum(map(message_tokens, listed[place]))
                if tokens <= room:
                    kept.add(place)
                    room -= tokens
    return [message for place in sorted(kept) for message in listed[place]]


@lru_cache(maxsize=1 << 16)
def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))


def _bm25(wanted: set[str], texts: Sequence[Counter[str]]) -> list[float]:
    """Return the score of each text, with the usual k1 = 1.2 and b = 0.75."""
    lengths = [words.total() for words in texts]
    mean = sum(lengths) / len(texts)
    standing = {word: sum(word in words for words in texts) for word in wanted}
    rare = {
        word: math.log(1 + (len(texts) - count + 0.5) / (count + 0.5))
        for word, count in standing.items()
    }
    return [
        sum(
            rare[word] * words[word] * 2.2 / (words[word] + 1.2 * (0.25 + 0.75 * length / mean))
            for word in wanted
        )
        for words, length in zip(texts, lengths, strict=True)
    ]


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
