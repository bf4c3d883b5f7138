"""The crash matrix: an agent is killed everywhere, and nothing that matters is lost or done twice.

In its own process it is killed with ``kill -9`` after every append, between every effect of a tool
and its result, and at seeded random moments inside of its streams; then the conversation is opened
again, and completed.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from operator import itemgetter
from uuid import UUID

import pytest

from eventstore import RecordedEvent
from eventstore.events import AssistantMessage, LlmError, TextPart, ToolResult
from projections.models.runs import RUNS, RunState
from tests.checkers import check_openai_messages
from tests.crash.agent import IDEMPOTENT, carry_on
from tests.crash.places import Place
from tests.crash.world import Kill, World
from tests.exhaustive import partly
from tests.killable_processes import KILLED
from tests.unit.projections.history import apply, fold

LARGEST_BATCH = 512 + 11
"""Characters: a batch is written once it has 512, and a piece has eleven."""
SHARES = 7
"""The appends are dealt out to so many tests, which can run side by side; `make test` runs one."""
RANDOM_KILLS = 12


@pytest.mark.parametrize("share", partly(range(SHARES)))
def test_killed_after_every_append(place: Place, share: int) -> None:
    """At every boundary between events the log is whole, and the conversation goes on."""
    appends = len(place.whole.acknowledged_appends)
    assert appends > 30

    for number in range(1 + share, appends + 1, SHARES):
        check(place, Kill(after_append=number))


def test_killed_between_effect_and_result(place: Place) -> None:
    """What a tool did before the crash is neither forgotten nor done again unasked."""
    for number in range(1, len(place.whole.effects) + 1):
        _, outcome = check(place, Kill(after_effect=number))
        assert {"outcome_unknown"} == {result.status for result in outcome.sealed}


@pytest.mark.parametrize("share", partly(range(2)))
def test_killed_inside_of_streams(place: Place, share: int) -> None:
    """Wherever a stream is cut off, all of its text but the last batch is there."""
    for kill in kills_inside_of_streams(place.whole.chunks)[share::2]:
        check(place, kill)


def kills_inside_of_streams(chunks: int) -> list[Kill]:
    """Return the same moments in every run, some of them between two chunks."""
    choose = random.Random(5)  # noqa: S311 - seeded, and no secret
    kills = []
    for _ in range(RANDOM_KILLS):
        delay = choose.choice([None, choose.uniform(0, 0.005)])
        kills.append(Kill(after_chunk=choose.randrange(1, chunks - 5), delay_s=delay))
    return kills


@dataclass
class Outcome:
    """What was found after a crash."""

    sealed: list[ToolResult]


def check(place: Place, kill: Kill) -> tuple[UUID, Outcome]:
    """Kill an agent, hold the log against what the world has seen, and complete the conversation.

    A killed process may have begun nothing: then there is nothing to open.
    """
    conversation_id, world, code = place.live(kill)
    try:
        assert KILLED == code
        assert_nothing_lost(place, conversation_id, world)
        effects = world.effects
        carry_on(place.store, conversation_id, World(world.folder))
        sealed = assert_truth(place, conversation_id, world, effects)
        assert_complete(place, conversation_id)
    except BaseException as error:
        error.add_note(f"killed: {kill}; conversation {conversation_id}")
        raise
    return conversation_id, Outcome(sealed)


def assert_nothing_lost(place: Place, conversation_id: UUID, world: World) -> None:
    """All that was acknowledged is in the log, and what is read from it is valid as it stands."""
    events = list(place.store.read(conversation_id))
    found = {event.version: event.event_id for event in events}
    assert world.acknowledged_events.items() <= found.items()
    assert [] == check_openai_messages(place.views.context(conversation_id).messages)
    assert folded(conversation_id, events) == place.views.run_state(conversation_id)


def assert_truth(
    place: Place, conversation_id: UUID, world: World, before: list[tuple[str, str]]
) -> list[ToolResult]:
    """At most a batch of text is lost, no effect came about twice; return the sealed results."""
    events = list(place.store.read(conversation_id))
    kept, heard = answers(events), world.texts
    assert heard.keys() <= kept.keys()
    for call, text in heard.items():
        assert text.startswith(kept[call])
        assert len(text) - len(kept[call]) < LARGEST_BATCH
    times = Counter(world.effects)
    again = {tool for (tool, _), count in times.items() if count > 1}
    assert again <= IDEMPOTENT
    assert max(times.values(), default=0) <= 2
    assert before == world.effects[: len(before)]
    return [
        event.data
        for event in events
        if isinstance(event.data, ToolResult) and event.meta.actor == "recovery"
    ]


def assert_complete(place: Place, conversation_id: UUID) -> None:
    """Nothing is open, every answer is in the messages[] view, and the chain is unbroken."""
    events = list(place.store.read(conversation_id))
    ends = place.views.open_work(conversation_id)
    state = place.views.run_state(conversation_id)
    assert (0, None) == (ends.open_count, ends.session)
    assert ("turn_end", "session_end") == _last_of(events)
    assert {"completed"} >= {run.status for run in state.runs}
    assert folded(conversation_id, events) == state
    assert [] == check_openai_messages(place.views.context(conversation_id).messages)
    assert place.store.verify(conversation_id).ok


def _last_of(events: list[RecordedEvent]) -> tuple[str, str]:
    ended = [e.type for e in events if e.type in ("turn_start", "turn_end")]
    return ended[-1], events[-1].type


def answers(events: list[RecordedEvent]) -> dict[str, str]:
    """Return what the log has of each model call's text."""
    found: dict[str, str] = {}
    for event in events:
        data = event.data
        if event.type == "llm_request":
            found[data.llm_call_id] = ""  # type: ignore[union-attr]
        elif isinstance(data, LlmError):
            found[str(data.llm_call_id)] = data.partial_text
        elif isinstance(data, AssistantMessage):
            texts = [part.text for part in data.parts if isinstance(part, TextPart)]
            found[str(data.llm_call_id)] = "".join(texts)
    return found


def folded(conversation_id: UUID, events: list[RecordedEvent]) -> RunState:
    """Return the run state that a fold of these events gives, without any database."""
    tables = apply(fold(RUNS, events)[1], RUNS)

    def rows(name: str, *order: str) -> list[dict[str, object]]:
        made = [
            {"conversation_id": conversation_id, **row} for row in tables.get(name, {}).values()
        ]
        return sorted(made, key=itemgetter("conversation_id", *order))

    state = rows("conversation_state")
    return RunState.from_rows(
        conversation_id,
        state[0] if state else None,
        rows("runs", "started_version", "run_id"),
        rows("run_nodes", "run_id", "ordinal", "node_id"),
        rows("run_artifacts", "run_id", "node_id", "name"),
    )
