"""The viewer in a real browser over much: a hundred real transcripts, and what means harm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from agent_eventstore import Conversation, EventStore
from agent_eventstore.transcripts import Transcript, load, read_transcripts
from tests.unit.importers.reading import TAU_BENCH

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

TRANSCRIPTS = 100
CALLS, TOGETHER = 10_000, 500
MUCH = 1_000_000  # characters
HARM = (
    "<script>document.title = 'owned'</script>",
    "<img src=x onerror=\"document.title = 'owned'\">",
    "[me](javascript:document.title='owned') ![x](https://elsewhere.example/x.gif)",
    "\x1b]0;owned\x07\x1b[31mred\x1b[2J",
    "\u202egnp.exe \u2066isolated \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "</textarea></style></title><svg onload=\"document.title='owned'\">",
    "{{ 7 * 7 }} {% raw %} ${7*7}",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventStore]:
    """Give a store with a hundred real transcripts and two hostile conversations."""
    path = tmp_path_factory.mktemp("much") / "viewer.db"
    with EventStore.open(f"sqlite:///{path}", synchronous="OFF") as opened:
        found = [each for each in read_transcripts(TAU_BENCH) if isinstance(each, Transcript)]
        assert len(found) >= TRANSCRIPTS
        load(opened, found[:TRANSCRIPTS], strict=True)
        with Conversation.start(opened, title=HARM[0], user_id=HARM[1], key="harm") as conversation:
            for text in HARM:
                with conversation.turn(text) as turn:
                    with turn.llm_call(turn.context(model="gpt-4o")) as call:
                        call.message(text, tool_calls=[{"name": "run", "arguments": "{}"}])
                    with turn.tool(call.tool_calls[0]) as tool:
                        tool.result(text)
                    with turn.llm_call(turn.context(model="gpt-4o")) as call:
                        call.message(f"{text}\n\n```html\n{text}\n```")
            with conversation.turn("x" * MUCH) as turn, turn.llm_call(model="gpt-4o") as call:
                call.message("word " * (MUCH // 5))
        with (
            Conversation.start(opened, title="Many calls", key="many") as conversation,
            conversation.turn("Call them all") as turn,
        ):
            for _ in range(CALLS // TOGETHER):
                wanted = [{"name": "status", "arguments": "{}"}] * TOGETHER
                with turn.llm_call(model="gpt-4o") as call:
                    call.message("I look.", tool_calls=wanted)
                for each in call.tool_calls:
                    with turn.tool(each) as tool:
                        tool.result("shipped")
        yield opened


def test_every_conversation_can_be_reached_and_opened(page: Any, store: EventStore) -> None:
    """The list leads on to the oldest, and each tenth of the transcripts shows its texts."""
    seen: list[str] = []
    address = "/"
    while address:
        page.goto(address)
        links = page.locator("#rows tbody a").evaluate_all("all => all.map(a => a.pathname)")
        seen += links
        older = page.get_by_role("link", name="older")
        address = older.get_attribute("href") if older.count() else ""
    assert len(seen) == len({*seen}) == TRANSCRIPTS + 2
    for place in seen[2::10]:
        page.goto(place)
        assert page.locator("#timeline").inner_text().strip()
        page.goto(f"{place}/next")
        assert page.locator("#blocks .block").count()


def test_hostile_text_is_shown_and_does_nothing(page: Any, store: EventStore) -> None:
    """On every page: no script runs, no image loads, no control character is left as it is."""
    requests = [each.version for each in store.read("harm") if each.type == "llm_request"]
    for path in (
        "/",
        "/?q=owned",
        "/c/harm",
        f"/c/harm/r/{requests[-2]}",
        "/c/harm/why?q=owned",
        "/usage",
        "/tools?tool=run",
        "/operations",
    ):
        page.goto(path)
        assert page.title() != "owned", path
        text = page.locator("body").inner_text()
        assert re.search("[\x00-\x08\x0b\x1b\x7f\u202e]", text) is None, path
    page.goto("/c/harm")
    assert page.get_by_text("document.title = 'owned'").count()


def test_a_megabyte_is_folded(page: Any) -> None:
    """The page holds the beginning of a long message, and says how much there is."""
    page.goto("/c/harm")
    assert len(page.content()) < MUCH


def test_ten_thousand_calls_open_page_by_page(page: Any) -> None:
    """The newest are there at once, older ones load as one scrolls up, and none is left out."""
    page.goto("/c/many")
    rows = page.locator("#timeline details.call")
    first = rows.count()
    assert 0 < first < CALLS // 4
    page.locator("#timeline").evaluate("shown => shown.scrollTo(0, 0)")
    page.wait_for_function(
        "count => document.querySelectorAll('#timeline details.call').length > count", arg=first
    )
    seen: set[str] = set()
    address = "/c/many"
    while address:
        page.goto(address)
        calls = page.locator("#timeline details.call")
        seen.update(calls.evaluate_all("all => all.map(call => call.dataset.call)"))
        link = page.locator("[data-earlier]")
        address = link.get_attribute("href") if link.count() else ""
    assert CALLS == len(seen)
