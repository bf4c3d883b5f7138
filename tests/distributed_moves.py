"""The torture kit on a distributed PostgreSQL while its shards move and split, and erasures.

Run by ``make test-citus URL=...``: it needs a coordinator with Citus and two nodes or more.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import closing
from uuid import UUID

import psycopg
from sqlalchemy import make_url

from eventstore import EventStore
from eventstore.errors import StoreUnavailable
from eventstore.ids import new_id
from tests.contract.facade import say
from tests.distributed import CitusDatabase
from torture.run import Torture, run

SECRET = "a secret that must go"
_PATIENCE_S = 60


def main(server_url: str, seconds: float) -> None:
    """Run for some seconds, and print what was done; a difference is an error."""
    with closing(CitusDatabase(server_url, installed=True)) as database:
        url = database.url()
        done, erased = threading.Event(), list[UUID]()
        eraser = threading.Thread(target=_erase, args=(url, done, erased))
        eraser.start()
        try:
            with EventStore.open(url) as store:
                chosen = Torture(events=None, seconds=seconds, scenario="moves")
                report = run(store, chosen, on_phase=_say)
        finally:
            done.set()
            eraser.join()
        _say(f"{report.acknowledged:,} acknowledged events, {len(erased)} erasures")
        _say(f"{dict(report.counts)}")
        assert report.ok, report.findings
        assert report.counts.get("moves"), "nothing was moved"
        assert erased, "nothing was erased"
        left = _left(url)
        assert not left, f"erased payloads are left: {left}"
        _say("each event is there once, in the order of its conversation; nothing erased is left")


def _erase(url: str, done: threading.Event, erased: list[UUID]) -> None:
    """Append and erase, each until it was done."""
    with EventStore.open(url) as store:
        while not done.is_set():
            stream = new_id()
            try:
                store.append(stream, say(SECRET))
            except StoreUnavailable:
                continue
            until = time.monotonic() + _PATIENCE_S
            while time.monotonic() < until:
                try:
                    store.erase(stream, reason="requested")
                except StoreUnavailable:
                    time.sleep(0.1)
                else:
                    erased.append(stream)
                    break
            time.sleep(0.05)


def _left(url: str) -> list[str]:
    """Return what is left of the erased texts, on any node."""
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    found = (
        "SELECT shardid, success, result FROM run_command_on_shards('events', "
        f"$$SELECT count(*) FROM %s WHERE data::text LIKE '%%{SECRET}%%'$$)"
    )
    with psycopg.connect(address) as connection:
        rows = connection.execute(found.encode()).fetchall()
    assert rows
    return [f"{shard}: {result}" for shard, well, result in rows if not well or result != "0"]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60)
