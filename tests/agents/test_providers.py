"""One conversation with several providers: who is asked, by stage (document 004)."""

from __future__ import annotations

import re

import pytest
from anthropic import Anthropic
from openai import OpenAI

from agent_eventstore import (
    AgentSession,
    ContextSettings,
    EventStore,
    ModelRequest,
    ProviderRouter,
    Route,
)
from agent_eventstore.agents import FunctionTool, ToolArgumentParser
from eventstore.events import AssistantMessage, LlmRequest
from tests.agents.scripted import Scripted
from tests.integration.replay_server import ReplayServer, Spoken, Streamed


def test_claude_plans_and_openai_executes(store: EventStore) -> None:
    """Both SDKs, one history: each is sent all of it in its own format, and the log says who."""
    done: list[str] = []
    with (
        ReplayServer() as server,
        Anthropic(base_url=server.url, api_key="x") as claude,
        OpenAI(base_url=f"{server.url}/v1", api_key="x") as openai,
    ):
        server.will(Streamed("anthropic-tool-no-args"), Spoken("It is updated."))
        server.will(Streamed("anthropic-text"))
        router = ProviderRouter(
            {
                "plan": Route(claude, "claude-test", provider="anthropic"),
                "execute": Route(openai, "gpt-4o", {"temperature": 0}, provider="openai"),
            }
        )
        tool = FunctionTool.of(lambda: done.append("run"), name="updateIssueList")
        with AgentSession.create(store, model=router, tools=[tool]) as session:
            first = session.run_turn("Update the issue list.")
            second = session.run_turn("How are you?")

    planned, executed, again = server.asked
    assert ["run"] == done
    assert ("ok", "It is updated.") == (first.status, first.final_text)
    assert "ok" == second.status
    assert ("/v1/messages", "/v1/chat/completions") == (planned.path, executed.path)
    told = [each for each in executed.body["messages"] if each["role"] != "system"]
    assert ["user", "assistant", "tool"] == [each["role"] for each in told]
    assert "updateIssueList" == told[1]["tool_calls"][0]["function"]["name"]
    assert (0, "gpt-4o") == (executed.body["temperature"], executed.body["model"])
    assert "temperature" not in planned.body
    assert ["user", "assistant", "user", "assistant", "user"] == [
        each["role"] for each in again.body["messages"]
    ]
    assert "tool_use" == again.body["messages"][1]["content"][-1]["type"]
    asked = [e.data for e in store.read(session.id) if isinstance(e.data, LlmRequest)]
    answered = [e.data for e in store.read(session.id) if isinstance(e.data, AssistantMessage)]
    assert ["anthropic", "openai", "anthropic"] == [each.invocation.provider for each in asked]
    assert ["anthropic_messages", "openai_chat", "anthropic_messages"] == [
        each.invocation.specification for each in asked
    ]
    assert all(each.invocation is not None for each in answered)


def test_claude_is_sent_what_the_settings_ask_for(store: EventStore) -> None:
    """Breakpoints of its cache, on the names that it takes, and edits by the beta that has them."""
    edits = ({"type": "clear_tool_uses_20250919"},)
    settings = ContextSettings(cache_breakpoints=True, context_management=edits)
    tool = FunctionTool.of(lambda: "", name="conv.list")
    with ReplayServer() as server, Anthropic(base_url=server.url, api_key="x") as claude:
        server.will(Streamed("anthropic-text"))
        session = AgentSession.create(
            store,
            model=claude,
            model_name="claude-test",
            tools=[tool],
            settings=settings,
            conversation={"base_instructions": "Be brief."},
        )
        with session:
            assert "ok" == session.run_turn("How are you?").status

    [asked] = server.asked
    mark = {"type": "ephemeral"}
    assert mark == asked.body["messages"][-1]["content"][-1]["cache_control"]
    assert mark == asked.body["system"][-1]["cache_control"]
    assert mark == asked.body["tools"][-1]["cache_control"]
    assert "conv_list" in [each["name"] for each in asked.body["tools"]]
    assert {"edits": [*edits]} == asked.body["context_management"]


@pytest.mark.parametrize("names", [["a.b", "a_b"], ["a_b", "a.b"], ["a.b", "a b", "a/b"]])
def test_tools_that_providers_would_confuse_have_names_of_their_own(
    store: EventStore, names: list[str]
) -> None:
    """A letter that they refuse makes two names one; the call still runs the tool that is meant."""
    ran: list[str] = []
    tools = [FunctionTool.of(lambda own=own: ran.append(own), name=own) for own in names]
    asked: list[ModelRequest] = []

    def model(request: ModelRequest) -> object:
        asked.append(request)
        if len(asked) > len(names):
            return "Done."
        name = request.tools[len(asked) - 1]["function"]["name"]
        call = {"name": name, "arguments": "{}", "id": f"c{len(asked)}"}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    with AgentSession.create(store, model=model, tools=tools) as session:
        session.run_turn("Run each.")
    wire = [each["function"]["name"] for each in asked[0].tools][: len(names)]
    assert ran == names
    assert len({*wire}) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in wire)
    assert wire[names.index("a_b")] == "a_b" if "a_b" in names else "a_b" not in wire
    sent = [
        call["function"]["name"] for m in asked[-1].messages for call in m.get("tool_calls", ())
    ]
    assert sent == wire


def test_more_tools_than_openai_takes_are_refused_at_once(store: EventStore) -> None:
    """Before anything is sent, with the number; another model takes them."""
    tools = [FunctionTool.of(lambda: "", name=f"t{n}") for n in range(129)]
    with OpenAI(base_url="http://127.0.0.1:1/v1", api_key="x") as openai:
        router = ProviderRouter({"one": Route(openai, "gpt-4o", provider="openai")})
        for model in (openai, router):
            with pytest.raises(ValueError, match="129 tools are declared, and openai takes 128"):
                AgentSession.create(store, model=model, tools=tools, provider="openai")
    AgentSession.create(store, model=Scripted(), tools=tools).close()


def test_a_stage_may_be_chosen_by_hand(store: EventStore) -> None:
    """Until the strategy has it again."""
    one, other = Scripted("One.", "One again."), Scripted("Other.")
    router = ProviderRouter({"one": Route(one, "gpt-4o"), "other": Route(other, "gpt-4o")})
    with AgentSession.create(store, model=router) as session:
        answers = [session.run_turn("1").final_text]
        router.use("other")
        answers.append(session.run_turn("2").final_text)
        router.use(None)
        answers.append(session.run_turn("3").final_text)
    assert ["One.", "Other.", "One again."] == answers


def test_an_unknown_stage_is_refused() -> None:
    """The error names those that there are."""
    router = ProviderRouter({"plan": Route(Scripted(), "gpt-4o")})
    with pytest.raises(ValueError, match="unknown stage 'test'; known stages: plan"):
        router.use("test")
    with pytest.raises(ValueError, match="at least one route"):
        ProviderRouter({})


def test_arguments_in_a_block_of_code_are_taken_with_a_warning(store: EventStore) -> None:
    """The text stays as the model wrote it."""
    written = '```json\n{"path": "a.md"}\n```'

    def model(request: ModelRequest) -> object:
        if request.messages[-1]["role"] == "tool":
            return "Done."
        call = {"name": "read", "arguments": written, "id": "c1"}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    tool = FunctionTool.of(lambda path: f"# {path}", name="read")
    with AgentSession.create(store, model=model, tools=[tool]) as session:
        result = session.run_turn("Read it.")
    [asked] = [
        e.data.tool_calls[0]
        for e in store.read(session.id)
        if isinstance(e.data, AssistantMessage) and e.data.tool_calls
    ]
    assert "# a.md" == result.steps[0].observation
    assert (written, None) == (asked.arguments_text, asked.parse_error)
    assert "the arguments stood in a block of code" == asked.parse_warning


class TestToolArgumentParser:
    """What is wrong with arguments is said in words."""

    def test_it_reads_what_is_there(self) -> None:
        """Required and optional ones, and lists in either form."""
        given = ToolArgumentParser.of('{"path": "a", "depth": 2, "names": ["x"], "tags": "y, z"}')
        assert ("a", 2) == (given.get_required("path", str), given.get("depth", int, 1))
        assert 1 == given.get("width", int, 1)
        assert (["x"], ["y", "z"], []) == tuple(
            given.parse_list(name) for name in ("names", "tags", "none")
        )

    def test_it_says_what_is_wrong(self) -> None:
        """Which argument, and how it should be."""
        given = ToolArgumentParser({"depth": True})
        with pytest.raises(ValueError, match="'path' is missing"):
            given.get_required("path", str)
        with pytest.raises(ValueError, match="'depth' is a int, not bool"):
            given.get_required("depth", int)
        with pytest.raises(ValueError, match="not a JSON object: "):
            ToolArgumentParser.of("{")

    def test_json_is_parsed_safely(self) -> None:
        """Nothing is raised."""
        assert ({}, None, None) == ToolArgumentParser.parse_json_safely("{}")
        assert ToolArgumentParser.parse_json_safely("[]")[0] is None
