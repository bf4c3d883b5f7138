"""Why an event was in a request or not, in one line."""

from __future__ import annotations

import pytest

from eventstore import EventStore, new_id
from eventstore import events as e
from projections import Views
from projections.context import ContextSettings
from tests.cli.program import run
from tests.projections.test_context_of import send


def test_each_event_is_accounted_for(tmp_path: object) -> None:
    """Sent, shortened, left out, too old, or no message at all."""
    url = f"sqlite:///{tmp_path}/why.db"
    store, cid = EventStore.open(url), new_id()
    talk = [e.UserMessage.text("Is it so?"), e.AssistantMessage.of("It is so. Nobody minds. " * 30)]
    store.append(cid, [e.UserMessage.text("Begin."), *talk * 150, e.UserMessage.text("End.")])
    views = Views(store)
    sent, version = send(store, views, cid, mode=None, settings=ContextSettings(max_tokens=2_000))
    by_level = {entry.level: entry for entry in sent.ledger if entry.version}

    assert views.why(cid, version, 1).startswith("version 1: sent: full, 6 of 6 tokens (user)")
    assert "mandatory: first user message" in views.why(cid, version, 1)
    assert "sent: shortened" in views.why(cid, version, by_level["shortened"].version or 0)
    assert "not sent: older than" in views.why(cid, version, 2)
    assert "no message" in views.why(cid, version, version)
    told = run("context", str(cid), "--of", str(version), "--about", "1", "--db", url)
    assert told.out.startswith("version 1: sent: full")


def test_a_request_that_is_none_is_refused(store: EventStore) -> None:
    """As by `context_of`."""
    cid = new_id()
    store.append(cid, [e.UserMessage.text("Begin.")])
    with pytest.raises(ValueError, match="version 1"):
        Views(store).why(cid, 1, 1)
