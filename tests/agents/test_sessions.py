"""An agent's session: turns, steps, limits and failures, as document 001 has them."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from agent_eventstore import AgentSession, ContextSettings, EventStore, ModelRequest, record
from agent_eventstore.agents import FunctionTool, run_agent
from agent_eventstore.demo.scripted_model import Reply
from agent_eventstore.errors import InvalidSettings, PromptTooLong, UnknownStrategy
from eventstore.events import LlmError, LlmRequest, SessionStart, ToolResult, TurnEnd, UserMessage
from tests.agents.scripted import Scripted, Wanted, read, reply
from tests.integration.replay_server import ReplayServer, Spoken


def types(store: EventStore, session: AgentSession) -> list[str]:
    """Return the types of a conversation's events, without the streams'."""
    found = [event.type for event in store.read(session.id)]
    return [each for each in found if each != "assistant_chunk"]


def test_a_turn_goes_on_until_there_is_an_answer(store: EventStore) -> None:
    """Tools run, the model is told of their results, and its answer ends the turn."""
    model = Scripted(reply("Let me look.", Wanted("read", path="a.md")), "It is a title.")
    with AgentSession.create(store, model=model, tools=[read]) as session:
        result = session.run_turn("What is in a.md?")

    assert ("ok", "It is a title.", 1) == (result.status, result.final_text, result.turn)
    assert ["Let me look.", "It is a title."] == [each.assistant_text for each in result.steps]
    assert result.steps[0].parsed_action is not None
    assert ("read", "# a.md") == (
        result.steps[0].parsed_action.tool,
        result.steps[0].observation,
    )
    assert [None, "It is a title."] == [each.parsed_final for each in result.steps]
    assert "# a.md" == model.asked[1].messages[-1]["content"]
    assert result.tokens is not None
    assert result.tokens.completion_tokens > 0
    assert types(store, session) == [
        *("conversation_start", "session_start", "turn_start", "user_message", "llm_request"),
        *("assistant_message", "tool_call", "tool_result", "llm_request", "assistant_message"),
        *("turn_end", "session_end"),
    ]


def test_a_session_is_opened_again_by_its_conversation(store: EventStore) -> None:
    """The history of the first session stands in the requests of the second."""
    with AgentSession.create(store, model=Scripted("One.")) as first:
        first.run_turn("Count.")
    model = Scripted("Two.")

    with AgentSession.open(store, first.id, model=model) as second:
        result = second.run_turn("Go on.")

    assert ("Two.", 2) == (result.final_text, result.turn)
    assert ["Count.", "One.", "Go on."] == [m["content"] for m in model.asked[0].messages[-3:]]
    assert first.session_id != second.session_id


def test_a_session_tells_how_it_is_set_up(store: EventStore) -> None:
    """The session's start has model, protocol, tools, and what the product adds."""
    options: dict[str, Any] = {"model": Scripted(), "tools": [read], "config": {"temperature": 0}}
    session = AgentSession.create(store, **options)
    session.close()

    starts = [e.data for e in store.read(session.id) if isinstance(e.data, SessionStart)]
    assert [
        {
            **{"model": "gpt-4o", "tokenizer": "o200k_base", "protocol": "tools"},
            **{"max_steps": 100, "tools": ["read"], "temperature": 0, "cwd": str(Path.cwd())},
        }
    ] == [start.config for start in starts]


def test_one_question_has_a_session_of_its_own(store: EventStore) -> None:
    """`run_agent` holds one turn in a session of the mode ``once``."""
    result = run_agent("Hello?", store=store, model=Scripted("Hello."))

    [conversation] = store.list()
    events = list(store.read(conversation.conversation_id))
    assert "Hello." == result.final_text
    assert ["once"] == [e.data.mode for e in events if isinstance(e.data, SessionStart)]
    assert "session_end" == events[-1].type


def test_steps_are_limited(store: EventStore) -> None:
    """A model that goes on calling tools is stopped, and the turn says why."""
    calls = [reply("", Wanted("read", path=str(number))) for number in range(5)]
    with AgentSession.create(store, model=Scripted(*calls), tools=[read], max_steps=3) as session:
        result = session.run_turn("Read everything.")

    ends = [e.data for e in store.read(session.id) if isinstance(e.data, TurnEnd)]
    assert ("max_steps", None, 3) == (result.status, result.final_text, len(result.steps))
    assert [("max_steps", 3)] == [(end.status, end.step_count) for end in ends]


class Flaky:
    """A tool that fails so often."""

    def __init__(self, failures: int) -> None:
        self.failures, self.calls = failures, 0

    def fetch(self, url: str) -> str:
        """Fetch a page."""
        self.calls += 1
        if self.calls <= self.failures:
            raise TimeoutError("no answer")
        return "the page"


@pytest.mark.parametrize(
    ("policy", "calls", "status", "observation"),
    [
        ("continue", 1, "ok", "TimeoutError: no answer"),
        ("retry", 3, "ok", "the page"),
        ("stop", 1, "error", "TimeoutError: no answer"),
    ],
)
def test_a_tool_error_does_what_the_policy_says(
    store: EventStore, policy: Any, calls: int, status: str, observation: str | None
) -> None:
    """The model is told, or the tool runs again, or the turn ends."""
    tool = Flaky(2)
    model = Scripted(reply("", Wanted("fetch", url="x")), "Done.")
    with AgentSession.create(
        store, model=model, tools=[tool.fetch], on_tool_error=policy
    ) as session:
        result = session.run_turn("Fetch x.")

    assert (calls, status) == (tool.calls, result.status)
    assert observation == result.steps[0].observation
    assert (status == "error") == ("the tool fetch failed" in (result.error or ""))
    results = [e.data for e in store.read(session.id) if isinstance(e.data, ToolResult)]
    assert ["success" if policy == "retry" else "failed"] == [each.status for each in results]


def test_wrong_calls_are_told_to_the_model(store: EventStore) -> None:
    """Neither a tool that is not there nor wrong arguments are an error of the product's."""
    model = Scripted(
        reply("", Wanted("write", path="x"), Wanted("read", file="x"), Wanted("read", path="x")),
        "Done.",
    )
    with AgentSession.create(store, model=model, tools=[FunctionTool.of(read)]) as session:
        result = session.run_turn("Do it.")

    told = [each.observation for each in result.steps[0].tools]
    assert "there is no tool 'write': there are read, read_output" == told[0]
    assert "ValueError: the arguments of read are wrong: path: Missing required argument" in told[1]
    assert "# x" == told[2]


def test_a_model_call_that_breaks_off_is_made_again(store: EventStore) -> None:
    """What is retryable is tried again in the same step; what came of it is in the log."""
    model = Scripted(Reply("It is", breaks_off="connection reset"), "It is so.")
    with AgentSession.create(store, model=model) as session:
        result = session.run_turn("Is it?")

    errors = [e.data for e in store.read(session.id) if isinstance(e.data, LlmError)]
    asked = [e.data.attempt for e in store.read(session.id) if isinstance(e.data, LlmRequest)]
    assert ("ok", "It is so.", 1) == (result.status, result.final_text, len(result.steps))
    assert (["It is"], [1, 2]) == ([error.partial_text for error in errors], asked)


def test_a_model_that_fails_ends_the_turn(store: EventStore) -> None:
    """The result says why, and the next turn goes on."""

    def broken(request: ModelRequest) -> str:
        raise ValueError("no such model")

    with AgentSession.create(store, model=broken) as session:
        first = session.run_turn("Hello?")
        second = session.run_turn("Hello?")

    assert ("error", None, "ValueError: no such model") == (
        first.status,
        first.final_text,
        first.error,
    )
    assert 2 == second.turn


def test_a_request_that_is_too_long_is_refused_before_it_is_written(store: EventStore) -> None:
    """Nothing of the turn stands in the log, and a shorter input is answered."""
    model = Scripted("Yes.")
    with AgentSession.create(store, model=model, max_prompt_tokens=900) as session:
        before = session.conversation.version
        with pytest.raises(PromptTooLong) as refused:
            session.run_turn("word " * 2_000)

        assert before == session.conversation.version
        assert (True, 900) == (refused.value.tokens > 2_000, refused.value.limit)
        assert "Yes." == session.run_turn("Hello?").final_text


def test_a_request_that_is_too_long_is_trimmed(store: EventStore) -> None:
    """The oldest of the history loses detail, and the newest input is sent whole."""
    model = Scripted("One.", "Two.")
    options: dict[str, Any] = {"max_prompt_tokens": 1_500, "over_max_prompt": "trim"}
    with AgentSession.create(store, model=model, **options) as session:
        session.run_turn("word " * 800)
        result = session.run_turn("other " * 300)

    sent = model.asked[1].messages
    assert "Two." == result.final_text
    assert "other " * 300 == sent[-1]["content"]
    assert sum(len(message["content"] or "") for message in sent) < 1_500 * 5


def test_settings_choose_the_messages_of_a_session(store: EventStore) -> None:
    """As of a turn: they trim, and what they ask of the provider is asked."""
    model = Scripted("One.", "Two.")
    settings = ContextSettings(max_tokens=1_500, steps=False, prompt_cache_key="ada")
    with AgentSession.create(store, model=model, settings=settings) as session:
        session.run_turn("word " * 800)
        result = session.run_turn("other " * 300)

    [_, asked] = [e.data for e in store.read(session.id) if isinstance(e.data, LlmRequest)]
    assert ("Two.", "ada") == (result.final_text, model.asked[1].parameters["prompt_cache_key"])
    assert sum(len(message["content"] or "") for message in model.asked[1].messages) < 1_500 * 5
    assert settings.recorded == asked.policy["settings"]


def test_a_strategy_that_there_is_not_is_refused_at_once(store: EventStore) -> None:
    """Its name is checked before the conversation begins, and not in its first turn."""
    with pytest.raises(UnknownStrategy, match="unknown strategy 'sliding': choose from"):
        AgentSession.create(store, model=Scripted(), strategy="sliding")
    assert [] == store.list()


def test_options_go_before_settings(store: EventStore) -> None:
    """The lower limit is held, the model stays the one that is asked, and contradictions fail."""
    settings = ContextSettings(max_tokens=8_000, warn_prompt_tokens=900, tokenizer="o200k_base")
    options: dict[str, Any] = {"settings": settings, "tokenizer_model": "cl100k_base"}
    options |= {"max_prompt_tokens": 1_000, "over_max_prompt": "trim"}
    with AgentSession.create(store, model=Scripted("One."), **options) as session:
        session.run_turn("Hello?")

    [asked] = [e.data for e in store.read(session.id) if isinstance(e.data, LlmRequest)]
    assert (1_000, "gpt-4o") == (asked.policy["max_tokens"], asked.policy["model"])
    assert "cl100k_base" == asked.policy["settings"]["tokenizer"]
    with pytest.raises(InvalidSettings, match=r"warn_prompt_tokens .900. must be less"):
        AgentSession.create(store, model=Scripted(), settings=settings, max_prompt_tokens=800)


def test_calls_that_a_failed_one_leaves_behind_have_not_run(store: EventStore) -> None:
    """They had no result, and were shown as pending until the next opening."""

    def fail() -> str:
        """Fail."""
        raise ValueError("no")

    model = Scripted(reply("", Wanted("fail"), Wanted("read", path="x")), "Done.")
    tools: list[Any] = [FunctionTool.of(fail, on_error="stop"), read]
    with AgentSession.create(store, model=model, tools=tools) as session:
        result = session.run_turn("Go.")
        views = session.conversation.views
        rows = {row.name: row.status for row in views.tool_calls(conversation_id=session.id)}
        assert {"fail": "failed", "read": "skipped"} == rows
        assert 0 == views.open_work(session.id).open_count
        assert "Done." == session.run_turn("And?").final_text
    assert ("error", "ValueError: no") == (result.status, result.steps[0].observation)
    told = [each["content"] for each in model.asked[1].messages if each["role"] == "tool"]
    assert "It was never started" in told[1]


def test_calls_of_a_turn_that_is_aborted_have_not_run(store: EventStore) -> None:
    """A stop refused to record that, too, and the next request showed them as pending."""

    def abort() -> str:
        """Abort the turn."""
        session.abort("interrupted")
        return "aborted"

    wanted = [Wanted("read", path=path) for path in "xyz"]
    model = Scripted(reply("", Wanted("abort"), *wanted))
    with AgentSession.create(store, model=model, tools=[abort, read]) as session:
        result = session.run_turn("Go.")
        views = session.conversation.views
        rows = views.tool_calls(conversation_id=session.id)
        assert {"success": 1, "skipped": 3} == Counter(row.status for row in rows)
        assert 0 == views.open_work(session.id).open_count
    assert "aborted" == result.status
    kinds = [event.type for event in store.read(session.id)]
    assert ["tool_result"] * 4 + ["turn_end", "session_end"] == kinds[-6:]


def test_an_unknown_option_is_refused(store: EventStore) -> None:
    """It would be ignored in silence, and nothing is written."""
    with pytest.raises(TypeError, match="unknown option 'setings': did you mean 'settings'"):
        AgentSession.create(store, model=Scripted(), setings=ContextSettings())  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="settings must be ContextSettings, not dict"):
        AgentSession.create(store, model=Scripted(), settings={})  # type: ignore[arg-type]
    assert [] == [*store.read_all()]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("max_steps", "3", "max_steps must be an integer, not '3'"),
        ("attempts", 2.5, "attempts must be an integer, not 2.5"),
        ("warn_prompt_tokens", -1, "warn_prompt_tokens must be at least 1, not -1"),
        ("protocol", "xml", "protocol must be tools or react, not 'xml'"),
        ("on_tool_error", "retyr", "on_tool_error must be continue or stop or retry, not 'retyr'"),
        ("over_max_prompt", "cut", "over_max_prompt must be refuse or trim, not 'cut'"),
        ("model_name", None, "model_name must be a string, not None"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(
    store: EventStore, name: str, value: Any, told: str
) -> None:
    """Some were ignored, as a limit that nobody kept; others failed in the first turn."""
    options: dict[str, Any] = {name: value}
    with pytest.raises((TypeError, ValueError), match=f"^{told}"):
        AgentSession.create(store, model=Scripted(), **options)
    assert [] == [*store.read_all()]


def test_a_tool_has_no_other_policy() -> None:
    """An unknown one was taken for ``continue``."""
    with pytest.raises(ValueError, match="on_error must be continue or stop or retry, not 'halt'"):
        FunctionTool.of(read, on_error="halt")  # type: ignore[arg-type]


def test_a_message_that_is_posted_again_is_answered_once(store: EventStore) -> None:
    """The second result is that of the first, and nothing is written."""
    with AgentSession.create(store, model=Scripted("Hello.")) as session:
        first = session.run_turn("Hello?", message_id="m-1")
        version = session.conversation.version
        second = session.run_turn("Hello?", message_id="m-1")

        assert version == session.conversation.version
    assert (first.final_text, first.status, 1) == (second.final_text, second.status, second.turn)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_client_of_openai_is_asked_over_http(store: EventStore, recorded: bool) -> None:
    """It is streamed, its tools are declared, and each call stands in the log once."""
    shown: list[tuple[str, str]] = []
    with ReplayServer() as server, OpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        server.will(Spoken("It is sunny."))
        model = record(client) if recorded else client
        with AgentSession.create(
            store, model=model, tools=[read], listener=lambda kind, text: shown.append((kind, text))
        ) as session:
            result = session.run_turn("How is it?")

    body = server.asked[0].body
    assert ("It is sunny.", True) == (result.final_text, body["stream"])
    assert ["read", "read_output"] == [each["function"]["name"] for each in body["tools"]]
    assert ["It ", "is ", "sunny."] == [text for kind, text in shown if kind == "text"]
    assert 1 == types(store, session).count("llm_request")
    assert result.tokens is not None
    assert 9 == result.tokens.prompt_tokens


def test_an_answer_may_be_a_text_or_a_message(store: EventStore) -> None:
    """A callable need not stream."""
    answers: list[Any] = [
        {"role": "assistant", "content": None, "tool_calls": [{"name": "read", "arguments": {}}]},
        "It is so.",
        iter(["It ", "streams."]),
    ]
    with AgentSession.create(store, model=lambda _: answers.pop(0), tools=[read]) as session:
        first, second = session.run_turn("One?"), session.run_turn("Two?")

    assert ("It is so.", "It streams.") == (first.final_text, second.final_text)
    assert "ValueError" in (first.steps[0].observation or "")


def test_an_interrupt_keeps_what_was_said(store: EventStore) -> None:
    """Ctrl-C in the middle of an answer aborts the turn, and the session goes on."""

    def model(request: ModelRequest) -> Any:
        if len([m for m in request.messages if m["role"] == "user"]) > 1:
            return "Again."

        def pieces() -> Any:
            yield "It is "
            raise KeyboardInterrupt

        return pieces()

    with AgentSession.create(store, model=model) as session:
        with pytest.raises(KeyboardInterrupt):
            session.run_turn("How is it?")
        after = session.run_turn("Go on.")

    events = list(store.read(session.id))
    assert ["It is "] == [e.data.partial_text for e in events if isinstance(e.data, LlmError)]
    assert ["cancelled", "ok"] == [e.data.status for e in events if isinstance(e.data, TurnEnd)]
    assert "Again." == after.final_text


def test_sessions_run_in_threads_side_by_side(store: EventStore) -> None:
    """Each has a conversation of its own, and none sees the other's words."""

    def run(number: int) -> None:
        with AgentSession.create(store, model=Scripted(f"I am {number}.")) as session:
            told[number] = (session, session.run_turn(f"You are {number}.").final_text)

    told: dict[int, tuple[AgentSession, str | None]] = {}
    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {n: f"I am {n}." for n in range(3)} == {n: text for n, (_, text) in told.items()}
    for number, (session, _) in told.items():
        events = store.read(session.id)
        said = [e.data.parts for e in events if isinstance(e.data, UserMessage)]
        assert 1 == len(said)
        assert f"You are {number}." in str(said)
