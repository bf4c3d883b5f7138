"""The backend of a store on distributed PostgreSQL: see `eventstore.sql.distributed`.

Statements name one conversation, so that each runs on one server. Settings travel to the servers
only as ``SET LOCAL``, one to a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from json import loads
from types import MappingProxyType
from typing import Any
from uuid import UUID

from eventstore.sql.backend import (
    AnyConnection,
    Bound,
    Columns,
    Nodes,
    Pooled,
    Rows,
    TransactionOptions,
    fetch,
    run_each,
)
from eventstore.sql.distributed import ONE_CONNECTION
from eventstore.sql.postgresql import OnPostgresql, _Postgresql, settings
from eventstore.sql.steps import AppendStep

__all__ = ["CITUS"]

_MOST_ROWS = 500
"""Of a statement: PostgreSQL has a limit of 65,535 parameters."""

_TRAVELS = "SET LOCAL citus.propagate_set_commands = 'local'"
"""Statements that set something are sent to the servers too, one to a message."""

_TAKE = "SELECT 1 FROM conversations WHERE conversation_id = %s FOR UPDATE SKIP LOCKED"
_IS_THERE = "SELECT 1 FROM conversations WHERE conversation_id = %s"
_PIN = "SELECT eventstore_pin('conversations', %s)"
_MOVE = """
    UPDATE conversations SET version = %s, chain = %s, last_active_at = %s
    WHERE conversation_id = %s AND version = %s AND chain = %s AND writer_epoch = %s
    RETURNING 1
    """
_EVENT = {
    "conversation_id": "uuid",
    "version": "bigint",
    "event_id": "uuid",
    "type": "text",
    "schema_version": "int",
    "recorded_at": "timestamptz",
    "data": "json",
    "meta": "json",
    "salt": "bytea",
    "data_digest": "bytea",
    "chain": "bytea",
    # The shard's own trigger sets these two.
    "epoch": "int",
    "tx_id": "xid8",
}


_BORDERS = """
    SELECT success, result FROM run_command_on_all_nodes(format(
        $$SELECT %%I.eventstore_epoch() || ' ' || pg_snapshot_xmin(pg_current_snapshot())$$,
        (SELECT nspname FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace
        WHERE pg_class.oid = 'conversations'::regclass)))
    """
_HOLDERS = f"""
    SELECT result FROM run_command_on_all_nodes($$
        SELECT json_agg(json_build_array(pid, name, owner, database, state, began, prepared))::text
        FROM ({_Postgresql.feed.holder}) AS h (pid, name, owner, database, state, began, prepared)
    $$) WHERE success
    """  # noqa: S608 - constants
_SESSION = re.compile(r"citus_internal gpid=(\d+)")
_PROCESSES = 10**10
_SESSION_OF = """
    SELECT pid, application_name, usename, datname, state, xact_start, NULL
    FROM pg_stat_activity WHERE pid = %s
    """
_INACTIVE = "SELECT count(*) FROM pg_dist_node WHERE noderole = 'primary' AND NOT isactive"
_MEMBERS = "SELECT array_agg((nodeid, isactive) ORDER BY nodeid)::text FROM pg_dist_node"


class _Nodes:
    """Citus's nodes, asked through the coordinator."""

    def __init__(self, connection: AnyConnection) -> None:
        self._connection = connection

    def members(self) -> Any:
        return fetch(self._connection, _MEMBERS)

    def borders(self) -> list[tuple[int, int] | None]:
        answers = fetch(self._connection, _BORDERS)
        [(inactive,)] = fetch(self._connection, _INACTIVE)
        found: list[tuple[int, int] | None] = [None] * inactive
        for succeeded, answer in answers:
            if succeeded:
                epoch, transaction = answer.split()
                found.append((int(epoch), int(transaction)))
            else:
                found.append(None)
        return found

    def holders(self) -> list[tuple[Any, ...]]:
        found = []
        for (answer,) in fetch(self._connection, _HOLDERS):
            for *session, began, prepared in loads(answer) if answer else ():
                row = (*session, datetime.fromisoformat(began), prepared)
                # A server knows the coordinator's session by a number that ends with its process.
                behind = _SESSION.match(session[1] or "")
                pid = int(behind[1]) % _PROCESSES if behind else None
                found += fetch(self._connection, _SESSION_OF, [pid]) or [row]
        return found

    def select(self, statement: str, values: Sequence[Any]) -> list[Any]:
        return fetch(self._connection, statement, values)


@dataclass(frozen=True, slots=True)
class _Pages(Bound):
    """Several statements in place of one."""

    pages: Sequence[Bound]

    def run(self, connection: AnyConnection) -> int:
        """Run them in the caller's transaction; return how many rows they changed."""
        return sum(each.run(connection) for each in self.pages)


class _Citus(_Postgresql):
    is_distributed = True
    has_partitions = False
    feed = replace(
        _Postgresql.feed, new_place=MappingProxyType({"epoch": "0", "tx_id": "'0'::xid8"})
    )
    lock_schema = (*ONE_CONNECTION, *_Postgresql.lock_schema)

    def first(self, at_hand: Pooled, options: TransactionOptions) -> Sequence[str]:
        write, patience_ms = options.get("write", False), options.get("patience_ms")
        durable = options.get("durable", True) or not write
        brief = settings(brief=write and durable)
        if not write and patience_ms is None:
            return brief
        return (*brief, *self._travelling(durable, patience_ms, at_hand.patience_ms))

    def settings(self, *, durable: bool, patience_ms: int | None, usual_ms: int) -> Sequence[str]:
        return self._travelling(durable, patience_ms, usual_ms)

    def set_local(self, values: Mapping[str, str]) -> Sequence[str]:
        return (_TRAVELS, *(f"SET LOCAL {name} = {value}" for name, value in values.items()))

    def _travelling(self, durable: bool, patience_ms: int | None, usual_ms: int) -> Sequence[str]:
        values = {"lock_timeout": str(usual_ms if patience_ms is None else patience_ms)}
        return self.set_local(values if durable else {**values, "synchronous_commit": "off"})

    def nodes(self, connection: AnyConnection) -> Nodes:
        return _Nodes(connection)

    def statement(self, at_hand: Pooled, *, patience_ms: int | None = None) -> OnPostgresql:
        # `advance` takes several.
        return self.transaction(at_hand, write=True, pipelined=True)

    def advance(self, cur: Any, steps: Sequence[AppendStep], *, wait: bool = True) -> None:
        for step in steps:
            step.positions = None
            if (wait and len(steps) == 1) or _rows(cur, _TAKE, [step.head.stream]):
                _advance(cur, step)

    def pin(self, connection: AnyConnection, conversation_id: UUID) -> None:
        run_each(connection, _PIN, [[conversation_id]])

    def is_locked(self, cur: Any, conversation_id: UUID) -> bool:
        if _rows(cur, _TAKE, [conversation_id]):
            return False
        return bool(_rows(cur, _IS_THERE, [conversation_id]))

    def insert(
        self, table: str, columns: Columns, rows: Rows, *, otherwise: str = "DO NOTHING"
    ) -> Bound:
        return _Pages(
            "",
            (),
            [
                _page(table, columns, rows[start : start + _MOST_ROWS], otherwise)
                for start in range(0, len(rows), _MOST_ROWS)
            ],
        )


CITUS = _Citus()


def _rows(cur: Any, statement: str, values: Sequence[Any]) -> list[Any]:
    cur.execute(statement, values)
    found: list[Any] = cur.fetchall()
    return found


def _advance(cur: Any, step: AppendStep) -> None:
    known, head = step.known, step.head
    values = [head.version, head.chain, step.now, head.stream]
    if not _rows(cur, _MOVE, [*values, known.version, known.chain, known.epoch]):
        return
    rows = [
        (
            head.stream,
            version,
            event.id_text,
            event.data.type,
            event.data.schema_version,
            step.now,
            event.text,
            event.meta_text,
            event.salt,
            event.digest,
            chain,
            0,
            "0",
        )
        for version, (event, chain) in enumerate(
            zip(step.events, step.chains, strict=True), start=known.version + 1
        )
    ]
    positions: dict[int, int] = {}
    for start in range(0, len(rows), _MOST_ROWS):
        some = rows[start : start + _MOST_ROWS]
        insert = f"{_insert('events', _EVENT, len(some))} RETURNING version, position"
        positions.update(_rows(cur, insert, [value for row in some for value in row]))
    step.positions = [positions[version] for version in sorted(positions)]


def _insert(table: str, columns: Columns, count: int) -> str:
    row = ", ".join(f"%s::{kind}" for kind in columns.values())
    values = ", ".join([f"({row})"] * count)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {values}"  # noqa: S608 - names


def _page(table: str, columns: Columns, rows: Rows, otherwise: str) -> Bound:
    values = [
        _hexadecimal(kind, value)
        for row in rows
        for kind, value in zip(columns.values(), row, strict=True)
    ]
    return Bound(f"{_insert(table, columns, len(rows))} ON CONFLICT {otherwise}", [values])


def _hexadecimal(kind: str, value: Any) -> Any:
    return value.hex() if kind == "uuid" and isinstance(value, bytes) else value
