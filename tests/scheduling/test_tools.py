"""The tools that do not interrupt, and what all five refuse; what a new conversation takes over."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore import Conversation, EventStore, Scheduler, TaskPlan
from agent_eventstore.demo.scripted_model import Reply
from agent_eventstore.errors import ConversationEnded
from eventstore.events import (
    ConversationEnd,
    ConversationStart,
    SystemInstruction,
    ToolPolicy,
    ToolResult,
    TurnEnd,
)
from projections import Views
from tests.agents.scripted import Scripted, Wanted, reply

pytestmark = pytest.mark.exhaustive_when("postgresql")

URL = "data:image/png;base64,iVBORw0KGgo="


def call(name: str, **given: Any) -> Reply:
    """Return a reply that calls a tool."""
    return reply("", Wanted(f"conv_{name}", **given))


def told(model: Scripted, number: int = -1) -> Any:
    """Return the payload of the tool result that a request ends with, below what says it failed."""
    return json.loads(str(model.asked[number].messages[-1]["content"]).splitlines()[-1])


def child_of(scheduler: Scheduler) -> UUID:
    """Return the conversation that was opened last."""
    return UUID(scheduler.conversations()[-1]["id"])


def start_of(store: EventStore, conversation_id: UUID) -> ConversationStart:
    """Return how a conversation began."""
    first = next(store.read(conversation_id, limit=1)).data
    assert isinstance(first, ConversationStart)
    return first


def test_conversations_are_listed_without_interrupting(store: EventStore) -> None:
    """With the number of their messages and their last activity, in one turn."""
    model = Scripted(call("create", user_instruction="Well?"), "Yes.", call("list"), "Done.")
    with Scheduler.create(store, model=model) as scheduler:
        result = scheduler.run_task("Begin")
        child = child_of(scheduler)

    results = [e.data for e in store.read(scheduler.root) if isinstance(e.data, ToolResult)]
    listed = json.loads(str(results[-1].content))["conversations"]
    assert "complete" == result.status
    assert [(str(scheduler.root), 1), (str(child), 2)] == [
        (each["id"], each["message_count"]) for each in listed
    ]
    moments = [datetime.fromisoformat(each["last_active_at"]) for each in listed]
    assert [timedelta(0)] * 2 == [each.utcoffset() for each in moments]
    assert all(each["last_active_at"].endswith("Z") for each in listed)
    assert ["aborted", "ok"] == [
        e.data.status for e in store.read(scheduler.root) if isinstance(e.data, TurnEnd)
    ]


def test_the_history_holds_messages_only(store: EventStore) -> None:
    """Neither calls nor results, but images; the latest, if few are asked for."""
    model = Scripted(reply("Look.", Wanted("conv_list")), "Nice.", "More.")
    items: list[dict[str, Any]] = [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": URL}},
    ]
    with Scheduler.create(store, model=model) as scheduler:
        scheduler.run_task(items)
        scheduler.run_task("And?")
        entries = scheduler.history(scheduler.root)
        last = scheduler.history(scheduler.root, 1)
        assert [] == scheduler.history(scheduler.root, 0)
        assert entries == scheduler.history(scheduler.root, 9)
        with pytest.raises(ValueError, match="limit is -1"):
            scheduler.history(scheduler.root, -1)

    image = {"type": "image", "image_url": URL}
    assert [
        {"role": "user", "text": "See", "attachments": [image]},
        {"role": "assistant", "text": "Look.", "attachments": []},
        {"role": "assistant", "text": "Nice.", "attachments": []},
        {"role": "user", "text": "And?", "attachments": []},
        {"role": "assistant", "text": "More.", "attachments": []},
    ] == entries
    assert entries[-1:] == last


def test_a_model_reads_another_s_history(store: EventStore) -> None:
    """As entries, by the id that it was told."""
    model = Scripted(call("create", items=[{"type": "image", "image_url": URL}]), "A cat.", "Done.")
    with Scheduler.create(store, model=model) as scheduler:
        scheduler.run_task("Begin")
        child = child_of(scheduler)
    model = Scripted(call("history", conversation_id=str(child), limit=2), "Done.")
    with Scheduler.open(store, scheduler.root, model=model) as scheduler:
        scheduler.run_task("What was said?")

    assert {
        "entries": [
            {"role": "user", "attachments": [{"type": "image", "image_url": URL}]},
            {"role": "assistant", "text": "A cat.", "attachments": []},
        ]
    } == told(model)


def test_a_conversation_is_destroyed(store: EventStore) -> None:
    """It is listed no more, takes no messages and no turns; its history stays in the log."""
    model = Scripted(call("create", user_instruction="Well?"), "Yes.", "Done.")
    with Scheduler.create(store, model=model) as scheduler:
        scheduler.run_task("Begin")
        child = child_of(scheduler)
        model = Scripted(
            call("destroy", conversation_id=str(child)),
            call("send", conversation_id=str(child), text="Still there?"),
            "Gone.",
        )
    with Scheduler.open(store, scheduler.root, model=model) as scheduler:
        result = scheduler.run_task("Destroy it.")
        listed = scheduler.conversations()

    assert ("complete", "Gone.") == (result.status, result.last_assistant_message)
    assert {"ok": True} == told(model, 1)
    assert {"ok": False, "reason": "conversation not found"} == told(model, 2)
    assert [str(scheduler.root)] == [each["id"] for each in listed]
    with Conversation.open(store, child) as opened, pytest.raises(ConversationEnded):
        opened.turn("Hello?")


@pytest.mark.parametrize(
    ("which", "reason"),
    [
        ("root", "the root conversation cannot be destroyed"),
        ("none", "conversation not found"),
        ("no id", "conversation not found"),
    ],
)
def test_what_cannot_be_destroyed_is_said(store: EventStore, which: str, reason: str) -> None:
    """The root cannot be, nor what is not there."""
    with Scheduler.create(store, model=Scripted()) as scheduler:
        ids = {"root": str(scheduler.root), "none": "01890a5d-ac96-774b-bcce-b302099a8057"}
        assert {"ok": False, "reason": reason} == scheduler.destroy(ids.get(which, which))


def test_a_conversation_that_is_destroyed_while_it_runs_is_interrupted(store: EventStore) -> None:
    """Its turn and its task end as interrupted; who asked it is told, and goes on."""

    def destroy() -> str:
        return json.dumps(scheduler.destroy(child_of(scheduler)))

    model = Scripted(call("create", user_instruction="Well?"), reply("", Wanted("destroy")), "Oh.")
    with Scheduler.create(store, model=model, tools=[destroy]) as scheduler:
        result = scheduler.run_task("Begin")
        tasks = scheduler.views.tasks(scheduler.root)

    child = UUID(str(tasks[1].target_conversation_id))
    events = [event.data for event in store.read(child)]
    assert ("complete", "Oh.") == (result.status, result.last_assistant_message)
    assert ("aborted", "interrupted") == (tasks[1].status, tasks[1].reason)
    ends = [(e.status, e.reason) for e in events if isinstance(e, TurnEnd)]
    assert [("aborted", "interrupted")] == ends
    assert [ConversationEnd(reason="destroyed")] == [
        e for e in events if isinstance(e, ConversationEnd)
    ]
    assert {"ok": False, "reason": "the conversation was destroyed"} == told(model)


WRONG = [
    ("create", {}, "user_instruction or items is required"),
    ("create", {"items": [{"type": "image"}]}, "an item has a text, or an image_url"),
    ("create", {"items": [{"type": "text", "text": ""}]}, "an item has a text, or an image_url"),
    ("create", {"items": [{"type": "image", "image_url": "/etc/passwd"}]}, "image_url begins with"),
    (
        "create",
        {"user_instruction": "x", "base_instruction_text": "a", "base_instruction_file": "b"},
        "hand in base_instruction_text or base_instruction_file, not both",
    ),
    ("create", {"user_instruction": "x", "shell": True}, "shell: Extra inputs are not permitted"),
    ("send", {"conversation_id": "x"}, "text or items is required"),
    ("send", {"conversation_id": "x", "text": "y"}, "conversation not found"),
    ("history", {"conversation_id": "x"}, "conversation not found"),
    ("history", {"conversation_id": "x", "limit": 0}, "limit: Input should be greater than"),
]


@pytest.mark.parametrize(("name", "given", "reason"), WRONG)
def test_a_wrong_call_is_told_to_the_model(
    store: EventStore, name: str, given: dict[str, Any], reason: str
) -> None:
    """As a failed call with a reason, and the task goes on in its turn."""
    model = Scripted(call(name, **given), "I see.")
    with Scheduler.create(store, model=model) as scheduler:
        result = scheduler.run_task("Begin")

    payload = told(model)
    assert ("complete", False) == (result.status, payload["ok"])
    assert payload["reason"].startswith(reason)
    assert ["failed"] == [
        e.data.status for e in store.read(scheduler.root) if isinstance(e.data, ToolResult)
    ]


def test_instructions_come_from_a_file_of_the_working_directory(
    store: EventStore, tmp_path: Path
) -> None:
    """Also by a link that stays within."""
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "review.md").write_text("Review strictly.")
    (tmp_path / "strict.md").symlink_to(tmp_path / "prompts" / "review.md")
    model = Scripted(
        call("create", user_instruction="x", base_instruction_file="prompts/review.md"),
        "1",
        call("create", user_instruction="y", base_instruction_file="strict.md"),
        "2",
        "Done.",
    )
    with Scheduler.create(store, model=model, directory=tmp_path) as scheduler:
        scheduler.run_task("Begin")
        ids = [UUID(each["id"]) for each in scheduler.conversations()[1:]]

    assert ["Review strictly."] * 2 == [start_of(store, each).base_instructions for each in ids]


@pytest.mark.parametrize(
    "name",
    ["../secret.md", "/etc/hostname", "out.md", "down/secret.md", "none.md", ".", "", "a\0b"],
)
def test_no_file_outside_of_the_working_directory_is_read(
    store: EventStore, tmp_path: Path, name: str
) -> None:
    """Neither by ``..`` nor by an absolute path nor through a link."""
    (tmp_path / "secret.md").write_text("secret")
    inside = tmp_path / "work"
    inside.mkdir()
    (inside / "out.md").symlink_to(tmp_path / "secret.md")
    (inside / "down").symlink_to(tmp_path)
    model = Scripted(call("create", user_instruction="x", base_instruction_file=name), "I see.")
    with Scheduler.create(store, model=model, directory=inside) as scheduler:
        scheduler.run_task("Begin")
        listed = scheduler.conversations()

    assert told(model)["reason"].startswith("cannot read base_instruction_file")
    assert 'secret"' not in json.dumps(told(model))
    assert 1 == len(listed)


def test_a_new_conversation_takes_over_what_is_not_said(store: EventStore) -> None:
    """Instructions, owner, mode and tools; what it says of tools only takes away."""
    policy = ToolPolicy(mcp_allowlist=("files", "web"), internal_tools={"update_plan": False})
    model = Scripted(
        call(
            "create",
            user_instruction="x",
            mcp_allowlist=["web", "shell"],
            internal_tools={"include_plan_tool": True, "web_search_request": False},
        ),
        "1",
        "Done.",
    )
    owned: dict[str, Any] = {"user_id": "ada", "tenant_id": "acme", "mode": "agent"}
    owned |= {"base_instructions": "Be brief.", "tool_policy": policy}
    owned |= {"user_instructions": "In French."}
    with Scheduler.create(store, model=model, conversation=owned) as scheduler:
        scheduler.run_task("Begin")
        child = child_of(scheduler)

    start, page = start_of(store, child), Views(store).conversations(user_id="ada")
    assert ("Be brief.", "In French.", "agent") == (
        *(start.base_instructions, start.user_instructions),
        start.mode,
    )
    assert str(scheduler.root) == start.parent_conversation_id
    assert start.tool_policy is not None
    assert ("web",) == start.tool_policy.mcp_allowlist
    assert {"update_plan": False, "web_search": False} == start.tool_policy.internal_tools
    assert {child, scheduler.root} == {each.conversation_id for each in page}


def test_a_conversation_starts_from_another_by_hand(store: EventStore) -> None:
    """`Conversation.start(parent=)`: what is said stands, the rest is the parent's."""
    with Conversation.start(
        store, base_instructions="Be brief.", user_instructions="In French.", user_id="ada"
    ) as parent:
        version = parent.version
    with Conversation.start(store, parent=parent.id, base_instructions="Be long.") as child:
        pass

    start = start_of(store, child.id)
    assert ("Be long.", "In French.") == (start.base_instructions, start.user_instructions)
    assert (str(parent.id), version + 1) == (start.parent_conversation_id, start.parent_version)
    assert "ada" == Views(store).conversations()[0].user_id


def test_a_policy_may_deny_the_tools(store: EventStore) -> None:
    """They are not declared then, and a call is denied without interrupting."""
    model = Scripted(call("create", user_instruction="x"), "I see.")
    denied = {"tool_policy": ToolPolicy(denied=("conv.create",))}
    with Scheduler.create(store, model=model, conversation=denied) as scheduler:
        result = scheduler.run_task("Begin")

    names = [each["function"]["name"] for each in model.asked[0].tools]
    assert "conv_create" not in names
    assert "conv_send" in names
    assert "I see." == result.last_assistant_message
    assert ["denied"] == [
        e.data.status for e in store.read(scheduler.root) if isinstance(e.data, ToolResult)
    ]


def test_a_plan_may_bring_instructions(store: EventStore) -> None:
    """They stand in the place of the conversation's from then on."""
    model = Scripted("Oui.")
    with Scheduler.create(store, model=model) as scheduler:
        plan = TaskPlan(
            conversation_id=scheduler.root,
            input_items="Well?",
            base_instructions_override="In French.",
        )
        scheduler.enqueue([plan])
        scheduler.run()

    told_to = [e.data for e in store.read(scheduler.root) if isinstance(e.data, SystemInstruction)]
    assert ["In French."] == [each.text for each in told_to]
    assert any("In French." in str(m["content"]) for m in model.asked[0].messages)


def test_open_work_knows_the_tasks(store: EventStore) -> None:
    """Opening the root seals none of them, and tells which there are."""
    with Scheduler.create(store, model=Scripted()) as scheduler:
        scheduler.enqueue([TaskPlan(conversation_id=scheduler.root, input_items="x", task_id="t")])
    with Conversation.open(store, scheduler.root) as opened:
        assert opened.recovery is not None
        found = opened.recovery.found.tasks

    assert [("t", str(scheduler.root), False)] == [
        (each.task_id, each.target_conversation_id, each.running) for each in found
    ]
    assert ["pending"] == [each.status for each in Views(store).tasks(scheduler.root)]
