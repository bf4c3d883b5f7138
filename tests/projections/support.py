"""Conversations to project, and the rows that projections should and do hold of them.

What they should hold is worked out by `expected`: the fold of every event from the first, with
each change applied at once and one by one. It shares nothing with the engine but the folds.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import event, text

from eventstore import EventStore, RecordedEvent, new_id
from eventstore import events as e
from eventstore.events import Payload
from projections import Views
from projections.catalogue import PROJECTIONS
from projections.engine import tables
from projections.engine.generations import Generation, find_live
from projections.engine.projection import Projection
from tests.connected import disconnect
from tests.unit.projections.history import apply, fold

Rows = dict[str, dict[str, dict[str, Any]]]
"""By table and by key, as text: the columns of a row."""


def turn(after: int, word: str, *, model: str = "gpt-4o", tool: str = "search") -> list[Payload]:
    """Return the events of a turn with one tool call, to be appended at version ``after``."""
    call, answer = f"call-{after}", f"answer-{after}"
    invocation = e.Invocation(provider="openai", model=model)
    usage = e.TokenUsage(prompt_tokens=10, completion_tokens=2)
    arguments = {"query": word}
    request = e.ToolCallRequest(
        name=tool, arguments_text=json.dumps(arguments), arguments=arguments, provider_id="call_1"
    )
    own_id = f"{after + 3}.0"
    return [
        e.UserMessage.text(f"find {word}"),
        e.LlmRequest(llm_call_id=call, invocation=invocation),
        e.AssistantMessage.of(None, llm_call_id=call, tool_calls=(request,), usage=usage),
        e.ToolCall(call_id=own_id, name=tool, arguments=arguments),
        e.ToolResult(call_id=own_id, name=tool, content=f"found {word}"),
        e.LlmRequest(llm_call_id=answer, invocation=invocation),
        e.AssistantMessage.of(f"here is {word}", llm_call_id=answer, usage=usage),
    ]


def converse(store: EventStore, turns: int, *, user: str | None = None, word: str = "x") -> UUID:
    """Append a conversation of that many turns, and return its id."""
    cid = new_id()
    told = [payload for n in range(turns) for payload in turn(7 * n, f"{word}{n}")]
    store.append(cid, told, user_id=user)
    return cid


def read_all_views(views: Views, cid: UUID) -> dict[str, Any]:
    """Return what each view answers about the store with this conversation in it."""
    return {
        "timeline": views.timeline(cid),
        "context": views.context(cid),
        "run_state": views.run_state(cid),
        "open_work": views.open_work(cid),
        "tasks": views.tasks(cid),
        "turns": views.rows("turns", conversation_id=cid),
        "tool_calls of one": views.tool_calls(conversation_id=cid),
        "tool_calls": views.tool_calls(limit=10_000),
        "usage of one": views.usage(conversation_id=cid, by="call"),
        **{f"usage by {by}": views.usage(by=by) for by in ("model", "turn", "user")},
        "loose conversations": views.conversations_with_open_work(),
        "conversations": views.conversations(limit=10_000),
        "search": views.search("find", limit=10_000),
    }


def live_of(store: EventStore, projection: Projection) -> Generation:
    """Return the generation that reads use."""
    with store.reading() as connection:
        found = find_live(connection, projection)
    assert found is not None
    return found


def stored(
    store: EventStore, conversation_id: UUID, projections: Sequence[Projection] = PROJECTIONS
) -> Rows:
    """Return what the live tables hold of a conversation."""
    found: Rows = {}
    for projection in projections:
        generation = live_of(store, projection)
        with store.reading() as connection:
            for declared in projection.tables:
                table = generation.tables[declared.name]
                query = tables.shown(table, connection.dialect.name)
                query = query.where(table.c.conversation_id == conversation_id)
                rows = [dict(row._mapping) for row in connection.execute(query)]
                for row in rows:
                    del row["conversation_id"]
                found[declared.name] = _by_key(declared.key, rows)
    return found


def expected(
    events: Iterable[RecordedEvent], projections: Sequence[Projection] = PROJECTIONS
) -> Rows:
    """Return what the tables of projections should hold after a conversation's events."""
    history = list(events)
    found: Rows = {}
    for projection in projections:
        folded = apply(fold(projection, history)[1], projection)
        for declared in projection.tables:
            blank = dict.fromkeys(column.name for column in declared.columns)
            rows = [blank | row for row in folded.get(declared.name, {}).values()]
            found[declared.name] = _by_key(declared.key, rows)
    return found


def _by_key(key: tuple[str, ...], rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    plain = ({name: plain_value(value) for name, value in row.items()} for row in rows)
    return {repr([row[name] for name in key]): row for row in plain}


def plain_value(value: Any) -> Any:
    """Return a value in the form that both a fold and a database can be brought to."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return json.loads(json.dumps(value))


@contextmanager
def statements(store: EventStore) -> Iterator[list[str]]:
    """Give the list of SQL statements that the store's drivers run within the block.

    They are taken down at the driver, since the hot paths pass SQLAlchemy by.
    """
    seen: list[str] = []

    class Recorder(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            seen.append(str(query).strip())
            return super().execute(query, *args, **options)

        def executemany(self, query: Any, *args: Any, **options: Any) -> None:
            seen.append(str(query).strip())
            super().executemany(query, *args, **options)

    def connected(connection: Any, _record: Any) -> None:
        if store.engine.dialect.name == "sqlite":
            connection.set_trace_callback(lambda sql: seen.append(sql.strip()))
        else:
            connection.cursor_factory = Recorder

    store.close()
    event.listen(store.engine, "connect", connected)
    try:
        yield seen
    finally:
        event.remove(store.engine, "connect", connected)
        disconnect(store)


def everything(store: EventStore) -> dict[str, list[str]]:
    """Return every row of every table of the database, as text, by table."""
    # The index keeps no text to be selected; its own tables, with all that it does keep, are there.
    sqlite = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'search_terms'"
    postgresql = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    with store.reading() as connection:
        is_sqlite = connection.dialect.name == "sqlite"
        names = connection.exec_driver_sql(sqlite if is_sqlite else postgresql).scalars().all()
        return {
            name: sorted(
                repr(tuple(row)) for row in connection.exec_driver_sql(f'SELECT * FROM "{name}"')
            )
            for name in names
        }


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """Start work in a thread, and give the list that its failure will be put into."""
    problems: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # handed to the test
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, problems


def wait_until_blocked(store: EventStore, thread: threading.Thread) -> None:
    """Return once a session of this database waits for a lock."""
    query = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND wait_event_type = 'Lock'"
    )
    while thread.is_alive():
        with store.reading() as connection:
            if connection.execute(query).scalar_one():
                return
