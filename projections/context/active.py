"""What a request takes from its conversation unless it is told otherwise: mode and tool policy.

Kept in the table ``context_active``, one row for each conversation that has either of them, beside
the rows of its messages, so that both are read in one snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast, get_args
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import Table

from eventstore.errors import RowDamaged
from eventstore.events import ConversationStart, RecordedEvent, ToolPolicy
from eventstore.events.values import Mode
from eventstore.sql.dialect import AnyConnection, Statement, cursor, dialect_of, text_out
from eventstore.sql.types import json_out
from projections.base import Change, Column, Put, ReadTable, State
from projections.folding import mode_marks

__all__ = ["CONTEXT_ACTIVE", "Active", "AskedMode", "changed", "initial", "read_active"]

AskedMode = Mode | Literal["active"] | None
"""The mode that a request asks for: ``active`` for its conversation's own, None for none."""

CONTEXT_ACTIVE = ReadTable(
    name="context_active",
    key=(),
    columns=(Column("mode", "text"), Column("tool_policy", "json")),
)


@dataclass(frozen=True, slots=True)
class Active:
    """The mode that a conversation is in, and which tools it may use; None where it never said."""

    mode: Mode | None = None
    tool_policy: ToolPolicy | None = None


def initial() -> State:
    """Return what the fold remembers of them before the first event."""
    return {"mode": None, "switched": False}


def changed(state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
    """Return the state after an event, and the change of the row; most events bring none."""
    values: dict[str, Any] = {}
    if marks := mode_marks(state, event):
        state = {**state, **marks}
        values["mode"] = marks["mode"]
    data = event.data
    if isinstance(data, ConversationStart) and data.tool_policy is not None:
        values["tool_policy"] = data.tool_policy.model_dump(mode="json", exclude_defaults=True)
    return state, [Put(CONTEXT_ACTIVE.name, (), values)] if values else []


def read_active(connection: AnyConnection, table: Table, conversation_id: UUID) -> Active:
    """Return what stands for a conversation in a generation's ``context_active``.

    Raises:
        RowDamaged: Its row was altered.
    """
    dialect, run = dialect_of(connection), cursor(connection)
    run.execute(_query(table).on(dialect), {"conversation_id": dialect.from_id(conversation_id)})
    row = run.fetchone()
    run.close()
    if row is None:
        return Active()
    policy = None if row[1] is None else _policy(row[1])
    mode = None if row[0] is None else text_out(row[0])
    if mode not in (None, *get_args(Mode)):
        raise RowDamaged("no mode")
    return Active(cast(Mode | None, mode), policy)


def _policy(text: str) -> ToolPolicy:
    try:
        return ToolPolicy.model_validate(json_out(text))
    except ValidationError as error:
        raise RowDamaged("no tool policy") from error


@lru_cache(maxsize=64)
def _query(table: Table) -> Statement:
    # As text, which keeps PostgreSQL's driver from parsing what json_out does.
    return Statement(
        *(
            f"SELECT mode, {policy} FROM {table.name} WHERE conversation_id = :conversation_id"  # noqa: S608 - names of the table
            for policy in ("tool_policy", "tool_policy::text")
        )
    )
