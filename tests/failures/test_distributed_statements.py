"""What is sent to a distributed PostgreSQL: to one shard of each table, and nothing Citus refuses.

On the shim, which is one server; what Citus says itself is in `test_distributed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from agent_eventstore import Conversation
from eventstore import EventStore, new_id
from eventstore.events import ToolResult
from projections import Views
from projections.upkeep import compare, rebuild
from projections.worker import run as work
from tests.contract.facade import say
from tests.failures.test_partitions import LARGE, OPERATIONS
from tests.postgres import fresh_database
from tests.shim import distribute_on_shim
from tests.touched import touched_parts

_ONE_SHARD = ("append", "append some", "read", "blob", "timeline", "context")


def _said(store: EventStore) -> None:
    for user in ("ada", "bob", "cleo"):
        events: list[Any] = [*say("hello", "more"), ToolResult(call_id="1.0", content=LARGE)]
        store.append(f"{user}'s", events, user_id=user)
    work(store, once=True)


@pytest.fixture
def plain_url(postgres_server_url: str, installed_database: str) -> Iterator[str]:
    """URL of a store on one server."""
    with fresh_database(postgres_server_url, template=installed_database) as url:
        yield url


@pytest.fixture
def shim_url(plain_url: str) -> str:
    """URL of a store with three conversations in four shards of each table."""
    with EventStore.open(plain_url) as store:
        distribute_on_shim(store, 4)
        _said(store)
    return plain_url


@pytest.mark.parametrize("name", _ONE_SHARD)
def test_an_operation_is_sent_to_one_shard_of_each_table(shim_url: str, name: str) -> None:
    """The server's own count of scans and inserted rows says so."""
    touched = _touched(shim_url, OPERATIONS[name])
    assert touched.keys() & {"events", "conversations", "blobs"}
    assert dict.fromkeys(touched, 1) == {table: len(shards) for table, shards in touched.items()}


def test_a_list_asks_every_shard(shim_url: str) -> None:
    """And the count sees it."""
    assert 4 == len(_touched(shim_url, lambda store, _: store.list())["conversations"])


def _touched(url: str, operation: Callable[[EventStore, UUID], object]) -> dict[str, set[str]]:
    touched: dict[str, set[str]] = {}
    for shard in touched_parts(url, "_[0-9]{6}$", operation):
        touched.setdefault(shard[:-7], set()).add(shard)
    return touched


def _refused(statement: str) -> str | None:
    """Return why Citus would refuse a statement, or not do what it says, if so."""
    text = re.sub(r"\s+", " ", statement)
    if re.search(
        r"set_config\('(lock_timeout|synchronous_commit|eventstore\.[a-z_]+)', [^)]*, true\)", text
    ):
        return "a setting that stays on the coordinator"
    if text.startswith("SET LOCAL") and ";" in text:
        return "two settings in one message"
    locks = re.search(r" FOR (UPDATE|SHARE)\b", text)
    if locks and (" JOIN " in text or not re.search(r"conversation_id (=|IN \(%\(\w+\)s\))", text)):
        return "rows of several shards are locked"
    if text.lstrip().startswith(("INSERT", "WITH")) and "unnest(" in text and "INSERT" in text:
        return "rows that come from a function"
    returned = re.search(r"INSERT .* RETURNING (.*)$", text)
    if returned and "(" in returned[1]:
        return "a function of what was inserted"
    return None


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the statements that are sent by this process from now on."""
    found: list[str] = []
    execute, many = psycopg.Cursor.execute, psycopg.Cursor.executemany

    def text_of(query: Any) -> str:
        if isinstance(query, sql.Composable):
            return query.as_string(None)
        return query.decode() if isinstance(query, bytes) else str(query)

    def traced(self: Any, query: Any, *values: Any, **options: Any) -> Any:
        found.append(text_of(query))
        return execute(self, query, *values, **options)

    def traced_many(self: Any, query: Any, *values: Any, **options: Any) -> Any:
        found.append(text_of(query))
        return many(self, query, *values, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", traced)
    monkeypatch.setattr(psycopg.Cursor, "executemany", traced_many)
    return found


def _day(url: str) -> None:
    """Do about everything that a product does, and its upkeep."""
    with EventStore.open(url) as store:
        found = store.find(key="ada's")
        assert found is not None
        cid = found.conversation_id
        for operation in OPERATIONS.values():
            if operation is not OPERATIONS["purge"]:
                operation(store, cid)
        with Conversation.fork(store, cid) as fork, fork.turn("again") as turn:
            turn.context()
        views = Views(store)
        views.conversations()
        views.search("hello")
        views.usage()
        work(store, once=True)
        rebuild(store)
        assert compare(store).ok
        assert store.verify().ok
        assert [*store.read_all()]
        store.raise_writer_epoch(cid)
        store.purge("bob's", reason="asked for")
        store.append(new_id(), say(*map(str, range(600))))


def test_nothing_is_sent_that_citus_refuses(shim_url: str, sent: list[str]) -> None:
    """Neither a setting that does not travel, nor a lock or an insert over several shards."""
    _day(shim_url)
    assert 500 < len(sent)
    assert any("FOR UPDATE" in each for each in sent)
    assert [] == [(why, each) for each in sent if (why := _refused(each)) is not None]


def test_the_check_sees_what_is_sent_to_one_server(plain_url: str, sent: list[str]) -> None:
    """There it is allowed, and saves round trips."""
    with EventStore.open(plain_url) as store:
        _said(store)
    _day(plain_url)
    assert "rows that come from a function" in {_refused(each) for each in sent}


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT set_config('lock_timeout', '300', true)",
        "SELECT set_config('eventstore.user_id', '+ada', true)",
        "SET LOCAL eventstore.tenant_id = '-'; SET LOCAL eventstore.user_id = '-'",
        "SELECT 1 FROM conversations WHERE conversation_id IN (%(a)s, %(b)s) FOR UPDATE",
        "SELECT 1 FROM conversations JOIN given USING (conversation_id) FOR UPDATE SKIP LOCKED",
        "INSERT INTO events (epoch) VALUES (1) RETURNING position, pg_current_xact_id()",
    ],
)
def test_the_check_sees_each(statement: str) -> None:
    """Each kind of what is refused."""
    assert _refused(statement) is not None
