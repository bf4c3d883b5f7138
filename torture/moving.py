"""Moving and splitting the shards of a distributed database, while it is in use."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import psycopg
from sqlalchemy import make_url

from torture.plan import Notes, Plan

__all__ = ["move"]

_MOVES_A_SPLIT = 4
_MOST_SHARDS = 24
"""Each of them is a table of its own for every table of the store."""
_SHARDS = """
    SELECT shardid, nodename, nodeport, shardminvalue::int, shardmaxvalue::int
    FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
    WHERE logicalrelid = 'conversations'::regclass ORDER BY shardid
    """
_NODES = """
    SELECT nodeid, nodename, nodeport FROM pg_dist_node
    WHERE noderole = 'primary' AND shouldhaveshards ORDER BY nodeid
    """


def move(plan: Plan, index: int) -> None:
    """Move a shard to another server, or split one, again and again."""
    url = make_url(plan.url).set(drivername="postgresql")
    url = url.difference_update_query(["application_name"])
    name = f"mover-{index}"
    with Notes(plan.notes(name)) as notes:
        choose = plan.chance(name, time.monotonic())
        while not plan.stopped():
            try:
                address = url.render_as_string(hide_password=False)
                with psycopg.connect(address, autocommit=True) as connection:
                    while not plan.stopped():
                        notes.count(_change(connection, choose))
            except psycopg.Error:
                # A server was restarting, or another move still being cleaned up.
                notes.count("moves_refused")
                time.sleep(plan.every_s / 2)


def _change(connection: psycopg.Connection[Any], choose: Random) -> str:
    """Change the place of a shard, and return the kind of the change."""
    shards = connection.execute(_SHARDS).fetchall()
    nodes = connection.execute(_NODES).fetchall()
    shard, host, port, low, high = choose.choice(shards)
    if len(shards) < _MOST_SHARDS and choose.randrange(_MOVES_A_SPLIT + 1) == 0:
        # Not a logical one: with Citus 13.2.2 it does not end while the table is written to.
        connection.execute(
            "SELECT citus_split_shard_by_split_points(%s, %s, %s, 'block_writes')",
            [shard, [str((low + high) // 2)], [choose.choice(nodes)[0], choose.choice(nodes)[0]]],
        )
        return "splits"
    target = choose.choice([each for each in nodes if each[1:] != (host, port)])
    connection.execute(
        "SELECT citus_move_shard_placement(%s, %s, %s, %s, %s, %s)",
        [shard, host, port, *target[1:], choose.choice(("force_logical", "block_writes"))],
    )
    return "moves"
