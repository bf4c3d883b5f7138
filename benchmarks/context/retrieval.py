"""Retrieval: is what a question is about in the request, hundreds of messages later?

Conversations as long as years of a support chat are made of the transcripts, one task after the
other. A question is made from a sentence in a conversation: every third content word, mostly in
another form, without the numbers and identifiers, which are the answer. Half of the questions need
two sentences of one task. A question is answered if the request contains all of its sentences
verbatim and is within its budget.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from agent_eventstore.transcripts import Transcript, load, read_transcripts
from benchmarks.context.candidates import Reduction
from benchmarks.context.transcripts import MODEL, Message, request_tokens, said
from eventstore import EventStore, new_id
from eventstore.events import Retraction, UserMessage, VersionRange
from projections import Views
from projections.context.settings import ContextSettings
from projections.errors import BudgetInfeasible

__all__ = [
    "RECALL_SHARES",
    "Asked",
    "Chain",
    "Follow",
    "Found",
    "chains",
    "measured",
    "of_reduction",
    "ours",
    "recalled",
    "talk_alone",
]

RECALL_SHARES = (0.1, 0.25, 0.5)
"""Budgets, as shares of the whole history."""

_TASKS = 25
_LEAST_WORDS = 6
_AGO = 100  # minimum number of messages between a sentence and the question
_OPENINGS = ("Could you remind me:", "Earlier we spoke of something,", "What was it again,")
_WORD = re.compile(r"[a-z]{4,}")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_COMMON = frozenset(
    "about after also been before being could does done down each ensure from have here into just"
    " know like make many more most need only other over please provide should some such sure than"
    " that their them then there these they this those through thank under very want were what"
    " when where which while will with would your yours".split()
)

Reader = Callable[[str, int], Sequence[Message]]
"""``(question, budget)``: the messages to send."""

Follow = Callable[["Chain"], Reader]
"""Begins a conversation, and returns its reader."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the sentences that answer it."""

    question: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """A long conversation, and the questions asked at its end."""

    messages: tuple[Message, ...]
    asked: tuple[Asked, ...]


@dataclass(slots=True)
class Found:
    """Counts of questions: asked, answered, and refused or over the budget."""

    asked: int = 0
    answered: int = 0
    failed: int = 0

    @property
    def share(self) -> float:
        """Answered questions, as a share of all, 0.0 to 1.0."""
        return self.answered / self.asked if self.asked else 0.0


def talk_alone(chain: Chain) -> Chain:
    """Return a conversation as that of two people: without tools' calls and results."""
    talk = (
        each for each in chain.messages if each["role"] != "tool" and not each.get("tool_calls")
    )
    return Chain(tuple(talk), chain.asked)


def chains(path: Path, questions: int) -> list[Chain]:
    """Return long conversations of ``_TASKS`` tasks, each with this many questions."""
    records = [each["traj"] for each in json.loads(path.read_text("utf-8"))]
    found = []
    for start in range(0, len(records) - _TASKS + 1, _TASKS):
        tasks = records[start : start + _TASKS]
        joined = tuple(message for task in tasks for message in task if message["role"] != "system")
        found.append(Chain(joined, tuple(_questions(tasks, questions))))
    return found


def recalled(readers: Mapping[str, Follow], long: Sequence[Chain]) -> list[tuple[str, list[Found]]]:
    """Return what each reader answers at each budget."""
    found = []
    for name, follow in readers.items():
        results = [Found() for _ in RECALL_SHARES]
        for chain in long:
            read = follow(chain)
            for share, result in zip(RECALL_SHARES, results, strict=True):
                measured(chain, read, share, result)
        found.append((name, results))
    return found


def measured(chain: Chain, read: Reader, share: float, found: Found) -> None:
    """Ask a reader all questions of a chain."""
    budget = int(request_tokens(chain.messages) * share)
    for each in chain.asked:
        found.asked += 1
        try:
            messages = read(each.question, budget)
        except BudgetInfeasible:
            found.failed += 1
            continue
        if request_tokens(messages) > budget:
            found.failed += 1
            continue
        text = said(messages)
        found.answered += all(sentence in text for sentence in each.evidence)


def ours(store: EventStore, settings: ContextSettings) -> Follow:
    """Return the messages[] view of a store; each question is appended, then retracted."""
    views = Views(store)

    def follow(chain: Chain) -> Reader:
        cid = new_id()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "chain.json")
            record = {"task_id": 0, "trial": 0, "reward": 1.0, "info": {}, "traj": chain.messages}
            path.write_text(json.dumps([record]), "utf-8")
            [whole] = [each for each in read_transcripts(path) if isinstance(each, Transcript)]
        load(store, [replace(whole, conversation_id=cid)], strict=True)

        @lru_cache(maxsize=1)
        def version(question: str) -> int:
            last = store.get(cid).version
            if last > len(chain.messages) + 1:
                store.append(cid, [Retraction(versions=(VersionRange(first=last, last=last),))])
            return store.append(cid, [UserMessage.text(question)]).version

        def read(question: str, budget: int) -> Sequence[Message]:
            version(question)
            view = views.context(cid, max_tokens=budget, model=MODEL, settings=settings, mode=None)
            return view.messages

        return read

    return follow


def of_reduction(reduction: Reduction) -> Follow:
    """Return a reader that reduces the whole conversation with the question at its end."""

    def follow(chain: Chain) -> Reader:
        return lambda question, budget: reduction(
            [*chain.messages, {"role": "user", "content": question}], budget
        )

    return follow


def _questions(tasks: Sequence[Sequence[Message]], wanted: int) -> Iterator[Asked]:
    """Yield questions, from the tasks in turn, about things said long before the end."""
    told = [list(_sentences(task)) for task in tasks]
    after = [sum(map(len, tasks[number + 1 :])) for number in range(len(tasks))]
    open_tasks = [one for one, rest in zip(told, after, strict=True) if rest >= _AGO and one]
    often = Counter(sentence for one in told for sentence in one)
    for number in range(wanted):
        of_task = [each for each in open_tasks[number % len(open_tasks)] if often[each] == 1]
        first = of_task[number * 7 % len(of_task)]
        second = of_task[(number * 7 + 5) % len(of_task)]
        evidence = (first, second) if number % 2 and second != first else (first,)
        words = "; and ".join(" ".join(_some(sentence)) for sentence in evidence)
        yield Asked(f"{_OPENINGS[number % 3]} {words}?", evidence)


def _sentences(task: Sequence[Message]) -> Iterator[str]:
    for message in task:
        if message["role"] in ("user", "assistant") and isinstance(message.get("content"), str):
            for sentence in _SENTENCE.split(message["content"]):
                if len(list(_content(sentence))) >= _LEAST_WORDS:
                    yield sentence.strip()


def _content(sentence: str) -> Iterator[str]:
    return (word for word in _WORD.findall(sentence.lower()) if word not in _COMMON)


def _some(sentence: str) -> Iterator[str]:
    """Yield every third content word, each except the first in another form."""
    for number, word in enumerate(list(dict.fromkeys(_content(sentence)))[::3]):
        if not number:
            yield word
        elif word.endswith("ing"):
            yield word[:-3]
        else:
            yield word[:-1] if word.endswith("s") else f"{word}s"
