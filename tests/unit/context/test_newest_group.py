"""The newest group of a request stays, in its last form if nothing longer fits."""

from __future__ import annotations

import json

import pytest

from eventstore.events import AssistantMessage, Payload, ToolCallRequest, ToolResult, UserMessage
from projections.context import ContextSettings, ContextView, build
from tests.list_row_source import ListRowSource
from tests.unit.context.log import Log

PROSE = " ".join(f"The {n} of it is told here, and nobody minds." for n in "abcdefghij" * 60)
LOG = "\n".join(f"2026-11-25T10:{n // 60:02}:{n % 60:02} INFO job {n * 37} ok" for n in range(700))
CSV = "\n".join(",".join(f"{n * k / 7:.4f}" for k in range(1, 9)) for n in range(400))
CODE = "\n".join(f"def f{n}(a: int) -> int:\n    return a + {n}\n" for n in range(700))
CHINESE = "今天的会议讨论了预算和计划。" * 700
ROWS = json.dumps(
    [{"id": f"W{n}", "state": "open", "note": f"{n * 7919 % 9973} of it " * 4} for n in range(300)]
)
OUTPUTS = [PROSE, LOG, CSV, CODE, CHINESE, ROWS]


def called(version: int, *outputs: str, arguments: str = "{}") -> list[Payload]:
    """Return an answer at a version with one call for each output, and their results."""
    call = ToolCallRequest(name="look", arguments_text=arguments)
    return [
        AssistantMessage(tool_calls=(call,) * len(outputs)),
        *(ToolResult(call_id=f"{version}.{n}", content=each) for n, each in enumerate(outputs)),
    ]


def view_of(entries: list[Payload], budget: int, *, steps: bool) -> ContextView:
    """Return the view of a log within a budget."""
    settings = ContextSettings(steps=steps)
    return build(ListRowSource(Log(entries).rows()), max_tokens=budget, settings=settings)


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize("budget", [1_000, 2_000, 4_000])
@pytest.mark.parametrize("output", OUTPUTS)
def test_a_result_just_below_the_blob_limit_stays(output: str, budget: int, steps: bool) -> None:
    """Once it vanished with its call, and the agent called the tool again and again."""
    view = view_of([UserMessage.text("Look."), *called(2, output)], budget, steps=steps)

    result = str(view.messages[-1]["content"])
    assert view.messages[-1]["role"] == "tool"
    for shown in ("look", "success", "@state/logs/tool-results/2.0"):
        assert shown in result
    if output is not ROWS:
        assert output[:20] in result
        assert output[-20:] in result
    else:
        assert "W0" in result
        assert "W299" in result
    assert view.ledger[-1].level == "shortened"


def test_many_results_of_one_answer_stay() -> None:
    """They share what their group may take."""
    view = view_of([UserMessage.text("Look."), *called(2, *[LOG] * 12)], 2_000, steps=True)

    results = [each for each in view.messages if each["role"] == "tool"]
    assert len(results) == 12
    assert all(LOG[:20] in str(each["content"]) for each in results)


def test_a_call_with_long_arguments_stays() -> None:
    """A call that writes a file is sent with the ends of the file's text."""
    arguments = json.dumps({"path": "a.py", "text": CODE})
    log = [UserMessage.text("Write."), *called(2, "Done.", arguments=arguments)]
    call = view_of(log, 1_000, steps=True).messages[-2]["tool_calls"][0]

    assert json.loads(call["function"]["arguments"])["path"] == "a.py"


def test_a_long_answer_stays() -> None:
    """With both its ends."""
    log = [UserMessage.text("Why?"), AssistantMessage.of(CHINESE), UserMessage.text("And now?")]
    sent = [str(each["content"]) for each in view_of(log, 1_000, steps=True).messages]

    assert sent[1].startswith(CHINESE[:10])
    assert sent[1].endswith(CHINESE[-10:])
