"""The viewer in a real browser: clicks, keys, live changes, and what axe-core finds.

Run with ``make test-browser``. Skipped where no Chromium or no Playwright is installed; the rules
of axe-core are checked if ``NPM_PACKAGES`` names the folder that has it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import Conversation, EventStore

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

AXE = Path(os.environ.get("NPM_PACKAGES", "")) / "axe-core" / "axe.min.js"
RULES = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice']}"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventStore]:
    """Give a store with a conversation of three turns, and one with hostile text."""
    path = tmp_path_factory.mktemp("browser") / "viewer.db"
    with EventStore.open(f"sqlite:///{path}") as opened:
        with Conversation.start(
            opened, title="Shipping", user_id="ada", key="shipping"
        ) as conversation:
            for number in range(3):
                _turn(conversation, f"Where is order A-{number}?", 1_500 if number else 4_000)
        with Conversation.start(opened, title="<b>Weather</b>", user_id="bob") as conversation:
            with conversation.turn("<script>document.title = 'owned'</script>") as turn:
                with turn.llm_call(model="gpt-4o") as call:
                    call.message("![x](https://elsewhere.example/x.gif) It rains.")
        yield opened


def _turn(conversation: Conversation, text: str, limit: int) -> None:
    with conversation.turn(text) as turn:
        request = turn.context(max_tokens=limit, model="gpt-4o")
        with turn.llm_call(request) as call:
            wanted = {"name": "status", "arguments": '{"id": "A-1"}', "id": "c1"}
            call.message("I look.", tool_calls=[wanted])
        with turn.tool(call.tool_calls[0]) as tool:
            tool.result({"state": "shipped", "note": "left at the door " * 40})
        with turn.llm_call(turn.context(max_tokens=limit, model="gpt-4o")) as call:
            call.message("It was **shipped**.")


def _request(store: EventStore) -> int:
    return [each.version for each in store.read("shipping") if each.type == "llm_request"][-1]


def test_the_list_narrows_as_one_types(page: Any) -> None:
    """The rows change without a click, and the address can be shared."""
    page.goto("/")
    assert page.locator("#rows tbody tr").count() == 2
    page.keyboard.press("/")
    page.keyboard.type("rain")
    playwright.expect(page.locator("#rows tbody tr")).to_have_count(1)
    assert "q=rain" in page.url
    assert page.locator("#rows mark").first.inner_text().lower().startswith("rain")


def test_keys_open_a_conversation_and_a_page(page: Any) -> None:
    """J chooses, Enter opens, g u goes to the usage, and the list of keys opens with ?."""
    page.goto("/")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/**")
    page.keyboard.press("?")
    assert page.locator("#keys-dialog").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("u")
    page.wait_for_url("**/usage")


def test_a_tool_call_loads_when_opened(page: Any) -> None:
    """Arguments and result are not part of the page until then."""
    page.goto("/c/shipping")
    call = page.locator("details.call").last
    call.locator("summary").click()
    call.locator("pre").nth(1).wait_for()
    assert "left at the door" in call.inner_text()


def test_stored_text_is_never_run(page: Any, store: EventStore) -> None:
    """A script in a message is text, and an image elsewhere is not loaded."""
    page.goto("/")
    page.get_by_text("<b>Weather</b>").click()
    page.get_by_text("image not loaded: https://elsewhere.example/x.gif").wait_for()
    assert "owned" not in page.title()


def test_a_new_answer_appears_while_one_looks(page: Any, store: EventStore) -> None:
    """The rows of a turn in another session appear without a reload, in the outline too."""
    page.goto("/c/shipping")
    page.locator("#live").wait_for()
    before = page.locator("#outline li").count()
    with Conversation.open(store, "shipping") as conversation:
        _turn(conversation, "And order A-9?", 4_000)
    page.locator(".item.user", has_text="And order A-9?").wait_for()
    playwright.expect(page.locator("#outline li")).to_have_count(before + 1)
    page.locator(".item.assistant strong").last.wait_for()
    playwright.expect(page.locator("#aside")).to_contain_text("Model calls 8")


def test_blocks_light_up_their_messages(page: Any, store: EventStore) -> None:
    """Arrow keys move through the history, and show what became of each part."""
    page.goto(f"/c/shipping/r/{_request(store)}")
    page.locator("#blocks .block").last.focus()
    page.keyboard.press("ArrowUp")
    assert "tokens" in page.locator("#about").inner_text()
    assert page.locator(".block.on").count() == 1
    page.keyboard.press("[")
    page.wait_for_url(f"**/r/{_earlier(store)}")


def _earlier(store: EventStore) -> int:
    return [each.version for each in store.read("shipping") if each.type == "llm_request"][-2]


def test_another_budget_says_that_it_was_not_sent(page: Any, store: EventStore) -> None:
    """What would have been sent is never taken for what was sent."""
    page.goto(f"/c/shipping/r/{_request(store)}")
    page.locator("input[name=max_tokens]").fill("9000")
    page.get_by_role("button", name="Build it").click()
    page.get_by_text("Not what was sent:").wait_for()


@pytest.mark.skipif(not AXE.is_file(), reason="NPM_PACKAGES does not name a folder with axe-core")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_axe_finds_nothing(
    browser: Any, address: str, store: EventStore, theme: str, width: int
) -> None:
    """WCAG 2.2 AA and the best practices, on every page, in both themes, on a phone too."""
    script = AXE.read_text("utf-8")
    # axe is put into the page from outside, which the policy of the pages forbids.
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, bypass_csp=True
    )
    opened = context.new_page()
    request = _request(store)
    for path in (
        "/",
        "/c/shipping",
        f"/c/shipping/r/{request}",
        f"/c/shipping/r/{request}?max_tokens=2000",
        "/c/shipping/why?q=shipped",
        "/usage",
        "/tools?sql=SELECT+name+FROM+tool_calls",
        "/operations?doctor=1",
    ):
        opened.goto(address + path)
        opened.evaluate(script)
        found = opened.evaluate(f"axe.run({RULES})")["violations"]
        assert [(path, each["id"], each["nodes"][0]["html"]) for each in found] == []
    context.close()
