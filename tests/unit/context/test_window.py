"""The budget of a request where nobody said one: the model's window, by data that is at hand."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import pytest

from projections.context import ContextSettings
from projections.context.settings import ContextRequest, budget_of, settings_of, window_of
from projections.tokens import tokenizer_for
from projections.tokens.text import listed_models


@pytest.mark.parametrize(
    "model",
    ["gpt-4o", "GPT-4o", "openai/gpt-4o", "azure/gpt-4o", "gpt-4o-2024-08-06", "gpt-4o:free"],
)
def test_a_model_has_many_names(model: str) -> None:
    """Its window and its encoding are the same under each."""
    assert 128_000 == window_of(model)
    assert ("o200k_base", True) == (tokenizer_for(model).name, tokenizer_for(model).exact)


def test_the_seller_may_stand_before_a_name() -> None:
    """As routers write it."""
    assert 200_000 <= (window_of("anthropic/claude-sonnet-4-20250514") or 0)
    assert window_of("claude-sonnet-4-20250514", "anthropic") == window_of(
        "claude-sonnet-4-20250514"
    )


def listed(seller: str, name: str) -> int:
    """Return the window in the list, or skip the test: not every release of it has all models."""
    with suppress(LookupError):
        found = listed_models().find_provider_model(name, None, seller, None)[1].context_window
        if found is not None:
            return int(found)
    pytest.skip("this release of genai-prices does not list the model's window")


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("bedrock/us.anthropic.claude-3-5-sonnet-20241022-v2:0", 200_000),
        ("Bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000),
        ("openrouter/meta-llama/llama-3.1-70b-instruct", 131_072),
    ],
)
def test_a_router_knows_a_model_by_another_name(model: str, window: int) -> None:
    """What it calls the seller says whose name of the model that is."""
    seller, _, name = model.lower().partition("/")
    assert window == listed(seller, name) == window_of(model)


@pytest.mark.parametrize(
    ("model", "window"), [("house/gpt-4o", 128_000), ("/", None), ("openai/", None)]
)
def test_a_router_that_nobody_knows(model: str, window: int | None) -> None:
    """The model is looked for by its own name."""
    assert window == window_of(model)


@pytest.mark.parametrize(
    "model", ["ft:gpt-4o-2024-08-06:acme::abc", "openai/ft:gpt-4o-2024-08-06:acme::abc"]
)
def test_a_fine_tuned_model_has_the_window_of_its_base(model: str) -> None:
    """It is named after it; with a price of its own."""
    assert 128_000 == window_of(model) == window_of(model, "openai")


def test_a_cloud_names_a_model_after_its_region_and_maker() -> None:
    """No seller has to stand before it."""
    name = "us.anthropic.claude-3-5-sonnet-20241022-v2:0"
    assert listed("aws", name) == window_of(name) == window_of(f"bedrock/{name}")


def test_a_window_that_the_seller_does_not_tell() -> None:
    """The list has Google's models without windows; a router's part of it has them."""
    window = listed("openrouter", "google/gemini-2.5-pro")
    assert window == window_of("gemini-2.5-pro") == window_of("gemini-2.5-pro", "google")


@pytest.mark.parametrize("value", [5, b"gpt-4o", ["gpt-4o"]])
@pytest.mark.parametrize("name", ["model", "provider"])
def test_a_name_that_is_no_string_is_refused(name: str, value: Any) -> None:
    """It failed in the depths, or was taken where a limit was given."""
    for limit in (None, 5_000):
        with pytest.raises(TypeError, match=f"^{name} must be a string, not"):
            budget_of(ContextSettings(), ContextRequest(max_tokens=limit, **{name: value}))


def test_no_name_of_a_model_is_refused() -> None:
    """None is a provider that nobody named, and a model for which nothing can be counted."""
    assert 128_000 - 16_000 == budget_of(ContextSettings(), ContextRequest(provider=None)).tokens
    with pytest.raises(TypeError, match=r"^model must be a string, not None"):
        budget_of(ContextSettings(), ContextRequest(model=None))  # type: ignore[arg-type]


def test_settings_are_not_a_mapping() -> None:
    """It said that a dict has no attribute of some name."""
    with pytest.raises(
        TypeError, match=r"settings must be ContextSettings, not dict: .*from_mapping"
    ):
        settings_of({"max_tokens": 400})  # type: ignore[arg-type]


def test_an_eighth_of_a_window_is_kept_for_the_response() -> None:
    """Unless somebody says how much; and never more than most models can answer."""
    settings = ContextSettings()
    assert 112_000 == budget_of(settings, ContextRequest()).tokens
    assert 127_000 == budget_of(settings, ContextRequest(reserve_for_response=1_000)).tokens
    assert 4_000 == budget_of(settings, ContextRequest(max_tokens=4_000)).tokens


def test_none_in_the_settings_is_no_limit() -> None:
    """And nothing needs to be said of it."""
    allowed = budget_of(ContextSettings(max_tokens=None), ContextRequest())
    assert (None, "") == (allowed.tokens, allowed.note)


def test_an_unknown_model_has_no_budget_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Once in the log of a process, and in the notes of every view."""
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            allowed = budget_of(ContextSettings(), ContextRequest(model="house-model-7"))
    assert allowed.tokens is None
    assert "model house-model-7 is not known, nothing is trimmed" in allowed.note
    assert 1 == len(caplog.records)


@pytest.mark.parametrize("number", ["5", 2.5, True])
@pytest.mark.parametrize("name", ["max_tokens", "reserve_for_response", "max_messages", "at"])
def test_a_number_of_another_type_is_refused_by_its_name(name: str, number: Any) -> None:
    """Some were taken as they came, and others failed in the depths."""
    options: dict[str, Any] = {"max_tokens": 100, name: number}
    with pytest.raises(TypeError, match=f"^{name} must be an integer, not"):
        budget_of(ContextSettings(), ContextRequest(**options))
