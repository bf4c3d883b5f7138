"""The tools that interrupt: document 003's list of tests, and the order of what happens."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore import EventStore, ModelRequest, Scheduler, TaskPlan
from agent_eventstore.demo.scripted_model import Reply
from eventstore.events import TaskEnd, TaskStart, ToolCall, ToolResult, TurnEnd
from tests.agents.scripted import Scripted, Wanted, reply

pytestmark = pytest.mark.exhaustive_when("postgresql")

BLANK = {"role": "assistant", "content": ""}
ITEMS = [{"type": "text", "text": "What is there?"}]


def told(store: EventStore, conversation_id: UUID) -> list[str]:
    """Return what a conversation's log has of tasks, turns and tools, in few words."""
    found = []
    for event in store.read(conversation_id):
        match event.data:
            case TurnEnd(status=status, reason=reason) | TaskEnd(status=status, reason=reason):
                found.append(" ".join(filter(None, (event.type, status, reason))))
            case TaskStart():
                found.append(event.type)
            case ToolResult(status=status):
                found.append(f"{event.type} {status}")
            case _ if event.type in ("turn_start", "task_enqueue", "tool_call"):
                found.append(event.type)
    return found


def result_in(store: EventStore, conversation_id: UUID) -> Any:
    """Return the payload of a conversation's only tool result."""
    events = store.read(conversation_id)
    (found,) = (event.data for event in events if isinstance(event.data, ToolResult))
    assert isinstance(found.content, str)
    return json.loads(found.content)


def test_a_new_conversation_answers_and_its_answer_is_the_result(store: EventStore) -> None:
    """TurnAborted(Replaced), the new conversation's task, and the one that brings its answer."""
    model = Scripted(
        reply("I ask.", Wanted("conv_create", user_instruction="How much is 6 x 7?")),
        "42",
        "It is 42.",
    )
    with Scheduler.create(store, model=model) as scheduler:
        result = scheduler.run_task("How much is 6 x 7? Ask somebody.")
        listed = scheduler.conversations()

    made = UUID(result_in(store, scheduler.root)["conversation_id"])
    assert ("complete", "It is 42.") == (result.status, result.last_assistant_message)
    assert {
        "conversation_id": str(made),
        "first_user_message": "How much is 6 x 7?",
        "last_assistant_message": "42",
    } == result_in(store, scheduler.root)
    assert [
        *("task_enqueue", "task_start", "turn_start", "tool_call", "turn_end aborted replaced"),
        *("task_end aborted replaced", "task_enqueue", "task_enqueue"),
        *("task_start", "task_end complete"),
        *("task_start", "turn_start", "tool_result success", "turn_end ok", "task_end complete"),
    ] == told(store, scheduler.root)
    assert ["turn_start", "turn_end ok"] == told(store, made)
    assert [str(scheduler.root), str(made)] == [each["id"] for each in listed]


def create(**given: Any) -> Reply:
    """Return a reply that opens a conversation."""
    return reply("", Wanted("conv_create", **given))


def test_a_message_to_a_conversation_is_answered_there(store: EventStore) -> None:
    """It goes on with its own history, and its answer is the result."""
    asked: list[list[str]] = []

    def model(request: ModelRequest) -> object:
        said = [str(m["content"]) for m in request.messages if m["role"] != "system"]
        asked.append(said)
        if said == ["Begin"]:
            return {**BLANK, "tool_calls": [{"name": "conv_create", "arguments": {"items": ITEMS}}]}
        if said[-1].startswith("{") and len(said) == 3:
            made = json.loads(said[-1])["conversation_id"]
            given = {"conversation_id": made, "text": "And more?"}
            return {**BLANK, "tool_calls": [{"name": "conv_send", "arguments": given}]}
        return f"answer {len(said)}"

    with Scheduler.create(store, model=model) as scheduler:
        result = scheduler.run_task("Begin")

    results = [e.data for e in store.read(scheduler.root) if isinstance(e.data, ToolResult)]
    first, second = (json.loads(str(each.content)) for each in results)
    assert "answer 5" == result.last_assistant_message
    assert {
        "conversation_id": first["conversation_id"],
        "first_user_message": "What is there?",
        "first_items_count": 1,
        "last_assistant_message": "answer 1",
    } == first
    assert {
        "conversation_id": first["conversation_id"],
        "last_assistant_message": "answer 3",
    } == second
    assert ["What is there?", "answer 1", "And more?"] in asked
    assert ["conv.create", "conv.send"] == [each.name for each in results]


def test_what_happens_is_told_in_the_document_s_order(store: EventStore) -> None:
    """With the conversation that each is about, for whoever shows it."""
    events: list[tuple[str, str]] = []

    def tell(conversation_id: UUID, kind: str, text: str) -> None:
        if kind != "context" and (not events or events[-1][1] != kind):
            events.append(("root" if conversation_id == scheduler.root else "new", kind))

    model = Scripted(create(user_instruction="Well?"), "Yes.", "They say yes.")
    with Scheduler.create(store, model=model, on_event=tell) as scheduler:
        scheduler.run_task("Begin")

    assert [
        *(("root", "task_started"), ("root", "said"), ("root", "turn_aborted")),
        *(("root", "task_ended"), ("new", "task_started"), ("new", "text"), ("new", "said")),
        *(("new", "task_ended"), ("root", "task_started"), ("root", "text"), ("root", "said")),
        ("root", "task_ended"),
    ] == events


def test_other_calls_of_the_reply_are_skipped(store: EventStore) -> None:
    """Those before it have run; those behind it are told to be made again."""
    ran: list[str] = []

    def look(at: str) -> str:
        ran.append(at)
        return at

    wanted = Wanted("conv_create", user_instruction="Well?")
    model = Scripted(
        reply("", Wanted("look", at="a"), wanted, Wanted("look", at="b")), "Yes.", "Done."
    )
    with Scheduler.create(store, model=model, tools=[look]) as scheduler:
        result = scheduler.run_task("Begin")
        calls = scheduler.views.tool_calls(conversation_id=scheduler.root)

    assert ("complete", ["a"]) == (result.status, ran)
    assert [("look", "skipped"), ("conv.create", "success"), ("look", "success")] == [
        (each.name, each.status) for each in calls
    ]


def test_chains_of_interrupts_are_limited(store: EventStore) -> None:
    """At the limit the tool says so, and the task goes on."""
    model = Scripted(
        create(user_instruction="1"), create(user_instruction="2"), "inner", "middle", "outer"
    )
    with Scheduler.create(store, model=model, max_interrupt_chain_depth=1) as scheduler:
        result = scheduler.run_task("0")

    assert ("complete", "middle") == (result.status, result.last_assistant_message)
    assert 2 == len(scheduler.conversations())
    told = str(model.asked[2].messages[-1]["content"])
    assert "max_interrupt_chain_depth is 1: finish without interrupting" in told


def test_nested_interrupts_come_back_in_turn(store: EventStore) -> None:
    """The answer that counts is the one with which a conversation has ended its work."""
    model = Scripted(
        create(user_instruction="1"), create(user_instruction="2"), "inner", "middle", "outer"
    )
    with Scheduler.create(store, model=model) as scheduler:
        result = scheduler.run_task("0")

    assert ("complete", "outer") == (result.status, result.last_assistant_message)
    assert "middle" == result_in(store, scheduler.root)["last_assistant_message"]


def test_a_task_that_fails_is_told_to_the_one_that_asked(store: EventStore) -> None:
    """The call is closed as failed, and its conversation goes on."""

    def model(request: ModelRequest) -> object:
        last = request.messages[-1]
        if last["content"] == "Begin":
            given = {"user_instruction": "Well?"}
            return {**BLANK, "tool_calls": [{"name": "conv_create", "arguments": given}]}
        if last["content"] == "Well?":
            raise ValueError("no such model")
        return "They could not."

    with Scheduler.create(store, model=model) as scheduler:
        result = scheduler.run_task("Begin")

    events = store.read(scheduler.root)
    (closed,) = (event.data for event in events if isinstance(event.data, ToolResult))
    assert "They could not." == result.last_assistant_message
    assert "failed" == closed.status
    why = "the task failed: ValueError: no such model"
    assert {"ok": False, "reason": why} == json.loads(str(closed.content))


def test_tasks_run_in_the_order_of_their_coming(store: EventStore) -> None:
    """And one that was enqueued under an id of the product's is run once."""
    model = Scripted("a", "b", "c")
    with Scheduler.create(store, model=model) as scheduler:
        plans = [
            TaskPlan(conversation_id=scheduler.root, input_items=text, task_id=text)
            for text in ("1", "2", "3")
        ]
        scheduler.enqueue(plans)
        scheduler.enqueue(plans[:2])
        results = scheduler.run()
        scheduler.enqueue(plans)
        again = scheduler.run()

    assert [("1", "a"), ("2", "b"), ("3", "c")] == [
        (each.task_id, each.last_assistant_message) for each in results
    ]
    assert [] == again


def test_other_work_may_take_the_place_of_a_task(store: EventStore) -> None:
    """`abort_current_and_enqueue` ends the turn where it next looks; the rest comes behind."""

    def hurry() -> str:
        plan = TaskPlan(conversation_id=scheduler.root, input_items="Fire!", task_id="fire")
        scheduler.abort_current_and_enqueue([plan])
        return "on its way"

    model = Scripted(reply("", Wanted("hurry")), "Put out.", "Later.")
    with Scheduler.create(store, model=model, tools=[hurry]) as scheduler:
        plans = [
            TaskPlan(conversation_id=scheduler.root, input_items=text, task_id=text)
            for text in ("work", "rest")
        ]
        scheduler.enqueue(plans)
        results = scheduler.run()

    assert [
        ("work", "aborted", "replaced"),
        ("fire", "complete", None),
        ("rest", "complete", None),
    ] == [(each.task_id, each.status, each.reason) for each in results]
    assert "turn_end aborted replaced" in told(store, scheduler.root)


def test_a_task_may_be_replaced_as_soon_as_it_is_told_of(store: EventStore) -> None:
    """It ends before a turn of it begins, once, and the work in its place is done."""

    def tell(conversation_id: UUID, kind: str, text: str) -> None:
        if (kind, text) == ("task_started", "old"):
            new = TaskPlan(conversation_id=conversation_id, input_items="New?", task_id="new")
            scheduler.abort_current_and_enqueue([new])

    with Scheduler.create(store, model=Scripted("New."), on_event=tell) as scheduler:
        scheduler.enqueue(
            [TaskPlan(conversation_id=scheduler.root, input_items="?", task_id="old")]
        )
        results = scheduler.run()

    assert [("old", "aborted", "replaced"), ("new", "complete", None)] == [
        (each.task_id, each.status, each.reason) for each in results
    ]
    assert [
        *("task_enqueue", "task_start", "task_end aborted replaced", "task_enqueue"),
        *("task_start", "turn_start", "turn_end ok", "task_end complete"),
    ] == told(store, scheduler.root)


@pytest.mark.parametrize("how", ["replaced", "interrupted"])
def test_a_turn_that_is_cut_off_is_told_of(store: EventStore, how: str) -> None:
    """Also if `abort_current_and_enqueue` or `destroy` cuts it off."""
    heard: list[str] = []

    def tell(conversation_id: UUID, kind: str, text: str) -> None:
        if kind == "turn_aborted":
            heard.append(text)
        elif (kind, text) == ("text", "First."):
            if how == "replaced":
                new = TaskPlan(conversation_id=conversation_id, input_items="New?", task_id="new")
                scheduler.abort_current_and_enqueue([new])
            else:
                scheduler.destroy(conversation_id)

    model = Scripted(create(user_instruction="Well?"), "First.", "Second.", "Third.")
    with Scheduler.create(store, model=model, on_event=tell) as scheduler:
        scheduler.enqueue([TaskPlan(conversation_id=scheduler.root, input_items="?", task_id="t")])
        scheduler.run()

    assert how in heard[1:]


def test_names_are_mapped_to_the_wire_and_back(store: EventStore) -> None:
    """Providers take no dots; the log has the document's names, in the document's order."""
    model = Scripted(create(user_instruction="Well?"), "Yes.", "Done.")
    with Scheduler.create(store, model=model, tools=[print_nothing]) as scheduler:
        scheduler.run_task("Begin")

    names = [each["function"]["name"] for each in model.asked[0].tools]
    assert [
        *("print_nothing", "conv_create", "conv_send", "conv_list", "conv_history"),
        *("conv_destroy", "read_output"),
    ] == names
    called = [m["tool_calls"][0]["function"]["name"] for m in model.asked[2].messages[-2:-1]]
    assert ["conv_create"] == called
    executed = [e.data for e in store.read(scheduler.root) if isinstance(e.data, ToolCall)]
    assert ["conv.create"] == [each.name for each in executed]


def print_nothing() -> None:
    """Print nothing."""


def test_declarations_are_those_of_anthropic_too(store: EventStore) -> None:
    """Each tool is declared as its API wants it."""
    with Scheduler.create(store, model=Scripted()) as scheduler:
        tools = scheduler.tools
    for tool in tools:
        declared = tool.declaration("anthropic_messages")
        assert {"name", "description", "input_schema"} == declared.keys()
        assert "object" == declared["input_schema"]["type"]
        assert "$ref" not in json.dumps(declared)
        assert "anyOf" not in json.dumps(declared)
