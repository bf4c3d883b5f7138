"""Describes the machine of a run, without paths, host names or owners."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from benchmarks.floors import conninfo
from benchmarks.peers import versions

__all__ = ["fsync_s", "machine"]


def machine(folder: Path, server_url: str | None) -> list[str]:
    """Describe the machine in sentences: cores, processor, memory, versions, disk, load.

    Args:
        folder: Where the databases are created; its disk is measured.
        server_url: The PostgreSQL server, if there is one.
    """
    server = "no PostgreSQL"
    if server_url is not None:
        with psycopg.connect(conninfo(server_url)) as connection:
            number = connection.info.server_version
        server = f"PostgreSQL {number // 10_000}.{number % 10_000} with its default settings"
    return [
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores ({_processor()}), {_memory()}.",
        f"{_python()}, SQLite {sqlite3.sqlite_version}, {server}; {', '.join(versions())}.",
        f"Writing 4 KB and waiting for the disk (fsync): {fsync_s(folder) * 1e6:,.0f} us.",
        f"Load average at the start: {_load()}.",
    ]


def fsync_s(folder: Path, rounds: int = 100) -> float:
    """Return the median time of a write of 4 KB and its fsync, in seconds."""
    path, times = folder / "fsync", []
    with path.open("wb", buffering=0) as file:
        for _ in range(rounds):
            started = time.perf_counter()
            file.write(bytes(4_096))
            os.fsync(file.fileno())
            times.append(time.perf_counter() - started)
    path.unlink()
    return statistics.median(times)


def _python() -> str:
    return f"Python {platform.python_version()}, psycopg {psycopg.__version__}"


def _processor() -> str:
    return _field("/proc/cpuinfo", "model name") or platform.machine()


def _memory() -> str:
    total = _field("/proc/meminfo", "MemTotal")
    return f"{int(total.split()[0]) / 2**20:.0f} GB of memory" if total else "memory unknown"


def _field(path: str, name: str) -> str | None:
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError:  # Not Linux.
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), None)


def _load() -> str:
    try:
        return ", ".join(f"{each:.2f}" for each in os.getloadavg())
    except OSError:
        return "unknown"
