"""Passwords in URLs: whatever they hold and wherever they stand, no part of one is shown."""

from __future__ import annotations

import logging
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import StatementError

from eventstore import EventStore
from eventstore.errors import StoreUnavailable
from eventstore.sql.engines import open_engine
from eventstore.sql.transactions import Transactions
from eventstore.telemetry.log import masked
from eventstore.telemetry.operations import database
from tests.cli.program import run

FIRST, LAST = "hunter2", "tr0ub4dor"
"""What is searched for: a password is made of both, so that it cannot be printed in halves."""

PASSWORDS = [f"{FIRST}{between}{LAST}" for between in ("", *"@/#%:?&;= '\"\\[]", "@/", "?a=@")]
PLACES = [
    "postgresql://ada:{}@127.0.0.1:1/shop",
    "postgresql+psycopg://ada:{}@127.0.0.1:1/shop?sslmode=disable",
    "postgres://ada:{}@127.0.0.1:1/shop",
    "postgresql+asyncpg://ada:{}@127.0.0.1:1/shop",
    "postgresql://ada:{}",
    "postgresql://ada:{}/shop",
    "postgresql://127.0.0.1:1/shop?password={}",
    "postgresql://127.0.0.1:1/shop?user=ada&sslpassword={}",
    "postgresql://127.0.0.1:1/shop?pasword={}",
    "postgresql://ada:{}@127.0.0.1:1/shop?nonsense=1",
    "postgresql://ada:{}@127.0.0.1:port/shop",
    "mysql://ada:{}@127.0.0.1/shop",
    "postgresql:/ada:{}@127.0.0.1/shop",
    "ada:{}@127.0.0.1/shop",
    "sqlite://ada:{}@127.0.0.1/shop",
]
URLS = [
    place.format(password)
    for place in PLACES
    for password in PASSWORDS
    # Else it is a whole URL: of this user, with the first half as password, at the host behind it.
    if "@" in place or "@" not in password or "?" in place
]


def hidden(text: str) -> bool:
    """Whether neither half of the password is in a text."""
    return FIRST not in text and LAST not in text


@pytest.mark.parametrize("url", URLS)
def test_error(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """No error, of whatever cause, and no line of a log shows a part of the password."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(StoreUnavailable) as caught:
        EventStore.open(url)
    error = caught.value
    assert hidden(f"{error!s} {error!r} {error.url} {error.details} {caplog.text}")


@pytest.mark.parametrize("url", [each for each in URLS if f"{FIRST}@{LAST}" in each])
@pytest.mark.parametrize("command", ["list", "doctor", "projections", "db", "demo"])
def test_command_line(url: str, command: str) -> None:
    """Nor does a command, in one line or with all logs."""
    rest = {"projections": ("status",), "db": ("current",)}.get(command, ())
    done = run("--verbose", "--db", url, command, *rest)
    assert hidden(f"{done.out} {done.err}")
    assert done.status in (1, 2)


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("option", ["password", "sslpassword"])
def test_engine_and_store(password: str, option: str) -> None:
    """What is opened shows itself without its passwords, and hands them to the driver whole."""
    written = quote(password, safe="")
    url = f"postgresql://ada:{written}@h/shop?{option}={written}"
    engine = open_engine(url)
    shown = f"{engine!r} {engine.url!r} {Transactions(engine).url} {database(engine.url)}"
    assert hidden(shown)
    assert f"{option}=***" in shown
    assert password == engine.url.password == engine.url.query[option]
    # A process of its own is given the whole of it.
    assert make_url(engine.url.render_as_string(hide_password=False)) == make_url(url).set(
        drivername="postgresql+psycopg"
    )


def test_engine_of_a_product() -> None:
    """An engine that the product made shows no password through the store either."""
    engine = create_engine("postgresql+psycopg://h/shop?password=hunter2")
    assert hidden(Transactions(engine).url)


@given(password=st.text(st.characters(codec="utf-8"), max_size=12), place=st.sampled_from(PLACES))
def test_any_password(password: str, place: str) -> None:
    """Whatever stands around it, what is masked holds no half of a password."""
    assert hidden(masked(place.format(f"{FIRST}{password}{LAST}")))


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////tmp/a:b@c.db",
        "sqlite:///file:x.db?mode=ro&uri=true",
        "postgresql+psycopg://ada@[::1]:5432/shop?sslmode=require&options=-c+x%3D1",
        "postgresql://localhost:5432/shop",
        "postgresql://localhost:5432",
        "agent.db",
        "C:/agent.db",
        "",
    ],
)
def test_without_a_password(url: str) -> None:
    """A URL that holds none is shown as it is."""
    assert url == masked(url)


def test_statement_errors_hide_what_was_to_be_written(database_url: str) -> None:
    """An error of SQLAlchemy quotes the statement, and not its parameters."""
    with EventStore.open(database_url) as store, store.reading() as connection:
        with pytest.raises(StatementError) as caught:
            connection.exec_driver_sql(
                f"SELECT {'?' if connection.dialect.name == 'sqlite' else '%s'} FROM nowhere",
                (FIRST,),
            )
        assert hidden(str(caught.value))
