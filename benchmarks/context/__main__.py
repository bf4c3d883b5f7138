"""``python -m benchmarks.context``: what the messages[] view keeps, compared with others."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.progress import track

from benchmarks.context.agents import AGENT_BUDGETS, agents
from benchmarks.context.candidates import Candidate, stateless
from benchmarks.context.measures import (
    CACHE_SHARE,
    HISTORY_SHARES,
    SHARES,
    cache,
    grounding,
    of_history,
)
from benchmarks.context.ours import strategies_alone, view_of
from benchmarks.context.peers import LANGCHAIN, peers
from benchmarks.context.planted import PLANTED_SHARES, planted
from benchmarks.context.report import (
    Sheet,
    agents_sheet,
    cache_sheet,
    corrected_sheet,
    grounding_sheet,
    held_sheet,
    machine,
    markdown,
    planted_sheet,
    print_sheet,
    retrieval_sheet,
    varied_sheet,
)
from benchmarks.context.retrieval import RECALL_SHARES, recalled
from benchmarks.context.transcripts import TAU_BENCH, Transcript, read_tau_bench, tool_uses
from benchmarks.context.varied_facts import VARIED_SHARES, corrected, varied
from eventstore import EventStore
from projections.context.settings import ContextSettings

_RESULTS = Path(__file__).with_name("results.md")
_QUICK_CONVERSATIONS = 12
_TARGETS = (0.45, 0.55, 0.75, 0.85)


def main() -> None:
    """Run the measures and print their tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.context", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only a few conversations")
    parser.add_argument("--write", action="store_true", help=f"also write {_RESULTS.name}")
    options = parser.parse_args()
    if options.quick and options.write:
        parser.error("--write needs a whole run: omit --quick")
    console = Console()
    about = f"{machine()}, {LANGCHAIN}"
    console.print(about)
    if not TAU_BENCH.exists():
        parser.error(f"{TAU_BENCH.name} does not exist")
    transcripts = read_tau_bench(_QUICK_CONVERSATIONS if options.quick else None)
    sheets = [
        *_kept(console, transcripts),
        _recalled(console, options.quick),
        _planted(console, options.quick),
        *_varied(console, options.quick),
        _agents(console),
    ]
    if options.write:
        sections = "\n".join(markdown(sheet) for sheet in sheets)
        _RESULTS.write_text(
            f"# Contexts on real transcripts\n\nWritten by `make bench-context`, on {about}.\n\n"
            f"{sections}",
            "utf-8",
        )


def _kept(console: Console, transcripts: Sequence[Transcript]) -> list[Sheet]:
    """Measure grounding and cache."""
    uses = [use for transcript in transcripts for use in tool_uses(transcript)]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = stack.enter_context(EventStore.open(f"sqlite:///{folder}/ours.db"))
        plain = view_of(store, "messages[] view, steps off", ContextSettings(steps=False))
        steps = view_of(store, "messages[] view, default steps", ContextSettings())
        both: list[Candidate | None] = [plain, steps, None, *peers()]
        measured = [*both, None, *strategies_alone()]
        found = [
            None if each is None else (each.name, [grounding(uses, each, one) for one in SHARES])
            for each in track(measured, "grounding", console=console, transient=True)
        ]
        shared = [
            None if each is None else (each.name, cache(transcripts, each, CACHE_SHARE))
            for each in track(both, "cache", console=console, transient=True)
        ]
        held = [
            (
                each.name,
                [
                    (
                        grounding(uses, each, one, of_history),
                        cache(transcripts, each, one, of_history),
                    )
                    for one in HISTORY_SHARES
                ],
            )
            for each in track(
                [*_products(both), *_targets(store)], "one budget", console=console, transient=True
            )
        ]
        everything = stateless("all", lambda messages, budget: messages)
        whole = cache(transcripts, everything, 1.0).cost
    sheets = [
        grounding_sheet("Grounding: are the next tool call's values still there?", SHARES, found),
        cache_sheet(shared),
        held_sheet(HISTORY_SHARES, held, whole),
    ]
    for sheet in sheets:
        print_sheet(console, sheet)
    return sheets


def _targets(store: EventStore) -> list[Candidate]:
    """Return the view with targets above and below the default."""
    return [
        view_of(
            store,
            f"messages[] view, steps ({target})",
            ContextSettings(target=target),
        )
        for target in _TARGETS
    ]


def _products(candidates: Sequence[Candidate | None]) -> list[Candidate]:
    return [each for each in candidates if each is not None]


def _recalled(console: Console, quick: bool) -> Sheet:
    """Measure retrieval: questions about things said hundreds of messages ago."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = stack.enter_context(EventStore.open(f"sqlite:///{folder}/recalled.db"))
        found = recalled(store, *((8, 1) if quick else (40, None)))
    sheet = retrieval_sheet(RECALL_SHARES, found)
    print_sheet(console, sheet)
    return sheet


def _planted(console: Console, quick: bool) -> Sheet:
    """Measure how many facts that were said once survive a thousand turns."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = stack.enter_context(EventStore.open(f"sqlite:///{folder}/planted.db"))
        sheet = planted_sheet(PLANTED_SHARES, planted(store, 200 if quick else 1_000))
    print_sheet(console, sheet)
    return sheet


def _varied(console: Console, quick: bool) -> list[Sheet]:
    """Measure facts in varied words, and corrections."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = stack.enter_context(EventStore.open(f"sqlite:///{folder}/varied.db"))
        sheets = [
            varied_sheet(VARIED_SHARES, varied(store, 200 if quick else 1_000)),
            corrected_sheet(corrected(store)),
        ]
    for sheet in sheets:
        print_sheet(console, sheet)
    return sheets


def _agents(console: Console) -> Sheet:
    """Measure what agents see of their tools' results."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = stack.enter_context(EventStore.open(f"sqlite:///{folder}/agents.db"))
        sheet = agents_sheet(AGENT_BUDGETS, agents(store))
    print_sheet(console, sheet)
    return sheet


if __name__ == "__main__":
    main()
