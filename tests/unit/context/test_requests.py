"""What a request's event holds is enough to build its messages again, or it is said why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore.events import LlmRequest, UserMessage
from projections.context import ContextSettings
from projections.context.prompts import Injection
from projections.context.sent_requests import RecordedRequest, recorded_request
from projections.errors import RequestNotReproducible
from tests.unit.context.log import Log

CID = UUID(int=1)


@pytest.fixture
def store(sqlite_url: str) -> Any:
    """Give a store on an empty file."""
    with EventStore.open(sqlite_url) as store:
        yield store


def recorded(store: EventStore, *policies: dict[str, Any], **fields: Any) -> RecordedRequest:
    """Record requests with these policies, and return what is read back of the last."""
    cid = new_id()
    store.append(cid, [LlmRequest(llm_call_id="x", policy=each, **fields) for each in policies])
    return recorded_request(store, cid, len(policies))


def test_what_is_not_recorded_is_the_default(store: EventStore) -> None:
    """A policy holds what differs; the messages were read at the version before."""
    request = recorded(store, {"name": "hybrid"})
    expected = {
        "model": "gpt-4o",
        "max_tokens": None,
        "max_messages": None,
        "format": "openai_chat",
        "provider": None,
        "paths": True,
        "tools": (),
        "settings": ContextSettings(),
    }
    assert expected == request.options
    assert (0, (), False) == (request.at, request.system, request.run)


def test_what_is_recorded_is_read_back(store: EventStore) -> None:
    """Limits, settings, tools, the run, and the version that the messages were read at."""
    policy = {
        "name": "hybrid",
        "model": "gpt-4",
        "max_tokens": 9,
        "settings": {"steps": False},
        "at": 0,
        "run": "r1",
    }
    request = recorded(store, {"name": "hybrid"}, policy, tools=({"type": "function"},))
    options = request.options
    assert ("gpt-4", 9, ({"type": "function"},)) == tuple(
        options[name] for name in ("model", "max_tokens", "tools")
    )
    assert ContextSettings(steps=False, strategy="hybrid") == options["settings"]
    assert (0, "r1") == (request.at, request.run)


def test_the_system_part_may_stand_in_an_earlier_request(store: EventStore) -> None:
    """So that it is in the log once."""
    request = recorded(
        store,
        {"name": "hybrid", "system": [["base rules", "Be brief."]]},
        {"name": "hybrid", "system_of": 1},
    )
    assert (Injection("base rules", "Be brief."),) == request.system


def test_a_request_of_somebody_else_is_refused(store: EventStore) -> None:
    """Nothing tells how its messages were chosen."""
    with pytest.raises(RequestNotReproducible, match="not chosen by this project"):
        recorded(store, {"source": "elsewhere"})


def test_settings_of_another_version_are_refused(store: EventStore) -> None:
    """A setting that this version does not have makes the request not reproducible."""
    with pytest.raises(RequestNotReproducible, match="invalid settings: unknown setting 'gone'"):
        recorded(store, {"name": "hybrid", "settings": {"gone": 1}})


def test_other_bytes_are_refused() -> None:
    """The digest decides, and the error names the request."""
    view = Log([UserMessage.text("task")]).view()
    request = RecordedRequest(CID, 2, 1, view.digest)
    assert view is request.checked(view)
    with pytest.raises(RequestNotReproducible) as refusal:
        replace(request, digest="0" * 64).checked(view)
    assert (CID, 2) == (refusal.value.conversation_id, refusal.value.version)
