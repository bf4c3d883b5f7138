"""Every kind of answer, recorded and asked for in each format, is what its provider takes back."""

from __future__ import annotations

from typing import Any, Required, get_args, get_origin

import pytest
from openai.types.responses import ResponseInputItemParam
from typing_extensions import get_type_hints

from eventstore.events import AssistantMessage, Payload, ToolResult, UserMessage
from projections.providers import read_response
from projections.providers.openai_responses.items import OUTPUTS, SHAPES
from projections.providers.request_formats import FORMATS, Wire
from tests.damaged_json import damaged_values
from tests.exhaustive import partly
from tests.pairing import leaked, unpaired_blocks, unpaired_items
from tests.sdk_types import refused_by_sdk
from tests.unit.context.log import Log
from tests.unit.streams import handmade_anthropic as claude
from tests.unit.streams import handmade_openai as gpt
from tests.unit.streams.recorded import NAMES, chunks_of, fed

HI = UserMessage.text("hi")
Json = dict[str, Any]
SENT = [name for name in FORMATS if name != "neutral"]


def _of_gpt() -> dict[str, list[Json]]:
    found = {}
    for name, items in (gpt.HOSTED | gpt.ASKING).items():
        end = [] if name in gpt.ASKING else [gpt.said()]
        found[f"gpt-{name}"] = gpt.responses(*items, *end)
        found[f"gpt-{name}-sealed"] = gpt.responses(gpt.thought(), *items, *end)
        found[f"gpt-{name}-unsealed"] = gpt.responses(gpt.thought(encrypted=False), *items, *end)
    return found


STREAMS: dict[str, list[Json]] = (
    {name: chunks_of(name) for name in NAMES}
    | _of_gpt()
    | {f"claude-{name}": claude.messages(*blocks) for name, blocks in claude.BLOCKS.items()}
    | {
        f"claude-{name}": claude.messages(*blocks, stop="tool_use")
        for name, blocks in claude.WAITING.items()
    }
)
ANSWERS: dict[str, AssistantMessage] = {
    name: fed(chunks).message() for name, chunks in STREAMS.items()
}


def results(version: int, answer: AssistantMessage) -> list[Payload]:
    """Return results of all calls of an answer."""
    return [
        ToolResult(call_id=f"{version}.{index}", content="21 °C")
        for index in range(len(answer.tool_calls))
    ]


def histories(answer: AssistantMessage) -> dict[str, list[Payload]]:
    """Return in what company an answer may go back."""
    asked = [HI, answer, *results(2, answer)]
    return {
        "gone on": [HI, answer, HI],
        "answered": asked,
        "answered and gone on": [*asked, HI],
        "alone": [HI, answer],
        "twice": [HI, answer, HI, answer, HI],
        "without a user": [answer, *results(1, answer)],
        "answered twice": [*asked, answer, *results(len(asked) + 1, answer)],
    }


def sent(target: str, events: list[Payload], provider: str | None = None) -> Wire:
    """Return what is sent."""
    view = Log(events).view(format=target, provider=provider)
    return Wire(target, view.messages, view.system)


def problems(wire: Wire, raw: Any, *, paused: bool = False) -> list[str]:
    """Return what is wrong with a request."""
    found = [*refused_by_sdk(wire.specification, wire.body), *leaked(wire.body, raw)]
    if wire.specification == "openai_responses":
        found += unpaired_items(wire.messages)
    elif wire.specification == "anthropic_messages":
        found += unpaired_blocks(wire.messages, paused=paused)
    return found


@pytest.mark.parametrize("target", SENT)
@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_goes_on_with_every_provider(name: str, target: str) -> None:
    """The SDK's types take it, all that belongs together is there, and no JSON is told as text."""
    answer = ANSWERS[name]
    wrong = {
        case: found
        for case, events in histories(answer).items()
        if (found := problems(sent(target, events), answer.raw))
    }
    assert wrong == {}


@pytest.mark.parametrize("provider", partly(["deepseek", "x-ai"]))
@pytest.mark.parametrize("target", SENT)
@pytest.mark.parametrize("name", ANSWERS)
def test_another_provider_is_told_in_words(name: str, target: str, provider: str) -> None:
    """What one made for itself is nothing to another, even in the same format."""
    answer = ANSWERS[name]
    if answer.invocation is not None and answer.invocation.provider == provider:
        return
    wire = sent(target, [HI, answer, *results(2, answer), HI], provider)
    assert problems(wire, answer.raw) == []
    kinds = {item.get("type") for item in wire.body.get("input", ())}
    assert kinds <= {"message", "function_call", "function_call_output"}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_neutral_form_tells_no_json(name: str) -> None:
    """What was made for its maker stands apart, in ``native``."""
    answer = ANSWERS[name]
    assert leaked(sent("neutral", [HI, answer, HI]).body, answer.raw) == []


@pytest.mark.parametrize("sealed", ["", "-sealed", "-unsealed"])
@pytest.mark.parametrize("name", gpt.HOSTED | gpt.ASKING)
def test_every_item_goes_back_to_openai_as_an_item(name: str, sealed: str) -> None:
    """In the order in which they came, reasoning with them where it is encrypted."""
    answer = ANSWERS[f"gpt-{name}{sealed}"]
    wire = sent("openai_responses", [HI, answer, *results(2, answer)], "openai")
    came = [item["type"] for item in answer.raw["output"]]
    wanted = [kind for kind in came if kind != "reasoning" or sealed == "-sealed"]
    went = [item["type"] for item in wire.messages[1:]]
    own = [kind for kind in went if kind in wanted]
    if name == "computer":  # A result without a screenshot has no form.
        assert went == ["message"]
    else:
        assert own == wanted
        assert set(went) - set(wanted) <= {*OUTPUTS.values(), "mcp_approval_response"}


@pytest.mark.parametrize("name", [*claude.BLOCKS, *claude.WAITING])
def test_every_block_goes_back_to_anthropic_as_it_came(name: str) -> None:
    """A block of a kind that no request may hold is told in words."""
    answer = ANSWERS[f"claude-{name}"]
    wire = sent("anthropic_messages", [HI, answer, *results(2, answer)], "anthropic")
    came = [block["type"] for block in claude.BLOCKS.get(name) or claude.WAITING[name]]
    went = [block["type"] for block in wire.messages[1]["content"]]
    assert went == [kind for kind in came if kind != "dream"]
    assert ("[dream]" in str(wire.messages)) == ("dream" in came)


@pytest.mark.parametrize("name", gpt.HOSTED | gpt.ASKING)
def test_a_stream_and_a_whole_response_go_back_alike(name: str) -> None:
    """Nothing depends on whether an answer was streamed."""
    chunks = STREAMS[f"gpt-{name}"]
    whole = read_response(chunks[-1]["response"]).message()
    for target in FORMATS:
        streamed = sent(target, [HI, ANSWERS[f"gpt-{name}"], HI])
        assert streamed.messages == sent(target, [HI, whole, HI]).messages


@pytest.mark.parametrize("kind", SHAPES)
def test_items_have_the_fields_of_the_sdks_types(kind: str) -> None:
    """The table of what input allows is the SDK's; annotations of texts are asked for too."""
    required, optional = SHAPES[kind].required.keys(), SHAPES[kind].optional.keys()
    hints = next(hints for hints in _input_types() if kind in _literals(hints["type"]))
    assert {*hints} - {"id"} <= required | optional <= {*hints} | {"phase"}
    wanted = {name for name, hint in hints.items() if get_origin(hint) is Required}
    # The types require an id of reasoning too, but an encrypted item is accepted without one.
    wanted -= {"id"} if kind == "reasoning" else set()
    assert wanted <= required if kind != "message" else required <= wanted | {"type"}


def _input_types() -> list[dict[str, Any]]:
    types = [each for each in get_args(ResponseInputItemParam) if each.__name__ != "Message"]
    return [get_type_hints(each, include_extras=True) for each in types[1:]]


def _literals(hint: Any) -> tuple[Any, ...]:
    return get_args(get_args(hint)[0] if get_origin(hint) is Required else hint)


@pytest.mark.parametrize("name", sorted({*gpt.HOSTED, *gpt.ASKING} - {"tool-search-hosted"}))
def test_no_damaged_item_is_sent(name: str) -> None:
    """Whatever a server sends in a field, the next request is one that the endpoint takes.

    The declarations of tools that a search has found, of many kinds, are not looked into.
    """
    whole = ANSWERS[f"gpt-{name}"]
    for raw in damaged_values(whole.raw):
        answer = whole.model_copy(update={"raw": raw})
        view = Log([HI, answer, *results(2, answer), HI]).view(
            format="openai_responses", provider="openai"
        )
        assert [] == refused_by_sdk("openai_responses", {"input": view.messages}), raw


@pytest.mark.parametrize("encrypted", [True, False])
def test_two_messages_of_one_answer_stay_two(encrypted: bool) -> None:
    """What a model said in two messages is not run together into one."""
    items = [gpt.said("One.", id="msg_1"), gpt.thought(encrypted), gpt.said("Two.", id="msg_2")]
    answer = fed(gpt.responses(*items)).message()
    sent = Log([HI, answer]).view(format="openai_responses", provider="openai").messages
    said = [item["content"] for item in sent if item.get("role") == "assistant"]
    assert ["One.", "Two."] == [text if isinstance(text, str) else text[0]["text"] for text in said]
    assert [] == refused_by_sdk("openai_responses", {"input": sent}) + unpaired_items(sent)
