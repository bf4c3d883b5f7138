"""The screen of an agent: widgets, the notebook, and what of it stays in the history."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eventstore import AgentSession, EventStore, MemoryNotebook, Views
from agent_eventstore.agents import FunctionTool, Widget
from eventstore.events import Notebook, ToolResult, UserMessage
from eventstore.events.content import without_live_screen
from projections.context.compression import LevelOfDetail, LlmSummary, Strategy
from tests.agents.scripted import Scripted, Wanted, read, reply

REPLACE = "memory_notebook_replace"
SCREEN = "# [Live Screen]\n\n## [Memory Notebook]\n\n"

LIVE = LevelOfDetail(live_only_newest=True)


class Clock(Widget):
    """Shows a number that its tool sets."""

    def __init__(self) -> None:
        self.hour = 0
        self.executed: list[tuple[str, Any]] = []
        self.tools = (FunctionTool.of(self.set_hour),)

    def set_hour(self, hour: int) -> str:
        """Set the clock."""
        self.hour = hour
        return "It is set."

    def render_live_screen(self) -> str | None:
        """Show the hour."""
        return f"It is {self.hour}.  \n" if self.hour else None

    def execute(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Keep what was executed."""
        self.executed.append((tool, arguments))
        return super().execute(tool, arguments)


def screens(store: EventStore, session: AgentSession) -> list[str | None]:
    """Return the screens of inputs and tool results, in order."""
    held = [e.data for e in store.read(session.id)]
    return [
        without_live_screen(each.sections.live)[1] if each.sections else None
        for each in held
        if isinstance(each, UserMessage | ToolResult)
    ]


def test_the_notebook_stands_in_the_newest_result_and_input(store: EventStore) -> None:
    """As it was when they were written; the model sees it there."""
    model = Scripted(reply("", Wanted(REPLACE, text="Ada likes tea.")), "Noted.", "Tea.")
    with AgentSession.create(store, model=model, widgets=[MemoryNotebook()]) as session:
        session.run_turn("Remember that Ada likes tea.")
        session.run_turn("What does Ada like?")
    assert [None, f"{SCREEN}Ada likes tea.", f"{SCREEN}Ada likes tea."] == screens(store, session)
    assert model.asked[1].messages[-1]["content"].endswith(f"\n\n{SCREEN}Ada likes tea.")
    assert (
        f"What does Ada like?\n\n{SCREEN}Ada likes tea." == model.asked[2].messages[-1]["content"]
    )
    [kept] = [e for e in store.read(session.id) if isinstance(e.data, Notebook)]
    assert not kept.meta.in_context
    assert not any("Ada" in m["content"] for m in model.asked[2].messages if m["role"] == "system")


def test_the_notebook_is_there_again(store: EventStore) -> None:
    """A session that is opened again takes it from the log."""
    model = Scripted(reply("", Wanted(REPLACE, text="One.")), "Noted.")
    with AgentSession.create(store, model=model, widgets=[MemoryNotebook()]) as first:
        first.run_turn("Remember.")
    notebook = MemoryNotebook()
    with AgentSession.open(store, first.id, model=Scripted("Yes."), widgets=[notebook]) as second:
        assert "One." == notebook.text
        second.run_turn("Still there?")
    assert f"{SCREEN}One." == screens(store, second)[-1]


def test_only_the_last_result_of_a_reply_has_the_screen(store: EventStore) -> None:
    """Whether it went well or not; widgets without anything to show are left out."""
    clock = Clock()
    calls = [Wanted("set_hour", hour=3), Wanted("read", path="a"), Wanted("nothing")]
    model = Scripted(reply("", *calls), "Done.")
    with AgentSession.create(
        store, model=model, tools=[read], widgets=[MemoryNotebook(), clock]
    ) as session:
        session.run_turn("Set it.")
    assert [None, None, None, "# [Live Screen]\n\nIt is 3."] == screens(store, session)
    assert [("set_hour", {"hour": 3})] == clock.executed


@pytest.mark.parametrize(
    ("strategy", "live"),
    [(LIVE, 1), (LlmSummary(base=LIVE), 1), ("key_messages", 3)],
)
def test_the_newest_is_live_and_others_are_summaries(
    store: EventStore, strategy: Strategy | str, live: int
) -> None:
    """With the strategy of document 004; others lose detail once there is no room."""
    clock = Clock()
    clock.hour = 7
    model = Scripted("One.", "Two.", "Three.")
    options: dict[str, Any] = {"widgets": [clock], "strategy": strategy}
    with AgentSession.create(store, model=model, **options) as session:
        for said in ("First.", "Second.", "Third."):
            session.run_turn(said)
    view = Views(store).context(session.id, mode=None, strategy=strategy)
    told = [str(each["content"]) for each in view.messages if each["role"] == "user"]
    assert live == sum("[Live Screen]" in each for each in told)
    assert live == str(model.asked[2].messages).count("[Live Screen]")
    assert told[-1] == "Third.\n\n# [Live Screen]\n\nIt is 7."
    assert ["First.", "Second."] == [each.partition("\n")[0] for each in told[:2]]


def test_a_result_is_newer_than_its_question(store: EventStore) -> None:
    """The question comes down to its summary once a tool has answered."""
    clock = Clock()
    clock.hour = 7
    model = Scripted(reply("", Wanted("set_hour", hour=8)), "Done.")
    with AgentSession.create(store, model=model, widgets=[clock]) as session:
        session.run_turn("Set it.")
    view = Views(store).context(session.id, mode=None, strategy=LIVE)
    told = {each["role"]: str(each["content"]) for each in view.messages}
    assert "Set it." == told["user"]
    assert told["tool"].endswith("It is 8.")
