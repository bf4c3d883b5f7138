"""What Claude's own tools have begun goes on where the server goes on with it, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from anthropic.types.beta import BetaContentBlockParam
from typing_extensions import get_type_hints, is_typeddict

from eventstore.events import (
    AssistantMessage,
    Payload,
    Retraction,
    ToolResult,
    UserMessage,
    VersionRange,
)
from projections.providers.anthropic.block_shapes import SHAPES
from projections.providers.shapes import ObjectShape, Shape
from tests.damaged_json import damaged_values
from tests.pairing import unpaired_blocks
from tests.sdk_types import refused_by_sdk
from tests.unit.context.log import Log
from tests.unit.streams import handmade_anthropic as claude
from tests.unit.streams.recorded import fed

HI = UserMessage.text("hi")
Json = dict[str, Any]


def answer(*blocks: Json, stop: str = "end_turn") -> AssistantMessage:
    """Return a recorded answer."""
    return fed(claude.messages(*blocks, stop=stop)).message()


def sent(*events: Payload, paused: bool = False) -> list[Json]:
    """Return the messages of a request in which all that belongs together stands together."""
    messages = list(Log(events).view(format="anthropic_messages", provider="anthropic").messages)
    assert unpaired_blocks(messages, paused=paused) == []
    return messages


def kinds(message: Json) -> list[str]:
    """Return the types of a message's blocks."""
    return [block["type"] for block in message["content"]]


SEARCH = claude.use("tool_search_tool_regex", {"pattern": "mail"})
FOUND = claude.result("tool_search", claude.SEARCHED)
RESULT = ToolResult(call_id="2.0", content="21 °C")
BESIDE = answer(SEARCH, claude.client_use(), stop="tool_use")


def test_a_deferred_search_stays_open_while_results_are_given() -> None:
    """The server runs it when it gets the results, and its result begins the next answer."""
    messages = sent(HI, BESIDE, RESULT)
    assert kinds(messages[1]) == ["server_tool_use", "tool_use"]
    assert kinds(messages[2]) == ["tool_result"]


def test_the_result_of_a_deferred_search_finds_its_use() -> None:
    """Both stand in one turn, with the client's results between them."""
    messages = sent(HI, BESIDE, RESULT, answer(FOUND, claude.text()), HI)
    assert [kinds(message) for message in messages[1:4]] == [
        ["server_tool_use", "tool_use"],
        ["tool_result"],
        ["tool_search_tool_result", "text"],
    ]


def test_a_search_that_was_never_run_is_left_out_once_the_user_has_spoken() -> None:
    """The turn has ended, and an open use is refused."""
    messages = sent(HI, BESIDE, RESULT, HI)
    assert kinds(messages[1]) == ["tool_use"]


def test_a_result_whose_use_was_withdrawn_is_left_out() -> None:
    """It would answer nothing."""
    gone = Retraction(versions=(VersionRange(first=2, last=2),))
    messages = sent(HI, BESIDE, RESULT, answer(FOUND, claude.text()), gone, HI)
    assert kinds(messages[1]) == ["text"]


def test_code_that_waits_for_a_tool_stays_open_over_several_rounds() -> None:
    """Its calls name it as their caller; the last of them keeps it open."""
    code = claude.use("code_execution", {"code": "weather()"})
    first = answer(code, claude.client_use(1, caller=claude.FROM_CODE), stop="tool_use")
    second = answer(claude.client_use(2, caller=claude.FROM_CODE), stop="tool_use")
    messages = sent(HI, first, RESULT, second, ToolResult(call_id="4.0", content="22 °C"))
    assert kinds(messages[1]) == ["server_tool_use", "tool_use"]
    assert messages[3]["content"][0]["caller"] == claude.FROM_CODE


def test_a_caller_is_not_named_once_its_code_is_left_out() -> None:
    """The call itself stays, as one that the model made."""
    code = claude.use("code_execution", {"code": "weather()"})
    asked = answer(code, claude.client_use(caller=claude.FROM_CODE), stop="tool_use")
    messages = sent(HI, asked, RESULT, HI)
    assert kinds(messages[1]) == ["tool_use"]
    assert "caller" not in messages[1]["content"][0]


def test_a_paused_turn_goes_back_as_it_came() -> None:
    """Nothing is said behind it, or the server would not go on with it."""
    paused = answer(claude.text(), claude.use("web_search", {"query": "a"}), stop="pause_turn")
    messages = sent(HI, paused, paused=True)
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert kinds(messages[1]) == ["text", "server_tool_use"]


def test_a_paused_turn_and_what_it_went_on_with_are_one() -> None:
    """The server's result stands in the answer after the pause."""
    paused = answer(claude.use("web_search", {"query": "a"}), stop="pause_turn")
    on = answer(claude.result("web_search", [claude.FOUND]), claude.text())
    messages = sent(HI, paused, on, HI)
    assert kinds(messages[1]) == ["server_tool_use", "web_search_tool_result", "text"]


@pytest.mark.parametrize("events", [(HI,), (ToolResult(call_id="9.0", content="x"), HI)])
def test_a_pause_that_was_not_gone_on_with_has_ended(events: tuple[Payload, ...]) -> None:
    """The user has said something else."""
    paused = answer(claude.text(), claude.use("web_search", {"query": "a"}), stop="pause_turn")
    assert kinds(sent(HI, paused, *events)[1]) == ["text"]


@pytest.mark.parametrize("kind", SHAPES)
def test_blocks_have_the_fields_of_the_sdks_types(kind: str) -> None:
    """The table of what a request may contain is the SDK's, at every depth."""
    types = filter(is_typeddict, get_args(BetaContentBlockParam))
    assert set(_fields_of(SHAPES[kind])) == next(
        found for found in map(set, map(_fields_in, types)) if kind in {name for name, _ in found}
    )


Fields = tuple[str, frozenset[str]]
_BY_THEMSELVES = {"tool_definition"}  # a tool has any fields of the many kinds of tools


def _fields_of(shape: Shape) -> Iterator[Fields]:
    """Return the types of objects in a shape, each with its fields."""
    if isinstance(shape, ObjectShape):
        told = {**shape.required, **shape.optional}
        yield "/".join(told.get("type", ("object",))), frozenset(told)
        for each in told.values():
            yield from _fields_of(each)
    elif isinstance(shape, list | tuple):
        for each in shape:
            yield from _fields_of(each)


def _fields_in(hint: Any) -> Iterator[Fields]:
    """Return the types of objects in a type of the SDK's, each with its fields."""
    if is_typeddict(hint):
        told = get_type_hints(hint)
        told.pop("cache_control", None)
        kind = get_args(told["type"])[0] if "type" in told else "object"
        yield kind, frozenset(told)
        if kind not in _BY_THEMSELVES:
            for each in told.values():
                yield from _fields_in(each)
    for each in get_args(hint):
        yield from _fields_in(each)


@pytest.mark.parametrize("name", claude.BLOCKS)
def test_no_damaged_block_is_sent(name: str) -> None:
    """Whatever a server sends in a field, the next request is one that the API takes."""
    whole = answer(*claude.BLOCKS[name])
    for raw in damaged_values({"content": claude.BLOCKS[name]}):
        messages = sent(HI, whole.model_copy(update={"raw": raw}), HI)
        assert [] == refused_by_sdk("anthropic_messages", {"messages": messages}), raw


def test_a_use_is_told_in_words_with_its_result() -> None:
    """Neither is lost, and neither is sent alone."""
    use, found = claude.use("shop", {"query": "rome"}), claude.result("web_search", [claude.FOUND])
    messages = sent(HI, answer(claude.THINKING, use, found, claude.text()), HI)
    assert ["[shop: rome]", "[result: Weather in Rome]", "Here it is."] == [
        block["text"] for block in messages[1]["content"][1:]
    ]


def test_a_compaction_that_failed_replaces_nothing() -> None:
    """What was said before it is sent."""
    failed = {"type": "compaction", "content": None, "encrypted_content": None}
    messages = sent(UserMessage.text("The task."), answer(failed, claude.text()), HI)
    assert "The task." in str(messages)
    assert kinds(messages[1]) == ["text"]


def test_a_field_that_the_api_does_not_know_is_left_out() -> None:
    """The SDK's own ``parsed_output``, or one of a gateway, ended the conversation."""
    beside = {"parsed_output": None, "index": 0}
    use = claude.use("web_search", {"query": "a"})
    found = claude.result("web_search", [claude.FOUND])
    blocks = [use | beside, found | beside, claude.text() | beside, claude.client_use() | beside]
    messages = sent(HI, answer(*blocks, stop="tool_use"), RESULT)
    assert [] == refused_by_sdk("anthropic_messages", {"messages": messages})
    assert kinds(messages[1]) == ["server_tool_use", "web_search_tool_result", "text", "tool_use"]


def test_a_block_that_lacks_a_field_is_told_in_words() -> None:
    """The API would refuse every request that contains it."""
    blocks: list[Json] = [{"type": "redacted_thinking"}, {"type": "container_upload", "file_id": 5}]
    messages = sent(HI, answer(*blocks, claude.MCP_USE, claude.MCP_RESULT, claude.text()), HI)
    assert [] == refused_by_sdk("anthropic_messages", {"messages": messages})
    assert kinds(messages[1])[-3:] == ["mcp_tool_use", "mcp_tool_result", "text"]


def test_an_mcp_servers_use_and_result_go_back_together() -> None:
    """They are paired as those of the server's own tools."""
    messages = sent(HI, answer(claude.MCP_USE, claude.MCP_RESULT, claude.text()), HI)
    assert kinds(messages[1]) == ["mcp_tool_use", "mcp_tool_result", "text"]
