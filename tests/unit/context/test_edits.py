"""What providers do with a prompt themselves is asked of them by a setting, each for its own."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from anthropic.types import AnthropicBetaParam
from anthropic.types.beta import BetaContextManagementConfigParam
from openai.types.responses.response_create_params import ContextManagement
from pydantic import TypeAdapter

from eventstore.events import UserMessage
from projections.context import ContextSettings
from projections.errors import InvalidSettings
from tests.unit.context.log import Log

CLEAR = {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 3}}
THINKING = {"type": "clear_thinking_20251015", "keep": "all"}
COMPACT = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 90_000}}
COMPACTION = {"type": "compaction", "compact_threshold": 100_000}
ALL = ContextSettings.from_mapping({"context_management": [CLEAR, COMPACTION, COMPACT, THINKING]})


def parameters(format: str, settings: ContextSettings = ALL) -> dict[str, Any]:
    """Return what a call is given beside its messages."""
    return Log([UserMessage.text("task")]).view(format=format, settings=settings).parameters


def test_anthropic_gets_its_edits_and_their_betas() -> None:
    """Thinking first, as it demands; of the types of its SDK."""
    told = parameters("anthropic_messages")
    assert {"edits": [THINKING, CLEAR, COMPACT]} == told["context_management"]
    assert ["compact-2026-01-12", "context-management-2025-06-27"] == told["betas"]
    TypeAdapter(BetaContextManagementConfigParam).validate_python(told["context_management"])
    known = [name for each in get_args(AnthropicBetaParam) for name in get_args(each)]
    assert {*told["betas"]} <= {*known}


def test_openai_gets_its_compaction() -> None:
    """In the format that has it, and of the type of its SDK."""
    told = parameters("openai_responses")
    assert {"context_management": [COMPACTION]} == told
    TypeAdapter(list[ContextManagement]).validate_python(told["context_management"])


@pytest.mark.parametrize("format", ["openai_chat", "neutral"])
def test_nobody_else_gets_any(format: str) -> None:
    """One setting serves a product that asks several providers."""
    assert {} == parameters(format)


def test_it_goes_with_breakpoints() -> None:
    """Both are parameters of one call."""
    told = parameters("openai_responses", ALL.with_(prompt_cache_key="k"))
    assert {"context_management": [COMPACTION], "prompt_cache_key": "k"} == told


def test_it_is_recorded() -> None:
    """As it was set, whichever provider is asked."""
    view = Log([UserMessage.text("task")]).view(settings=ALL)
    held = {"context_management": [CLEAR, COMPACTION, COMPACT, THINKING]}
    assert held == view.policy["settings"]
    assert ALL == ContextSettings.from_mapping(view.policy["settings"])


@pytest.mark.parametrize("entry", [{"type": "forget"}, {}])
def test_what_no_provider_knows_is_refused(entry: dict[str, Any]) -> None:
    """The error names what there is."""
    with pytest.raises(InvalidSettings, match="compaction, clear_thinking_20251015"):
        ContextSettings.from_mapping({"context_management": [entry]})
