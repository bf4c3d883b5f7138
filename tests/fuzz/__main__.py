"""``make fuzz``: mutants over importers, API and command line, with progress and seeds.

``python -m tests.fuzz --seed S --first N --mutants 1`` runs one mutant again. What it needs of
those before it in its batch, which begins at a multiple of 50, is there with ``--first B
--mutants 50``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from sqlalchemy import make_url

from tests.fuzz.runs import Batch, Failure, Templates, run_batch
from tests.fuzz.world import fill
from tests.postgres import URL_VARIABLE, PostgresServer, fresh_database, place_of_many_files

_BATCH = 50
_POSTGRESQL_EVERY = 8
_TELL_S = 10.0


def main() -> int:
    """Run the mutants and return the exit status: 1 if anything failed."""
    given = _arguments()
    file = Path(given.failures)
    file.unlink(missing_ok=True)
    with ExitStack() as stack:
        templates = _templates(stack, given.postgresql_only)
        numbers = range(given.first, given.first + given.mutants)
        batches = _batches(given, numbers, templates)
        found = _run(batches, given.jobs, len(numbers), file)
    said = f"seed {given.seed}: {len(numbers):,} mutants, {found} failures"
    _say(f"{said}; see {file}" if found else said)
    return 1 if found else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--mutants", type=int, default=100_000, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other mutants")
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--bound-s", type=float, default=30.0, help="most seconds for a mutant")
    parser.add_argument("--failures", default="fuzz-failures.jsonl", help="where failures go")
    parser.add_argument("--postgresql-only", action="store_true", help="every batch on PostgreSQL")
    return parser.parse_args()


def _templates(stack: ExitStack, needed: bool) -> Templates:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    fill(f"sqlite:///{folder / 'store.db'}", folder)
    server_url = os.environ.get(URL_VARIABLE)
    if server_url is None:
        server = stack.enter_context(PostgresServer(directory=place_of_many_files()))
        server_url = server.url()
    url = stack.enter_context(fresh_database(server_url))
    fill(url, folder)
    return Templates(folder / "store.db", server_url, str(make_url(url).database))


def _batches(given: argparse.Namespace, numbers: range, templates: Templates) -> Iterator[Batch]:
    for start in range(numbers.start, numbers.stop, _BATCH):
        which = range(start, min(start + _BATCH, numbers.stop))
        server = given.postgresql_only or start // _BATCH % _POSTGRESQL_EVERY == 0
        yield Batch(given.seed, which, given.bound_s, templates, server)


def _run(batches: Iterator[Batch], jobs: int, total: int, file: Path) -> int:
    done, found, started, told = 0, 0, time.monotonic(), 0.0
    waiting: dict[Future[list[Failure]], Batch] = {}
    # The interpreter starts anew: nothing of the server's process is shared.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        while True:
            while len(waiting) < 2 * jobs and (batch := next(batches, None)) is not None:
                waiting[pool.submit(run_batch, batch)] = batch
            if not waiting:
                return found
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                batch = waiting.pop(future)
                done += len(batch.numbers)
                found += _note(_result(future, batch), file)
            if time.monotonic() - told > _TELL_S:
                told = time.monotonic()
                rate = done / (told - started)
                _say(
                    f"{done:,} of {total:,} mutants, {found} failures, {rate:,.0f}/s, "
                    f"{(total - done) / rate / 60:,.1f} min left"
                )
            if any(isinstance(f.exception(), BrokenProcessPool) for f in waiting if f.done()):
                pool.shutdown(wait=False, cancel_futures=True)
                pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
                waiting = {pool.submit(run_batch, each): each for each in waiting.values()}
    finally:
        pool.shutdown(cancel_futures=True)


def _result(future: Future[list[Failure]], batch: Batch) -> list[Failure]:
    try:
        return future.result()
    except BrokenProcessPool:
        what = f"the process ended within {batch.numbers}"
        return [Failure(batch.seed, batch.numbers[0], batch.database, what, "a hang, or a crash")]
    except Exception as error:
        what = f"{batch.numbers}: {error!r}"
        return [
            Failure(batch.seed, batch.numbers[0], batch.database, what, "outside of any mutant")
        ]


def _note(failures: list[Failure], file: Path) -> int:
    for each in failures:
        with file.open("a", encoding="utf-8", errors="backslashreplace") as out:
            out.write(json.dumps(asdict(each)) + "\n")
        _say(f"FAILED --seed {each.seed} --first {each.number}: {each.what}\n{each.trace}")
    return len(failures)


def _say(text: str) -> None:
    sys.stderr.write(text.encode(errors="backslashreplace").decode() + "\n")


if __name__ == "__main__":
    sys.exit(main())
