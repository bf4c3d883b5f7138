"""Settings come under the documents' names, contradict nothing, and give the prompt's budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from projections.context.compression import strategy_of
from projections.context.settings import ContextSettings
from projections.errors import EncodingNotBundled, InvalidSettings


class TestDefaults:
    """What holds when nothing is set."""

    def test_nothing_is_limited(self) -> None:
        """Limits are asked for, never assumed."""
        settings = ContextSettings()
        limits = (settings.max_prompt_tokens, settings.max_messages, settings.max_chars)
        assert (None, None, None) == limits
        assert None is settings.budget()

    def test_the_proposed_limits_are_those_of_the_document(self) -> None:
        """80 messages and 120,000 characters; tool results are sent, collapsed events are not."""
        settings = ContextSettings.proposed()
        assert (80, 120_000) == (settings.max_messages, settings.max_chars)
        assert True is settings.include_tool_results
        assert False is settings.include_collapsed_ui_events

    def test_steps_go_from_everything_to_60_percent(self) -> None:
        """Trigger and target as they were measured."""
        settings = ContextSettings()
        assert settings.steps is True
        assert settings.target == 0.65


class TestNames:
    """The documents' names and ours mean the same."""

    @pytest.mark.parametrize(
        ("given", "name", "value"),
        [
            ("contextMaxMessages", "max_messages", 20),
            ("contextMaxChars", "max_chars", 9),
            ("includeToolResultsInContext", "include_tool_results", False),
            ("includeCollapsedUiEventsInContext", "include_collapsed_ui_events", True),
            ("maxPromptTokens", "max_prompt_tokens", 9),
            ("warnPromptTokens", "warn_prompt_tokens", 9),
            ("tokenizerModel", "tokenizer", "cl100k_base"),
            ("tokenizer_model", "tokenizer", "gpt-4o"),
            ("totalBudget", "max_tokens", 9),
            ("reservedForResponse", "reserve_for_response", 9),
            ("targetAfterCompression", "target", 0.3),
            ("max_messages", "max_messages", 20),
        ],
    )
    def test_a_name_of_a_document_is_understood(self, given: str, name: str, value: Any) -> None:
        """Whichever name is used, the same setting is set, and nothing else."""
        settings = ContextSettings.from_mapping({given: value})
        assert ContextSettings().with_(**{name: value}) == settings
        assert value == getattr(settings, name)

    @pytest.mark.parametrize(
        "mapping",
        [
            {"llm.contextMaxMessages": 7, "llm.contextMaxChars": 9},
            {"settings.llm.contextMaxMessages": 7, "max_chars": 9},
            {"llm": {"contextMaxMessages": 7, "contextMaxChars": 9}},
            {"settings": {"llm": {"max_messages": 7}, "max_chars": 9}},
        ],
    )
    def test_sections_are_looked_into(self, mapping: dict[str, Any]) -> None:
        """Dotted names and nested tables are what TOML and JSON make of the document's names."""
        expected = ContextSettings(max_messages=7, max_chars=9)
        assert expected == ContextSettings.from_mapping(mapping)

    @pytest.mark.parametrize(
        "mapping",
        [
            {"max_messages": 7, "contextMaxMessages": 7},
            {"llm": {"max_messages": 7}, "llm.max_messages": 8},
            {"llm": {"max_messages": 7}, "contextMaxMessages": 8},
        ],
    )
    def test_a_setting_that_is_given_twice_is_refused(self, mapping: dict[str, Any]) -> None:
        """Neither of two values wins silently."""
        with pytest.raises(InvalidSettings, match="max_messages is given twice"):
            ContextSettings.from_mapping(mapping)

    def test_an_unknown_name_is_answered_with_the_nearest(self) -> None:
        """A slip of the pen is shown, not ignored."""
        with pytest.raises(InvalidSettings, match="'contextMaxMesages': did you mean") as caught:
            ContextSettings.from_mapping({"llm.contextMaxMesages": 7})
        assert "'contextMaxMessages'" in str(caught.value)

    def test_a_name_like_no_other_is_answered_with_all(self) -> None:
        """Whoever guesses is told what there is."""
        with pytest.raises(InvalidSettings, match=r"'zzz': choose from .*max_messages"):
            ContextSettings.from_mapping({"zzz": 7})

    def test_prompts_may_be_given_as_a_directory(self) -> None:
        """A path in a settings file is enough."""
        settings = ContextSettings.from_mapping({"prompts": "prompts"})
        assert Path("prompts") == settings.prompts.directory


class TestValues:
    """What makes no sense is refused, with the name of the setting."""

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"max_messages": 0}, "max_messages: .*greater than or equal to 1"),
            ({"max_messages": True}, "max_messages: .*valid integer"),
            ({"max_prompt_tokens": "8000"}, "max_prompt_tokens: .*valid integer"),
            ({"max_chars": 1.5}, "max_chars: "),
            ({"reserve_for_response": -1}, "reserve_for_response: "),
            ({"include_tool_results": 1}, "include_tool_results: .*valid boolean"),
            ({"target": 1.0}, "target: .*less than 1"),
            ({"target": float("nan")}, "target: "),
            ({"target": 0}, "target: .*greater than 0"),
            (
                {"max_prompt_tokens": 9, "warn_prompt_tokens": 9},
                r"warn_prompt_tokens \(9\) must be less than max_prompt_tokens \(9\)",
            ),
            (
                {"max_tokens": 9, "reserve_for_response": 9},
                r"reserve_for_response \(9\) must be less than max_tokens \(9\)",
            ),
            ({"strategy": ""}, "strategy: "),
            ({"prompts": {"texts": {"rules.md": "x"}}}, "unknown text 'rules.md': choose from"),
        ],
    )
    def test_a_wrong_value_is_named(self, values: dict[str, Any], message: str) -> None:
        """Read or changed, the error says which setting is wrong and why."""
        with pytest.raises(InvalidSettings, match=message):
            ContextSettings.from_mapping(values)
        with pytest.raises(InvalidSettings, match=message):
            ContextSettings().with_(**values)

    def test_every_problem_is_told_at_once(self) -> None:
        """One run of a program is enough to find them all."""
        with pytest.raises(InvalidSettings) as caught:
            ContextSettings.from_mapping({"max_messages": 0, "max_chars": 0})
        assert ["max_messages", "max_chars"] == [p.split(":")[0] for p in caught.value.problems]

    def test_an_encoding_that_is_not_bundled_names_the_choices(self) -> None:
        """It is found when it is set, not at the first request."""
        with pytest.raises(EncodingNotBundled, match="choose cl100k_base or o200k_base"):
            ContextSettings(tokenizer="p50k_base")

    def test_settings_do_not_change(self) -> None:
        """What one request was made with cannot be altered by another."""
        with pytest.raises(ValidationError, match="frozen"):
            ContextSettings().max_messages = 3

    def test_a_change_is_checked_against_what_is_set(self) -> None:
        """An override may contradict what it leaves alone."""
        with pytest.raises(InvalidSettings, match="warn_prompt_tokens"):
            ContextSettings(warn_prompt_tokens=500).with_(max_prompt_tokens=400)

    def test_a_change_leaves_the_rest(self) -> None:
        """Only what is named is different, and the original is not."""
        settings = ContextSettings.proposed()
        expected = ContextSettings(max_messages=5, max_chars=120_000)
        assert expected == settings.with_(contextMaxMessages=5)
        assert 80 == settings.max_messages


class TestBudget:
    """How many tokens a prompt may have."""

    @pytest.mark.parametrize(
        ("settings", "max_tokens", "reserve", "expected"),
        [
            ({}, 8000, None, 8000),
            ({}, 8000, 1000, 7000),
            ({}, None, 1000, None),
            ({"reserve_for_response": 500}, 8000, None, 7500),
            ({"reserve_for_response": 500}, 8000, 0, 8000),
            ({"max_tokens": 4000, "reserve_for_response": 500}, None, None, 3500),
            ({"max_tokens": 4000}, 8000, None, 8000),
            ({"max_prompt_tokens": 6000, "reserve_for_response": 500}, None, None, 6000),
            ({"max_prompt_tokens": 6000}, 8000, 1000, 6000),
            ({"max_prompt_tokens": 6000}, 5000, 1000, 4000),
        ],
    )
    def test_the_response_is_taken_off_the_whole(
        self,
        settings: dict[str, Any],
        max_tokens: int | None,
        reserve: int | None,
        expected: int | None,
    ) -> None:
        """The call's numbers go before those that are set; the prompt's own limit stays."""
        assert expected == ContextSettings(**settings).budget(max_tokens, reserve)

    def test_a_response_that_takes_everything_is_refused(self) -> None:
        """There is no prompt that fits nothing."""
        with pytest.raises(ValueError, match="leaves nothing of max_tokens"):
            ContextSettings().budget(100, 200)

    @pytest.mark.parametrize("number", [True, 10.5, "100", float("inf")])
    def test_what_is_no_integer_is_refused(self, number: Any) -> None:
        """A budget is a count of tokens."""
        with pytest.raises(TypeError, match="max_tokens must be an integer"):
            ContextSettings().budget(number)

    @pytest.mark.parametrize(("max_tokens", "reserve"), [(-1, None), (None, -1)])
    def test_negative_numbers_are_refused(
        self, max_tokens: int | None, reserve: int | None
    ) -> None:
        """A sign error is not a small budget."""
        with pytest.raises(ValueError, match="must not be negative: -1"):
            ContextSettings().budget(max_tokens, reserve)


@pytest.mark.parametrize("name", ["key_messages", "retrieval", "hybrid"])
@pytest.mark.parametrize("number", [-1, 1.5, "4", True, None])
def test_options_of_strategies_are_numbers(name: str, number: Any) -> None:
    """A negative one was taken, and any other failed far from where it was given."""
    with pytest.raises(InvalidSettings, match="recent must be a whole number from 0"):
        strategy_of(name, recent=number)


def test_edits_of_providers_are_few() -> None:
    """They are recorded with every request."""
    with pytest.raises(InvalidSettings, match="at most 16 items"):
        ContextSettings().with_(context_management=[{"type": "compaction"}] * 17)


class TestSectionBudgets:
    """What a kind of content may take of a prompt."""

    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            ({"tool": 9}, "unknown section 'tool': did you mean 'tools'?"),
            ({"zebra": 9}, "unknown section 'zebra': choose from system, notebook, user"),
            ({"x" * 9_999: 1}, "unknown section 'xxx"),
            ({f"s{n}": 1 for n in range(5_000)}, "unknown section 's0'"),
            (
                {"tools": -1},
                "tools must be a whole number of tokens, or a share from 0 to less than 1",
            ),
            ({"tools": -0.1}, "not -0.1"),
            ({"tools": 1.0}, "not 1.0"),
            ({"tools": 2_000.0}, "not 2000.0"),
            ({"tools": float("nan")}, "not nan"),
            ({"tools": float("inf")}, "not inf"),
            ({"tools": "30%"}, "not '30%'"),
            ({"tools": True}, "not True"),
            ({"tools": None}, "not None"),
            ({"tools": 0.6, "user": 0.5}, "the shares add up to 110 % of the budget"),
            ([("tools", 9)], "must be an object with the tokens"),
            (0.3, "must be an object with the tokens"),
        ],
    )
    def test_what_cannot_be_held_is_refused(self, given: Any, problem: str) -> None:
        """In one line, whatever it is."""
        with pytest.raises(InvalidSettings, match=r"^.{0,400}$") as refused:
            ContextSettings.from_mapping({"section_budgets": given})
        assert problem in str(refused.value)
        assert "section_budgets" in str(refused.value)

    def test_they_are_of_a_budget(self) -> None:
        """Nothing is limited in silence that has no limit."""
        budgets = {"tools": 0.3}
        with pytest.raises(InvalidSettings, match="section_budgets need a limit: set max_tokens"):
            ContextSettings(max_tokens=None).with_(section_budgets=budgets)
        assert ContextSettings(max_tokens=None, max_prompt_tokens=9, section_budgets=budgets)

    def test_shares_of_the_whole_are_accepted(self) -> None:
        """As they are written: ten tenths are not more than one."""
        names = ("user", "assistant", "tools", "summaries", "recalled", "digest", "system")
        budgets = dict.fromkeys(names, 0.1) | {"tools": 0.4}
        settings = ContextSettings(section_budgets=budgets)
        assert {"section_budgets": budgets} == settings.recorded
        assert settings == ContextSettings.from_mapping(settings.recorded)
