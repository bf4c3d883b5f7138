"""Databases of PostgreSQL that keep some characters and not others."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from sqlalchemy import make_url

from agent_eventstore import Conversation
from agent_eventstore.cli.program import FOUND, WRONG_USE
from eventstore import EventStore
from eventstore.errors import InvalidUrl
from eventstore.sql import migrate
from projections import Views
from projections.upkeep import compare
from tests.cli.program import run
from tests.contract.plain import PlainClient
from tests.feed_wait import wait_for_feed

WORDS = "grün, 日本語 😀, nul \0 and lone \ud800"


@pytest.fixture
def url(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[str]:
    """URL of a database in the encoding that the test asks for."""
    name = f"test_{uuid4().hex}"
    with PlainClient(postgres_url) as client:
        made = f"CREATE DATABASE {name} TEMPLATE template0 LOCALE 'C' ENCODING '{request.param}'"
        client.execute(made)
        yield make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
        client.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("url", ["LATIN1", "WIN1252", "EUC_JP"], indirect=True)
def test_a_database_without_all_characters_is_refused(url: str) -> None:
    """It was taken, and the first emoji of a model was refused in the midst of a conversation."""
    with pytest.raises(InvalidUrl, match="ENCODING 'UTF8'"):
        EventStore.open(url)
    done = run("db", "upgrade", url=url)

    assert (WRONG_USE, 1) == (done.status, done.err.count("\n"))
    with PlainClient(url) as client:
        assert [] == client.execute("SELECT relname FROM pg_class WHERE relname = 'events'")


@pytest.mark.parametrize("url", ["LATIN1"], indirect=True)
def test_one_that_an_earlier_release_took(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is opened as before, and the doctor says what is wrong with it."""
    with monkeypatch.context() as earlier:
        earlier.setattr(migrate, "ENCODINGS", {"LATIN1"})
        EventStore.open(url).close()

    with EventStore.open(url) as store, Conversation.start(store, title="grün"):
        pass
    done = run("doctor", "--json", url=url)

    [server] = [each for each in done.document["checks"] if each["name"] == "server"]
    assert (FOUND, "problem") == (done.status, server["status"])
    assert "LATIN1" in server["found"]


@pytest.mark.parametrize("url", ["SQL_ASCII", "UTF8"], indirect=True)
def test_one_with_all_characters(url: str) -> None:
    """SQL_ASCII keeps bytes as they come, which are those of UTF-8."""
    with EventStore.open(url) as store:
        with Conversation.start(store, title=WORDS) as conversation:
            with conversation.turn(WORDS):
                pass
        views = Views(store)
        assert WORDS in [item.text for item in views.timeline(conversation.id)]
        assert WORDS in [each.title for each in views.conversations()]
        assert views.search("日本語")
        assert store.verify().ok
        assert compare(wait_for_feed(store)).ok
    assert 0 == run("doctor", url=url).status
