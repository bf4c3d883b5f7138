"""``python -m benchmarks``: run all benchmarks, print the figures, and write ``results.md``."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import measure
from benchmarks.append import single_appends
from benchmarks.batches import batch_appends
from benchmarks.bench import FULL, MILLION, QUICK, Bench
from benchmarks.checkpoints import checkpoints
from benchmarks.context_reads import context_reads
from benchmarks.first_hour import first_hour
from benchmarks.fork import forks_by_length
from benchmarks.google_adk_sessions import google_adk_sessions
from benchmarks.group import concurrent_appends
from benchmarks.growth import appends_by_size
from benchmarks.imports import imports
from benchmarks.langgraph_threads import langgraph_threads
from benchmarks.large import costs_by_size
from benchmarks.machine import machine
from benchmarks.neighbours import locked_neighbours
from benchmarks.openai_sessions import openai_sessions
from benchmarks.pydantic_ai_histories import pydantic_ai_histories
from benchmarks.read import catch_up_reads
from benchmarks.rebuild import rebuilds
from benchmarks.recording import recordings
from benchmarks.redaction import redacted_appends
from benchmarks.render import markdown, print_work
from benchmarks.replay import run_state_replay
from benchmarks.results import Work
from benchmarks.scale import beyond_one_process
from benchmarks.screens import screens
from benchmarks.sealing import sealed_appends
from benchmarks.served import served
from benchmarks.sizes import message_sizes
from benchmarks.storage import stored_sizes
from benchmarks.turn import turns_by_length
from benchmarks.worker import worker_latency_and_load

__all__ = ["BENCHMARKS", "run"]

Benchmark = Callable[[Bench], Iterable[Work]]

BENCHMARKS: Mapping[str, Benchmark] = {
    "imports": imports,
    "first_hour": first_hour,
    "append": single_appends,
    "group": concurrent_appends,
    "batches": batch_appends,
    "sealing": sealed_appends,
    "redaction": redacted_appends,
    "checkpoints": checkpoints,
    "fork": forks_by_length,
    "read": catch_up_reads,
    # Before growth, which enlarges the same databases.
    "rebuild": rebuilds,
    "turn": turns_by_length,
    "context": context_reads,
    "growth": appends_by_size,
    "storage": stored_sizes,
    "worker": worker_latency_and_load,
    "scale": beyond_one_process,
    "large": costs_by_size,
    "recording": recordings,
    "neighbours": locked_neighbours,
    "replay": run_state_replay,
    "screens": screens,
    "server": served,
    "sizes": message_sizes,
    "langgraph": langgraph_threads,
    "openai-agents": openai_sessions,
    "google-adk": google_adk_sessions,
    "pydantic-ai": pydantic_ai_histories,
}
_SEPARATE = {"large"}
"""What takes an hour and tens of gigabytes, and is run when it is named."""

_RESULTS = Path(__file__).with_name("results.md")


def main() -> int:
    """Run the benchmarks; return 1 only if one of them could not be run, never for being slow."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a quick look")
    parser.add_argument("--cpu", action="store_true", help="processor time of this process only")
    parser.add_argument("--million", action="store_true", help="rebuild 1,000,000 events")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=list(BENCHMARKS),
        metavar="NAME",
        help=f"a benchmark; repeatable; one of: {', '.join(BENCHMARKS)}",
    )
    parser.add_argument("--output", type=Path, help="default for a whole run: results.md")
    options = parser.parse_args()
    if options.quick and options.million:
        parser.error("--million takes too long for --quick")
    if options.cpu:
        measure.clock = time.process_time
    scale = MILLION if options.million else QUICK if options.quick else FULL
    whole = not (options.only or options.quick or options.cpu)
    with Bench(scale) as bench:
        return run(
            bench,
            options.only or [each for each in BENCHMARKS if each not in _SEPARATE],
            command=_command(options),
            output=options.output or (_RESULTS if whole else None),
        )


def _command(options: argparse.Namespace) -> str:
    """Return the command line without ``--output``."""
    flags = [f"--{flag}" for flag in ("quick", "cpu", "million") if getattr(options, flag)]
    return " ".join(["python -m benchmarks", *flags, *(f"--only {name}" for name in options.only)])


def run(
    bench: Bench,
    names: Sequence[str],
    *,
    command: str,
    output: Path | None = None,
    console: Console | None = None,
) -> int:
    """Run the named benchmarks, print their tables, and write them to a file, if one is given.

    Returns:
        0, or 1 if one of them raised: the others still run, and nothing is written.
    """
    console, started = console or Console(), time.perf_counter()
    about = [f"`{command}`", *machine(bench.folder, bench.server_url), *bench.left_out]
    for sentence in about:
        console.print(sentence)
    done: list[Work] = []
    failed = []
    took: list[str] = []
    for name in names:
        begun = time.perf_counter()
        try:
            for each in BENCHMARKS[name](bench):
                print_work(console, each)
                done.append(each)
        except Exception:
            traceback.print_exc()
            failed.append(name)
        took.append(f"{name} {time.perf_counter() - begun:.0f} s")
    minutes = (time.perf_counter() - started) / 60
    about.append(f"It took {minutes:.1f} minutes: {', '.join(took)}.")
    console.print(about[-1])
    if failed:
        console.print(f"Could not be run: {', '.join(failed)}.")
    elif output is not None:
        output.write_text(markdown(about, done), "utf-8")
        console.print(f"Written to {output.name}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
