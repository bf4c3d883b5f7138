"""Whatever is said, edited, answered again, rewound, switched, forked: a tree in memory agrees."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_eventstore.conversation import Conversation
from eventstore import EventStore, NewEvent, new_id
from projections import Views
from projections.upkeep import compare, rebuild
from tests.properties.machines import explore

PLACES = st.integers(0, 9)


@dataclass
class Place:
    """Where a message may stand: what was said there, and which of it is shown."""

    said: list[Message] = field(default_factory=list)
    shown: int | None = None


@dataclass
class Answer:
    """An answer, and the place after it."""

    text: str
    then: Place = field(default_factory=Place)


@dataclass
class Message:
    """A message with its answers."""

    text: str
    version: int
    answers: list[Answer]
    shown: int = 0


@dataclass
class Model:
    """A conversation as it should be; copied when it is forked."""

    root: Place = field(default_factory=Place)

    def path(self) -> Iterator[tuple[Place, Message, Answer]]:
        """Yield what is shown, with its places."""
        place = self.root
        while place.shown is not None:
            message = place.said[place.shown]
            answer = message.answers[message.shown]
            yield place, message, answer
            place = answer.then

    def end(self) -> Place:
        """Return the place of the next message."""
        found = self.root
        for _, _, answer in self.path():
            found = answer.then
        return found

    def texts(self) -> list[str]:
        """Return what is shown, in words."""
        return [text for _, said, answer in self.path() for text in (said.text, answer.text)]

    def points(self) -> list[tuple[str, int | None, int, Any]]:
        """Return where there are alternatives: which is shown, of how many, and what has them."""
        found: list[tuple[str, int | None, int, Any]] = []
        for place, message, _ in self.path():
            if len(place.said) > 1:
                found.append(("message", place.shown, len(place.said), place))
            if len(message.answers) > 1:
                found.append(("answer", message.shown, len(message.answers), message))
        if (end := self.end()).said:
            found.append(("message", None, len(end.said), end))
        return found


class Branches(RuleBasedStateMachine):
    """Conversations on both databases, and what they should be."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.store = EventStore.open(self.url, synchronous="NORMAL")
        self.views = Views(self.store)
        self.held = [(Conversation.start(self.store), Model())]
        self.count = 0

    @rule(which=PLACES)
    def say(self, which: int) -> None:
        """Say something, and have it answered."""
        conversation, model = self._chosen(which)
        place = model.end()
        place.said.append(self._turn(conversation, conversation.turn(self._word())))
        place.shown = len(place.said) - 1

    @rule(which=PLACES, at=PLACES)
    def edit(self, which: int, at: int) -> None:
        """Say a message of the active branch in other words."""
        conversation, model = self._chosen(which)
        if path := list(model.path()):
            place, message, _ = path[at % len(path)]
            turn = conversation.edit(message.version, self._word())
            place.said.append(self._turn(conversation, turn))
            place.shown = len(place.said) - 1

    @rule(which=PLACES)
    def regenerate(self, which: int) -> None:
        """Have the last message answered again."""
        conversation, model = self._chosen(which)
        if path := list(model.path()):
            _, message, _ = path[-1]
            made = self._turn(conversation, conversation.regenerate(), message.text)
            message.answers += made.answers
            message.shown = len(message.answers) - 1

    @rule(which=PLACES, at=PLACES)
    def rewind(self, which: int, at: int) -> None:
        """Go back to before a message."""
        conversation, model = self._chosen(which)
        if path := list(model.path()):
            place, message, _ = path[at % len(path)]
            conversation.rewind(message.version)
            place.shown = None

    @rule(which=PLACES, point=PLACES, alternative=PLACES)
    def switch(self, which: int, point: int, alternative: int) -> None:
        """Go to an alternative."""
        conversation, model = self._chosen(which)
        if points := model.points():
            at = point % len(points)
            *_, many, held = points[at]
            chosen = alternative % many
            found = self.views.branches(conversation.id)[at].alternatives[chosen]
            conversation.switch_branch(found.version)
            held.shown = chosen

    @rule(which=PLACES)
    def fork(self, which: int) -> None:
        """Go on in a fork, which leaves its parent alone."""
        conversation, model = self._chosen(which)
        if len(self.held) < 3:
            self.held.append((Conversation.fork(self.store, conversation.id), deepcopy(model)))

    @rule(which=PLACES)
    def reopen(self, which: int) -> None:
        """Go on in another session."""
        conversation, model = self._chosen(which)
        conversation.close()
        again = Conversation.open(self.store, conversation.id, if_busy="take_over")
        self.held[which % len(self.held)] = again, model

    @rule()
    def fold_from_start(self) -> None:
        """Make the tables anew."""
        rebuild(self.store)

    @invariant()
    def agree(self) -> None:
        """Expect prompt, screen and arrows to be those of the tree."""
        for conversation, model in self.held:
            expected, items = model.texts(), self.views.timeline(conversation.id)
            said = [item.text for item in items if item.kind in ("user", "assistant")]
            assert expected == said
            assert expected == self._told(conversation.id)
            found = [
                (
                    point.kind,
                    next((at for at, one in enumerate(point.alternatives) if one.active), None),
                    len(point.alternatives),
                )
                for point in self.views.branches(conversation.id)
            ]
            assert [each[:3] for each in model.points()] == found

    def teardown(self) -> None:
        """Expect the tables to be those of a fresh fold, and a fork to be like a copy."""
        try:
            mine = [conversation.id for conversation, _ in self.held]
            assert compare(self.store, conversations=mine).ok
            for conversation, model in self.held:
                copy, events = new_id(), self.store.read(conversation.id)
                told = [NewEvent(each.data, meta=each.meta) for each in events if each.data]
                self.store.append(copy, told)
                assert model.texts() == self._told(copy)
                assert self.views.branches(copy) == self.views.branches(conversation.id)
        finally:
            for conversation, _ in self.held:
                conversation.close()
            self.store.close()

    def _chosen(self, which: int) -> tuple[Conversation, Model]:
        return self.held[which % len(self.held)]

    def _word(self) -> str:
        self.count += 1
        return f"said {self.count}"

    def _turn(self, conversation: Conversation, turn: Any, text: str | None = None) -> Message:
        answer = f"answer {self._word()}"
        with turn:
            version = conversation.version
            with turn.llm_call(turn.context()) as call:
                call.text(answer)
        said = turn._message
        return Message(text or said.parts[0].text, version, [Answer(answer)])

    def _told(self, conversation_id: Any) -> list[str]:
        view = self.views.context(conversation_id, max_tokens=50_000, model="gpt-4o", mode=None)
        return [str(each["content"]) for each in view.messages]


@pytest.mark.exhaustive_when("postgresql")
def test_any_interleaving_is_the_tree(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On both databases; ``LONG_MACHINES=100`` tries a hundred times as many ways."""
    explore(Branches, examples=4, steps=20, url=database_url)
