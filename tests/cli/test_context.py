"""``eventstore context``: its options, what it explains, and its errors."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import Conversation
from eventstore import EventStore
from projections.providers.request_formats import FORMATS
from tests.cli.program import Run, run
from tests.cli.samples import WEATHER, conversation_with

pytestmark = pytest.mark.exhaustive_when("postgresql")

find = cache(conversation_with)

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


@pytest.fixture
def weather(imported: str) -> str:
    """Id of the conversation on the weather."""
    return find(imported, "How is the weather")


@pytest.fixture
def asked(own: str) -> tuple[str, str, int]:
    """URL of a store, a conversation in it, and the version of a request that was made there."""
    with EventStore.open(own) as store, Conversation.start(store, mode="chat") as conversation:
        with conversation.turn("What is the capital of France?") as turn:
            request = turn.context(max_tokens=4_000, tools=TOOLS)
            with turn.llm_call(request) as call:
                message = {"role": "assistant", "content": "Paris."}
                call.response({"object": "chat.completion", "choices": [{"message": message}]})
        [sent] = [each for each in store.read(conversation.id) if each.type == "llm_request"]
        return own, str(conversation.id), sent.version


def written(path: Path, value: Any) -> str:
    """Write a file of JSON, or a text as it is; return its path."""
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return str(path)


def failed(done: Run) -> str:
    """Return the one line that a command which failed has said."""
    assert (2, "", 1) == (done.status, done.out, len(done.err.splitlines()))
    return done.err


def system_texts(done: Run) -> list[str]:
    """Return the system messages of a request."""
    messages = done.document["messages"]
    return [each["content"] for each in messages if each["role"] == "system"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_shown(imported: str, weather: str, name: str) -> None:
    """Calls, results and texts are there in each format, in its own shape."""
    arguments = ("context", weather, "--format", name)
    shown = run(*arguments, url=imported, environment={"COLUMNS": "200"}).out

    for said in ("Answer in one sentence.", "→ weather", "snow", "Thank you."):
        assert said in shown


def test_a_reserve_is_taken_off_the_budget(imported: str, weather: str) -> None:
    """The prompt's budget is what the response leaves."""
    arguments = ("--max-tokens", "4000", "--reserve", "1000", "--json")

    assert 3_000 == run("context", weather, *arguments, url=imported).document["usage"]["budget"]


def test_a_mode_composes_the_system_part(imported: str, weather: str) -> None:
    """The banner of the mode and the conversation's own instructions are there."""
    done = run("context", weather, "--mode", "chat", "--json", url=imported)

    assert any(text.startswith("MODE\n- active: chat") for text in system_texts(done))
    assert "Answer in one sentence." == system_texts(done)[-1]


def test_the_mode_is_the_conversations_own(asked: tuple[str, str, int]) -> None:
    """As in a turn of it; ``--no-mode`` composes nothing, ``--mode`` another."""
    url, conversation, _ = asked

    def banners(*options: str) -> list[str]:
        done = run("context", conversation, *options, "--json", url=url)
        lines = [text.splitlines() for text in system_texts(done)]
        return [said[1] for said in lines if said[0] == "MODE"]

    assert ["- active: chat"] == banners()
    assert ["- active: agent"] == banners("--mode", "agent")
    assert [] == system_texts(run("context", conversation, "--no-mode", "--json", url=url))
    told = run("context", conversation, "--mode", "chat", "--no-mode", url=url)
    assert (2, "") == (told.status, told.out)
    assert "--mode and --no-mode contradict each other" in told.err


def test_texts_come_from_a_directory(imported: str, weather: str, tmp_path: Path) -> None:
    """Rules and personas of the product's stand in place of the defaults."""
    written(tmp_path / "system-base-rules-chat.md", "Our rules.")
    (tmp_path / "personas").mkdir()
    written(tmp_path / "personas" / "bob.md", "You are Bob.")
    options = ("--mode", "agent", "--agent", "bob", "--prompts", str(tmp_path), "--json")
    done = run("context", weather, *options, url=imported)

    assert ["Our rules.", "You are Bob."] == system_texts(done)[:2]


def test_tools_are_counted(imported: str, weather: str, tmp_path: Path) -> None:
    """Declarations of tools make a request larger."""
    tools = written(tmp_path / "tools.json", TOOLS)
    plain = run("context", weather, "--json", url=imported).document
    with_tools = run("context", weather, "--tools", tools, "--json", url=imported).document

    assert plain["messages"] == with_tools["messages"]
    assert plain["tokens"]["tokens"] < with_tools["tokens"]["tokens"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("settings.json", '{"settings.llm.contextMaxMessages": 4, "steps": false}'),
        ("settings.toml", "steps = false\n[llm]\ncontextMaxMessages = 4\n"),
    ],
)
def test_settings_come_from_a_file(
    imported: str, weather: str, tmp_path: Path, name: str, text: str
) -> None:
    """JSON and TOML do, with the names that the requirements use."""
    path = written(tmp_path / name, text)
    view = run("context", weather, "--settings", path, "--json", url=imported).document

    assert 4 == len(view["messages"])
    assert {"max_messages": 4, "steps": False} == view["policy"]["settings"]


def test_budgets_of_sections_are_explained(imported: str, weather: str, tmp_path: Path) -> None:
    """With what each takes; a system part that is over its own is refused in one line."""
    path = written(tmp_path / "settings.json", {"section_budgets": {"tools": 5, "user": 0.5}})
    asked = ("context", weather, "--settings", path, "--no-mode", "--max-tokens", "600")
    shown = run(*asked, "--explain", url=imported).out
    assert re.search(r"sections  tools 0 of 5, user \d+ of 300", shown)
    assert "section_budgets.tools" in shown.replace("\n", "")

    path = written(tmp_path / "settings.json", {"section_budgets": {"system": 1}})
    options = ("--settings", path, "--mode", "chat", "--max-tokens", "600")
    refused = run("context", weather, *options, url=imported).err
    assert "section_budgets.system of 1 tokens cannot hold what must be sent" in refused


def test_options_go_before_settings(imported: str, weather: str, tmp_path: Path) -> None:
    """What is typed counts, and the rest of the file stays."""
    path = written(tmp_path / "settings.json", {"max_tokens": 9_000, "steps": False})
    options = ("--settings", path, "--max-tokens", "4000", "--steps", "--json")
    view = run("context", weather, *options, url=imported).document

    assert 4_000 == view["policy"]["max_tokens"]
    assert "steps" not in view["policy"].get("settings", {})


def test_a_strategy_is_chosen_by_name(imported: str, weather: str) -> None:
    """What loses detail first is recorded in the policy."""
    options = ("--strategy", "window", "--json")

    assert "window" == run("context", weather, *options, url=imported).document["policy"]["name"]


def test_the_past_is_shown(imported: str, weather: str) -> None:
    """The messages are those that there were at the version."""
    view = run("context", weather, "--at", "3", "--json", url=imported).document

    assert WEATHER[:2] == view["messages"]


def test_a_request_is_shown_as_it_was_sent(asked: tuple[str, str, int]) -> None:
    """Its messages are there again, without the answer that came after it."""
    url, conversation, version = asked
    view = run("context", conversation, "--of", str(version), "--json", url=url).document

    assert "What is the capital of France?" == view["messages"][-1]["content"]


def test_a_request_is_shown_of_a_store_that_is_only_read(asked: tuple[str, str, int]) -> None:
    """Where the store is opened so does not matter to what was sent, and may be said last."""
    url, conversation, version = asked
    done = run("context", conversation, "--of", str(version), "--json", "--read-only", url=url)

    assert "What is the capital of France?" == done.document["messages"][-1]["content"]


def test_a_request_is_explained_as_it_was_sent(asked: tuple[str, str, int]) -> None:
    """Its budget and its ledger are those of then."""
    url, conversation, version = asked
    shown = run("context", conversation, "--of", str(version), "--explain", url=url).out

    assert "budget  4,000 tokens" in shown
    assert "mandatory: base rules" in shown


def test_the_budget_is_told_in_words(imported: str, weather: str) -> None:
    """The bar is there, and whoever cannot see it reads how full it is."""
    lines = run("context", weather, "--max-tokens", "400", "--explain", url=imported).out.split(
        "\n"
    )
    [place] = [number for number, line in enumerate(lines) if line.startswith("budget")]

    assert lines[place].startswith("budget  400 tokens, of which ")
    assert {"█", "░"} == set(lines[place + 1].strip())
    assert 2 == lines[place + 2].count("▲")
    assert "status  normal: no message has lost detail" in lines


def test_without_steps_there_are_no_marks(imported: str, weather: str) -> None:
    """Trigger and target mean nothing where every request is trimmed."""
    arguments = ("--max-tokens", "400", "--no-steps", "--explain")

    assert "▲" not in run("context", weather, *arguments, url=imported).out


def test_without_a_budget_there_is_no_bar(imported: str, weather: str) -> None:
    """It is said how to give one."""
    shown = run("context", weather, "--explain", "--model", "house", url=imported).out

    assert "budget  none: give one with --max-tokens" in shown
    assert "everything is included, in full" in shown


def test_the_ledger_names_what_was_lost(imported: str, weather: str) -> None:
    """First words, what became of it, tokens before and after, why, and its events."""
    arguments = ("--max-tokens", "80", "--no-steps", "--explain", "--strategy", "window")
    lines = run("context", weather, *arguments, url=imported).out.splitlines()
    place = next(n for n, line in enumerate(lines) if "assistant  → weather(place='Oslo')" in line)

    assert "4-6" == lines[place].split()[0]
    assert lines[place].rstrip().endswith("→ 0")
    assert "dropped" in lines[place]
    assert "outside the window" in lines[place + 1]


def test_first_words_stand_in_their_own_rows(imported: str, weather: str) -> None:
    """Also below the row of what is older, which has no words; once that row took the first."""
    arguments = ("--mode", "chat", "--max-messages", "6", "--no-steps", "--explain")
    done = run("context", weather, *arguments, url=imported, environment={"COLUMNS": "160"})
    lines = done.out.splitlines()
    texts = system_texts(run("context", weather, *arguments[:-1], "--json", url=imported))

    assert any("everything older" in line for line in lines)
    for said, reason in ((texts[0], "base rules"), ("MODE - active: chat", "mode banner")):
        [place] = [n for n, line in enumerate(lines) if f"mandatory: {reason}" in line]
        assert said.split("\n")[0][:30] in lines[place - 1], done.out


def test_the_tokens_of_the_ledger_add_up(imported: str, weather: str) -> None:
    """The last row has what is not a message."""
    lines = run("context", weather, "--explain", url=imported).out.splitlines()
    total = run("context", weather, "--json", url=imported).document["tokens"]["tokens"]
    kept = [int(line.split()[-1]) for line in lines if "  full  " in line]
    [rest] = [int(line.split()[-1]) for line in lines if "request overhead" in line]

    assert total == sum(kept) + rest


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--max-tokens", "5"), "system part (version 2): "),
        (("--max-messages", "1"), "max_messages=1"),
        (("--max-tokens", "50", "--reserve", "50"), "leaves nothing of max_tokens"),
        (("--strategy", "nonsense"), "unknown strategy 'nonsense': choose from hybrid, key"),
        (("--at", "999"), "has no version 999"),
        (("--of", "2"), "has no llm_request at version 2"),
        (("--of", "2", "--max-tokens", "5"), "cannot be used with --max-tokens"),
        (("--run", "r", "--no-run"), "--run and --no-run contradict each other"),
        (("--settings", "settings.json"), "unknown setting 'max_token': did you mean"),
        (("--settings", "list.json"), "list.json contains no settings"),
        (("--settings", "broken.toml"), "broken.toml is not TOML"),
        (("--tools", "settings.json"), "settings.json contains no tool declarations"),
        (("--tools", "broken.json"), "broken.json is not JSON"),
        (("--prompts", "latin", "--mode", "chat"), "is not UTF-8"),
    ],
)
def test_errors_are_one_line(
    imported: str,
    weather: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    """What is wrong is wrong use, and the line names it."""
    written(tmp_path / "settings.json", {"max_token": 5})
    written(tmp_path / "list.json", [])
    written(tmp_path / "broken.json", "{")
    written(tmp_path / "broken.toml", "= 5")
    (tmp_path / "latin").mkdir()
    (tmp_path / "latin" / "system-base-rules-chat.md").write_bytes(b"\xe9")
    monkeypatch.chdir(tmp_path)

    assert said in failed(run("context", weather, *arguments, url=imported))
