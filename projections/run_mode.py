"""Reading Run mode: a conversation's state, and the messages about its run in a request.

These messages are generated for every request (document 000, "Run-only injection") and never
stored. While a node is active, they are the directive and the node's brief. Once the run is
completed, they are the directive with the post-run protocol, and nothing about its nodes.
"""

from __future__ import annotations

from operator import index
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, select

from eventstore.events.values import Mode
from projections.context import Injection, prompts
from projections.engine.generations import Generation, whole_number
from projections.engine.tables import shown
from projections.models.runs import NodeRow, RunRow, RunState
from projections.queries import readable

__all__ = ["injections", "mode_turn_and_agent", "read_run_state"]


def read_run_state(
    connection: Connection, generation: Generation, conversation_id: UUID
) -> RunState:
    """Return a conversation's state from a generation's tables, in the caller's transaction.

    Raises:
        RowDamaged: A row was altered and cannot be read.
    """

    def rows(name: str, *order: str) -> list[Any]:
        table = generation.tables[name]
        query = shown(table, connection.dialect.name)
        query = query.where(table.c.conversation_id == conversation_id)
        # Rows without a start come first; by default the databases sort NULL to different ends.
        by = (table.c[each].nulls_first() for each in order)
        found = connection.execute(query.order_by(*by))
        return [row._mapping for row in found]

    with readable(generation.projection.name):
        state = rows("conversation_state")
        return RunState.from_rows(
            conversation_id,
            state[0] if state else None,
            rows("runs", "started_version", "run_id"),
            rows("run_nodes", "run_id", "ordinal", "node_id"),
            rows("run_artifacts", "run_id", "node_id", "name"),
        )


def mode_turn_and_agent(
    connection: Connection, generation: Generation, conversation_id: UUID
) -> tuple[Mode | None, int, str | None]:
    """Return a conversation's mode, its last turn (0 before the first), and its last agent."""
    table = generation.tables["conversation_state"]
    query = select(table.c.mode, table.c.last_turn, table.c.agent_id)
    row = connection.execute(query.where(table.c.conversation_id == conversation_id)).first()
    mode, last_turn, agent_id = (None, None, None) if row is None else row
    return mode, index(last_turn or 0), agent_id


def injections(state: RunState, run_id: str | None = None) -> tuple[Injection, ...]:
    """Return what a Run-mode request says about a run, by default the active one.

    Empty if the run does not exist, has failed or was cancelled.
    """
    wanted = state.active_run_id if run_id is None else run_id
    run = next((each for each in state.runs if each.run_id == wanted), None)
    if run is None or run.status not in ("active", "completed"):
        return ()
    if run.status == "completed":
        return (_directive(run, run.post_run_protocol),)
    node = next(
        (
            each
            for each in state.nodes
            if (each.run_id, each.node_id) == (run.run_id, run.active_node)
        ),
        None,
    )
    return (_directive(run),) if node is None else (_directive(run), _brief(node))


def _directive(run: RunRow, protocol: str | None = None) -> Injection:
    text = prompts.run_directive(
        run.run_id, run.workflow_id, run.status or "", run.directive or "", protocol
    )
    return Injection("run directive", text, _versions(run.started_version, run.end_version))


def _brief(node: NodeRow) -> Injection:
    text = prompts.node_brief(node.node_id, node.title, node.brief, node.context)
    return Injection("node brief", text, _versions(node.start_version))


def _versions(*versions: int | None) -> tuple[int, ...]:
    known = (each for each in versions if each is not None)
    return tuple(whole_number(each, "an invalid version of a run") for each in known)
