"""Tool agents: is the newest result in the next request, and do users' messages survive?

An agent's tools return 1 to 200 KB of prose, logs, CSV, code, JSON and Chinese, one result a turn.
After each result the request is built, and the result's tool, status, head, tail and path are
looked for in it, unless it is sent whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from eventstore import EventStore, new_id
from eventstore.events import AssistantMessage, ToolCallRequest, ToolResult, UserMessage
from projections import Views
from projections.context.settings import ContextSettings

__all__ = ["AGENT_BUDGETS", "agents"]

AGENT_BUDGETS = (2_000, 4_000, 8_000, 32_000)
"""Budgets in tokens."""

_SIZES = (1, 8, 30, 120, 200)
_KINDS = {
    "prose": "The plan number {n} is ready, and nobody minds. ",
    "log": "2026-11-25T10:00:00 INFO worker {n} handled job {n}37\n",
    "csv": "{n},{n}.1234,0.{n},name{n}\n",
    "code": "def f{n}(a: int) -> int:\n    return a + {n}\n\n",
    "chinese": "第{n}次会议讨论了预算和计划。",
}


def agents(store: EventStore) -> list[tuple[str, list[str]]]:
    """Return for results and for users' messages the percent in the requests, by budget."""
    views, outputs = Views(store), [*_outputs()]
    results, users = [0] * len(AGENT_BUDGETS), [0] * len(AGENT_BUDGETS)
    cid, version, asked = new_id(), 1, 0
    for turn, output in enumerate(outputs):
        call = ToolCallRequest(name="look", arguments_text="{}")
        question = f"Please look at the output {turn} for me."
        events = [UserMessage.text(question), AssistantMessage(tool_calls=(call,))]
        store.append(cid, [*events, ToolResult(call_id=f"{version + 1}.0", content=output)])
        asked += turn + 1
        for place, budget in enumerate(AGENT_BUDGETS):
            view = views.context(cid, mode=None, settings=ContextSettings(max_tokens=budget))
            said = [str(each["content"]) for each in view.messages if each["role"] == "user"]
            users[place] += len(said)
            last = view.messages[-1]
            results[place] += last["role"] == "tool" and _is_there(output, str(last["content"]))
        store.append(cid, [AssistantMessage.of("I have seen it.")])
        version += 4
    return [
        ("newest results", [f"{100 * n / len(outputs):.1f}" for n in results]),
        ("users' messages", [f"{100 * n / asked:.1f}" for n in users]),
    ]


def _outputs() -> Iterator[str]:
    for size in _SIZES:
        for line in _KINDS.values():
            text, number = "", 0
            while len(text) < size * 1_000:
                text += line.format(n=number)
                number += 1
            yield text
        rows = [{"id": f"W{n}", "state": "open", "price": n * 13} for n in range(size * 20)]
        yield json.dumps(rows)


def _is_there(output: str, shown: str) -> bool:
    if shown == output:
        return True
    value = json.loads(output) if output[0] == "[" else None
    ends = (output[:20], output[-20:]) if value is None else (value[0]["id"], value[-1]["id"])
    named = ("look", "success", "@state/logs/tool-results/")
    whole = value is not None and '"columns"' in shown and "full_output" not in shown
    return all(each in shown for each in (*ends, *(() if whole else named)))
