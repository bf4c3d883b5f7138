"""``docs/streaming.md`` can be believed: its program serves, and records what it streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from agent_eventstore import EventStore, Views
from tests.docs.document import ROOT, blocks
from tests.integration.replay_server import ReplayServer, Spoken

PAGE = ROOT / "docs" / "streaming.md"
SUNNY = "It is 18 degrees and sunny."


def test_its_program_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two messages to one chat: the second request has the first exchange, from the log."""
    [program] = blocks(PAGE, "python")
    names: dict[str, Any] = {"__name__": "chat"}
    with ReplayServer() as server:
        server.will(Spoken(SUNNY), Spoken(SUNNY))
        monkeypatch.setenv("STORE", f"sqlite:///{tmp_path}/chat.db")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        exec(compile(program, str(PAGE), "exec"), names)  # noqa: S102 - our own page
        with TestClient(names["app"]) as client:
            for text in ("How is the weather?", "And tomorrow?"):
                assert SUNNY == client.post("/chats/1", json={"text": text}).text
    with EventStore.open(f"sqlite:///{tmp_path}/chat.db") as store:
        items = Views(store).timeline("chat 1")
    talk = [item.text for item in items if item.kind in ("user", "assistant")]
    assert ["How is the weather?", SUNNY, "And tomorrow?", SUNNY] == talk


def test_it_is_short() -> None:
    """A page to be read at once."""
    assert len(PAGE.read_text("utf-8").splitlines()) <= 70
