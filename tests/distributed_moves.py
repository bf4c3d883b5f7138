"""Appends, erasures and a feed on a distributed PostgreSQL while its shards move and split.

Run by ``make test-citus URL=...``: it needs a coordinator with Citus and two nodes or more.
Every acknowledged event is there once, in the order of its conversation, for who reads the
conversations and for who follows the feed; nothing that was erased is on any node.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import make_url

from eventstore import EventStore
from eventstore.errors import StoreUnavailable
from eventstore.ids import new_id
from tests.contract.facade import say
from tests.distributed import CitusDatabase

WRITERS, CONVERSATIONS, SECRET = 4, 12, "a secret that must go"


def main(server_url: str, seconds: float) -> None:
    """Run for some seconds, and print what was done; a difference is an error."""
    with closing(CitusDatabase(server_url, installed=False)) as database:
        url = database.url()
        until = time.monotonic() + seconds
        written: list[tuple[UUID, int]] = []
        erased: list[UUID] = []
        followed: list[tuple[UUID, int]] = []
        errors: Counter[str] = Counter()
        done = threading.Event()
        threads = [
            threading.Thread(target=_write, args=(url, until, written, errors))
            for _ in range(WRITERS)
        ]
        threads.append(threading.Thread(target=_erase, args=(url, until, erased, errors)))
        follower = threading.Thread(target=_follow, args=(url, done, followed, errors))
        for each in (*threads, follower):
            each.start()
        moves, splits = _move(url, until, errors)
        for each in threads:
            each.join()
        done.set()
        follower.join()
        stored = _stored(url)
        _say(
            f"{len(written):,} acknowledged events, {len(erased)} erasures, {moves} moves, "
            f"{splits} splits, errors: {dict(errors) or 'none'}"
        )
        assert written, "nothing was written"
        assert moves, "nothing was moved"
        assert erased, "nothing was erased"
        assert not [each for each, count in Counter(followed).items() if count > 1], "twice"
        lost = {*written} - {*followed}
        assert not lost, f"{len(lost)} acknowledged events are not in the feed"
        assert {*followed} == stored, "the feed has other events than the conversations"
        _in_order(followed)
        left = _left(url)
        assert not left, f"erased payloads are left: {left}"
        _say("each is there once, in the order of its conversation; nothing erased is left")


def _write(url: str, until: float, written: list[tuple[UUID, int]], errors: Counter[str]) -> None:
    choose = random.Random()  # noqa: S311 - a load
    with EventStore.open(url) as store:
        streams = [new_id() for _ in range(CONVERSATIONS)]
        while time.monotonic() < until:
            stream = choose.choice(streams)
            events = say(*map(str, range(choose.choice((1, 1, 2, 5)))))
            try:
                found = store.append(stream, events)
            except StoreUnavailable as error:
                errors[f"append: {_kind(error)}"] += 1
                continue
            first = found.version - len(events) + 1
            written += [(stream, version) for version in range(first, found.version + 1)]


def _erase(url: str, until: float, erased: list[UUID], errors: Counter[str]) -> None:
    with EventStore.open(url) as store:
        while time.monotonic() < until:
            stream = new_id()
            with suppress(StoreUnavailable):
                store.append(stream, say(SECRET))
                try:
                    store.erase(stream, reason="requested")
                except StoreUnavailable as error:
                    errors[f"erase: {_kind(error)}"] += 1
                    _until_erased(store, stream)
                erased.append(stream)
            time.sleep(0.05)


def _until_erased(store: EventStore, stream: UUID) -> None:
    for _ in range(50):
        with suppress(StoreUnavailable):
            store.erase(stream, reason="requested")
            return
        time.sleep(0.1)


def _follow(
    url: str, done: threading.Event, followed: list[tuple[UUID, int]], errors: Counter[str]
) -> None:
    cursor = None
    with EventStore.open(url) as store:
        while True:
            last = done.is_set()
            try:
                page = store.read_all(after=cursor, limit=200)
            except StoreUnavailable as error:
                errors[f"feed: {_kind(error)}"] += 1
                continue
            cursor = page.cursor
            followed += [(event.conversation_id, event.version) for event in page.events]
            if not page.events:
                if last:
                    return
                time.sleep(0.02)


def _move(url: str, until: float, errors: Counter[str]) -> tuple[int, int]:
    """Move shards between nodes all the time, and split some."""
    moves = splits = 0
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    while time.monotonic() < until:
        try:
            with psycopg.connect(address, autocommit=True) as run:
                is_split = splits < 3 and moves > 3 * splits
                _change(run, is_split=is_split)
                moves, splits = moves + (not is_split), splits + is_split
        except psycopg.Error as error:
            errors[f"move: {str(error).splitlines()[0][:80]}"] += 1
            time.sleep(0.2)
    return moves, splits


def _change(run: psycopg.Connection[Any], *, is_split: bool) -> None:
    choose = random.Random()  # noqa: S311 - a load
    shards = run.execute(
        "SELECT shardid, nodename, nodeport, shardminvalue::int, shardmaxvalue::int "
        "FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) "
        "JOIN pg_dist_node USING (groupid) WHERE logicalrelid = 'conversations'::regclass"
    ).fetchall()
    nodes = run.execute(
        "SELECT nodeid, nodename, nodeport FROM pg_dist_node "
        "WHERE noderole = 'primary' AND shouldhaveshards"
    ).fetchall()
    shard, host, port, low, high = choose.choice(shards)
    if is_split:
        run.execute(
            "SELECT citus_split_shard_by_split_points(%s, %s, %s, 'block_writes')",
            [shard, [str((low + high) // 2)], [nodes[0][0], nodes[-1][0]]],
        )
        return
    target = choose.choice([each for each in nodes if each[1:] != (host, port)])
    run.execute(
        "SELECT citus_move_shard_placement(%s, %s, %s, %s, %s, %s)",
        [shard, host, port, *target[1:], choose.choice(("force_logical", "block_writes"))],
    )


def _stored(url: str) -> set[tuple[UUID, int]]:
    with EventStore.open(url) as store:
        streams = []
        after = None
        while page := store.list(after=after, limit=100):
            streams += [each.conversation_id for each in page]
            after = page[-1].conversation_id
        verified = store.verify()
        assert verified.ok, verified
        return {(stream, event.version) for stream in streams for event in store.read(stream)}


def _in_order(followed: list[tuple[UUID, int]]) -> None:
    last: dict[UUID, int] = {}
    for stream, version in followed:
        assert version == last.get(stream, 0) + 1, f"{stream} is out of order at {version}"
        last[stream] = version


def _left(url: str) -> list[str]:
    """Return the tables, on any node, that hold an erased text."""
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    found = (
        "SELECT shardid, success, result FROM run_command_on_shards('events', "
        f"$$SELECT count(*) FROM %s WHERE data::text LIKE '%%{SECRET}%%'$$)"
    )
    with psycopg.connect(address) as run:
        rows = run.execute(found.encode()).fetchall()
    return [f"{shard}: {result}" for shard, success, result in rows if not success or result != "0"]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _kind(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(': ')[2][:60]}"


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
