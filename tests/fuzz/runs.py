"""Batches of mutants, each on a world of its own, and what counts as a failure.

An error of the project's own tree is an answer, and so is a ValueError or TypeError that its code
raises on purpose. Everything else is a failure: any other exception, a mutant that takes too long,
and a store that is not whole after a batch.
"""

from __future__ import annotations

import contextlib
import faulthandler
import linecache
import os
import signal
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from eventstore.errors import EventStoreError
from tests.fuzz.mutation import Mutator
from tests.fuzz.surfaces import SURFACES
from tests.fuzz.world import World, open_world
from tests.postgres import fresh_database

__all__ = ["Batch", "Failure", "Hang", "Templates", "run_batch"]

_PACKAGES = tuple(
    str(Path(__file__).parents[2] / name)
    for name in ("eventstore", "projections", "agent_eventstore")
)
_STUCK_FACTOR = 4
_WHOLE_S = 120.0
_STDERR = 2
"""What is told of a process that had to be ended goes here, whatever ``sys.stderr`` is."""


class Hang(BaseException):
    """A mutant took longer than its bound."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A mutant that broke something; ``--seed`` and ``--first`` give it again."""

    seed: int
    number: int
    database: str
    what: str
    trace: str


@dataclass(frozen=True, slots=True)
class Templates:
    """What worlds are copies of: a SQLite file, and a database of a PostgreSQL server."""

    file: Path
    server_url: str | None = None
    database: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some mutants of a run, one after the other on one world."""

    seed: int
    numbers: range
    bound_s: float
    templates: Templates
    postgresql: bool = False

    @property
    def database(self) -> str:
        """The name of the database that it runs on."""
        return "postgresql" if self.postgresql else "sqlite"


def run_batch(batch: Batch) -> list[Failure]:
    """Run a batch and return its failures; what it says is thrown away."""
    failures: list[Failure] = []
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name, _silence():
        os.chdir(name)
        try:
            with _world(batch, Path(name)) as world:
                failures += (each for n in batch.numbers if (each := _run(batch, world, n)))
                if (wrong := _after(batch, world)) is not None:
                    failures.append(wrong)
        finally:
            os.chdir(here)
    return failures


@contextlib.contextmanager
def _world(batch: Batch, directory: Path) -> Iterator[World]:
    if batch.postgresql and batch.templates.server_url is not None:
        server, template = batch.templates.server_url, batch.templates.database
        with (
            fresh_database(server, template=template) as url,
            open_world(url, directory, None) as world,
        ):
            yield world
    else:
        url = f"sqlite:///{directory / 'store.db'}"
        with open_world(url, directory, batch.templates.file) as world:
            yield world


def _run(batch: Batch, world: World, number: int) -> Failure | None:
    mutator = Mutator(batch.seed, number)
    surface = mutator.one_of(SURFACES)
    try:
        with _bounded(batch.bound_s):
            surface(world, mutator)
    except (Exception, Hang) as error:
        if _is_answer(error):
            return None
        return _failure(batch, number, f"{surface.__name__}: {type(error).__name__}")
    return None


def _after(batch: Batch, world: World) -> Failure | None:
    """Whether the store is whole, and reads across conversations work, after all of them."""
    last = batch.numbers[-1]
    try:
        with _bounded(_WHOLE_S):
            found = world.store.verify()
            world.views.conversations()
            world.views.usage()
    except (Exception, Hang) as error:
        return _failure(batch, last, f"after the batch {batch.numbers}: {type(error).__name__}")
    # An event may be appended that names a blob which nobody has handed in; that is found, rightly.
    wrong = [each for each in found.problems if each.kind != "blob_missing"]
    if not wrong:
        return None
    return Failure(batch.seed, last, batch.database, f"after {batch.numbers}", str(wrong[:3]))


def _failure(batch: Batch, number: int, what: str) -> Failure:
    return Failure(batch.seed, number, batch.database, what, traceback.format_exc()[-6_000:])


def _is_answer(error: BaseException) -> bool:
    if isinstance(error, EventStoreError):
        return True
    if not isinstance(error, ValueError | TypeError | LookupError):
        return False
    last = traceback.extract_tb(error.__traceback__)[-1]
    raised = linecache.getline(last.filename, last.lineno or 0).strip()
    return last.filename.startswith(_PACKAGES) and raised.startswith("raise ")


@contextlib.contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """Raise `Hang` after this time; what does not even listen to that ends the process."""

    def stop(_: int, __: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds * _STUCK_FACTOR, exit=True, file=_STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        yield
