"""Results of tools are sent as tables from the first request on, and the ledger says so."""

from __future__ import annotations

import json

from eventstore.events import (
    AssistantMessage,
    Invocation,
    ToolCallRequest,
    ToolResult,
    UserMessage,
)
from projections.context import ContextSettings, ContextView
from tests.unit.context.log import Log

FLIGHTS = [{"flight": f"HAT{n:03}", "from": "SFO", "to": "JFK", "price": n} for n in range(9)]
AS_IT_CAME = ContextSettings(tool_tables=False)


def asked(content: str = json.dumps(FLIGHTS), name: str = "search") -> Log:
    """Return a log with a question, a call, and this result."""
    call = ToolCallRequest(name=name, arguments_text="{}")
    answer = AssistantMessage(tool_calls=(call,))
    return Log([UserMessage.text("Which?"), answer, ToolResult(call_id="2.0", content=content)])


def result_in(view: ContextView) -> str:
    """Return the only result in a request."""
    [message] = [each for each in view.messages if each["role"] == "tool"]
    return str(message["content"])


def test_a_result_is_a_table_before_anything_presses() -> None:
    """Without a budget, too; and what it says is what it said."""
    view = asked().view()
    table = json.loads(result_in(view))
    assert ["flight", "from", "to", "price"] == table["columns"]
    assert [list(each.values()) for each in FLIGHTS] == table["rows"]
    assert view.complete


def test_it_is_the_same_at_every_later_request() -> None:
    """So that the prefix stays the same."""
    log = asked()
    first = log.view(max_tokens=2_000).messages
    log.add(AssistantMessage.of("The cheapest is HAT000."))
    log.add(UserMessage.text("Thanks"))
    assert first == log.view(max_tokens=2_000).messages[: len(first)]


def test_the_request_is_smaller_by_what_the_ledger_tells() -> None:
    """The entry of the group says how many tokens it had as it came."""
    log = asked()
    plain, tabled = log.view(settings=AS_IT_CAME), log.view()
    before, after = plain.ledger[-1], tabled.ledger[-1]
    why = f"fits whole; results as tables, {before.tokens_after} tokens as they came"
    assert why == after.reason
    assert plain.tokens.tokens - tabled.tokens.tokens == before.tokens_after - after.tokens_after
    assert ("full", "full") == (before.level, after.level)


def test_a_setting_turns_it_off() -> None:
    """Then a result is sent as it came, and the request is made again so."""
    view = asked().view(settings=AS_IT_CAME)
    assert json.dumps(FLIGHTS) == result_in(view)
    assert {"tool_tables": False} == view.policy["settings"]


def test_what_is_no_json_is_sent_as_it_came() -> None:
    """Words stay words."""
    assert "No flight found." == result_in(asked("No flight found.").view())


def test_the_answer_to_a_call_in_its_makers_form_stays_as_it_is() -> None:
    """The output of a hosted shell is read by its fields."""
    ran = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}] * 3
    item = {
        "type": "shell_call",
        "id": "sh_1",
        "call_id": "call_1",
        "status": "completed",
        "action": {"commands": ["ls"]},
    }
    openai = Invocation(provider="openai", specification="openai_responses")
    answer = AssistantMessage(
        tool_calls=(ToolCallRequest(name="shell", arguments_text="{}", provider_id="call_1"),),
        invocation=openai,
        raw={"output": [item]},
    )
    log = Log([UserMessage.text("ls"), answer])
    log.add(ToolResult(call_id="2.0", content=json.dumps(ran)))
    for format in ("openai_responses", "openai_chat"):
        assert '"columns"' not in json.dumps(
            log.view(format=format, provider="openai").messages
        ).replace("\\", "")


def test_columns_are_no_facts_of_a_digest() -> None:
    """What a table says in its rows is."""
    log = asked(json.dumps([{**each, "flight_note": "on time"} for each in FLIGHTS]))
    for _ in range(4):
        log.add(AssistantMessage.of("There are many. " * 20))
        log.add(UserMessage.text("Tell me more of them."))
    settings = ContextSettings(strategy="level_of_detail", steps=False)
    view = log.view(max_tokens=250, settings=settings)
    said = json.dumps(view.messages)
    assert "CONVERSATION_DIGEST" in said
    assert "HAT003" in said
    assert "flight_note" not in said
