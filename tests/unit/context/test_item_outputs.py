"""The result of a call is the output item that the call's kind demands."""

from __future__ import annotations

from typing import Any

import pytest

from eventstore.events import ImagePart, ToolResult, UserMessage
from tests.pairing import unpaired_items
from tests.sdk_types import refused_by_sdk
from tests.unit.context.log import Log
from tests.unit.streams import handmade_openai as gpt
from tests.unit.streams.recorded import fed

HI = UserMessage.text("hi")


def sent(name: str, **result: Any) -> list[dict[str, Any]]:
    """Return the items behind the user's, of an answer that asks and what came of it."""
    answer = fed(gpt.responses(gpt.thought(), *gpt.ASKING[name])).message()
    events = [HI, answer, *([ToolResult(call_id="2.0", **result)] if result else [])]
    view = Log(events).view(format="openai_responses", provider="openai")
    assert refused_by_sdk("openai_responses", {"input": view.messages}) == []
    assert unpaired_items(view.messages) == []
    return list(view.messages[1:])


EXIT = {"type": "exit", "exit_code": 0}


@pytest.mark.parametrize(
    ("name", "result", "output"),
    [
        (
            "shell-local",
            {"content": "a.txt"},
            {"output": [{"stdout": "a.txt", "stderr": "", "outcome": EXIT}]},
        ),
        (
            "shell-local",
            {"content": '[{"stdout": "", "stderr": "no", "outcome": {"type": "timeout"}}]'},
            {"output": [{"outcome": {"type": "timeout"}, "stderr": "no", "stdout": ""}]},
        ),
        ("local-shell", {"content": "a.txt"}, {"id": "call_lsh_1", "output": "a.txt"}),
        ("apply-patch", {"content": "done"}, {"status": "completed", "output": "done"}),
        ("tool-search-client", {"content": "nothing"}, {"tools": []}),
        ("custom", {"content": "1"}, {"output": "1"}),
        ("program-waiting", {"content": "sunny"}, {"caller": gpt.BY_PROGRAM}),
        ("mcp-approval", {"content": '{"approve": true}'}, {"approve": True}),
        ("mcp-approval", {"content": "true"}, {"approve": True}),
        ("mcp-approval", {"content": "Not today."}, {"approve": False, "reason": "Not today."}),
        ("mcp-approval", {"status": "denied", "content": "true"}, {"approve": False}),
    ],
)
def test_each_kind_has_its_form(name: str, result: Any, output: dict[str, Any]) -> None:
    """The call stays before it, with the reasoning that led to it."""
    items = sent(name, **result)
    assert items[0]["type"] == "reasoning"
    assert output.items() <= items[-1].items()


def test_a_failed_patch_says_so() -> None:
    """The status is a field of its own there."""
    item = sent("apply-patch", status="failed", error="no such file")[-1]
    assert (item["status"], "no such file" in item["output"]) == ("failed", True)


DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"


def test_a_screenshot_answers_a_computer() -> None:
    """An image is the only output that the endpoint takes."""
    image = (ImagePart(url=f"data:image/png;base64,{DOT}"),)
    item = sent("computer", content=image)[-1]
    shot = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{DOT}"}
    assert item == {"type": "computer_call_output", "call_id": "call_cu_1", "output": shot}


def test_a_computer_without_a_screenshot_is_told_in_words() -> None:
    """What it did, what came of it, and no reasoning that lacks what it led to."""
    (item,) = sent("computer", content="The window has closed.")
    assert item["content"] == (
        "[computer: type: click, button: left, x: 1, y: 2]\nThe window has closed."
    )


def test_a_request_for_approval_may_wait() -> None:
    """Nothing is approved by nobody."""
    assert [item["type"] for item in sent("mcp-approval")] == ["reasoning", "mcp_approval_request"]


def test_a_call_without_a_result_has_a_placeholder() -> None:
    """The endpoint refuses a call without an output."""
    assert "TOOL_RESULT_MISSING" in sent("local-shell")[-1]["output"]
