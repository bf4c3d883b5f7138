"""In what order each strategy gives things up."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from projections.context.compression import (
    Hybrid,
    Item,
    KeyMessages,
    LevelOfDetail,
    NewestGroups,
    Reduction,
    Retrieval,
    Strategy,
    strategies,
    strategy_of,
)
from projections.context.compression import strategy as registry
from projections.context.compression.scoring import last_rounds
from projections.errors import InvalidSettings, UnknownStrategy
from tests.unit.compression.example import called, identifiers, item, items, said, user


def order(reductions: Iterable[Reduction], level: str) -> list[int]:
    """Return the items that come down to a level, in the order in which they do."""
    return [each.item for each in reductions if each.to == level and each.fact is None]


def a_dialogue() -> list[Item]:
    """Return six rounds: a question, a call with a large result, an answer, a decision."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "rules"}]
    for number in range(6):
        messages += [
            user(f"question {number}"),
            *called("find", {"rows": [f"value {each}" for each in range(10 * number + 10)]}),
            said("let me think about it"),
            said("It is done."),
        ]
    return items(*messages)


def test_the_window_drops_the_oldest_first_and_shortens_nothing() -> None:
    """What is mandatory stays out of the list."""
    history = [item(1), item(2, mandatory="first user message"), item(3)]

    found = list(NewestGroups().reductions(history, ""))

    assert [(each.item, each.to) for each in found] == [(0, "dropped"), (2, "dropped")]


def test_key_messages_begin_with_old_talk() -> None:
    """Users, decisions, tool groups and the newest groups are kept by rule at first."""
    history = a_dialogue()

    gone = order(KeyMessages().reductions(history, ""), "facts")

    assert gone[:4] == [3, 7, 11, 15]
    assert {history[index].messages[0]["content"] for index in gone[:4]} == {
        "let me think about it"
    }


def test_key_messages_shrink_tool_results_before_they_go() -> None:
    """Every preview comes before the first group that a rule keeps goes."""
    history = a_dialogue()

    found = list(KeyMessages().reductions(history, ""))

    tools = [index for index, each in enumerate(history) if len(each.messages) > 1]
    previews = [place for place, each in enumerate(found) if each.to == "shortened"]
    left = [place for place, each in enumerate(found) if each.item in tools and each.to == "facts"]
    assert sorted(found[place].item for place in previews) == tools
    assert max(previews) < min(left)


def test_key_messages_keep_the_last_four_rounds_longest() -> None:
    """Tool groups go first, then older rounds, answers before their question; then the last ones.

    Once users went before the tool groups of the last rounds, and an answer before its question.
    """
    strategy = KeyMessages(recent=0)
    talk = [3, 7, 11, 15, 19, 23]

    gone = [*dict.fromkeys(order(strategy.reductions(a_dialogue(), ""), "facts"))]

    tools, newest_tools = [6, 2, 18, 14, 10], [22]
    rounds = [[4, 8, 5], [12, 9, 16, 13, 20, 17, 24]]
    assert gone == [*talk, *tools, *rounds[0], *newest_tools, *rounds[1]]


def test_key_messages_forget_identifiers_last() -> None:
    """What has gone leaves its facts, and the kinds that matter least go first."""
    history = items(user("first"), *called("find", {"id": "W_123", "state": "open"}), user("last"))

    found = [each for each in KeyMessages().reductions(history, "") if each.fact is not None]

    assert [history[each.item].facts[each.fact or 0].text for each in found] == ["open", "W_123"]


def test_the_last_rounds_outlive_the_digest() -> None:
    """Once, the last four rounds went before the facts of what was older: document 000, 4.3.

    Only their tool groups go earlier: an output can be read again, but no user's words.
    """
    items = a_dialogue()
    last = last_rounds(items, 4)
    assert last > 0
    reductions = [*KeyMessages().reductions(items, "")]
    of_old = [place for place, each in enumerate(reductions) if each.item < last]
    leaves = [
        place
        for place, each in enumerate(reductions)
        if each.item >= last
        and each.to in ("facts", "dropped")
        and "oldest of the last rounds" in each.why
    ]
    assert max(of_old) < min(leaves)


def test_key_messages_say_their_score() -> None:
    """The reason names the rule and the parts of the score."""
    why = next(iter(KeyMessages().reductions(a_dialogue(), ""))).why

    assert why.startswith("not a key message, score 0.4")
    assert "recency 0.4" in why


@pytest.mark.parametrize("strategy", [Retrieval(recent=1), Hybrid()])
def test_what_is_relevant_outlives_what_is_newer(strategy: Strategy) -> None:
    """An old group that answers the intent stays longer than younger ones that do not."""
    history = [
        item(place, facts=identifiers(f"id_{place}"), relevance=2.5 if place == 1 else 0.0)
        for place in range(1, 6)
    ]
    history += [item(6, kind="user"), item(7, kind="user", mandatory="latest user message")]

    gone = order(strategy.reductions(history, "intent"), "dropped")

    assert gone == [1, 2, 3, 4, 5, 0]


@pytest.mark.parametrize("strategy", [Retrieval(), Hybrid()])
def test_the_last_rounds_go_last_however_relevant_the_rest(strategy: Strategy) -> None:
    """The newest rounds are given up only after everything else has gone."""
    history = [item(place, kind="user", relevance=9.0) for place in range(1, 4)]
    history += [item(place, kind="user") for place in range(4, 8)]

    gone = order(strategy.reductions(history, "intent"), "dropped")

    assert gone[3:] == [3, 4, 5, 6]


def test_a_single_long_round_is_not_all_protected() -> None:
    """An agent's round can be the whole history; then only its newest groups go last."""
    history = [item(1, kind="user", mandatory="first user message")]
    history += [item(place, relevance=float(place == 3)) for place in range(2, 40)]

    gone = order(Retrieval(recent=4).reductions(history, "intent"), "dropped")

    assert gone[-5:] == [2, 35, 36, 37, 38]


@pytest.mark.parametrize("name", strategies())
def test_each_strategy_is_found_by_its_name(name: str) -> None:
    """The name of a registered strategy is the one that it is recorded under."""
    assert strategy_of(name).name == name
    assert strategy_of(name).version >= 1


def test_a_strategy_stands_for_itself() -> None:
    """No registration is needed."""
    strategy = LevelOfDetail()

    assert strategy_of(strategy) is strategy


def test_options_of_an_object_are_refused() -> None:
    """It was made with its own; others would not apply, and nobody would notice."""
    with pytest.raises(InvalidSettings, match=r"'key_messages' is an object .*: recent"):
        strategy_of(KeyMessages(), recent=2)


def test_an_unknown_name_is_refused_with_the_choices() -> None:
    """The error lists what there is."""
    with pytest.raises(UnknownStrategy, match=r"choose from .*key_messages") as caught:
        strategy_of("nothing")

    assert set(caught.value.choices) >= {"level_of_detail", "hybrid"}


def register(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Make the interpreter find one entry point in the group."""
    entry = EntryPoint(name, value, registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    registry._registered.cache_clear()


def test_a_products_strategy_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the entry point names is made and used."""
    register(monkeypatch, "ours", "projections.context.compression.level_of_detail:NewestGroups")

    assert isinstance(strategy_of("ours"), NewestGroups)
    assert "ours" in strategies()


def test_a_broken_entry_point_harms_only_those_who_ask_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others still work, and the error says what could not be imported and why."""
    register(monkeypatch, "broken", "no_such_module:Nothing")

    assert isinstance(strategy_of("hybrid"), Hybrid)
    with pytest.raises(UnknownStrategy, match="'broken' cannot be imported from no_such_module"):
        strategy_of("broken")


@pytest.mark.parametrize("value", ["json:dumps", "collections:OrderedDict", "json"])
def test_an_entry_point_that_is_no_strategy_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """It was taken for one, and failed later without a word about where it came from."""
    register(monkeypatch, "odd", value)

    with pytest.raises(TypeError, match="is not a strategy"):
        strategy_of("odd")


@pytest.mark.parametrize(
    ("name", "option"),
    [("retrieval", "embedding"), ("hybrid", "embedding"), ("llm_summary", "summarize")],
)
def test_an_option_of_another_type_is_refused_at_once(name: str, option: str) -> None:
    """It was ignored until the history was over its budget, and failed then."""
    with pytest.raises(InvalidSettings, match=f"{option} must be .* not 'ada'"):
        strategy_of(name, **{option: "ada"})
