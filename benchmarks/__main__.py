"""``python -m benchmarks [--quick]``: run every benchmark and print the figures as tables."""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.append import single_appends
from benchmarks.measure import Figure
from benchmarks.recording import STREAM_S, openings, stream_recordings
from benchmarks.replay import run_state_replay
from benchmarks.turn import turns_by_length
from tests.postgres import PostgresServer


def main() -> None:
    """Run the benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a proof")
    rounds = 200 if parser.parse_args().quick else 2_000
    console = Console()
    console.print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, {rounds} rounds; medians of candidates taken in turns"
    )
    for level in ("FULL", "NORMAL"):
        with tempfile.TemporaryDirectory() as folder:
            figures = single_appends(Path(folder), level, rounds)
        _print(console, f"One durable event, SQLite, synchronous={level}", figures)
    lengths = (100, 5_000)
    with tempfile.TemporaryDirectory() as folder:
        figures = turns_by_length(f"sqlite:///{folder}/turns.db", lengths, rounds // 4)
    _print(console, "A turn: four appends and the messages[] view, SQLite", figures)
    with PostgresServer() as server:
        figures = turns_by_length(server.url(), lengths, rounds // 4)
    _print(console, "A turn: four appends and the messages[] view, PostgreSQL", figures)
    with tempfile.TemporaryDirectory() as folder:
        [recording] = stream_recordings(f"sqlite:///{folder}/stream.db", max(3, rounds // 200))
    stream = Figure(f"the stream itself, {STREAM_S:.0f} s", (STREAM_S,))
    _print(console, "Recording a stream, SQLite", [stream, recording])
    with tempfile.TemporaryDirectory() as folder:
        figures = openings(f"sqlite:///{folder}/open.db", 10_000, max(3, rounds // 200))
    _print(console, "Opening after a crash, SQLite", figures)
    _print(console, "Replay of 1,000 events of run state", run_state_replay(rounds // 10))


def _print(console: Console, title: str, figures: Sequence[Figure]) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("work")
    for heading in ("median", "p99", "ratio"):
        table.add_column(heading, justify="right")
    floor = figures[0].median
    for figure in figures:
        table.add_row(
            figure.name,
            f"{figure.median * 1e6:,.0f} us",
            f"{figure.p99 * 1e6:,.0f} us",
            f"{figure.median / floor:.2f}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
