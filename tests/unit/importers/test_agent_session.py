"""The events of a session that are built line by line."""

from __future__ import annotations

from agent_eventstore.transcripts.agent_session_log import MOST_RANGES, AgentSessionLog
from eventstore.events import Summary, TextPart, UserMessage


def _ask(log: AgentSessionLog) -> int:
    return log.prompt(UserMessage(parts=(TextPart(text="hello"),)))


def _covered(log: AgentSessionLog) -> list[tuple[int, int]]:
    data = list(log.take())[-1].data
    assert isinstance(data, Summary)
    return [(each.first, each.last) for each in data.versions]


def test_a_summary_stands_for_what_is_active_and_not_kept() -> None:
    """What was left, what is kept and what comes after its place is not covered."""
    log = AgentSessionLog({})
    prompts = [_ask(log) for _ in range(6)]
    assert [1, 2, 3, 4, 5, 6] == prompts
    log.withdraw(4, None)  # leaves 5 and 6; 7 tells it
    assert [8, 9, 10] == [_ask(log) for _ in range(3)]
    log.summary("so far", "test", {3, 9})
    assert [(2, 2), (4, 4), (8, 8), (10, 10)] == _covered(log)
    log.summary("so far", "test", before=9)
    assert [(2, 4), (8, 8)] == _covered(log)


def test_a_summary_names_few_ranges() -> None:
    """Ten thousand summaries, with a branch left between each two, took a gigabyte."""
    log = AgentSessionLog({})
    for _ in range(MOST_RANGES + 50):
        _ask(log)
        log.withdraw(_ask(log) - 1, None)
    last = _ask(log)
    log.summary("so far", "test", range(2, last, 3))
    covered = _covered(log)
    assert len(covered) <= 2 * MOST_RANGES
    assert (2, last) == (covered[0][0], covered[-1][1])
