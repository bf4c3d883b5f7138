"""What counts of requests promise: OpenAI's published figures, and no refusal of odd messages."""

from __future__ import annotations

from typing import Any

import pytest

from projections.tokens import (
    Count,
    Tokenizer,
    count_message,
    count_messages,
    count_tools,
    tokenizer_for,
)

O200K = Tokenizer("o200k_base")

COOKBOOK_MESSAGES = [
    {
        "role": "system",
        "content": "You are a helpful, pattern-following assistant that translates corporate "
        "jargon into plain English.",
    },
    {
        "role": "system",
        "name": "example_user",
        "content": "New synergies will help drive top-line growth.",
    },
    {
        "role": "system",
        "name": "example_assistant",
        "content": "Things working well together will increase revenue.",
    },
    {
        "role": "system",
        "name": "example_user",
        "content": "Let's circle back when we have more bandwidth to touch base on opportunities "
        "for increased leverage.",
    },
    {
        "role": "system",
        "name": "example_assistant",
        "content": "Let's talk later when we're less busy about how to do better.",
    },
    {
        "role": "user",
        "content": "This late pivot means we don't have time to boil the ocean for the client "
        "deliverable.",
    },
]

COOKBOOK_WEATHER = [
    {
        "role": "system",
        "content": "You are a helpful assistant that can answer to questions about the weather.",
    },
    {"role": "user", "content": "What's the weather like in San Francisco?"},
]


def weather_tool(**parameters: Any) -> dict[str, Any]:
    """Return the cookbook's tool, with further parameters."""
    return {
        "type": "function",
        "function": {
            "name": "get_current_weather",
            "description": "Get the current weather in a given location",
            "parameters": {
                "type": "object",
                "properties": {
                    "location": {
                        "type": "string",
                        "description": "The city and state, e.g. San Francisco, CA",
                    },
                    "unit": {
                        "type": "string",
                        "description": "The unit of temperature to return",
                        "enum": ["celsius", "fahrenheit"],
                    },
                    **parameters,
                },
                "required": ["location"],
            },
        },
    }


def call(name: str, arguments: Any, call_id: str = "call_1") -> dict[str, Any]:
    """Return one tool call as it stands in a message."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def assistant(*calls: dict[str, Any]) -> dict[str, Any]:
    """Return an assistant's message that makes these calls."""
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


class TestMessages:
    """Messages are counted as they are billed."""

    @pytest.mark.parametrize(("model", "tokens"), [("gpt-4", 129), ("gpt-4o", 124)])
    def test_cookbook_messages(self, model: str, tokens: int) -> None:
        """OpenAI's published example, as the API reported it."""
        assert Count(tokens) == count_messages(COOKBOOK_MESSAGES, tokenizer_for(model))

    def test_no_messages_still_start_a_reply(self) -> None:
        """The reply's own three tokens are always billed."""
        assert Count(3) == count_messages([], O200K)

    def test_text_parts_count_as_their_texts(self) -> None:
        """Content in parts costs what the same texts cost, refusals included."""
        parts = [{"type": "text", "text": "one"}, {"type": "refusal", "refusal": " two"}]
        assert Count(3 + 1 + 1 + 1) == count_message({"role": "user", "content": parts}, O200K)

    @pytest.mark.parametrize(("detail", "tokens"), [("low", 85), ("high", 765), (None, 765)])
    def test_images_are_approximate(self, detail: str | None, tokens: int) -> None:
        """An image costs a documented flat number, whatever its URL holds."""
        image = {"url": "data:image/png;base64," + "A" * 9_000, "detail": detail}
        message = {"role": "user", "content": [{"type": "image_url", "image_url": image}]}
        counted = count_message(message, O200K)
        assert (3 + 1 + tokens, False) == (counted.tokens, counted.exact)

    def test_ids_of_calls_cost_nothing(self) -> None:
        """The model is not shown ids, so their length does not matter."""
        short = count_message(assistant(call("f", "{}", "1")), O200K)
        assert short == count_message(assistant(call("f", "{}", "call_" + "x" * 200)), O200K)

    def test_a_call_costs_its_name_and_its_arguments(self) -> None:
        """Calls in history are sent again with every request."""
        arguments = '{"city": "Zürich"}'
        counted = count_message(assistant(call("get_weather", arguments)), O200K)
        text_tokens = O200K.count("get_weather").tokens + O200K.count(arguments).tokens
        assert (3 + 1 + 5 + text_tokens, False) == (counted.tokens, counted.exact)

    def test_the_older_function_call_counts_as_a_call(self) -> None:
        """Transcripts from before tool calls cost the same."""
        older = {"role": "assistant", "function_call": {"name": "f", "arguments": '{"a": 1}'}}
        new = count_message(assistant(call("f", '{"a": 1}')), O200K)
        assert new == count_message(older, O200K)

    def test_parallel_calls_are_billed_with_escaped_characters(self) -> None:
        """Two calls with Chinese arguments cost what their escaped form costs."""
        plain = [call("f", '{"city": "北京"}'), call("f", '{"city": "上海"}')]
        escaped = [
            call("f", r'{"city": "\u5317\u4eac"}'),
            call("f", r'{"city": "\u4e0a\u6d77"}'),
        ]
        counted = count_message(assistant(*plain), O200K)
        assert count_message(assistant(*escaped), O200K) == counted

    def test_a_single_call_is_not_escaped(self) -> None:
        """Escaping belongs to parallel calls only."""
        plain = count_message(assistant(call("f", '{"city": "北京"}')), O200K)
        escaped = count_message(assistant(call("f", r'{"city": "\u5317\u4eac"}')), O200K)
        assert plain.tokens < escaped.tokens

    def test_an_estimating_tokenizer_makes_every_part_an_estimate(self) -> None:
        """Framing is no more certain than text for a model of another provider."""
        tokenizer = tokenizer_for("claude-sonnet-4-5")
        counted = count_messages(COOKBOOK_MESSAGES, tokenizer)
        assert (124, False) == (counted.tokens, counted.exact)
        assert pytest.approx(tokenizer.margin) == counted.margin

    @pytest.mark.parametrize(
        "message",
        [
            {},
            {"role": None, "content": 7},
            {"role": "user", "content": [None, "x", {"type": "file"}, {}]},
            {"role": "assistant", "tool_calls": [None, {}, {"function": None}]},
            {"role": "assistant", "tool_calls": {"not": "a list"}},
            assistant(call("f", {"parsed": ["already"]})),
            {"role": "tool", "content": {"not": "text"}, "name": 3},
        ],
    )
    def test_malformed_messages_are_counted_all_the_same(self, message: dict[str, Any]) -> None:
        """Views are built from whatever was recorded; counting never refuses it."""
        assert count_message(message, O200K).tokens >= 3


class TestTools:
    """Declarations are counted as the TypeScript that the model gets."""

    @pytest.mark.parametrize(("model", "tokens"), [("gpt-4", 105), ("gpt-4o", 101)])
    def test_cookbook_tools(self, model: str, tokens: int) -> None:
        """OpenAI's published example, as the API reported it."""
        tokenizer = tokenizer_for(model)
        tools = count_tools([weather_tool()], tokenizer)
        assert Count(tokens) == count_messages(COOKBOOK_WEATHER, tokenizer) + tools

    def test_no_tools_cost_nothing(self) -> None:
        """Without tools there is no block of declarations."""
        assert Count(0) == count_tools([], O200K)

    def test_the_responses_format_costs_the_same(self) -> None:
        """A declaration with name and parameters at the top is the same declaration."""
        flat = {"type": "function", **weather_tool()["function"]}
        assert count_tools([weather_tool()], O200K) == count_tools([flat], O200K)

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "array", "description": "Days", "items": {"type": "integer"}},
            {"type": "object", "description": "Where", "properties": {"x": {"type": "number"}}},
            {"type": ["string", "null"], "description": "Maybe"},
            {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "Either"},
            {"type": "integer", "description": "Some", "enum": [1, 2]},
            {"type": "string"},
            True,
        ],
    )
    def test_what_the_cookbook_does_not_cover_is_inexact(self, schema: Any) -> None:
        """A richer schema costs more, and the count admits that it is no longer certain."""
        counted = count_tools([weather_tool(extra=schema)], O200K)
        assert counted.tokens > count_tools([weather_tool()], O200K).tokens
        assert (False, True) == (counted.exact, 0.0 < counted.margin <= 0.15)

    def test_a_tool_of_the_provider_is_an_estimate(self) -> None:
        """What a built-in tool adds to the prompt is the provider's secret."""
        counted = count_tools([{"type": "web_search"}], O200K)
        assert not counted.exact
        assert counted.tokens > 12

    def test_a_schema_without_end_is_counted(self) -> None:
        """Depth is bounded, so a deep schema cannot exhaust the stack."""
        schema: dict[str, Any] = {"type": "string"}
        for _ in range(200):
            schema = {"type": "array", "description": "list", "items": schema}
        assert not count_tools([weather_tool(deep=schema)], O200K).exact
