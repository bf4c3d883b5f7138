"""Power cuts on SQLite: what a run wrote is recorded, and cut off where nothing was synced yet.

A library that is preloaded (`recording.c`) notes each write and each sync of the store's files.
From that record come images of the files as a power cut may leave them: all that was synced, and
of what was not any part, whole pages of 4 KB or torn ones. Each image is opened as a store, and
compared with the log as it was in the end. Run as a program it does so at length:
``python -m tests.crash.power DIRECTORY --events 200000 --cuts 100 --synchronous FULL``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from eventstore import EventStore
from projections.catalogue import PROJECTIONS
from projections.engine.setup import install_all
from projections.upkeep import compare
from tests.crash.power_writer import ACKS

SOURCE = Path(__file__).with_name("recording.c")
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
HEAD = struct.Struct("=IIQQ200s")
PAGE = 4096
SECTOR = 512


@dataclass(slots=True)
class Disk:
    """One file: what is certain to be on the disk, and what was written since."""

    synced: bytearray
    since: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Place and bytes of each write; no bytes for a file that was cut there."""
    begun: dict[int, int] = field(default_factory=dict)
    """How much was written before a process began the sync that it is in."""

    def wait(self, process: int) -> None:
        """End a sync: what was written before it began is certain."""
        covered = self.begun.pop(process)
        for place, written in self.since[:covered]:
            put(self.synced, place, written)
        del self.since[:covered]
        self.begun = {other: max(0, at - covered) for other, at in self.begun.items()}

    def image(self, choose: random.Random, luck: float) -> bytes:
        """Return what a power cut may leave: of what was not synced, pages with that luck."""
        left = bytearray(self.synced)
        for place, written in self.since:
            if written is None:
                if choose.random() < luck:
                    put(left, place, None)
                continue
            for start, end in pieces(place, place + len(written), PAGE):
                if choose.random() < luck:
                    if choose.random() < 1 / 8:  # Torn within the page.
                        end = choose.choice([at for _, at in pieces(start, end, SECTOR)])
                    put(left, start, written[start - place : end - place])
        return bytes(left)


def pieces(start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range that lie in one page each."""
    while start < end:
        stop = min(end, (start // size + 1) * size)
        yield start, stop
        start = stop


def put(content: bytearray, place: int, written: bytes | None) -> None:
    """Write bytes into what a file holds, or cut it."""
    if written is None:
        content[place:] = b""
    if len(content) < place + len(written or b""):
        content.extend(bytes(place + len(written or b"") - len(content)))
    content[place : place + len(written or b"")] = written or b""


def record(directory: Path, events: int, synchronous: str) -> Path:
    """Have writers use a new database there until so many events are acknowledged; return it."""
    library, file = directory / "recording.so", directory / "store.db"
    build = [str(COMPILER), "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(build, check=True)
    with EventStore.open(f"sqlite:///{file}") as store:
        install_all(store, PROJECTIONS)
    shutil.copy(file, directory / "before.db")
    writing = {"LD_PRELOAD": library, "RECORDED": file, "RECORD": directory / "record"}
    subprocess.run(
        [sys.executable, "-m", "tests.crash.power_writer", file, str(events), synchronous],
        check=True,
        env=os.environ | {name: str(value) for name, value in writing.items()},
    )
    return file


def replay(directory: Path) -> Iterator[tuple[dict[str, Disk], dict[UUID, int], bool]]:
    """Yield, after each record: the files, the versions acknowledged, and if that was all it said.

    All of them are the same objects each time, and change.
    """
    disks: defaultdict[str, Disk] = defaultdict(lambda: Disk(bytearray()))
    disks["store.db"] = Disk(bytearray((directory / "before.db").read_bytes()))
    acknowledged: dict[UUID, int] = {}
    with (directory / "record").open("rb") as found:
        while head := found.read(HEAD.size):
            kind, process, place, size, name = HEAD.unpack(head)
            written = found.read(size)
            path = Path(name.rstrip(b"\0").decode()).name
            disk, told = disks[path], path.endswith(ACKS)
            if told:
                for line in written.decode().splitlines():
                    stream, version = line.split()
                    acknowledged[UUID(stream)] = int(version)
            elif kind == ord("w"):
                disk.since.append((place, written))
            elif kind == ord("t"):
                disk.since.append((place, None))
            elif kind == ord("b"):
                disk.begun[process] = len(disk.since)
            elif kind == ord("e"):
                disk.wait(process)
            else:
                raise ValueError("a file was deleted, which this does not know to undo")
            yield disks, acknowledged, told


def images(
    directory: Path, cuts: int, choose: random.Random
) -> Iterator[tuple[Path, dict[UUID, int]]]:
    """Yield images of the store's files after power cuts, and what was acknowledged by then.

    Half of the cuts come right after an acknowledgement. The image is deleted afterwards.
    """
    places = [told for _, _, told in replay(directory)]
    after_acks = [number for number, told in enumerate(places) if told]
    chosen = {*choose.sample(after_acks, min(cuts // 2, len(after_acks)))}
    chosen |= {*choose.sample(range(len(places)), min(cuts - len(chosen), len(places)))}
    for number, (disks, acknowledged, _) in enumerate(replay(directory)):
        if number not in chosen:
            continue
        home = directory / f"image-{number}"
        home.mkdir()
        luck = choose.choice([0.0, 0.5, 0.9, 1.0])
        for name in ("store.db", "store.db-wal"):
            if name in disks:
                (home / name).write_bytes(disks[name].image(choose, luck))
        yield home / "store.db", acknowledged
        shutil.rmtree(home)


def feed(file: Path) -> list[tuple[int, bytes]]:
    """Return the events of a log, by place and chain."""
    with closing(sqlite3.connect(file)) as connection:
        query = "SELECT position, chain FROM events ORDER BY position"
        return connection.execute(query).fetchall()


def examine(
    file: Path, whole: list[tuple[int, bytes]], acknowledged: dict[UUID, int]
) -> Counter[str]:
    """Open an image as a store; return how much of what is wrong with it.

    ``missed`` are acknowledged events that are gone, ``altered`` the problems that `verify` finds,
    ``differing`` rows of views that are not what the log says, and ``out of order`` is not zero
    where anything but the end of the log is gone. ``lost`` counts what the power cut took.
    """
    found: Counter[str] = Counter()
    with EventStore.open(f"sqlite:///{file}") as store:
        with store.reading() as connection:
            told = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        found["corrupt"] += told != ["ok"]
        heads = {info.conversation_id: info.version for info in store.list(limit=1_000)}
        found["missed"] = sum(
            max(0, version - heads.get(stream, 0)) for stream, version in acknowledged.items()
        )
        found["altered"] += len(store.verify().problems)
        found["differing"] += len(compare(store).differences)
    there = feed(file)
    found["out of order"] += there != whole[: len(there)]
    found["lost"] += len(whole) - len(there)
    return found


def cut_off(
    directory: Path, events: int, cuts: int, synchronous: str, seed: int = 1
) -> Counter[str]:
    """Record a run, cut its power off in many places, and return the sum of what is wrong."""
    file = record(directory, events, synchronous)
    whole, found = feed(file), Counter[str]()
    found["events"] = len(whole)
    choose = random.Random(seed)  # noqa: S311 - where to cut, not secrets
    for image, acknowledged in images(directory, cuts, choose):
        found["images"] += 1
        found.update(examine(image, whole, acknowledged))
    return found


def main() -> None:
    """Cut a run off at length."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--synchronous", default="FULL")
    chosen = parser.parse_args()
    print(json.dumps(cut_off(**vars(chosen))))  # noqa: T201


if __name__ == "__main__":
    main()
