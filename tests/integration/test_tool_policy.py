"""A conversation's tool policy holds: in what is declared, in what is told, in what runs."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eventstore.conversation import Conversation
from agent_eventstore.errors import ToolDenied
from eventstore import EventStore
from eventstore.events import ToolPolicy
from projections import Views
from tests.integration.recording import Recorder, ask, ask_for_tool, data_of


def declared(*names: str) -> list[dict[str, Any]]:
    """Return declarations of tools, in OpenAI's chat format."""
    return [{"type": "function", "function": {"name": name}} for name in names]


def names(tools: Any) -> list[str]:
    """Return the names of declared tools."""
    return [tool["function"]["name"] for tool in tools]


def policy_told(messages: Any) -> str:
    """Return what the system part says of the policy, from its heading on."""
    texts = [str(each["content"]) for each in messages if each["role"] == "system"]
    return next((text[text.index("TOOL_POLICY") :] for text in texts if "TOOL_POLICY" in text), "")


TOOLS = declared("search", "delete_account")
CAREFUL = ToolPolicy(denied=("delete_account",), text="Ask before you write.")
TOLD = "TOOL_POLICY\n- never to be called: delete_account\nAsk before you write."


def test_a_request_declares_what_is_allowed_and_says_so(recording: Recorder) -> None:
    """The views and a turn agree, and the log has what was sent (a policy changed nothing)."""
    conversation = recording.start(mode="agent", tool_policy=CAREFUL)
    with conversation.turn("hello") as turn:
        request = turn.context(tools=TOOLS)
        with turn.llm_call(request) as call:
            call.response(
                {
                    "object": "chat.completion",
                    "choices": [{"message": {"role": "assistant", "content": "Yes."}}],
                }
            )
    view = conversation.views.context(conversation.id, tools=TOOLS)
    [sent] = [e for e in recording.store.read(conversation.id) if e.type == "llm_request"]
    again = conversation.views.context_of(conversation.id, sent.version)

    assert ["search"] == names(request.tools) == names(view.tools) == names(again.tools)
    assert ["search"] == names(data_of(recording.store, conversation, "llm_request")[0].tools)
    assert TOLD == policy_told(request.messages) == policy_told(view.messages)
    assert request.messages == list(again.messages)


def test_a_denied_tool_does_not_run(recording: Recorder) -> None:
    """The call is recorded as denied, with the reason, and was never begun."""
    conversation = recording.start(mode="agent", tool_policy=CAREFUL)
    ran = []
    with conversation.turn("delete me") as turn:
        call = ask_for_tool(turn, "delete_account")
        for _ in "12":
            with pytest.raises(ToolDenied) as caught, turn.tool(call):
                ran.append(call)
        told = turn.context().messages[-1]["content"]
    [denied] = data_of(recording.store, conversation, "tool_result")
    again = caught.value

    assert [] == ran
    assert ("denied", call.call_id, "delete_account") == (denied.status, again.call_id, again.tool)
    assert "the tool policy denies delete_account" == denied.error == again.reason == told
    assert [] == data_of(recording.store, conversation, "tool_call")
    [row] = conversation.views.tool_calls(conversation_id=conversation.id)
    assert "denied" == row.status


def test_what_is_allowed_runs(recording: Recorder) -> None:
    """The policy is asked for each call by its name."""
    conversation = recording.start(mode="agent", tool_policy=ToolPolicy(allowed=("search",)))
    with conversation.turn("hello") as turn:
        with turn.tool(ask_for_tool(turn)) as tool:
            tool.result("found")
        with pytest.raises(ToolDenied, match="look is not among the tools"):
            turn.tool(ask_for_tool(turn, "look")).__enter__()
    results = data_of(recording.store, conversation, "tool_result")

    assert ["success", "denied"] == [each.status for each in results]


def test_a_turn_can_only_take_away(recording: Recorder) -> None:
    """The policy of a turn's agent is merged with the conversation's."""
    conversation = recording.start(mode="agent", tool_policy=CAREFUL)
    wide = ToolPolicy(allowed=("delete_account", "look"))
    with conversation.turn("hello", tool_policy=wide) as turn:
        request = turn.context(tools=[*TOOLS, *declared("look")])
        for name in ("delete_account", "search"):
            with pytest.raises(ToolDenied):
                turn.tool(ask_for_tool(turn, name)).__enter__()
    with conversation.turn("and now?") as turn, turn.tool(ask_for_tool(turn)) as tool:
        tool.result("found")

    assert ["look"] == names(request.tools)
    assert "- the only tools: delete_account, look\n" in policy_told(request.messages)


def test_a_policy_outlives_its_process(recording: Recorder) -> None:
    """Opened again, the conversation may use the same tools."""
    first = recording.start(mode="agent", tool_policy=CAREFUL)
    first.close()
    conversation = recording.open(first.id)
    with conversation.turn("delete me") as turn:
        with pytest.raises(ToolDenied):
            turn.tool(ask_for_tool(turn, "delete_account")).__enter__()
        assert TOLD == policy_told(turn.context().messages)


def test_a_turn_of_a_run_has_a_policy_of_its_own(shared_store: EventStore) -> None:
    """A run's node may be given to an agent that may use less."""
    conversation = Conversation.start(shared_store, mode="run")
    run = conversation.start_run("report", directive="Report.")
    with run.turn("go", tool_policy=ToolPolicy(allowed=())) as turn:
        request = turn.context(tools=TOOLS)

    assert () == request.tools
    assert "TOOL_POLICY\n- the only tools: none" == policy_told(request.messages)


@pytest.mark.parametrize("mode", [None, "agent"])
def test_without_a_mode_the_policy_still_holds(recording: Recorder, mode: str | None) -> None:
    """It filters, and the model is told what it says; nothing else is added."""
    conversation = recording.start(mode=mode, tool_policy=CAREFUL)
    with conversation.turn("hello") as turn:
        ask(turn)
    view = conversation.views.context(conversation.id, mode=None, tools=TOOLS)

    assert ["search"] == names(view.tools)
    [told] = [each["content"] for each in view.messages if each["role"] == "system"]
    assert told == policy_told(view.messages)
    assert CAREFUL.text in told


def test_nothing_is_added_unless_a_mode_is_chosen(recording: Recorder) -> None:
    """Until then, a request is what was said, after the conversation's own instructions."""
    conversation = recording.start(base_instructions="Be brief.")

    def sent() -> list[str]:
        view = conversation.views.context(conversation.id, tools=TOOLS)
        return [each["content"] for each in view.messages]

    with conversation.turn("hello"):
        assert ["Be brief.", "hello"] == sent()
    conversation.switch_mode("agent")
    assert 2 < len(sent())


def test_a_request_may_have_a_policy_of_its_own(recording: Recorder, recorded_url: str) -> None:
    """Given to the view, also of a read-only store, it is merged with the conversation's."""
    conversation = recording.start(mode="agent", tool_policy=CAREFUL)
    own = ToolPolicy(denied=("search",))
    with EventStore.open(recorded_url, read_only=True) as replica:
        view = Views(replica).context(conversation.id, tools=TOOLS, tool_policy=own)
        assert CAREFUL == Views(replica).tool_policy(conversation.id)

    assert [] == names(view.tools)
    assert "- never to be called: delete_account, search\n" in policy_told(view.messages)
