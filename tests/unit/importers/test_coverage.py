"""A file that a reader understands only in part is refused before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.transcripts import coverage
from tests.cli.program import run
from tests.unit.importers.reading import found, only

Write = Callable[..., Path]

ASKED, ANSWERED, RESULT = "Where is my parcel now?", "It is on its way.", "left the depot at noon"


def of_droid() -> list[Any]:
    """Return a session of Factory Droid, whose lines resemble those of others."""

    def line(number: int, role: str, *content: Any) -> dict[str, Any]:
        message = {"role": role, "content": list(content)}
        return {"type": "message", "id": f"m{number}", "message": message, "parentId": None}

    return [
        {"type": "session_start", "id": "s1", "title": "parcels"},
        line(1, "user", {"type": "text", "text": ASKED}),
        line(2, "assistant", {"type": "tool_use", "id": "t1", "name": "look", "input": {}}),
        line(3, "user", {"type": "tool_result", "tool_use_id": "t1", "content": RESULT}),
        line(4, "assistant", {"type": "text", "text": ANSWERED}),
    ]


def of_librechat() -> dict[str, Any]:
    """Return an export of LibreChat: a tree, of which a list of messages has the root alone."""
    answer = {"messageId": "2", "sender": "GPT", "isCreatedByUser": False, "text": ANSWERED}
    root = {"messageId": "1", "sender": "User", "isCreatedByUser": True, "text": ASKED}
    return {"conversationId": "c", "messages": [{**root, "children": [answer]}]}


def of_zed() -> dict[str, Any]:
    """Return a thread of Zed, whose messages are named by their authors."""
    user, agent = {"content": [{"Text": ASKED}]}, {"content": [{"Text": ANSWERED}]}
    return {"title": "parcels", "messages": [{"User": user}, {"Agent": agent}]}


def of_semantic_kernel() -> list[Any]:
    """Return a chat history of Semantic Kernel."""
    texts = (("user", ASKED), ("assistant", ANSWERED))
    return [
        {"Role": {"Label": role}, "Items": [{"$type": "TextContent", "Text": text}]}
        for role, text in texts
    ]


def of_amp() -> dict[str, Any]:
    """Return a thread of Amp, whose results stand where no provider has them."""
    ran = {"type": "tool_result", "toolUseID": "t1", "run": {"status": "done", "result": RESULT}}
    used = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    contents = (
        ("user", {"type": "text", "text": ASKED}),
        ("assistant", used),
        ("user", ran),
        ("assistant", {"type": "text", "text": ANSWERED}),
    )
    return {"messages": [{"role": role, "content": [each]} for role, each in contents]}


def of_kimi() -> list[Any]:
    """Return a context file of Kimi, with lines of its own among the messages."""
    return [
        {"role": "_checkpoint", "id": 0},
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": [{"type": "text", "text": ANSWERED}]},
        {"role": "_usage", "token_count": 10},
    ]


FOREIGN = {
    "droid": of_droid,
    "librechat": of_librechat,
    "zed": of_zed,
    "semantic kernel": of_semantic_kernel,
    "amp": of_amp,
    "kimi": of_kimi,
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("given", [None, "openai", "claude-code", "messages-json"])
def test_no_half_understood_file_is_imported(tmp_path: Path, name: str, given: str | None) -> None:
    """Whatever format is named: all of it is read, or nothing is, and the reason is said."""
    value = FOREIGN[name]()
    path = tmp_path / "foreign.json"
    lines = isinstance(value, list) and name != "semantic kernel"
    text = "\n".join(map(json.dumps, value)) if lines else json.dumps(value)
    path.write_text(text, "utf-8")
    database = f"sqlite:///{tmp_path}/store.db"
    named = [] if given is None else ["--format", given]
    done = run("import", *named, str(path), url=database)
    listed = run("list", "--json", url=database)

    if done.status == 0:
        [made] = listed.document
        written = run("export", "--format", "openai", made["conversation_id"], url=database).out
        assert ASKED in written
        assert ANSWERED in written
    else:
        assert done.status == 1
        assert done.err
        assert listed.document == []


def test_the_counts_are_said_and_force_imports(tmp_path: Path) -> None:
    """What is understood, by author; and with --force, what the reader makes of it."""
    path = tmp_path / "amp.json"
    path.write_text(json.dumps(of_amp()), "utf-8")
    [reason] = found(path)[1]
    counts = "1 of 1 texts of users, 1 of 1 texts of models, 0 of 1 texts of tools"
    assert f"understood: {counts}" in reason
    assert "--force" in reason
    assert len(only(path, force=True).events) > 3

    dry = run("import", "--dry-run", str(path), url=f"sqlite:///{tmp_path}/none.db")
    assert dry.status == 1
    assert "0 of 1 texts of tools" in dry.out
    assert not (tmp_path / "none.db").exists()


def test_another_format_is_named_if_it_fits(tmp_path: Path) -> None:
    """A file whose format was named wrongly."""
    path = tmp_path / "chat.json"
    turns = [("user", ASKED), ("assistant", ANSWERED)]
    parts = [{"role": role, "parts": [{"type": "text", "text": text}]} for role, text in turns]
    path.write_text(json.dumps(parts), "utf-8")
    [reason] = found(path, "openai")[1]
    assert "name another format (" in reason
    assert "ui-messages" in reason


def test_what_is_understood_is_no_matter_of_whitespace(tmp_path: Path) -> None:
    """Readers may strip texts, and files may repeat them."""
    path = tmp_path / "plain.json"
    asked = {"role": "user", "content": f"  {ASKED}\n\n"}
    path.write_text(json.dumps([asked, {"role": "assistant", "content": "x"}] * 2), "utf-8")
    made = coverage(path)
    assert made is not None
    assert (made.users.texts, made.users.understood, made.is_certain) == (1, 1, True)
