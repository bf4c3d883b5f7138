"""A chat of three participants, as document 002 has it: in parallel, and in a workflow of roles."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agent_eventstore import ChatSession, EventStore, ModelRequest, Participant, Views
from agent_eventstore.errors import WrongThread
from agent_eventstore.transcripts.openai_messages import export_openai
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    LlmRequest,
    ModeState,
    Notebook,
    TurnEnd,
    UserMessage,
)
from projections.context import ContextSettings
from tests.projections.support import statements

ADA = Participant("ada", "Ada", "You write code.", nicknames=("A",))
BOB = Participant("bob", "布偶", "You review code.")
CY = Participant("cy", "Cy", "You test code.", model="gpt-4o-mini")
ALL = (ADA, BOB, CY)
ROLE_MAP = {"coder": "ada", "reviewer": "bob", "tester": "cy"}


class Model:
    """Answers with the name that its persona tells, and keeps what it was asked."""

    def __init__(self, fails: str = "") -> None:
        self.asked: dict[str, list[ModelRequest]] = {each.name: [] for each in ALL}
        self.fails = fails

    def __call__(self, request: ModelRequest) -> Any:
        """Answer as the participant that is asked."""
        system = request.messages[0]["content"]
        who = next(each.name for each in ALL if f"You are {each.name} " in system)
        self.asked[who].append(request)
        if who == self.fails:
            raise ValueError("no answer")
        return iter([f"{who} says ", str(len(self.asked[who]))])

    def told(self, who: Participant, place: int = -1) -> str:
        """Return all that a participant was told, but for the system message."""
        return "\n".join(each["content"] for each in self.asked[who.name][place].messages[1:])


def chat(store: EventStore, model: Any = None, **options: Any) -> ChatSession:
    """Begin a chat of all three."""
    return ChatSession.create(store, participants=ALL, model=model or Model(), **options)


def data(store: EventStore, session: ChatSession, kind: Any) -> list[Any]:
    """Return the payloads of one type."""
    return [each.data for each in store.read(session.id) if isinstance(each.data, kind)]


class TestParallel:
    """Any mode but the workflow: whom a message mentions answers, or all."""

    def test_all_answer_a_message_that_mentions_nobody(self, store: EventStore) -> None:
        """Each once, in one turn."""
        with chat(store) as session:
            result = session.send("Hello, all")
        assert ("ok", 1) == (result.status, result.turn)
        assert [
            ("ada", "Ada says 1"),
            ("bob", "布偶 says 1"),
            ("cy", "Cy says 1"),
        ] == [(each.participant, each.text) for each in result.responses]

    def test_those_mentioned_answer(self, store: EventStore) -> None:
        """And the message has the mentions, its text as it was said."""
        with chat(store) as session:
            result = session.send("@布偶 and @a, look at this")
        [said] = data(store, session, UserMessage)
        assert ["bob", "ada"] == [each.participant for each in result.responses]
        assert [("bob", "@布偶", 0), ("ada", "@a", 8)] == [
            (each.participant, each.text, each.start) for each in said.mentions
        ]
        assert "@布偶 and @a, look at this" == said.parts[0].text

    def test_parallel_answers_share_the_history_before_the_turn(self, store: EventStore) -> None:
        """They are made at the same time: nobody is told what the others are saying."""
        together = threading.Barrier(3, timeout=30)
        model = Model()

        def waiting(request: ModelRequest) -> Any:
            together.wait()
            return model(request)

        with chat(store, waiting) as session:
            session.send("One")
            session.send("Two")
        for who in ALL:
            told = model.told(who)
            assert {"Ada says 1", "布偶 says 1", "Cy says 1"} == {
                each for each in ("Ada says 1", "布偶 says 1", "Cy says 1") if each in told
            }
            assert "says 2" not in told
            assert 1 == told.count("Two")

    def test_each_is_told_its_persona_and_its_colleagues(self, store: EventStore) -> None:
        """And asks the model that it names."""
        model = Model()
        with chat(store, model) as session:
            session.send("Hello")
        [request] = model.asked["Cy"]
        assert "gpt-4o-mini" == request.model
        assert "You test code." in request.messages[0]["content"]
        assert "- 布偶: You review code." in request.messages[0]["content"]

    def test_who_said_what_survives(self, store: EventStore) -> None:
        """In messages[], in the timeline, in the export and in the log."""
        with chat(store) as session:
            session.send("Hello", name="Eve")
        views = Views(store)
        named = ["Eve", "ada", "bob", "cy"]
        messages = views.context(session.id, mode=None).messages
        items = [each for each in views.timeline(session.id) if each.kind in ("user", "assistant")]
        assert sorted(named) == sorted(str(each["name"]) for each in messages)
        assert sorted(named) == sorted(str(each.name) for each in items)
        assert sorted(named) == sorted(
            str(each["name"]) for each in export_openai(store, session.id)
        )
        for other in ("anthropic_messages", "openai_responses"):
            told = str(views.context(session.id, mode=None, format=other).messages)
            assert [] == [name for name in named if name not in told]
        answers = [e for e in store.read(session.id) if isinstance(e.data, AssistantMessage)]
        requests = [e for e in store.read(session.id) if isinstance(e.data, LlmRequest)]
        assert {"ada", "bob", "cy"} == {each.meta.agent_id for each in answers}
        assert {"ada", "bob", "cy"} == {each.meta.agent_id for each in requests}

    def test_twenty_messages_of_the_history_are_told(self, store: EventStore) -> None:
        """The current input stands behind them."""
        model = Model()
        with chat(store, model) as session:
            for number in range(12):
                session.send(f"@ada message {number}.")
        told = model.told(ADA)
        assert "message 0." not in told
        assert ["message 1.", "message 11."] == [
            each for each in ("message 1.", "message 11.") if each in told
        ]
        assert 10 == told.count("Ada says")

    def test_settings_limit_the_history(self, store: EventStore) -> None:
        """Of a long one the first message and the newest are told, within their tokens."""
        model = Model()
        settings = ContextSettings(max_tokens=150, max_messages=4)
        with chat(store, model, settings=settings, history=100) as session:
            for number in range(12):
                session.send(f"@ada message {number}.")
        told = model.told(ADA)
        assert ["message 0.", "message 11."] == [
            each for each in (f"message {number}." for number in (0, 4, 5, 11)) if each in told
        ]
        assert 3 >= told.count("Ada says")

    def test_settings_are_settings(self, store: EventStore) -> None:
        """A mapping is refused before anything is written, and so is an unknown option."""
        for options in ({"settings": {"max_tokens": 9}}, {"setings": None}, {"model": 3}):
            with pytest.raises(TypeError):
                chat(store, **options)
        with pytest.raises(ValueError, match="needs at least one participant"):
            ChatSession.create(store, participants=[], model=Model())
        assert [] == store.list()

    def test_one_who_fails_keeps_nobody_else_from_answering(self, store: EventStore) -> None:
        """The turn ends with that, and going on asks only who has not answered."""
        model = Model(fails="布偶")
        with chat(store, model, attempts=1) as session:
            result = session.send("Hello")
            model.fails = ""
            again = session.go_on()
            assert session.go_on() is None
        assert ("error", "bob: ValueError: no answer") == (result.status, result.error)
        assert ["Ada says 1", None, "Cy says 1"] == [each.text for each in result.responses]
        assert again is not None
        assert [("bob", "布偶 says 2")] == [(r.participant, r.text) for r in again.responses]
        assert "says 1" not in model.told(BOB)
        assert ["error", "ok"] == [each.status for each in data(store, session, TurnEnd)]
        assert 1 == len(data(store, session, UserMessage))

    def test_a_message_that_is_posted_again_is_answered_once(self, store: EventStore) -> None:
        """The result is that of the first time."""
        with chat(store) as session:
            first = session.send("Hello", message_id="m1")
            again = session.send("Hello", message_id="m1")
        assert 3 == len(data(store, session, AssistantMessage))
        assert sorted(each.text or "" for each in first.responses) == sorted(
            each.text or "" for each in again.responses
        )
        assert (first.turn, "ok") == (again.turn, again.status)


class TestWorkflow:
    """The workflow: coder, reviewer and tester answer one after the other."""

    def test_the_roles_answer_in_their_order(self, store: EventStore) -> None:
        """Mentions route nothing, and each is told what those before it have said."""
        model = Model()
        with chat(store, model, mode="workflow", role_map=ROLE_MAP) as session:
            result = session.send("@cy sort a list")
        assert ["ada", "bob", "cy"] == [each.participant for each in result.responses]
        assert "Ada says 1" not in model.told(ADA)
        assert "Ada: Ada says 1" in model.told(BOB)
        assert "布偶: 布偶 says 1" in model.told(CY)
        assert "You are the tester" in model.asked["Cy"][0].messages[0]["content"]
        assert [1, 1, 1] == [model.told(who).count("sort a list") for who in ALL]

    def test_the_state_is_written_behind_each_answer(self, store: EventStore) -> None:
        """The last one begins anew."""
        with chat(store, mode="workflow", role_map=ROLE_MAP) as session:
            result = session.send("Sort a list")
        states = [each.state for each in data(store, session, ModeState)]
        assert ["reviewer", "tester", "coder"] == [each["current_node"] for each in states]
        assert "done" == states[-1]["status"]
        assert states[-1] == result.mode_state

    def test_the_task_is_what_the_user_has_said(self, store: EventStore) -> None:
        """The first message, and what followed in the order in which it came."""
        model = Model()
        with chat(store, model, mode="workflow", role_map=ROLE_MAP) as session:
            session.send("Sort a list.")
            session.send("In place.")
        task = model.asked["Cy"][1].messages[-1]["content"]
        assert "Task: Sort a list." in task
        assert task.endswith("1. In place.")

    def test_a_role_that_fails_is_asked_again(self, store: EventStore) -> None:
        """The workflow stands where it was; those before it are not asked again."""
        model = Model(fails="布偶")
        with chat(store, model, mode="workflow", role_map=ROLE_MAP, attempts=1) as session:
            result = session.send("Sort a list")
            assert "reviewer" == session.mode_state["current_node"]
            model.fails = ""
            again = session.go_on()
        assert "error" == result.status
        assert again is not None
        assert ["bob", "cy"] == [each.participant for each in again.responses]
        assert 1 == len(model.asked["Ada"])

    def test_a_role_must_be_somebody_s(self, store: EventStore) -> None:
        """It is said at once, and nothing is written."""
        with pytest.raises(ValueError, match="no participant has the role 'tester'"):
            chat(store, mode="workflow", role_map={"coder": "ada", "reviewer": "bob"})
        assert [] == list(store.list())

    def test_the_mode_may_change(self, store: EventStore) -> None:
        """The history is one for all modes."""
        model = Model()
        with chat(store, model, mode="quiz") as session:
            session.send("@ada hello")
            session.switch_mode("workflow", ROLE_MAP)
            assert session.go_on() is None
            result = session.send("Sort a list")
        assert ["ada", "bob", "cy"] == [each.participant for each in result.responses]
        assert "Ada says 1" in model.told(BOB)


class TestThreads:
    """A session belongs to a thread, and is opened there."""

    def test_a_session_is_opened_again_in_its_thread(self, store: EventStore) -> None:
        """With those who take part, and the history."""
        model = Model()
        with chat(store, thread_slug="cats") as session:
            session.send("@ada hello")
        with ChatSession.open(store, session.id, model=model, thread_slug="cats") as again:
            assert ALL == again.participants
            again.send("@cy and you?")
        assert "Ada: Ada says 1" in model.told(CY)

    @pytest.mark.parametrize(("begun", "asked"), [("cats", "dogs"), ("cats", None), (None, "cats")])
    def test_another_thread_s_session_is_refused(
        self, store: EventStore, begun: str | None, asked: str | None
    ) -> None:
        """Nothing is changed; the error names both."""
        session = chat(store, thread_slug=begun)
        before = session.conversation.version
        with pytest.raises(WrongThread, match=str(session.id)) as caught:
            ChatSession.open(store, session.id, model=Model(), thread_slug=asked)
        assert asked == caught.value.thread_slug
        assert before == store.get(session.id).version
        session.close()

    def test_the_start_of_the_conversation_has_who_takes_part(self, store: EventStore) -> None:
        """As the product describes them."""
        with chat(store) as session:
            pass
        [start] = data(store, session, ConversationStart)
        assert ["ada", "bob", "cy"] == [each["id"] for each in start.participants]
        assert "free_chat" == start.mode


def test_a_message_of_a_free_chat_looks_for_no_state(store: EventStore) -> None:
    """Only a workflow has one; before, each message read the whole conversation for it."""
    with chat(store) as session:
        session.conversation.append(*(Notebook(text=str(number)) for number in range(900)))
        session.send("@ada Hello")
        session.conversation.views.timeline(session.id)
        with statements(store) as seen:
            session.send("@ada And now?")
    back = [each for each in seen if "FROM events" in each and "version DESC" in each]
    assert len(back) <= 4, back


def test_a_participant_that_calls_a_tool_leaves_no_call_open(store: EventStore) -> None:
    """Nobody offered it any; the call was open, and later shown to all without a result."""
    called = {"role": "assistant", "content": "Look.", "tool_calls": [{"name": "look"}]}
    with chat(store, lambda request: called) as session:
        result = session.send("Hello, all")
        work = Views(store).open_work(session.id)
    assert ["Look."] * 3 == [each.text for each in result.responses]
    assert ((), 0) == (work.tool_calls, work.open_count)
    assert {"skipped"} == {
        row.status for row in Views(store).tool_calls(conversation_id=session.id)
    }


@pytest.mark.parametrize(
    ("history", "told"), [("5", "an integer, not '5'"), (-1, "at least 0, not -1")]
)
def test_a_wrong_length_of_the_history_is_refused(
    store: EventStore, history: Any, told: str
) -> None:
    """One failed at the first message, the other sent no history at all."""
    with pytest.raises((TypeError, ValueError), match=f"^history must be {told}"):
        chat(store, history=history)
    assert [] == [*store.read_all()]


def test_a_model_of_nobody_is_refused(store: EventStore) -> None:
    """It was ignored: a participant whose id had a typing error used the session's model."""
    with pytest.raises(ValueError, match=r"^models names no participant: 'adda'; .*ada"):
        chat(store, models={"adda": lambda request: "Hello."})
    assert [] == [*store.read_all()]
    with chat(store) as session:
        pass
    version = store.get(session.id).version
    with pytest.raises(ValueError, match="models names no participant"):
        ChatSession.open(store, session.id, model=lambda request: "", models={"adda": None})
    assert version == store.get(session.id).version
