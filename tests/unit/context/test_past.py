"""The history is read from its end, and no further than asked."""

from __future__ import annotations

from collections.abc import Iterator

from eventstore.events import AssistantMessage, UserMessage
from projections.context import ContextRow
from projections.context.groups import Past
from projections.context.limits import within
from projections.context.plans import Budget, Group
from tests.unit.context.log import Log

ROWS: list[ContextRow] = Log(
    [UserMessage.text("task"), *(AssistantMessage.of(f"answer {n}") for n in range(9))]
).rows()


def group(place: int, label: str = "") -> Group:
    """Return the group of a version."""
    return Group((ROWS[place - 1],), ROWS[place - 1].tokens, label)


def newest(read: list[int]) -> Iterator[Group]:
    """Yield all groups, and take down which were read."""
    for row in reversed(ROWS):
        read.append(row.version)
        yield group(row.version)


def test_no_more_is_read_than_asked() -> None:
    """A place from the end costs what lies behind it."""
    read: list[int] = []
    past = Past(newest(read), ())
    third = past.at(2)
    assert third is not None
    assert (8, [10, 9, 8]) == (third.key[0], read)


def test_beyond_the_beginning_is_nothing() -> None:
    """Also when it is asked for again."""
    past = Past(newest([]), ())
    assert [None, None] == [past.at(10), past.at(10)]


def test_what_stands_in_every_plan_has_no_size() -> None:
    """It is paid for before; the latest user message is not."""
    past = Past(newest([]), (group(1, "first user message"), group(9, "latest user message")))
    assert 0 == past.size(group(1))
    assert group(9).tokens == past.size(group(9))


def test_a_request_in_the_past_knew_nothing_newer() -> None:
    """What stands is looked at only if it was there."""
    past = Past(newest([]), (group(1, "first user message"), group(9, "latest user message")))
    past.read_all()
    assert [1, 4, 5] == [each.key[0] for each in past.with_fixed(past.groups[5:7], 5)]
    assert [1, 9, 10] == [each.key[0] for each in past.with_fixed(past.groups[:1], 0)]


def test_without_limits_the_groups_are_passed_on() -> None:
    """Nothing is read, and nothing ended it."""
    read: list[int] = []
    window = within(newest(read), (), (), Budget(max_tokens=500))
    assert ([], []) == (read, window.ended)
    assert 10 == len(list(window.groups))


def test_a_limit_says_that_it_ended_the_history() -> None:
    """Once something older has not passed it."""
    window = within(newest([]), (), (group(1, "first user message"),), Budget(max_messages=3))
    assert [10, 9] == [each.key[0] for each in window.groups]
    assert ["max_messages"] == window.ended


def test_what_a_step_came_to_does_not_depend_on_what_was_said_since() -> None:
    """A latest user message from before the newest groups was once in it, until the next one."""
    past = Past(newest([]), (group(1, "first user message"), group(2, "latest user message")))
    past.read_all()
    assert [1, 7, 8] == [each.key[0] for each in past.with_fixed(past.groups[2:4], 2)]
    assert [1, 2, 9, 10] == [each.key[0] for each in past.with_fixed(past.groups[:2], 0)]
