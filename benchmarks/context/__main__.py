"""``python -m benchmarks.context``: what the messages[] view keeps, compared with others."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import track

from benchmarks.context.agents import AGENT_BUDGETS, agents
from benchmarks.context.candidates import Candidate, stateless
from benchmarks.context.contenders import Kept, candidates, readers
from benchmarks.context.measures import (
    CACHE_SHARE,
    HISTORY_SHARES,
    SHARES,
    cache,
    grounding,
    of_history,
)
from benchmarks.context.ours import strategies_alone, view_of
from benchmarks.context.peers import LANGCHAIN
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
    overview_sheet,
    planted_sheet,
    print_sheet,
    retrieval_sheet,
    varied_sheet,
)
from benchmarks.context.retrieval import RECALL_SHARES, chains, ours, recalled, talk_alone
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
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = stack.enter_context(EventStore.open(f"sqlite:///{folder}/contexts.db"))
        sheets = _measured(console, store, transcripts, quick=options.quick)
    for sheet in sheets:
        print_sheet(console, sheet)
    if options.write:
        sections = "\n".join(markdown(sheet) for sheet in sheets)
        _RESULTS.write_text(
            f"# Contexts on real transcripts\n\nWritten by `make bench-context`, on {about}.\n\n"
            f"{sections}",
            "utf-8",
        )


def _measured(
    console: Console, store: EventStore, transcripts: Sequence[Transcript], *, quick: bool
) -> list[Sheet]:
    """Measure everything; the first sheet has it all."""
    each_of = partial(track, console=console, transient=True)
    uses = [use for transcript in transcripts for use in tool_uses(transcript)]
    plain = view_of(store, "messages[] view, steps off", ContextSettings(steps=False))
    compared = [plain, *candidates(store)]
    grounded = [
        (each.name, [grounding(uses, each, one) for one in SHARES])
        for each in each_of([*compared, *strategies_alone()], "grounding")
    ]
    shared = [
        (each.name, cache(transcripts, each, CACHE_SHARE)) for each in each_of(compared, "cache")
    ]
    held = [
        (
            each.name,
            [
                (grounding(uses, each, one, of_history), cache(transcripts, each, one, of_history))
                for one in HISTORY_SHARES
            ],
        )
        for each in each_of([*compared, *_targets(store)], "one budget")
    ]
    everything = stateless("all", lambda messages, budget: messages)
    whole = cache(transcripts, everything, 1.0).cost
    read = readers(store)
    asked = read | {
        "messages[] view, strategy retrieval": ours(store, ContextSettings(strategy="retrieval"))
    }
    long = chains(TAU_BENCH, 8 if quick else 40)[: 1 if quick else None]
    turns = 200 if quick else 1_000
    tools = recalled(asked, long)
    talk = recalled(asked, [talk_alone(each) for each in long])
    kept = varied(read, turns)
    values = corrected(read)
    of = (dict(held), dict(tools), dict(talk), dict(kept), dict(values))
    found = {
        name: Kept(of[0][name], of[1][name], of[2][name], of[3][name], of[4][name]) for name in read
    }
    return [
        overview_sheet(found, whole),
        grounding_sheet(
            "Grounding: are the next tool call's values still there?", SHARES, grounded
        ),
        cache_sheet(shared),
        held_sheet(HISTORY_SHARES, held, whole),
        retrieval_sheet("Histories with tools", RECALL_SHARES, tools),
        retrieval_sheet("Talk alone", RECALL_SHARES, talk),
        planted_sheet(PLANTED_SHARES, planted(store, turns)),
        varied_sheet(VARIED_SHARES, kept),
        corrected_sheet(values),
        agents_sheet(AGENT_BUDGETS, agents(store)),
    ]


def _targets(store: EventStore) -> list[Candidate]:
    """Return the view with targets above and below the default."""
    return [
        view_of(store, f"messages[] view, steps ({target})", ContextSettings(target=target))
        for target in _TARGETS
    ]


if __name__ == "__main__":
    main()
