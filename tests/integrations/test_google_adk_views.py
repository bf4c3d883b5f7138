"""Whatever happens to an ADK session, messages[], timeline and audit hold its live events."""

from __future__ import annotations

import asyncio
import json
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from google.adk.events import Event, EventActions
from google.adk.events._rewind_events import _apply_rewinds
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eventstore.integrations.google_adk.service import EventStoreSessionService
from agent_eventstore.machines.seals import RESULT_UNSEEN
from eventstore import EventStore
from projections import Views
from projections.upkeep import compare

NAME: dict[str, Any] = {"app_name": "app", "user_id": "ada", "session_id": "s"}
KEY = "app/ada/s"


class Script:
    """Events that a runner appends to a session, as it would."""

    def __init__(self, store: EventStore) -> None:
        self.store, self.ids = store, count(1)
        self.sessions = EventStoreSessionService(store)
        self.invocation = "i0"
        asyncio.run(self.sessions.create_session(**NAME))

    @property
    def events(self) -> list[Event]:
        """All events, as the service returns them."""
        session = asyncio.run(self.sessions.get_session(**NAME))
        assert session is not None
        return list(session.events)

    @property
    def live(self) -> list[Event]:
        """The events that ADK sends to a model."""
        return list(_apply_rewinds(self.events))

    def add(self, author: str, *parts: types.Part, **fields: Any) -> None:
        """Append an event of the current invocation."""
        role = "user" if author == "user" else "model"
        content = types.Content(role=role, parts=[*parts]) if parts else None
        event = Event(author=author, invocation_id=self.invocation, content=content, **fields)

        async def added() -> None:
            session = await self.sessions.get_session(**NAME)
            assert session is not None
            await self.sessions.append_event(session, event)

        asyncio.run(added())

    def calls(self) -> tuple[dict[str, Any], set[str], dict[str, Any]]:
        """Return the live calls, those that run for long, and the newest response of each."""
        calls: dict[str, Any] = {}
        long: set[str] = set()
        responses: dict[str, Any] = {}
        for event in self.live:
            long |= event.long_running_tool_ids or set()
            calls |= {str(each.id): each.args for each in event.get_function_calls()}
            responses |= {str(r.id): r.response for r in event.get_function_responses()}
        return calls, long, responses

    def apply(self, name: str, choice: int) -> None:
        """Apply one operation, on what the choice says."""
        number = next(self.ids)
        calls, long, responses = self.calls()
        pending = [each for each in calls if each not in responses]
        match name:
            case "ask":
                self.invocation = f"i{number}"
                self.add("user", types.Part(text=f"question {number}"))
            case "answer":
                self.add("clerk", types.Part(text=f"answer {number}"))
            case "call" | "call for long":
                ids = [f"c{number}.{n}" for n in range(1 + choice % 2)]
                said = [types.Part(text=f"plan {number}")] if choice % 3 else []
                made = [types.FunctionCall(id=each, name="f", args={"x": number}) for each in ids]
                parts = [*said, *(types.Part(function_call=each) for each in made)]
                is_long = name == "call for long"
                self.add("clerk", *parts, long_running_tool_ids=set(ids) if is_long else None)
            case "respond" if pending:
                self.respond("clerk", pending[: 1 + choice % 2], number)
            case "go on" if open_ := [each for each in calls if each in long and each in responses]:
                self.invocation = f"i{number}"
                self.respond("user", [open_[choice % len(open_)]], number)
            case "rewind":
                known = list(dict.fromkeys(each.invocation_id for each in self.live))
                if known:
                    self.invocation = f"i{number}"
                    before = known[-1 - choice % min(len(known), 4)]
                    self.add("user", actions=EventActions(rewind_before_invocation_id=before))
                    self.invocation = f"i{number}.1"  # ADK's runner gives a rewind one of its own
            case "restart":
                self.sessions = EventStoreSessionService(self.store)

    def respond(self, author: str, ids: list[str], number: int) -> None:
        """Append responses of calls."""
        made = [
            types.FunctionResponse(id=each, name="f", response={"y": f"{number} {each}"})
            for each in ids
        ]
        self.add(author, *(types.Part(function_response=each) for each in made))

    def agree(self) -> None:
        """Check that all views agree with the live events."""
        calls, _, responses = self.calls()
        told: list[Any] = []
        for event in self.live:
            texts = [
                part.text for part in (event.content and event.content.parts) or () if part.text
            ]
            if texts:
                told.append(("user" if event.author == "user" else "assistant", "".join(texts)))
            told += [("tool", responses.get(str(c.id))) for c in event.get_function_calls()]
        views = Views(self.store)
        items = [
            (item.kind, loaded(item.text) if item.kind == "tool" else item.text)
            for item in views.timeline(KEY)
            if item.kind in ("user", "assistant", "tool") and item.status != "withdrawn"
        ]
        assert items == told
        sent = [
            (m["role"], loaded(m["content"]) if m["role"] == "tool" else m["content"])
            for m in views.context(KEY, mode=None).messages
            if m["role"] == "tool" or m["content"]
        ]
        assert len(sent) == len(told)
        pending = ("tool", None)
        assert [s if e != pending else e for s, e in zip(sent, told, strict=True)] == told
        rows = views.tool_calls(conversation_id=self.store.stream(KEY))
        standing = {
            row.provider_id: (row.arguments, loaded(row.result_text))
            for row in rows
            if not row.withdrawn
        }
        assert set(standing) == set(calls)
        for own_id, arguments in calls.items():
            assert standing[own_id][0] == arguments
            if own_id in responses:
                assert standing[own_id][1] == responses[own_id]
        assert not [row for row in rows if row.withdrawn and row.status == "requested"]


def loaded(text: Any) -> Any:
    """Return the JSON of a result; None for what stands in for one that nobody has seen."""
    if text == RESULT_UNSEEN:
        return None
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text


OPERATIONS = (
    "ask",
    "ask",
    "answer",
    "call",
    "call for long",
    "respond",
    "respond",
    "go on",
    "go on",
    "rewind",
    "rewind",
    "restart",
)


def test_a_rewound_final_response(store: EventStore) -> None:
    """The interim response of the call is its result again."""
    script = Script(store)
    for name in ("ask", "call for long", "respond", "answer", "go on", "answer"):
        script.apply(name, 0)
    script.apply("rewind", 0)

    script.agree()
    assert "3 c2.0" in str(Views(store).context(KEY, mode=None).messages)
    script.apply("go on", 0)
    script.agree()


def test_a_call_that_a_kill_has_cut(store: EventStore) -> None:
    """The next message of the user seals it, once; a result that comes after all replaces that."""
    script = Script(store)
    for name in ("ask", "call", "restart"):
        script.apply(name, 0)
    assert ["requested"] == [row.status for row in Views(store).tool_calls()]
    for name in ("ask", "answer", "restart", "ask"):
        script.apply(name, 0)
    [row] = Views(store).tool_calls()
    assert ("outcome_unknown", RESULT_UNSEEN) == (row.status, row.result_text)
    types_of = [each.type for each in store.read(KEY)]
    assert 1 == types_of.count("tool_result")
    script.agree()
    script.respond("clerk", ["c2.0"], 9)
    [row] = Views(store).tool_calls()
    assert ("success", {"y": "9 c2.0"}) == (row.status, loaded(row.result_text))


def test_a_call_that_goes_on_by_itself_is_not_sealed(store: EventStore) -> None:
    """Users may write while a long-running tool works."""
    script = Script(store)
    for name in ("ask", "call for long", "ask", "answer"):
        script.apply(name, 0)
    assert ["requested"] == [row.status for row in Views(store).tool_calls()]
    script.agree()


def test_a_rewind_to_an_invocation_that_was_resumed(store: EventStore) -> None:
    """It is rewound from where it first began, though others came between."""
    script = Script(store)
    for name in ("ask", "answer", "ask", "answer"):
        script.apply(name, 0)
    script.invocation = script.events[0].invocation_id
    script.add("clerk", types.Part(text="resumed"))
    script.add("user", actions=EventActions(rewind_before_invocation_id=script.invocation))

    assert script.live == []
    script.agree()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, to copy for each example."""
    path = tmp_path_factory.mktemp("template") / "store.db"
    EventStore.open(f"sqlite:///{path}", synchronous="OFF").close()
    return path


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=30)  # each operation reads the session as another process would
@given(operations=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 11)), max_size=12))
def test_any_operations_of_the_service(
    operations: list[tuple[str, int]], template: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After any operations, the views hold the events that ADK takes for live."""
    path = tmp_path_factory.mktemp("store") / "store.db"
    shutil.copy(template, path)
    with EventStore.open(f"sqlite:///{path}", synchronous="OFF") as store:
        script = Script(store)
        script.apply("ask", 0)
        for name, choice in operations:
            script.apply(name, choice)
            if choice % 3 == 0:
                script.agree()
        script.agree()
        assert not compare(store).differences
