"""A request that was made is given back byte for byte, from the log alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore
from eventstore import events as e
from eventstore.errors import ConversationNotFound
from projections import Views
from projections.context import ContextSettings, ContextView, build
from projections.context.compression import KeyMessages, LlmSummary, strategies
from projections.errors import RequestNotReproducible, UnknownStrategy
from projections.providers.request_formats import FORMATS
from tests.list_row_source import ListRowSource
from tests.projections.support import converse, turn
from tests.run_story import story
from tests.unit.context.log import Log

pytestmark = pytest.mark.exhaustive_when("postgresql")

TOOL = {
    "type": "function",
    "function": {"name": "search", "parameters": {"type": "object", "properties": {}}},
}


def send(store: EventStore, views: Views, cid: UUID, **options: Any) -> tuple[ContextView, int]:
    """Build the next request and record it, as a recorder does; return it and its version."""
    view = views.context(cid, **options)
    at = len(list(store.read(cid)))
    request = e.LlmRequest(
        llm_call_id=f"call-{at}",
        policy={**view.policy, "at": at},
        digest=view.digest,
        tools=tuple(options.get("tools", ())),
    )
    return view, store.append(cid, [request]).version


def goes_on(store: EventStore, cid: UUID, after: int) -> None:
    """Append what changes nearly everything that a request is made of."""
    store.append(
        cid,
        [
            *turn(after, "something else"),
            e.SystemInstruction(text="New rules."),
            e.Notebook(text="New notes."),
            e.Summary(text="All of it.", versions=(e.VersionRange(first=1, last=after),)),
            e.Retraction(versions=(e.VersionRange(first=1, last=2),)),
        ],
    )


def assert_given_back(views: Views, cid: UUID, sent: ContextView, version: int, **how: Any) -> None:
    """Check that a request comes back as it was sent, with its whole account.

    Of which run it was told is a question to the store, and no part of the policy that is built.
    """
    again = views.context_of(cid, version, **how)
    assert (sent.prompt, sent.digest) == (again.prompt, again.digest)
    assert (sent.ledger, sent.tokens, sent.usage) == (again.ledger, again.tokens, again.usage)
    assert sent.versions == again.versions
    assert {**sent.policy, "run": None} == {**again.policy, "run": None}


class TestItComesBack:
    """Whatever came after it in the conversation."""

    @pytest.mark.parametrize("format", FORMATS)
    def test_in_every_format(self, store: EventStore, views: Views, cid: UUID, format: str) -> None:
        """With a budget that something is left out for, and for a provider."""
        cid = converse(store, 9)
        sent, version = send(store, views, cid, max_tokens=300, format=format, provider="openai")
        goes_on(store, cid, version)
        assert sent.complete is False
        assert_given_back(views, cid, sent, version)

    @pytest.mark.parametrize("strategy", strategies())
    def test_with_every_strategy(
        self, store: EventStore, views: Views, cid: UUID, strategy: str
    ) -> None:
        """Those that search do so in memory now, and find the same."""
        cid = converse(store, 12)
        settings = ContextSettings(steps=False)
        sent, version = send(
            store, views, cid, max_tokens=250, strategy=strategy, settings=settings
        )
        goes_on(store, cid, version)
        assert sent.complete is False
        assert_given_back(views, cid, sent, version)

    @pytest.mark.parametrize("steps", [True, False])
    def test_with_budgets_of_sections(
        self, store: EventStore, views: Views, cid: UUID, steps: bool
    ) -> None:
        """Tokens and shares, of a model with a margin."""
        cid = converse(store, 12)
        budgets = {"tools": 0.2, "assistant": 90, "digest": 0.0, "user": 0}
        settings = ContextSettings(steps=steps, section_budgets=budgets)
        sent, version = send(store, views, cid, max_tokens=400, model="claude-x", settings=settings)
        goes_on(store, cid, version)
        assert sent.complete is False
        assert_given_back(views, cid, sent, version)

    @pytest.mark.parametrize("mode", ["chat", "agent", "run"])
    def test_in_every_mode(self, store: EventStore, views: Views, cid: UUID, mode: str) -> None:
        """With the run as it was told then, and the tools."""
        store.append(cid, story(14))
        sent, version = send(store, views, cid, max_tokens=2_000, mode=mode, tools=[TOOL])
        store.append(cid, story()[14:])
        assert_given_back(views, cid, sent, version)

    def test_of_a_run_that_is_named(self, store: EventStore, views: Views, cid: UUID) -> None:
        """Also after it is over."""
        store.append(cid, story(30))
        sent, version = send(store, views, cid, mode="run", run="first")
        store.append(cid, story()[30:])
        assert "Write a report." in str(sent.messages)
        assert_given_back(views, cid, sent, version)

    def test_with_a_persona_that_has_changed_since(
        self, store: EventStore, views: Views, tmp_path: Path
    ) -> None:
        """The texts are in the log, not in the files."""
        cid = converse(store, 2)
        (tmp_path / "personas").mkdir()
        persona = tmp_path / "personas" / "ann.md"
        persona.write_text("You are Ann.")
        settings = ContextSettings.from_mapping({"prompts": str(tmp_path)})
        sent, version = send(store, views, cid, mode="agent", agent="ann", settings=settings)
        persona.write_text("You are Ann no more.")
        assert "You are Ann." in [message["content"] for message in sent.messages]
        assert_given_back(views, cid, sent, version)

    def test_with_texts_that_an_earlier_request_holds(
        self, store: EventStore, views: Views
    ) -> None:
        """They stand in the log once."""
        cid = converse(store, 2)
        _, first = send(store, views, cid, mode="agent")
        view = views.context(cid, mode="agent")
        policy = {name: held for name, held in view.policy.items() if name != "system"}
        request = e.LlmRequest(
            llm_call_id="later", policy={**policy, "system_of": first}, digest=view.digest
        )
        version = store.append(cid, [request]).version
        assert view.prompt == views.context_of(cid, version).prompt

    def test_with_settings(self, store: EventStore, views: Views) -> None:
        """Those that differ from the defaults are in the policy."""
        cid = converse(store, 6)
        hidden = e.NewEvent(e.AssistantMessage.of("collapsed"), meta=e.Meta(in_context=False))
        store.append(cid, [hidden])
        settings = ContextSettings(
            include_tool_results=False,
            include_collapsed_ui_events=True,
            tokenizer="cl100k_base",
            max_messages=15,
            max_chars=5_000,
            target=0.3,
            strategy="key_messages",
            strategy_options={"recent": 2},
        )
        sent, version = send(store, views, cid, max_tokens=240, settings=settings)
        goes_on(store, cid, version)
        assert "collapsed" in [message["content"] for message in sent.messages]
        assert_given_back(views, cid, sent, version)

    def test_with_a_strategy_that_is_given_again(self, store: EventStore, views: Views) -> None:
        """Options of a strategy that was handed over are nowhere in the log."""
        cid = converse(store, 12)
        strategy = KeyMessages(recent=1)
        sent, version = send(store, views, cid, max_tokens=250, strategy=strategy)
        assert_given_back(views, cid, sent, version, strategy=strategy)

    def test_with_the_strategy_of_the_settings_by_its_name(
        self, store: EventStore, views: Views
    ) -> None:
        """The settings' options applied only if nobody repeated the name."""
        cid = converse(store, 12)
        options = {"recent": 1}
        settings = ContextSettings(strategy_options=options)
        sent, version = send(
            store, views, cid, max_tokens=250, settings=settings, strategy="hybrid"
        )
        assert (
            sent.prompt
            == views.context(cid, max_tokens=250, settings=settings, at=version - 1).prompt
        )
        assert options == sent.policy["settings"]["strategy_options"]
        assert_given_back(views, cid, sent, version)

    def test_with_a_summary_that_a_model_wrote(self, store: EventStore, views: Views) -> None:
        """It is an event like others; nobody is asked again."""
        cid = converse(store, 30)
        strategy = LlmSummary(summarize=lambda _: "They searched a lot.", least_tokens=10)
        due = views.context(cid, max_tokens=400, strategy=strategy).due
        assert due is not None
        covered = tuple(e.VersionRange(first=each, last=each) for each in due.versions)
        store.append(cid, [e.Summary(text=strategy.write(due).text, versions=covered)])
        sent, version = send(store, views, cid, max_tokens=400, strategy=strategy)
        goes_on(store, cid, version)
        assert "They searched a lot." in str(sent.messages)
        assert_given_back(views, cid, sent, version)

    def test_as_a_fold_in_memory_gives_it(self, store: EventStore, views: Views) -> None:
        """Rows of the database and rows of a list are the same to the builder."""
        cid = converse(store, 12)
        folded = Log(event.data for event in store.read(cid))
        for options in ({"max_tokens": 250}, {"max_messages": 9}, {}):
            limits: dict[str, Any] = dict(options)
            expected = build(ListRowSource(folded.rows()), **limits)
            assert expected.prompt == views.context(cid, **limits).prompt


class TestItDoesNot:
    """What cannot be given back says so, and is never something else."""

    def test_after_an_erasure(self, store: EventStore, views: Views) -> None:
        """What is gone is gone from the past."""
        cid = converse(store, 3)
        _, version = send(store, views, cid)
        store.erase(cid, reason="asked for", versions=[1])
        with pytest.raises(RequestNotReproducible, match="erased"):
            views.context_of(cid, version)

    def test_where_there_is_no_request(self, store: EventStore, views: Views) -> None:
        """Neither another event nor a version that never was is one."""
        cid = converse(store, 1)
        for version in (1, 99):
            with pytest.raises(ValueError, match=f"no llm_request at version {version}"):
                views.context_of(cid, version)

    def test_where_somebody_else_chose_the_messages(self, store: EventStore, views: Views) -> None:
        """A request without a policy was not made here."""
        cid = converse(store, 1)
        with pytest.raises(RequestNotReproducible, match="not chosen by this project"):
            views.context_of(cid, 2)

    def test_with_a_strategy_that_is_gone(self, store: EventStore, views: Views) -> None:
        """The error names it and those that there are."""
        cid = converse(store, 1)
        request = e.LlmRequest(llm_call_id="x", policy={"name": "gone"}, digest="0" * 64)
        version = store.append(cid, [request]).version
        with pytest.raises(UnknownStrategy, match="gone"):
            views.context_of(cid, version)

    def test_of_a_conversation_that_is_none(self, views: Views, cid: UUID) -> None:
        """As for every other view."""
        with pytest.raises(ConversationNotFound):
            views.context_of(cid, 1)
