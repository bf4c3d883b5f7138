"""Whatever a model and its provider's tools did, in any order: what goes back is taken back."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eventstore.events import Payload, Retraction, ToolResult, UserMessage, VersionRange
from tests.pairing import leaked, unpaired_blocks, unpaired_items
from tests.sdk_types import refused_by_sdk
from tests.unit.context.log import Log
from tests.unit.streams import handmade_anthropic as claude
from tests.unit.streams import handmade_openai as gpt
from tests.unit.streams.recorded import fed

Json = dict[str, Any]
_NAMES = ("id", "call_id", "caller_id", "tool_use_id", "tool_id", "approval_request_id")
_TARGETS = ("openai_chat", "openai_responses", "anthropic_messages")
_ITEMS = [*(gpt.HOSTED | gpt.ASKING).values(), [gpt.thought()], [gpt.thought(encrypted=False)]]
_BLOCKS = [*(claude.BLOCKS | claude.WAITING).values(), [claude.THINKING]]


def numbered(value: Any, number: int) -> Any:
    """Return a JSON value with ids that no other has."""
    if isinstance(value, list):
        return [numbered(each, number) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: f"{inner}{number}"
        if key in _NAMES and isinstance(inner, str)
        else numbered(inner, number)
        for key, inner in value.items()
    }


def _chosen(draw: st.DrawFn, kinds: list[list[Json]], number: int) -> list[Json]:
    """Return some of the items, whole or torn apart."""
    groups = draw(st.lists(st.sampled_from(kinds), max_size=4))
    items = [numbered(each, 10 * number + n) for n, group in enumerate(groups) for each in group]
    kept = draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items)))
    torn = draw(st.booleans())
    return [item for item, keep in zip(items, kept, strict=True) if keep or not torn]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Payload], bool]:
    """Draw a history of answers, results and users, and whether its last answer has paused."""
    events: list[Payload] = [UserMessage.text("hi")]
    paused = False
    for number in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            chunks = gpt.responses(*_chosen(draw, _ITEMS, number))
            stop = ""
        else:
            stop = draw(st.sampled_from(["end_turn", "tool_use", "pause_turn"]))
            chunks = claude.messages(*_chosen(draw, _BLOCKS, number), stop=stop)
        message = fed(chunks).message()
        events.append(message)
        version = len(events)
        events += [
            ToolResult(call_id=f"{version}.{index}", content="true")
            for index in range(len(message.tool_calls))
            if draw(st.booleans())
        ]
        paused = stop == "pause_turn" and not message.tool_calls
        if draw(st.booleans()):
            events.append(UserMessage.text("go on"))
            paused = False
    if draw(st.booleans()):
        gone = draw(st.integers(2, len(events)))
        events.append(Retraction(versions=(VersionRange(first=gone, last=gone),)))
        paused = True  # Whatever stands last now may have.
    return events, paused


@given(histories(), st.sampled_from(_TARGETS), st.sampled_from([None, "openai", "anthropic"]))
def test_any_history_goes_on_with_any_provider(
    history: tuple[list[Payload], bool], target: str, provider: str | None
) -> None:
    """The SDK's types take it, everything has its counterpart, and no JSON is told as text."""
    events, paused = history
    view = Log(events).view(format=target, provider=provider)
    field = "input" if target == "openai_responses" else "messages"
    body = {field: view.messages}
    assert refused_by_sdk(target, body) == []
    assert leaked(body, [getattr(event, "raw", None) for event in events]) == []
    if target == "openai_responses":
        assert unpaired_items(view.messages) == []
    elif target == "anthropic_messages":
        assert unpaired_blocks(view.messages, paused=paused) == []
