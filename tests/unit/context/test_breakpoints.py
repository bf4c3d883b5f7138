"""What a request tells the provider's prompt cache: breakpoints, and the key that routes to it."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types.beta import BetaTextBlockParam, BetaToolParam
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

from eventstore.events import AssistantMessage, SystemInstruction, ToolCallRequest, ToolResult
from eventstore.events import UserMessage as User
from projections.context import ContextSettings, ContextView
from projections.context.breakpoints import with_marks
from projections.errors import InvalidSettings
from tests.sdk_types import refused_by_sdk
from tests.unit.context.log import Log

MARK = {"type": "ephemeral"}
ON = ContextSettings(cache_breakpoints=True)
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("find", "book")]


def talk(rounds: int) -> Log:
    """Return a conversation of questions, calls with results, and answers."""
    log = Log([SystemInstruction(text="Be brief."), User.text("The task.")])
    for number in range(rounds):
        log.add(User.text(f"Where is order W{number}?"))
        call = ToolCallRequest(name="find", arguments_text=f'{{"order": "W{number}"}}')
        version = log.add(AssistantMessage(tool_calls=(call,)))
        log.add(ToolResult(call_id=f"{version}.0", content="It is on its way. " * 9))
        log.add(AssistantMessage.of(f"Order W{number} is on its way."))
    log.add(User.text("Thanks. And W99?"))
    return log


def asked(log: Log, max_tokens: int | None = None, settings: ContextSettings = ON) -> ContextView:
    """Return a request in Anthropic's format."""
    options: dict[str, Any] = {"tools": TOOLS, "settings": settings, "max_tokens": max_tokens}
    return log.view(format="anthropic_messages", **options)


def marked(view: ContextView) -> list[int]:
    """Return the places of the blocks that have a mark."""
    blocks = [block for message in view.messages for block in message["content"]]
    return [n for n, block in enumerate(blocks) if block.get("cache_control") == MARK]


def bare(view: ContextView) -> list[Any]:
    """Return the blocks without marks."""
    blocks = [block for message in view.messages for block in message["content"]]
    return [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks]


def test_there_are_none_by_default() -> None:
    """Writing to a cache costs more than a prompt that nobody reads again."""
    view = asked(talk(9), 700, ContextSettings())
    assert ([], {}) == (marked(view), view.parameters)


def test_they_stand_at_tools_system_the_frozen_part_and_the_end() -> None:
    """Four at most, and of the types of the provider's SDK."""
    view = asked(talk(12), 700)
    assert view.step is not None
    frozen, end = marked(view)
    assert 0 < frozen < end == len(bare(view)) - 1
    tools, system = view.parameters["tools"], view.parameters["system"]
    assert [None, MARK] == [tool.get("cache_control") for tool in tools]
    assert [{"type": "text", "text": view.system, "cache_control": MARK}] == system
    TypeAdapter(list[BetaToolParam]).validate_python(tools)
    TypeAdapter(list[BetaTextBlockParam]).validate_python(system)
    assert [] == refused_by_sdk("anthropic_messages", {"messages": view.messages})


def test_what_is_said_since_leaves_the_frozen_mark_where_it_was() -> None:
    """Until the next step; and nothing but the marks differs from a request without them."""
    log = talk(12)
    before = asked(log, 700)
    log.add(AssistantMessage.of("Soon."))
    log.add(User.text("When?"))
    after = asked(log, 700)
    assert before.step == after.step
    assert marked(before)[0] == marked(after)[0] < marked(after)[1]
    assert bare(after) == bare(asked(log, 700, ContextSettings()))


def test_a_short_history_has_one_mark() -> None:
    """Nothing is frozen before a step fell."""
    assert 1 == len(marked(asked(talk(2))))


def test_no_thinking_is_marked() -> None:
    """The mark of a history that ends with thoughts stands before them."""
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
        {"role": "assistant", "content": [thought]},
    ]
    [said, thinking] = with_marks(messages, {2})
    assert [{"type": "text", "text": "Go on.", "cache_control": MARK}] == said["content"]
    assert [thought] == thinking["content"]
    assert tuple(messages[1:]) == with_marks(messages[1:], {1})


def test_the_ledger_tells_them() -> None:
    """Of the system part, the last that is frozen, and the newest."""
    view = asked(talk(12), 700)
    told = [e.version or 0 for e in view.ledger if e.reason.endswith("cache breakpoint")]
    assert view.step is not None
    assert 3 == len(told)
    assert told[0] == 1 < told[1] <= view.step[0] < told[2] == view.ledger[-1].version


def test_the_settings_are_recorded() -> None:
    """What a request was made with makes it again."""
    view = asked(talk(12), 700)
    assert {"cache_breakpoints": True} == view.policy["settings"]


@pytest.mark.parametrize("format", ["openai_chat", "openai_responses"])
def test_requests_of_a_key_go_to_one_cache(format: str) -> None:
    """OpenAI's formats have it as a parameter; others do not know it."""
    settings = ContextSettings(prompt_cache_key="tenant-7")
    view = talk(2).view(format=format, settings=settings)
    assert {"prompt_cache_key": "tenant-7"} == view.parameters
    assert "prompt_cache_key" in CompletionCreateParamsNonStreaming.__annotations__
    assert {"prompt_cache_key": "tenant-7"} == view.policy["settings"]
    assert {} == talk(2).view(format="anthropic_messages", settings=settings).parameters


def test_a_key_is_not_empty() -> None:
    """Nor longer than the provider takes."""
    for key in ("", "x" * 65):
        with pytest.raises(InvalidSettings, match="prompt_cache_key"):
            ContextSettings.from_mapping({"prompt_cache_key": key})


@pytest.mark.parametrize("tool", [object(), "find_type", ("type",), 7])
def test_a_tool_that_is_no_object_of_json_is_not_marked(tool: object) -> None:
    """Nor does it keep the messages from being sent."""
    view = talk(2).view(format="anthropic_messages", settings=ON, tools=[*TOOLS, tool])
    assert 1 == len(marked(view))
    assert "tools" not in view.parameters
