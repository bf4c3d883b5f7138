"""Grounding and cache: what a candidate's contexts still contain, and what they share.

Pure, apart from the candidate. A context over its budget is worth nothing, since no provider would
accept it: its values count as lost. The same applies to contexts that a candidate refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from benchmarks.context.candidates import Candidate
from benchmarks.context.transcripts import (
    Message,
    ToolUse,
    Transcript,
    broken,
    message_tokens,
    request_tokens,
    said,
)
from projections.errors import BudgetInfeasible

__all__ = [
    "CACHE_SHARE",
    "HISTORY_SHARES",
    "SHARES",
    "Cache",
    "Grounding",
    "cache",
    "grounding",
    "of_history",
    "of_prefix",
    "of_whole",
    "shared_tokens",
]

SHARES = (0.8, 0.65, 0.5)
"""Budgets of grounding, as shares of the full prefix."""

CACHE_SHARE = 0.5
"""Budget of cache, as a share of the whole conversation."""

HISTORY_SHARES = (0.5, 0.3)
"""Budgets of a product that has one for all calls: shares of the history, the system part apart."""

_CACHED = 0.1  # price of a cached token, as a share of the full price

BudgetOf = Callable[[Transcript, int, float], int]
"""``(transcript, place, share)``: the budget of the call after so many messages."""


def of_prefix(transcript: Transcript, place: int, share: float) -> int:
    """Return a share of the messages so far: a new budget at each call, always exceeded."""
    return int(request_tokens(transcript.messages[:place]) * share)


def of_whole(transcript: Transcript, place: int, share: float) -> int:
    """Return a share of the whole conversation, the same at each call."""
    return int(request_tokens(transcript.messages) * share)


def of_history(transcript: Transcript, place: int, share: float) -> int:
    """Return the system message and a share of all the rest, the same at each call."""
    messages = transcript.messages
    front = request_tokens(messages[: int(messages[0]["role"] == "system")])
    return front + int((request_tokens(messages) - front) * share)


@dataclass(slots=True)
class Grounding:
    """What the contexts before tool calls still contained.

    Attributes:
        calls: Tool uses that were examined.
        values: Argument values in them.
        kept: Values that a context within its budget still contained.
        whole: Tool uses of which such a context contained all values.
        over: Contexts over their budget.
        broken: Contexts with half a tool call, which a provider rejects.
        infeasible: Contexts that the candidate refused.
    """

    calls: int = 0
    values: int = 0
    kept: int = 0
    whole: int = 0
    over: int = 0
    broken: int = 0
    infeasible: int = 0

    @property
    def values_share(self) -> float:
        """Kept values, as a share of all, 0.0 to 1.0."""
        return self.kept / self.values if self.values else 0.0

    @property
    def calls_share(self) -> float:
        """Tool uses with all their values, as a share of all, 0.0 to 1.0."""
        return self.whole / self.calls if self.calls else 0.0

    def see(self, use: ToolUse, context: Sequence[Message] | None, budget: int) -> None:
        """Add one tool use and the context before it; None if it was refused."""
        self.calls += 1
        self.values += len(use.values)
        if context is None:
            self.infeasible += 1
            return
        self.broken += broken(context)
        if request_tokens(context) > budget:
            self.over += 1
            return
        text = said(context)
        held = sum(value in text for value in use.values)
        self.kept += held
        self.whole += held == len(use.values)


@dataclass(slots=True)
class Cache:
    """What the prompts of model calls had in common with the previous prompt.

    A prompt over its budget counts as missing, like a refused one: the next one shares nothing.

    Attributes:
        calls: Model calls with a prompt.
        tokens: Tokens of their prompts, including a conversation's first, which shares nothing.
        shared: Tokens of the messages that also begin the previous prompt, unchanged.
        pressed: Model calls with a prompt whose whole history is over the budget.
        pressed_tokens: Tokens of those prompts, without the leading system message, which every
            candidate shares.
        pressed_shared: Shared tokens of those prompts.
        pressed_budget: Their budgets, without that message.
        over: Prompts over their budget.
        infeasible: Prompts that the candidate refused.
    """

    calls: int = 0
    tokens: int = 0
    shared: int = 0
    pressed: int = 0
    pressed_tokens: int = 0
    pressed_shared: int = 0
    pressed_budget: int = 0
    over: int = 0
    infeasible: int = 0

    @property
    def share(self) -> float:
        """Shared tokens, as a share of all, 0.0 to 1.0."""
        return self.shared / self.tokens if self.tokens else 0.0

    @property
    def pressed_share(self) -> float:
        """Shared tokens of prompts under pressure, as a share, without the system message."""
        return self.pressed_shared / self.pressed_tokens if self.pressed_tokens else 0.0

    @property
    def fill(self) -> float:
        """Used share of the budget under pressure, without the system message."""
        return self.pressed_tokens / self.pressed_budget if self.pressed_budget else 0.0

    @property
    def cost(self) -> float:
        """Cost of the prompts, in uncached tokens."""
        return self.tokens - (1 - _CACHED) * self.shared

    def see(
        self,
        before: Sequence[Message],
        prompt: Sequence[Message],
        *,
        pressed: bool,
        budget: int = 0,
    ) -> None:
        """Add one model call, with the previous prompt, which is empty for the first."""
        self.calls += 1
        self.tokens += request_tokens(prompt)
        self.shared += shared_tokens(before, prompt)
        if pressed:
            self.pressed += 1
            start = int(prompt[0]["role"] == "system")
            self.pressed_tokens += request_tokens(prompt[start:])
            self.pressed_budget += budget - sum(map(message_tokens, prompt[:start]))
            if before[:start] == prompt[:start]:
                self.pressed_shared += shared_tokens(before[start:], prompt[start:])


def grounding(
    uses: Iterable[ToolUse], candidate: Candidate, share: float, budget_of: BudgetOf = of_prefix
) -> Grounding:
    """Measure the contexts before tool uses, in order, within the budgets of a share."""
    found = Grounding()
    following: Transcript | None = None
    for use in uses:
        if use.transcript is not following:
            following = use.transcript
            read = candidate.follow(following)
        budget = budget_of(use.transcript, use.place, share)
        try:
            context = read(use.place, budget)
        except BudgetInfeasible:
            found.see(use, None, budget)
        else:
            found.see(use, context, budget)
    return found


def cache(
    transcripts: Iterable[Transcript],
    candidate: Candidate,
    share: float,
    budget_of: BudgetOf = of_whole,
) -> Cache:
    """Measure the prompts of all model calls, within the budgets of a share."""
    found = Cache()
    for transcript in transcripts:
        read, before = candidate.follow(transcript), list[Message]()
        for place in transcript.calls:
            budget = budget_of(transcript, place, share)
            try:
                prompt = list(read(place, budget))
            except BudgetInfeasible:
                found.infeasible += 1
                before = []
                continue
            if request_tokens(prompt) > budget:
                found.over += 1
                before = []
                continue
            whole = request_tokens(transcript.messages[:place])
            found.see(before, prompt, pressed=whole > budget, budget=budget)
            before = prompt
    return found


def shared_tokens(before: Sequence[Message], prompt: Sequence[Message]) -> int:
    """Return the tokens of the longest common prefix of whole messages."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(before, prompt, strict=False))
    return sum(message_tokens(message) for _, message in pairs)
